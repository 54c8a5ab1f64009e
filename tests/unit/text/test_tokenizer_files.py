import json
import os
from copy import deepcopy
from pathlib import Path

import pytest

from cloze.errors import FolderError
from cloze.text import checks
from cloze.text.backends import BYTE_SYMBOLS
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from helpers import PIECES, SPECIAL, files_of, raises, tiny_tokenizer

WORDS = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "[M]": 2}, "unk_token": "[UNK]"},
}


def write(path: Path, **parts) -> Path:
    path.write_text(json.dumps({**deepcopy(WORDS), **parts}), encoding="utf-8")
    return path


def template(*single: dict, ids: dict | None = None) -> dict:
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*single, a],
        "pair": [a, b],
        "special_tokens": ids or {},
    }


MARK = {"SpecialToken": {"id": "[M]", "type_id": 0}}
MARK_ID = {"[M]": {"id": "[M]", "ids": [2], "tokens": ["[M]"]}}


def replace(pattern: str, content: str) -> dict:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


# Round trips.


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "wordpiece"},
        {"kind": "wordpiece", "lowercase": False},
        {"kind": "wordpiece", "byte_fallback": True, "vocab_size": 600},
        {"kind": "bpe"},
        {"kind": "bpe", "lowercase": True},
        {"kind": "word"},
        {"kind": "char"},
        {"kind": "char", "byte_fallback": True, "lowercase": True},
    ],
)
def test_save_and_load(options: dict, tmp_path: Path):
    tokenizer = train_tokenizer(
        ["The Cat sat, élan 中文."] * 3, **{"vocab_size": 300, **options}
    ).with_max_length(99)
    tokenizer.save(tmp_path / "deep" / "folder")
    loaded = Tokenizer.load(tmp_path / "deep" / "folder")
    text = "The élan of Cats 中 ☃"
    assert loaded.encode(text, "sat") == tokenizer.encode(text, "sat")
    for name in (
        "kind",
        "vocab_size",
        "max_length",
        "lowercase",
        "special_tokens",
        "special_ids",
        "mask_id",
    ):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    loaded.save(tmp_path / "again")
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / "deep" / "folder" / file.name).read_bytes()


def test_bert_also_writes_vocab_txt(tmp_path: Path):
    tiny_tokenizer().save(tmp_path / "bert")
    assert files_of(tmp_path / "bert") == {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert (tmp_path / "bert" / "vocab.txt").read_text(encoding="utf-8").split() == PIECES
    train_tokenizer(["ab"] * 3, vocab_size=600, byte_fallback=True).save(tmp_path / "bytes")
    assert files_of(tmp_path / "bytes") == {"tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (tiny_tokenizer, "BertTokenizer"),
        (lambda: train_tokenizer(["ab"] * 3, kind="bpe", vocab_size=260), "GPT2Tokenizer"),
        (lambda: train_tokenizer(["ab"] * 3, kind="bpe", vocab_size=260, lowercase=True), None),
        (lambda: train_tokenizer(["ab"] * 3, vocab_size=600, byte_fallback=True), None),
        (lambda: train_tokenizer(["ab"] * 3, kind="word"), None),
        (lambda: train_tokenizer(["ab"] * 3, kind="char"), None),
    ],
)
def test_tokenizer_class_for_transformers(make, name: str | None, tmp_path: Path):
    make().with_max_length(64).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == (name or "PreTrainedTokenizerFast")
    assert config["model_max_length"] == 64


def test_an_added_token_uses_the_generic_class(tmp_path: Path):
    tokenizer = tiny_tokenizer()
    tokenizer.backend.add_tokens(["<extra>"])
    tokenizer.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not (tmp_path / "vocab.txt").exists()


def test_no_vocab_txt_is_written_if_ids_are_missing(tmp_path: Path):
    tiny_tokenizer().save(tmp_path / "dense")
    found = json.loads((tmp_path / "dense" / "tokenizer.json").read_text(encoding="utf-8"))
    found["model"]["vocab"]["later"] = 99
    (tmp_path / "tokenizer.json").write_text(json.dumps(found))
    tokenizer = Tokenizer.load(tmp_path)
    tokenizer.save(tmp_path / "again")
    assert (tokenizer.vocab_size, tokenizer.token_to_id("later")) == (100, 99)
    assert files_of(tmp_path / "again") == {"tokenizer.json", "tokenizer_config.json"}


# What others wrote.


def test_truncation_and_padding_are_switched_off(tmp_path: Path):
    cut = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    pad = {
        "strategy": {"Fixed": 10**12},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[UNK]",
    }
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", truncation=cut, padding=pad))
    assert tokenizer.encode("a a a a").ids == [1, 1, 1, 1]


def test_a_published_folder_is_read(minilm: Path):
    tokenizer = Tokenizer.load(minilm)
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.max_length) == (
        "wordpiece",
        30_522,
        512,
    )
    assert len(tokenizer.encode("word " * 300)) == 302
    bare = Tokenizer.load(minilm / "vocab.txt")
    assert bare.encode("Naïve unaffable 中文!") == tokenizer.encode("Naïve unaffable 中文!")
    assert bare.lowercase


