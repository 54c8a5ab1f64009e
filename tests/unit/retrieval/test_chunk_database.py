"""The database of chunks: values, search, what a kill leaves, and hostile files."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.shards import read_arrays
from cloze.errors import FolderError, InputError
from cloze.retrieval import chunk_database
from cloze.retrieval.chunk_database import (
    DESCRIPTION,
    ChunkDatabase,
    DatabaseText,
    KeySearch,
    build_database,
)
from generated_examples import examples
from helpers import raises

LENGTH, SIZE = 4, 6
SETTINGS = {
    "chunk_length": LENGTH,
    "vocab_size": 50,
    "tokenizer": "t",
    "encoder": "e",
    "encoder_digest": "d",
}


def make_text(lengths=(9, 4, 13, 22), seed=0):
    """Documents of these lengths, without what is shorter than a chunk."""
    starts, ends, documents, first = [], [], [], 0
    for number, length in enumerate(lengths):
        for chunk in range(length // LENGTH):
            starts.append(first + chunk * LENGTH)
            ends.append(first + length)
            documents.append(number)
        first += length
    ids = np.random.default_rng(seed).integers(0, 50, first).astype(np.uint16)
    return DatabaseText(ids, *(np.array(one, np.int64) for one in (starts, ends, documents)))


def embed(chunks):
    """A vector of length 1 that depends on the tokens."""
    vectors = np.stack(
        [np.sin(np.outer(chunk + 1, np.arange(1, SIZE + 1))).sum(0) for chunk in chunks]
    )
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(chunk_database, "PART", 3)


@pytest.fixture
def built(tmp_path, small_parts):
    return build_database(tmp_path / "database", make_text(), embed, SETTINGS)


def test_values_are_a_chunk_and_what_follows_in_its_document(built):
    text = make_text()
    assert len(built) == 2 + 1 + 3 + 5
    ids, mask = built.read_values(np.array([[0, 1], [2, -1]]))
    assert ids.shape == mask.shape == (2, 2, 2 * LENGTH)
    assert ids[0, 0].tolist() == text.ids[:8].tolist()
    assert ids[0, 1].tolist() == [*text.ids[4:9].tolist(), 0, 0, 0]
    assert mask.sum(-1).tolist() == [[8, 5], [4, 0]]


def test_keys_are_those_of_the_chunks(built):
    text = make_text()
    expected = embed([text.read_chunk(n, LENGTH) for n in range(len(built))])
    np.testing.assert_allclose(built.load_keys(torch.device("cpu")), expected, atol=1e-3)
    scores, numbers = KeySearch(built, torch.device("cpu")).find(torch.from_numpy(expected), 1)
    assert numbers[:, 0].tolist() == list(range(len(built)))
    np.testing.assert_allclose(scores, 1, atol=1e-3)


def test_chunks_of_the_same_document_are_left_out(built):
    search = KeySearch(built, torch.device("cpu"))
    documents = built.text.documents
    _, numbers = search.find(search.keys, 3, documents)
    assert (documents[numbers] != documents[:, None]).all()
    _, numbers = search.find(search.keys, len(built), documents)
    for own, found in zip(documents, numbers, strict=True):
        others = np.flatnonzero(documents != own)
        assert sorted(found[found >= 0]) == others.tolist()
        assert (found[len(others) :] == -1).all()


def test_more_neighbors_than_chunks_are_missing(built):
    _, numbers = KeySearch(built, torch.device("cpu")).find(torch.zeros(2, SIZE), 15)
    assert numbers.shape == (2, 15)
    assert (numbers[:, 11:] == -1).all()


def test_the_same_text_is_not_embedded_again(built, tmp_path):
    again = build_database(tmp_path / "database", make_text(), None, SETTINGS)
    assert again.info == built.info


def build_and_die(folder, text, calls):
    """Build in a process that kills itself when keys are computed for the `calls`-th time."""
    if not (child := os.fork()):
        done = []

        def embed_or_die(chunks):
            done.append(chunks)
            if len(done) == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return embed(chunks)

        build_database(folder, text, embed_or_die, SETTINGS)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def test_a_kill_leaves_parts_that_are_used_again(tmp_path, small_parts):
    build_and_die(tmp_path, make_text(), 3)
    with raises(FolderError, "incomplete", tmp_path, fix="again"):
        ChunkDatabase.open(tmp_path)
    calls = []

    def count(chunks):
        calls.append(len(chunks))
        return embed(chunks)

    built = build_database(tmp_path, make_text(), count, SETTINGS)
    assert calls == [3, 2]  # two parts of three chunks were there
    whole = build_database(tmp_path / "other", make_text(), embed, SETTINGS)
    assert torch.equal(built.load_keys(torch.device("cpu")), whole.load_keys(torch.device("cpu")))


def test_a_kill_while_it_is_replaced_leaves_the_old_one(built, tmp_path):
    folder = tmp_path / "database"
    build_and_die(folder, make_text(seed=1), 2)
    old = ChunkDatabase.open(folder)
    assert old.info == built.info
    assert old.load_keys(torch.device("cpu")).isfinite().all()
    new = build_database(folder, make_text(seed=1), embed, SETTINGS)
    assert new.info.fingerprint != built.info.fingerprint
    assert all(new.info.fingerprint in path.name for path in folder.glob("*.safetensors"))


def test_text_that_is_too_short(tmp_path):
    with raises(InputError, 4, fix="chunk_length"):
        build_database(tmp_path, make_text(lengths=(3, 2)), embed, SETTINGS)


def test_a_folder_that_is_none(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with raises(FolderError, path, fix="retro"):
            ChunkDatabase.open(path)


def test_the_folder_of_the_run_will_do(built, tmp_path):
    assert ChunkDatabase.open(tmp_path).info == built.info


def change(folder, **values):
    path = folder / DESCRIPTION
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    "values",
    [
        {"chunks": 10**12},
        {"chunks": -1},
        {"chunks": 12},
        {"chunks": True},
        {"dimension": 0},
        {"dimension": 5},
        {"dimension": 10**9},
        {"chunk_length": 1},
        {"chunk_length": 20},
        {"chunk_length": "4"},
        {"vocab_size": None},
        {"fingerprint": "../../etc"},
        {"fingerprint": "0123"},
        {"encoder": ["cloze-en"]},
        {"more": 1},
        {"format": "cloze corpus"},
        {"format_version": 2},
        {"format_version": None},
    ],
)
def test_hostile_descriptions(built, tmp_path, values):
    change(tmp_path / "database", **values)
    with raises(FolderError, "database"):
        ChunkDatabase.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"database"', "\x00", "[" * 100_000])
def test_descriptions_that_are_none(built, tmp_path, text):
    (tmp_path / "database" / DESCRIPTION).write_text(text)
    with raises(FolderError):
        ChunkDatabase.open(tmp_path)


@examples(30)
@given(st.data())
def test_damaged_files(tmp_path_factory, data):
    """A cut or changed byte is an error, or gives a database whose values are in range."""
    folder = tmp_path_factory.mktemp("damaged")
    build_database(folder, make_text(), embed, SETTINGS)
    path = data.draw(st.sampled_from(sorted(folder.glob("*.safetensors"))))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found = ChunkDatabase.open(folder)
        found.load_keys(torch.device("cpu"))
        ids, _ = found.read_values(np.arange(len(found)))
    except FolderError as error:
        assert error.fix  # noqa: PT017
    else:
        assert 0 <= ids.min() <= ids.max() < 50


def test_keys_of_another_size_are_made_again(built, tmp_path):
    folder = tmp_path / "database"
    part = sorted(folder.glob("keys-*"))[1]
    part.write_bytes(part.read_bytes()[:-2])
    with raises(FolderError, part.name, fix="again"):
        ChunkDatabase.open(folder)
    build_database(folder, make_text(), embed, SETTINGS)
    assert len(read_arrays(part)[0]["keys"]) == 3 * SIZE
