"""Long texts are cut before they are tokenized: every token is that of the whole text."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from cloze.errors import InputError
from cloze.text import long_texts, long_words
from cloze.text import tokenizer as module
from cloze.text.tokenizer_training import train_tokenizer
from generated_examples import examples
from helpers import raises

WORDS = [
    *("the", "cat", "sat", "on", "mat", "a", "I", "don't", "it's", "x1", "2024", "1234567", "U.S."),
    *("é", "cafe\u0301", "İ", "ß", "中文字", "ไทย", "👩‍🚀", "\ufb01x", "a\u0301", "Ⅷ", "한국어"),
    *("[MASK]", "[UNK]", "<mask>", "<|endoftext|>", "ab<mask>", "##a", "…", ".", "--", "`", "``"),
    *("x" * 400, "Ab1" * 200, "é" * 90, "_", "a_b", "\x07", "\u200b", "\ufeff", "\u3000"),
]
SPACES = [*[" "] * 12, "  ", "\n", "\t", "\xa0", "", " \n ", "\r\n"]
TEXT = " ".join(word for word in WORDS if len(word) < 20)


@st.composite
def texts(draw):
    words = draw(st.lists(st.sampled_from(WORDS), min_size=0, max_size=25))
    words *= draw(st.sampled_from([1, 1, 3, 20]))
    spaces = draw(st.lists(st.sampled_from(SPACES), min_size=1, max_size=9))
    return "".join(word + spaces[n % len(spaces)] for n, word in enumerate(words))


def unigram(scheme="always"):
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    specials = ["<s>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=150, unk_token="<unk>", special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator([TEXT] * 5, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    backend.decoder = decoders.Metaspace()
    return backend


def roberta():
    backend = train_tokenizer([TEXT] * 5, kind="bpe", vocab_size=330).backend
    backend.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    ids = [(token, backend.token_to_id(token)) for token in ("</s>", "<s>")]
    backend.post_processor = processors.RobertaProcessing(*ids, trim_offsets=True)
    return backend


def bpe_in_one_piece():
    """Without words: a text may be cut nowhere."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>"], show_progress=False)
    backend.train_from_iterator([TEXT] * 5, trainer)
    return backend


def swallowing():
    """An added token that contains a space, and one that removes the space after it."""
    backend = train_tokenizer([TEXT] * 5, kind="wordpiece", vocab_size=200).backend
    backend.add_tokens([AddedToken("the cat"), AddedToken("mat", rstrip=True)])
    return backend


def train(**options):
    return train_tokenizer([TEXT] * 5, **options).backend


TOKENIZERS = {
    "wordpiece": lambda: train(kind="wordpiece", vocab_size=200),
    "wordpiece, cased": lambda: train(kind="wordpiece", vocab_size=200, lowercase=False),
    "wordpiece of bytes": lambda: train(kind="wordpiece", vocab_size=600, byte_fallback=True),
    "byte-level bpe": lambda: train(kind="bpe", vocab_size=330),
    "roberta": roberta,
    "words": lambda: train(kind="word", vocab_size=40, min_count=1),
    "characters": lambda: train(kind="char", vocab_size=60),
    "unigram": unigram,
    "unigram, no prefix": lambda: unigram("never"),
    "bpe in one piece": bpe_in_one_piece,
    "swallowing tokens": swallowing,
}
BUILT = {}


def tokenizer(name):
    if name not in BUILT:
        BUILT[name] = module.Tokenizer(TOKENIZERS[name](), special_tokens={})
    return BUILT[name]


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    """Limits that short texts reach, too."""
    monkeypatch.setattr(long_texts, "LONG", 60)
    monkeypatch.setattr(long_texts, "PIECE", 25)
    monkeypatch.setattr(long_texts, "_KEPT", 110)
    monkeypatch.setattr(long_texts, "_LONG_WORD", re.compile("[A-Za-z0-9]{300,}"))


def encode_whole(name, *given, **options):
    """Tokenize, then truncate: nothing is cut before."""
    limit, long_texts.LONG = long_texts.LONG, 1 << 60
    try:
        return tokenizer(name).encode(*given, **options)
    except InputError as error:
        return error.problem
    finally:
        long_texts.LONG = limit


def encode(name, *given, **options):
    try:
        return tokenizer(name).encode(*given, **options)
    except InputError as error:
        return error.problem


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("truncation", ["head", "tail", "head+tail", None])
@examples(3)
@given(text=texts(), max_length=st.integers(3, 12))
@example(text="the cat sat on a mat " * 40, max_length=7)
@example(text="x" * 5000, max_length=5)
@example(text="the " + "x" * 5000 + " cat sat " * 90, max_length=5)
@example(text="中文字" * 300, max_length=5)
def test_truncating_first_changes_nothing(name, truncation, text, max_length):
    options = {"max_length": max_length, "truncation": truncation}
    assert encode(name, text, **options) == encode_whole(name, text, **options)


@pytest.mark.parametrize("name", ["wordpiece", "roberta", "unigram", "words"])
@pytest.mark.parametrize("truncation", ["head", "tail", "head+tail", None])
@examples(2)
@given(text=texts(), pair=texts(), max_length=st.integers(5, 16))
@example(text="the cat sat on a mat " * 40, pair="a mat sat on the cat " * 41, max_length=9)
@example(text="the cat sat on a mat " * 41, pair="a mat sat on the cat " * 40, max_length=9)
def test_pairs(name, truncation, text, pair, max_length):
    options = {"max_length": max_length, "truncation": truncation}
    assert encode(name, text, pair, **options) == encode_whole(name, text, pair, **options)