@pytest.mark.parametrize(
    ("value", "limit"),
    [(512, 512), (512.0, 512), (1e30, None), (True, None), ("512", None), (0, None), (None, None)],
)
def test_model_max_length_is_read(value: object, limit: int | None, tmp_path: Path):
    write(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value}))
    assert Tokenizer.load(tmp_path).max_length == limit


@pytest.mark.parametrize(
    ("config", "others"),
    [
        ({"mask_token": "[M]"}, {}),
        ({"mask_token": {"content": "[M]", "lstrip": True}}, {}),
        ({"mask_token": None}, {"mask_token": "[M]"}),
        ({}, {"mask_token": {"content": "[M]"}}),
    ],
)
def test_special_tokens_are_read_from_the_settings(config: dict, others: dict, tmp_path: Path):
    write(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(others))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.mask_id == 2
    assert 2 in tokenizer.special_ids
    assert tokenizer.encode("a [M]").ids == [1, 2]


def test_special_tokens_have_default_names(tmp_path: Path):
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    unknown = {**added, "id": 0, "content": "[UNK]", "special": True}
    write(tmp_path / "tokenizer.json", added_tokens=[unknown])
    assert Tokenizer.load(tmp_path).special_tokens == {"unk": "[UNK]"}


def test_a_special_token_that_is_not_in_the_vocabulary_is_ignored(tmp_path: Path):
    write(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.pad_id, tokenizer.vocab_size) == (None, 3)


def test_case_is_detected_from_a_bare_vocabulary(tmp_path: Path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL, "<S>", "a", "##b"]), encoding="utf-8")
    assert Tokenizer.load(tmp_path).lowercase
    assert not Tokenizer.load(vocab, lowercase=False).lowercase
    vocab.write_text("\n".join([*SPECIAL, "a", "##B"]), encoding="utf-8")
    assert not Tokenizer.load(tmp_path).lowercase


def test_settings_next_to_a_vocabulary_are_used(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "e", "é", "中文"]), encoding="utf-8")
    settings = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 9}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("É 中文").tokens[1:-1] == ["é", "中文"]
    assert tokenizer.max_length == 9


def test_tokens_end_at_newlines_only(tmp_path: Path):
    text = "\r\n".join([*SPECIAL, "\u2028", "a"]) + "\r\n\n"
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert Tokenizer.load(tmp_path).encode("a").ids == [2, 6, 3]


