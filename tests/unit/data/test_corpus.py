"""Truncated, changed and forged corpora are detected, and repaired if the text is available."""

import json

import pytest

from cloze.data import shards
from cloze.data.corpus import Corpus
from cloze.data.prepare import prepare_corpus
from cloze.errors import FolderError
from corpora import (
    LINES,
    numbered_tokenizer,
    only_shard,
    small_corpus,
    some_documents,
    write_documents,
)
from helpers import raises


def test_a_truncated_shard_is_detected_and_repaired(tmp_path):
    corpus = small_corpus(tmp_path, some_documents())
    shard = only_shard(corpus)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-5])
    with raises(FolderError, "bytes"):
        Corpus.open(corpus.folder)
    prepare_corpus(tmp_path / "text.txt", numbered_tokenizer(), corpus.folder, LINES, workers=1)
    assert shard.read_bytes() == whole


def test_a_changed_byte_is_detected_and_repaired(tmp_path):
    corpus = small_corpus(tmp_path, some_documents())
    assert corpus.is_intact()
    shard = only_shard(corpus)
    whole = shard.read_bytes()
    broken = bytearray(whole)
    broken[-100] ^= 1
    shard.write_bytes(broken)
    assert not Corpus.open(corpus.folder).is_intact()
    prepare_corpus(tmp_path / "text.txt", numbered_tokenizer(), corpus.folder, LINES, workers=1)
    assert shard.read_bytes() == whole


@pytest.mark.parametrize("cut", [0, 4, 60, 200])
def test_a_truncated_shard_cannot_be_opened(tmp_path, cut):
    corpus = small_corpus(tmp_path, some_documents())
    shard = only_shard(corpus)
    shard.write_bytes(shard.read_bytes()[:cut])
    with raises(FolderError, "damaged"):
        shards.read_shard(shard)


def test_a_forged_shard_is_rejected_before_it_is_read(tmp_path):
    header = json.dumps({"ids": {"dtype": "U16", "shape": [2**40], "data_offsets": [0, 2**41]}})
    path = tmp_path / "s.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with raises(FolderError, "array"):
        shards.read_shard(path)
    path.write_bytes((2**40).to_bytes(8, "little") + header.encode())
    with raises(FolderError, "damaged"):
        shards.read_shard(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("format"), "corpus"),
        (lambda d: d.update(format_version=99), ("corpus", "99")),
        (lambda d: d.pop("shards"), "corpus"),
        (lambda d: d["shards"].clear(), "corpus"),
        (lambda d: d["shards"][0].update(file="../../x"), "corpus"),
        (lambda d: d["shards"][0].update(file="x"), "No such file"),
        (lambda d: d["index"].update(bytes=3), "3 bytes"),
    ],
)
def test_an_invalid_description_is_reported(tmp_path, change, message):
    corpus = small_corpus(tmp_path, [["w1"]])
    path = corpus.folder / "corpus.json"
    description = json.loads(path.read_bytes())
    change(description)
    path.write_text(json.dumps(description))
    with raises(FolderError, message):
        Corpus.open(corpus.folder)


def test_a_folder_without_a_corpus_is_reported(tmp_path):
    with raises(FolderError, "corpus"):
        Corpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text("{")
    with raises(FolderError, "corpus.json", "JSON", fix="same command"):
        Corpus.open(tmp_path)


def test_a_folder_with_other_files_is_not_changed(tmp_path):
    source = write_documents(tmp_path / "a.txt", [["w1"]])
    with raises(FolderError, "a.txt"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path)
    with raises(FolderError, "file", fix="folder"):
        prepare_corpus(source, numbered_tokenizer(), source)