@pytest.mark.parametrize("name", TOKENIZERS)
@examples(3)
@given(text=texts(), limit=st.integers(1, 20))
@example(text="x" * 5000, limit=9)
def test_a_limit_tells_short_from_long(name, text, limit):
    found, whole = tokenizer(name), encode_whole(name, text)
    (ids,), (limited,) = (
        found.encode_ids([text], limit=limit),
        found.encode_batch([text], limit=limit),
    )
    (typed,) = found.encode_ids_and_types([text], [None], limit=limit)
    if len(whole) <= limit:
        assert ids == typed[0] == whole.ids
        assert limited == whole
    else:
        assert min(len(ids), len(typed[0]), len(limited)) > limit


def test_most_of_a_long_text_is_never_tokenized():
    """What may be cut is cut, or this file would test nothing."""
    text = "the cat sat on a mat " * 2000
    for name in TOKENIZERS:
        rules = tokenizer(name)._long_texts
        cut = len(rules.take_head(text, 8).text) < 2000 and len(rules.shorten(text, 8).text) < 2000
        assert cut == (name not in ("bpe in one piece", "swallowing tokens")), name
    (ids,) = tokenizer("wordpiece").encode_ids([text], limit=8)
    assert 8 < len(ids) < 400
    word = tokenizer("wordpiece")._long_texts.take_head("x" * 100_000, 8)
    assert len(word.text) < 1000


def test_an_error_has_the_number_of_all_tokens():
    with raises(InputError, "12,002 tokens"):
        tokenizer("words").encode("the cat sat on a mat " * 2000, max_length=9)


def test_the_tokens_of_very_long_parts_are_estimated(monkeypatch):
    monkeypatch.setattr(long_texts, "COUNTED", 10_000)
    text = "the cat sat on a mat " * 2000
    found = tokenizer("words").encode(text, max_length=9, truncation="tail")
    whole = encode_whole("words", text, max_length=9, truncation="tail")
    assert (found.ids, found.offsets) == (whole.ids, whole.offsets)
    assert sum(found.num_truncated) == pytest.approx(sum(whole.num_truncated), rel=0.1)
    with raises(InputError, "about"):
        tokenizer("words").encode(text, max_length=9)


def window_outcome(name, *given, **options):
    try:
        windows = tokenizer(name).encode_windows(*given, **options)
    except InputError as error:
        return error.problem
    return [replace(window, truncated_chars=0) for window in windows]


@pytest.mark.parametrize("name", TOKENIZERS)
@examples(2)
@given(text=texts(), max_length=st.integers(3, 12), overlap=st.integers(0, 9))
@example(text="the cat sat on a mat " * 40, max_length=7, overlap=2)
@example(text="the " + "x" * 900 + " cat sat " * 9 + "y" * 900, max_length=5, overlap=1)
@example(text=TEXT * 2, max_length=9, overlap=6)
def test_streamed_windows_are_those_of_the_whole_text(name, text, max_length, overlap):
    options = {"max_length": max_length, "overlap": overlap}
    for given_texts in ((text,), ("the cat", text), (text, "the cat")):
        found = window_outcome(name, *given_texts, **options)
        limit, long_texts.LONG = long_texts.LONG, 1 << 60
        try:
            whole = window_outcome(name, *given_texts, **options)
        finally:
            long_texts.LONG = limit
        assert found == whole


LETTERS = ["the", "cat", "sat", "mat", "a", "aa", "xyz", "theca", "tsat", "x" * 90, "Ab" * 20]


@pytest.mark.parametrize("name", ["byte-level bpe", "roberta", "unigram", "bpe in one piece"])
@examples(8)
@given(
    words=st.lists(st.sampled_from(LETTERS), min_size=1, max_size=12),
    start=st.sampled_from(["", "the cat ", "é. "]),
    max_length=st.integers(4, 30),
)
@example(words=["a"], start="", max_length=9)
@example(words=["the"], start="", max_length=9)
def test_the_head_of_a_long_word_is_that_of_the_whole_word(name, words, start, max_length):
    letters = "".join(words)
    text = start + letters * (4000 // len(letters))
    counted, long_texts.COUNTED = long_texts.COUNTED, 500
    try:
        rules = tokenizer(name)._long_texts
        assert len(rules.take_head(text, max_length).text) < 2000
        found = encode(name, text, max_length=max_length, truncation="head")
        ids = tokenizer(name).encode_ids([text], limit=max_length)[0]
    finally:
        long_texts.COUNTED = counted
    whole = encode_whole(name, text, max_length=max_length, truncation="head")
    assert (found.ids, found.offsets, found.words) == (whole.ids, whole.offsets, whole.words)
    every = tokenizer(name).encode(text)
    assert len(ids) > max_length
    tokens = range(max_length - 1)  # without the special token at the end
    assert [ids[n] for n in tokens] == [every.ids[n] for n in tokens]


@pytest.mark.parametrize("name", ["byte-level bpe", "unigram", "bpe in one piece"])
def test_a_word_that_is_too_long_is_an_error(name, monkeypatch):
    monkeypatch.setattr(long_words, "MAX_PART", 3000)
    monkeypatch.setattr(long_texts, "MAX_PART", 3000)
    text, known = "the cat " + "sat" * 2000, tokenizer(name)
    for truncation in ("tail", "head+tail"):
        with raises(InputError, "characters cannot be split", "3,000", fix="truncation head"):
            known.encode(text, max_length=20, truncation=truncation)
    with raises(InputError, "characters cannot be split", "3,000", fix="split the text"):
        known.encode_windows(text, max_length=20, overlap=3)