@pytest.mark.parametrize(
    ("encoder", "merges"), [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]
)
def test_gpt2_is_read_from_its_two_files(encoder: str, merges: str, tmp_path: Path):
    tokens = [*BYTE_SYMBOLS, "Ġa", "<|endoftext|>"]
    (tmp_path / encoder).write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (tmp_path / merges).write_text("#version: 0.2\nĠ a\n\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("b a<|endoftext|>").tokens == ["b", "Ġa", "<|endoftext|>"]
    assert (tokenizer.kind, tokenizer.eos_id, tokenizer.unk_id) == ("bpe", 257, None)
    assert tokenizer.decode(tokenizer.encode("b é 中").ids) == "b é 中"


def test_openai_gpt_is_read_from_its_two_files(tmp_path: Path):
    tokens = ["<unk>", *"catse!", *(f"{char}</w>" for char in "catse!"), "ca", "cat</w>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    found = tokenizer.encode("Cat! Sé z")
    assert found.tokens == ["cat</w>", "!</w>", "s", "e</w>", "<unk>"]
    assert found.offsets[-1] == (8, 9)
    assert (tokenizer.kind, tokenizer.unk_token, tokenizer.lowercase) == ("bpe", "<unk>", True)
    assert tokenizer.special_tokens == {"unk": "<unk>"}
    assert tokenizer.decode(found.ids) == "cat ! se"
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").encode("Cat! Sé z") == found


# What is wrong with a folder.


def test_a_missing_tokenizer_is_reported(tmp_path: Path):
    with raises(FolderError, "nowhere"):
        Tokenizer.load(tmp_path / "nowhere")
    with raises(FolderError, "vocab.txt"):
        Tokenizer.from_vocab(tmp_path / "vocab.txt")
    with raises(FolderError, "tokenizer", fix="tokenizer.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"<|endoftext|>": 0}')
    with raises(FolderError, "merges.txt"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "JSON"),
        (b'{"a": "\xff"}', ("UTF-8", "7")),
        (b"{}", "tokenizer"),
        (b'{"model": {"type": "Evil", "vocab": {}}}', "tokenizer"),
        (b'{"model": {"vocab": {"\\ud800": 1}}}', "tokenizer"),
    ],
)
def test_an_invalid_tokenizer_file_is_reported(content: bytes, problem: str, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with raises(FolderError, problem):
        Tokenizer.load(tmp_path)


def test_a_file_that_is_too_large_is_rejected_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        folder = tmp_path / name.replace(".", "-")
        tiny_tokenizer().save(folder)
        with (folder / name).open("ab") as file:
            file.truncate(checks.MAX_BYTES + 1)  # a hole: it takes no room on the disk
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **_: pytest.fail(f"{path} was read"))
    for name, reader in (
        ("tokenizer.json", checks.read_json_object),
        ("vocab.txt", checks.read_lines),
    ):
        with raises(FolderError, name, "67,108,865"):
            reader(tmp_path / name.replace(".", "-") / name)
    monkeypatch.setattr(Path, "read_text", read)
    with raises(FolderError, "tokenizer_config.json", "67,108,865"):
        Tokenizer.load(tmp_path / "tokenizer_config-json")


HOSTILE = {
    "a template without its token": ({"post_processor": template(MARK)}, ("encode",)),
    "a template with an id of nobody": (
        {"post_processor": template(MARK, ids={"[M]": {**MARK_ID["[M]"], "ids": [4_000_000_000]}})},
        ("ids", "vocabulary"),
    ),
    "a template of thousands": (
        {"post_processor": template(*[MARK] * 3000, ids=MARK_ID)},
        ("3,000", "special tokens"),
    ),
    "a template that repeats the text": (
        {
            "post_processor": {
                **template(),
                "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AAB"],
            }
        },
        ("text", "template"),
    ),
    "an id beyond reason": (
        {"model": {**WORDS["model"], "vocab": {"[UNK]": 0, "a": 4_000_000_000}}},
        "has ids up to 4,000,000,000\n  fix: ids must be below 10,000,000",
    ),
    "added tokens without end": (
        {"added_tokens": [{"id": n, "content": str(n)} for n in range(20_001)]},
        ("20,001", "added tokens"),
    ),
    "no vocabulary": ({"model": {**WORDS["model"], "vocab": {}}}, "has ids up to -1"),
    "no unknown word": (
        {"model": {**WORDS["model"], "vocab": {"a": 0}}},
        "[UNK]",
    ),
    "a unigram beside its vocabulary": (
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7}},
        "tokenizer",
    ),
    "a merge of nothing": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}},
        "tokenizer",
    ),
    "a broken pattern": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}},
        "tokenizer",
    ),
    "broken tables": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAECAwQ="}},
        "encode",
    ),
    "words of no length": (
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        ("encode", "chunk size must be non-zero"),
    ),
    "a decoder that strips too much": (
        {"decoder": {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9}},
        "encode",
    ),
    "a text that grows without end": (
        {"normalizer": {"type": "Sequence", "normalizers": [replace("a", "aa")] * 60}},
        "1,152,921,504,606,846,976",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malicious_tokenizer_is_rejected(name: str, tmp_path: Path, capfd):
    parts, problem = HOSTILE[name]
    with raises(FolderError, problem):
        Tokenizer.load(write(tmp_path / "tokenizer.json", **parts))
    assert capfd.readouterr().err == ""  # the library prints nothing when it panics
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\nb", ("[UNK]", "BERT")),
        ("[UNK]\n[SEP]", "[CLS]"),
        ("[UNK]\n[CLS]\n[SEP]\nab\nab", "ab"),
        ("", "[UNK]"),
    ],
)
def test_an_invalid_vocabulary_is_rejected(text: str, problem: str, tmp_path: Path):
    (tmp_path / "vocab.txt").write_text(text)
    with raises(FolderError, problem):
        Tokenizer.load(tmp_path)


def test_a_vocabulary_in_another_encoding_is_rejected(tmp_path: Path):
    (tmp_path / "vocab.txt").write_bytes("[UNK]\né".encode("latin-1"))
    with raises(FolderError, "vocab.txt", "UTF-8", "6"):
        Tokenizer.load(tmp_path)


def test_invalid_settings_are_rejected(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with raises(FolderError, "vocabulary"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("vocab", "merges", "problem"),
    [
        ({"a": 0}, "", "GPT-2"),
        ({"a": "x"}, "", "id"),
        ({"a": -1}, "", "id"),
        ({"a": 0, "b": 1}, "a b c", "a b c"),
        ({"a": 0, "b": 1}, "a ", "a"),
        ({"a": 0, "b": 1}, "a c", "`c`"),
        ({"<unk>": 0}, "", "</w>"),
        ({"a</w>": 0}, "", "<unk>"),
    ],
)
def test_invalid_files_of_gpt2_are_rejected(vocab: dict, merges: str, problem: str, tmp_path: Path):
    if len(vocab) > 1:
        vocab = {**vocab, "<|endoftext|>": 9}
    (tmp_path / "encoder.json").write_text(json.dumps(vocab))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\n" + merges)
    with raises(FolderError, problem):
        Tokenizer.from_gpt2(tmp_path / "encoder.json", tmp_path / "vocab.bpe")


@pytest.mark.parametrize(
    ("vocab", "merges", "problem"),
    [({"b": -1}, "", "id"), ({"b": 0}, "b c", "`c`"), ({"b": 0}, "b", "b"), ({"b": 10**9}, "", "")],
)
def test_invalid_files_of_openai_gpt_are_rejected(
    vocab: dict, merges: str, problem: str, tmp_path: Path
):
    (tmp_path / "vocab.json").write_text(json.dumps({"<unk>": 1, "a</w>": 2} | vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges)
    with raises(FolderError, problem):
        Tokenizer.load(tmp_path)
