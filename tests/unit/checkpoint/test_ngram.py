"""Folders of n-gram models: round trips, damaged folders, ARPA files."""

import json
import resource

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.ngram import load_arpa, save_arpa
from cloze.decode.language import language_model
from cloze.errors import ClozeError, FolderError, InputError
from cloze.models.configs.ngram import SYMBOLS, UNK
from cloze.models.language import Vocabulary
from cloze.text.tokenizer_training import train_tokenizer
from grams import TEXT, made, text_model
from helpers import files_of, raises, tiny_tokenizer


@pytest.fixture
def model():
    return text_model(3)


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "ngram")


def same(one, other):
    one, other = language_model(one), language_model(other)
    assert other.vocabulary == one.vocabulary
    for a, b in zip(one.module.levels, other.module.levels, strict=True):
        np.testing.assert_array_equal(a.keys, b.keys)
        np.testing.assert_array_equal(a.log_p, b.log_p)
    text = "the cat sat on a zebra never seen"
    assert one.encode_texts([text]) == other.encode_texts([text])
    np.testing.assert_array_equal(
        *(next(m.log_probs(m.encode_texts([text]))) for m in (one, other))
    )


def test_saved_and_loaded(model, folder):
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files_of(folder)
    loaded = cloze.load(folder)
    assert isinstance(loaded, Model)
    assert loaded.config == model.config
    same(model, loaded)


def test_the_tables_are_a_safetensors_file(model, folder):
    tables = load_file(folder / "model.safetensors")
    assert sorted(tables) == [
        "backoff.1",
        "backoff.2",
        "keys.2",
        "keys.3",
        "log_p.1",
        "log_p.2",
        "log_p.3",
    ]
    np.testing.assert_array_equal(tables["log_p.2"], model.module.levels[1].log_p)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "ngram"


def test_an_order_without_n_grams(tmp_path):
    model = text_model(5, lines=["cat", "dog"])
    same(model, cloze.load(model.save(tmp_path / "short")))


def test_nothing_is_overwritten_without_force(model, folder):
    with raises(FolderError, "exists"):
        model.save(folder)
    model.save(folder, force=True)


def test_write_errors_are_reported(model, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))  # Python does not hear of SIGXFSZ
    try:
        with raises(FolderError, "File too large"):
            model.save(tmp_path / "ngram")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_arpa_files(model, tmp_path, name):
    same(model, load_arpa(save_arpa(model, tmp_path / "deep" / name)))
    with raises(InputError, "exists"):
        save_arpa(model, tmp_path / "deep" / name)
    assert files_of(tmp_path) == {f"deep/{name}"}


def test_an_arpa_file_that_is_wrong_names_its_line(tmp_path):
    path = tmp_path / "bad.arpa"
    path.write_text("\\data\\\nngram 1=oops\n")
    with raises(InputError, "bad.arpa:2", "ngram 1=oops"):
        load_arpa(path)


def test_models_of_subwords(tmp_path):
    tokenizer = train_tokenizer(TEXT, kind="bpe", vocab_size=280)
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.tokens[: len(SYMBOLS)] == list(SYMBOLS)
    assert len(vocabulary.tokens) == tokenizer.vocab_size - 1 + len(
        SYMBOLS
    )  # <|endoftext|> is no word
    module = made(vocabulary.encode(TEXT), len(vocabulary.tokens), 3)
    model = Model(module=module, config=module.config, tokenizer=tokenizer)
    same(model, cloze.load(model.save(tmp_path / "bpe")))
    adapted = language_model(model)
    ids = adapted.encode_prompt("the cat")
    assert [adapted.decode_token(id_) for id_ in ids[1:]] == ["the", "cat"]
    assert adapted.vocabulary[ids[-1]] == "Ġcat"


def test_special_tokens_in_a_text_are_unknown_words():
    vocabulary = Vocabulary(tiny_tokenizer())
    assert vocabulary.encode(["the [MASK] cat"])[0][1] == UNK
    assert "[MASK]" not in vocabulary.tokens


def test_sequences_are_scored_independently(model):
    model = language_model(model)
    one, other = model.encode_texts(["the cat", "sat"])
    both = list(model.log_probs([one, other]))
    assert [len(part) for part in both] == [3, 2]
    np.testing.assert_array_equal(both[1], *model.log_probs([other]))
    assert not list(model.log_probs([]))


def test_symbols_in_a_text_are_unknown_words(model):
    model = language_model(model)
    assert model.encode_texts(["<s> cat </s>"]) == model.encode_texts(["<unk> cat <unk>"])


def broken(folder, change):
    settings = json.loads((folder / "config.json").read_text())
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s.update(format_version=3), ("format_version", "3")),
        (lambda s: s.update(order=4), ("counts", "4")),
        (lambda s: s.update(order=9), ("order", "9")),
        (lambda s: s.pop("counts"), "counts"),
        (lambda s: s.update(discounts=[1]), "discounts"),
        (lambda s: s["counts"].__setitem__(1, 10**12), ("keys.2", "config.json")),
        (lambda s: s["counts"].__setitem__(1, -1), ("counts", "-1")),
    ],
)
def test_invalid_settings(folder, change, problem):
    with raises(ClozeError, problem):
        cloze.load(broken(folder, change))


def test_a_tokenizer_of_another_model(folder):
    text_model(3, lines=["one two"]).tokenizer.save(folder)
    with raises(FolderError, "5", "config.json"):
        cloze.load(folder)


@pytest.mark.parametrize("rows", [1 << 20, 3])  # looked at at once
@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("keys.2", 0, -1, "keys.2"),
        ("keys.2", 4, -1, "keys.2"),
        ("keys.3", 6, 0, "keys.3"),
        ("keys.3", 5, 1 << 60, "keys.3"),
        ("keys.2", -1, 1 << 60, "keys.2"),
        ("keys.2", 0, 15, "keys.2"),  # 13 words
        ("log_p.1", 0, np.nan, "log_p.1"),
        ("log_p.1", 5, -np.inf, "log_p.1"),
        ("log_p.1", 1, np.inf, "log_p.1"),  # of <s> it may be -inf
        ("log_p.3", -1, np.inf, "log_p.3"),
        ("backoff.2", 7, np.nan, "backoff.2"),
    ],
)
def test_invalid_tables(folder, monkeypatch, rows, name, place, value, said):
    monkeypatch.setattr("cloze.checkpoint.ngram._ROWS", rows)
    cloze.load(folder)
    tables = load_file(folder / "model.safetensors")
    tables[name][place] = value
    save_file(tables, folder / "model.safetensors")
    with raises(FolderError, said):
        cloze.load(folder)


def test_missing_or_truncated_tables(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with raises(FolderError, "safetensors"):
        cloze.load(folder)
    file.unlink()
    with raises(FolderError, "model.safetensors"):
        cloze.load(folder)
