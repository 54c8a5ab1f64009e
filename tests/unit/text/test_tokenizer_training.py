import hashlib
import os
import subprocess
import sys

import pytest

from cloze.errors import ConfigError, InputError
from cloze.text import tokenizer_training
from cloze.text.backends import BYTE_SYMBOLS, BYTES, CONTINUATION_PREFIX
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import (
    build_whitespace_tokenizer,
    train_tokenizer,
    train_whitespace_tokenizer,
)
from helpers import SPECIAL, raises

TEXTS = ["The cat sat on the mat.", "The cats sat, and the mats lay.", "Élan: 中文字中文 ☃☃"] * 3


def list_tokens(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(number) for number in range(tokenizer.vocab_size)]


def test_special_tokens_come_first_then_the_alphabet_then_merges():
    found = list_tokens(train_tokenizer(["ab ab abc"] * 3, vocab_size=20))
    assert found == [*SPECIAL, "a", "b", "c", "##b", "##c", "ab", "abc"]


def test_frequent_words_are_single_tokens():
    tokenizer = train_tokenizer(TEXTS, vocab_size=200)
    assert tokenizer.encode("The mats").tokens == ["[CLS]", "the", "mats", "[SEP]"]
    assert tokenizer.kind == "wordpiece"
    assert tokenizer.lowercase


def test_ideographs_are_separate_tokens():
    tokenizer = train_tokenizer(TEXTS, vocab_size=200)
    assert tokenizer.encode("中文").tokens[1:-1] == ["中", "文"]
    assert tokenizer.token_to_id("##文") is None
    runs = train_tokenizer(TEXTS, vocab_size=200, chinese=False)
    assert runs.encode("中文字").tokens[1:-1] == ["中文", "##字"]


def test_case_and_accents_can_be_kept():
    cased = train_tokenizer(TEXTS, vocab_size=200, lowercase=False)
    assert cased.encode("The Élan").tokens[1:-1] == ["The", "Élan"]
    accents = train_tokenizer(TEXTS, vocab_size=200, strip_accents=False)
    assert accents.encode("The Élan").tokens[1:-1] == ["the", "élan"]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word", "char"])
def test_vocab_size_is_reached_and_not_exceeded(kind: str):
    texts = [" ".join(f"{a}{b}{a}" for a in "abcdefgh" for b in "stuvwxyz")] * 2
    size = {"bpe": 300, "char": 15}.get(kind, 50)
    assert train_tokenizer(texts, kind=kind, vocab_size=size).vocab_size == size


def test_tokens_occur_at_least_min_count_times():
    tokenizer = train_tokenizer(["often often rare x"], min_count=2)
    assert tokenizer.token_to_id("often") is not None
    assert tokenizer.token_to_id("x") is None
    assert train_tokenizer(["often often rare x"], min_count=1).token_to_id("rare") is not None


def test_rare_characters_are_left_out(monkeypatch: pytest.MonkeyPatch):
    texts = ["a b" * 20_000, "ж ж"]
    assert train_tokenizer(texts, vocab_size=50).token_to_id("ж") is None
    monkeypatch.setattr(tokenizer_training, "_UNCOVERED", 10**9)
    assert train_tokenizer(texts, vocab_size=50).token_to_id("ж") is not None


def test_a_large_alphabet_is_reduced_to_its_most_frequent_characters():
    found = list_tokens(train_tokenizer(["a a a b b b c c d"] * 2, vocab_size=7))
    assert found == [*SPECIAL, "a", "b"]


def test_bpe_encodes_everything_in_bytes():
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocab_size=300)
    assert list_tokens(tokenizer)[:257] == ["<|endoftext|>", *sorted(BYTE_SYMBOLS)]
    assert tokenizer.encode("The cat").tokens == ["The", "Ġcat"]
    text = " The  naïve 中\n\n☃ "
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.num_special_tokens()) == (0, None, 0)
    assert not tokenizer.lowercase


