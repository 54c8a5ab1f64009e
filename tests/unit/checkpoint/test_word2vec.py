import gzip
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.word2vec import export_vectors, import_vectors, is_vector_file, load_vectors
from cloze.errors import FolderError, InputError
from cloze.models.configs.word2vec import CharNGrams
from helpers import files_of, raises, word_model

WORDS = ("the", "café", "北京")


def model(**changes) -> Model:
    table = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    return word_model(words=WORDS, vectors=table, **changes)


@pytest.fixture
def folder(tmp_path):
    return model(counts=np.array([9, 5, 5])).save(tmp_path / "words")


def test_saved_and_loaded(tmp_path):
    grams = CharNGrams(buckets=5)
    before = model(
        counts=np.array([9, 5, 5]),
        char_ngrams=grams,
        ngram_vectors=np.ones((5, 4), np.float32),
        lowercase=True,
        training={"settings": {"width": 4}},
    )
    folder = before.save(tmp_path / "words")
    assert files_of(folder) == {"config.json", "model.safetensors", "vocabulary.tsv"}
    after = cloze.load(folder)
    assert isinstance(after, Model)
    assert after.config == before.config
    assert (after.module.vectors == before.module.vectors).all()
    assert (after.module.ngram_vectors == before.module.ngram_vectors).all()
    assert after.module.words == WORDS
    assert after.module.counts.tolist() == [9, 5, 5]
    assert (after.config.char_ngrams, after.config.lowercase) == (grams, True)
    assert after.config.training == {"settings": {"width": 4}}
    again = after.save(tmp_path / "again")
    for name in files_of(folder):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    with raises(FolderError, "exists"):
        after.save(again)


@pytest.mark.parametrize("name", ["a.txt", "a.vec", "a.bin", "b.6B.txt", "a.txt.gz", "a.bin.gz"])
@pytest.mark.parametrize("header", [True, False])
def test_load_reads_files_of_other_programs(name, header, tmp_path):
    if ".bin" in name and not header:
        return
    plain = export_vectors(model().module, tmp_path / name.removesuffix(".gz"), header=header)
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    assert is_vector_file(tmp_path / name)
    opened = cloze.load(str(tmp_path / name))
    assert list(opened.module.words) == list(WORDS)
    assert (opened.module.vectors == model().module.vectors).all()
    found = cloze.info(tmp_path / name)
    assert (found.family, found.total_parameters, found.vocabulary.size) == ("word2vec", 12, 3)
    assert "similar" in found.capabilities


@pytest.mark.parametrize("text", ["", "word\n", "The cat sat on the mat.\n", "In the year 1984\n"])
def test_a_text_file_without_vectors(text, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert not is_vector_file(path)
    for verb in (cloze.load, cloze.info, load_vectors):
        with raises(InputError, "a.txt:1", fix="GloVe"):
            verb(path)
    with raises(FolderError, "a.csv"):
        cloze.load(path.rename(tmp_path / "a.csv"))
    (tmp_path / "a.bin").write_bytes(b"PK\x03\x04")
    with raises(InputError, "first line"):
        cloze.load(tmp_path / "a.bin")


def test_unknown_counts_stay_unknown(tmp_path):
    assert cloze.load(model().save(tmp_path / "words")).module.counts is None


def test_a_folder_is_replaced_only_with_force(folder):
    with raises(FolderError, "exists"):
        model().save(folder)
    model().save(folder, force=True)


def change(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"format_version": 3}, ("config.json", "format_version", "3")),
        ({"vocab_size": -1}, ("config.json", "vocab_size", "-1")),
        ({"hidden_size": 1 << 40}, ("config.json", "hidden_size")),
        ({"vocab_size": 4}, ("vocabulary.tsv", "3", "config.json", "4")),
        ({"hidden_size": 5}, ("vectors", "3", "4", "model.safetensors", "config.json", "5")),
        ({"char_ngrams": {"buckets": 5}}, "model.safetensors"),
        ({"char_ngrams": {"buckets": 0}}, ("config.json", "buckets", "0")),
        ({"char_ngrams": [1]}, "config.json"),
    ],
)
def test_an_inconsistent_configuration_is_an_error(folder, changes, wrong):
    change(folder, **changes)
    with raises(FolderError, wrong):
        load_vectors(folder)


def test_missing_files_are_errors(folder):
    (folder / "vocabulary.tsv").unlink()
    with raises(FolderError, "vocabulary.tsv"):
        load_vectors(folder)
    (folder / "model.safetensors").rename(folder / "x")
    with raises(FolderError, "model.safetensors"):
        load_vectors(folder)
    (folder / "config.json").unlink()
    with raises(FolderError, "config.json"):
        load_vectors(folder)


@pytest.mark.parametrize(
    "text", [b"a\t1\nb\nc\t1\n", b"a\t1\nb\tx\nc\t1\n", b"a\t1\n\xff\t2\nc\t1\n"]
)
def test_a_damaged_vocabulary_is_an_error(folder, text):
    (folder / "vocabulary.tsv").write_bytes(text)
    with raises(FolderError, "vocabulary.tsv"):
        load_vectors(folder)


def test_a_duplicate_word_is_an_error(folder):
    (folder / "vocabulary.tsv").write_text("a\t3\nb\t2\na\t1\n")
    with raises(FolderError, "vocabulary.tsv", "'a'"):
        load_vectors(folder)


def test_a_vocabulary_that_is_too_large_is_not_read(folder):
    with (folder / "vocabulary.tsv").open("r+b") as file:
        file.truncate(10**6)
    with raises(FolderError, "vocabulary.tsv", "large"):
        load_vectors(folder)


def test_vectors_with_nan_or_infinite_values_are_an_error(tmp_path):
    broken = model()
    broken.module.vectors[1, 1] = np.nan
    folder = broken.save(tmp_path / "words")
    with raises(FolderError, "vectors"):
        load_vectors(folder)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_vectors_of_other_dtypes_are_read(folder, dtype):
    kind = getattr(torch, dtype)
    tables = load_file(folder / "model.safetensors")
    save_file({name: one.to(kind) for name, one in tables.items()}, folder / "model.safetensors")
    found = load_vectors(folder).module.vectors
    assert found.dtype == np.float32
    assert np.array_equal(found, tables["vectors"].to(kind).float().numpy())


def test_words_with_tabs_or_newlines_are_errors(tmp_path):
    bad = word_model(words=["a\tb"], vectors=np.zeros((1, 2), np.float32))
    with raises(InputError, "newline"):
        bad.save(tmp_path / "words")
    assert not (tmp_path / "words").exists()


@pytest.mark.parametrize("name", ["words.txt", "words.vec", "words.bin"])
def test_files_of_other_programs(tmp_path, name):
    before = model().module
    path = export_vectors(before, tmp_path / name)
    after = load_vectors(path).module
    assert tuple(after.words) == WORDS
    assert (after.vectors == before.vectors).all()
    assert len(load_vectors(path, max_words=2).module) == 2
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert (import_vectors(packed).module.vectors == before.vectors).all()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    bad = word_model(words=["ok", "not ok"], vectors=np.zeros((2, 2), np.float32))
    with raises(InputError, "format"):
        export_vectors(bad.module, tmp_path / "words.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_error(tmp_path):
    with raises(InputError, "folder"):
        load_vectors(tmp_path / "none.bin")


def test_load_vectors_reads_folders(folder):
    assert tuple(load_vectors(folder).module.words) == WORDS
    assert len(load_vectors(folder, max_words=2).module) == 2