def test_bpe_without_case_lowers_the_text():
    tokenizer = train_tokenizer(TEXTS, kind="bpe", vocab_size=300, lowercase=True)
    assert tokenizer.decode(tokenizer.encode("The Élan").ids) == "the elan"


def test_words_are_ranked_by_count_and_spelling():
    tokenizer = train_tokenizer(["b b a a c c c d"], kind="word", vocab_size=8)
    assert list_tokens(tokenizer) == [*SPECIAL, "c", "a", "b"]
    assert tokenizer.encode("c x a").tokens == ["[CLS]", "c", "[UNK]", "a", "[SEP]"]
    assert tokenizer.kind == "word"


def test_character_tokenizers_keep_white_space():
    tokenizer = train_tokenizer(["ab c\n中文, "] * 3, kind="char", vocab_size=50)
    encoding = tokenizer.encode("ab  中文,x")
    assert encoding.tokens[1:-1] == ["a", "b", " ", " ", "中", "文", ",", "[UNK]"]
    assert encoding.words[1:-1] == [0, 0, 1, 1, 2, 3, 4, 5]
    assert tokenizer.decode(encoding.ids[:-2]) == "ab  中文,"
    assert tokenizer.encode("xy").tokens[1:-1] == ["[UNK]", "[UNK]"]
    assert tokenizer.kind == "char"
    run = train_tokenizer(["ab c\n中文, "] * 3, kind="char", vocab_size=50, chinese=False).encode(
        "中文a"
    )
    assert run.words[1:-1] == [0, 0, 0]


def test_with_byte_fallback_rare_characters_are_bytes():
    tokenizer = train_tokenizer(TEXTS, vocab_size=700, byte_fallback=True)
    found = list_tokens(tokenizer)
    assert found[5:261] == sorted(BYTE_SYMBOLS)
    assert found[261:517] == [CONTINUATION_PREFIX + symbol for symbol in sorted(BYTE_SYMBOLS)]
    encoding = tokenizer.encode("The 中 𠀀 cažts")
    assert "[UNK]" not in encoding.tokens
    assert encoding.words[1:7] == [0, 1, 2, 2, 2, 2]
    assert tokenizer.decode(encoding.ids) == "the 中 𠀀 cazts"
    assert encoding.offsets[2] == (4, 5)  # a character that is frequent enough is one piece
    assert encoding.offsets[3:7] == [(6, 7)] * 4


def test_with_byte_fallback_vocab_size_is_reached():
    texts = [" ".join(f"{a}{b}{a}é" for a in "abcdefgh" for b in "stuvwxyz")] * 2
    assert train_tokenizer(texts, vocab_size=560, byte_fallback=True).vocab_size == 560


def test_with_byte_fallback_a_long_word_is_split():
    tokenizer = train_tokenizer(TEXTS, vocab_size=600, byte_fallback=True)
    encoding = tokenizer.encode("ж" * 250)
    assert "[UNK]" not in encoding.tokens
    assert encoding.word_spans() == [(0, 100), (100, 200), (200, 250)]
    assert tokenizer.decode(encoding.ids) == " ".join(["ж" * 100, "ж" * 100, "ж" * 50])


def test_byte_fallback_of_character_tokenizers():
    tokenizer = train_tokenizer(["abc"] * 3, kind="char", vocab_size=300, byte_fallback=True)
    assert list_tokens(tokenizer)[5:261] == list(BYTES)
    assert tokenizer.encode("aé").tokens[1:-1] == ["a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("a é\n中").ids) == "a é\n中"


def test_a_stream_is_read_once():
    stream = iter(TEXTS)
    assert train_tokenizer(stream, vocab_size=100).vocab_size > len(SPECIAL)
    assert list(stream) == []


def test_a_full_table_keeps_frequent_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenizer_training, "MAX_WORDS", 100)
    texts = (f"the cat w{n} v{n}x" for n in range(2000))
    tokenizer = train_tokenizer(texts, vocab_size=100)
    assert tokenizer.encode("the cat").tokens[1:-1] == ["the", "cat"]


def test_progress_is_reported():
    stages = []
    texts = [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}" for n in range(30_000)]
    train_tokenizer(
        texts,
        vocab_size=700,
        progress=lambda stage, done, total: stages.append((stage, done, total)),
    )
    assert ("texts counted", 20_000, None) in stages
    assert stages[-1][0] == "tokens learned"


SCRIPT = """
import hashlib, sys
from cloze.text import tokenizer_training
from cloze.text.tokenizer_training import (
    build_whitespace_tokenizer,
    train_tokenizer,
    train_whitespace_tokenizer,
)
texts = {texts!r}
for kind in ("wordpiece", "bpe", "word", "char"):
    for fallback in (False, True):
        if kind != "word" or not fallback:
            tokenizer = train_tokenizer(texts, kind=kind, vocab_size=900, byte_fallback=fallback)
            print(hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest())
assert "torch" not in sys.modules, "text needs no torch"
"""


def test_the_same_text_gives_the_same_file_in_every_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(texts=TEXTS)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 6  # byte-level BPE falls back with or without being asked
    first = train_tokenizer(TEXTS, vocab_size=900).backend.to_str()
    assert hashlib.sha256(first.encode()).hexdigest() == runs[0][0]


def test_the_order_of_the_texts_does_not_matter():
    for kind in ("wordpiece", "bpe", "word", "char"):
        forth, back = (
            train_tokenizer(texts, kind=kind, vocab_size=300) for texts in (TEXTS, TEXTS[::-1])
        )
        assert forth.backend.to_str() == back.backend.to_str()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "wordpeice"}, ("wordpeice", "wordpiece")),
        ({"vocab_size": 5}, ("size", "5", "6")),
        ({"vocab_size": 500, "byte_fallback": True}, ("size", "500", "518")),
        ({"vocab_size": 256, "kind": "bpe"}, ("size", "256", "257")),
        ({"vocab_size": 9, "kind": "char", "byte_fallback": True}, "262"),
        ({"kind": "word", "byte_fallback": True}, ("byte_fallback", "wordpiece")),
        ({"min_count": 0}, ("min_count", "0")),
        ({"kind": "bpe", "chinese": False}, ("bpe", "chinese")),
    ],
)
def test_invalid_options_are_rejected(options: dict, problem: str):
    with raises(ConfigError, problem):
        train_tokenizer(TEXTS, **options)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word", "char"])
def test_empty_texts_are_rejected(kind: str):
    with raises(InputError, "empty"):
        train_tokenizer(["", ""], kind=kind)


# --- words between white space


def test_whitespace_words():
    tokenizer = build_whitespace_tokenizer(["don't", "U.S.", "N"])
    assert tokenizer.encode_ids(["don't  U.S.\tN <unk> x"]) == [[3, 4, 5, 0, 0]]
    assert tokenizer.decode([3, 5], skip_special_tokens=False) == "don't N"


def test_whitespace_words_are_sorted_by_count_then_by_spelling():
    tokenizer = train_whitespace_tokenizer(["b a <unk> b", "c a <s>"], min_count=1)
    assert [tokenizer.id_to_token(id_) for id_ in range(tokenizer.vocab_size)] == [
        *("<unk>", "<s>", "</s>", "a", "b", "c")
    ]
    assert train_whitespace_tokenizer(["b a b", "c a"], min_count=2).vocab_size == 5
    assert train_whitespace_tokenizer(["b a b", "c"], vocab_size=4).vocab_size == 4


def test_a_whitespace_tokenizer_is_saved_and_loaded(tmp_path):
    tokenizer = build_whitespace_tokenizer(["a", "b"])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.encode_ids(["a z b </s>"]) == tokenizer.encode_ids(["a z b </s>"])
    assert again.unk_id == 0


def test_invalid_options_of_whitespace_tokenizers_are_rejected():
    with raises(InputError, "empty"):
        train_whitespace_tokenizer(["  "])
    with raises(ConfigError, "size", "3"):
        train_whitespace_tokenizer(["a"], vocab_size=3)
    with raises(ConfigError, "min_count", "0"):
        train_whitespace_tokenizer(["a"], min_count=0)
