"""`prepare_corpus` a second time: after a change, an interruption, a kill, a full disk."""

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloze.data import prepare as preparing
from cloze.data import shards
from cloze.data.config import CorpusOptions
from cloze.data.corpus import Corpus
from cloze.data.prepare import prepare_corpus
from cloze.errors import FolderError
from corpora import (
    LINES,
    contents,
    numbered_tokenizer,
    small_corpus,
    some_documents,
    write_documents,
)
from helpers import files_of, raises


def test_a_second_run_reads_no_text(tmp_path, monkeypatch):
    small_corpus(tmp_path, some_documents())
    monkeypatch.setattr(preparing, "read_rows", None)
    source, folder = tmp_path / "text.txt", tmp_path / "corpus"
    assert prepare_corpus(source, numbered_tokenizer(), folder, LINES).summary.documents == 40


@pytest.mark.parametrize("what", ["text", "tokenizer", "option"])
def test_a_change_is_detected(tmp_path, what):
    before = small_corpus(tmp_path, [["w1 w2"], ["w3 wx"]])
    source, tokenizer, options = tmp_path / "text.txt", numbered_tokenizer(), LINES
    if what == "text":
        write_documents(source, [["w1 w2"], ["w3 w4 w5"]])
    elif what == "tokenizer":
        tokenizer = numbered_tokenizer(10)
    else:
        options = CorpusOptions(sentences="lines", hold_out=0.5)
    after = prepare_corpus(source, tokenizer, tmp_path / "corpus", options, workers=1)
    assert after.fingerprint != before.fingerprint
    assert Corpus.open(tmp_path / "corpus").summary == after.summary
    assert len(list((tmp_path / "corpus" / "shards").iterdir())) == 2


def test_only_changed_shards_are_written_again(tmp_path, many_shards):
    documents = some_documents()
    small_corpus(tmp_path, documents)
    source = write_documents(tmp_path / "text.txt", [*documents, ["w1 w2 w3"]])
    seen = []
    prepare_corpus(
        source, numbered_tokenizer(), tmp_path / "corpus", LINES, workers=1, progress=seen.append
    )
    assert seen[-1].shards - seen[-1].reused == 1
    assert seen[-1].documents == len(documents) + 1


def test_text_that_is_not_in_files_is_read_again(tmp_path):
    for text, tokens in (("w1 w2", 2), ("w1 w2 w3", 3)):
        rows = [{"text": text}]
        corpus = prepare_corpus([rows], numbered_tokenizer(), tmp_path / "c", LINES, workers=1)
        assert len(corpus) == tokens


def test_an_interrupted_run_continues(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    tokenizer = numbered_tokenizer()

    def stop(progress):
        if progress.shards == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1, progress=stop)
    with raises(FolderError, "incomplete", fix="again"):
        Corpus.open(tmp_path / "c")
    seen = []
    prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1, progress=seen.append)
    assert seen[-1].reused == 3
    prepare_corpus(source, tokenizer, tmp_path / "straight", LINES, workers=1)
    assert contents(tmp_path / "c") == contents(tmp_path / "straight")


def test_a_run_killed_before_the_description_leaves_the_old_corpus(tmp_path, monkeypatch):
    old = small_corpus(tmp_path, some_documents(), hold_out=0.2)
    held = old.held_out.document_ids.tolist()

    def killed(path, _):
        path.with_name(".corpus.json.99").write_bytes(b"{")
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "write_json", killed)
    source, options = tmp_path / "text.txt", CorpusOptions(sentences="lines", hold_out=0.6)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(source, numbered_tokenizer(), old.folder, options, workers=1)
    assert Corpus.open(old.folder).held_out.document_ids.tolist() == held
    monkeypatch.undo()
    prepare_corpus(source, numbered_tokenizer(), old.folder, options, workers=1)
    assert not (old.folder / ".corpus.json.99").exists()
    assert len(list((old.folder / "shards").iterdir())) == 2


def test_two_simultaneous_runs_write_one_corpus(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    with ThreadPoolExecutor(2) as both:
        jobs = [
            both.submit(
                prepare_corpus, source, numbered_tokenizer(), tmp_path / "c", LINES, workers=1
            )
            for _ in range(2)
        ]
    assert jobs[0].result().summary == jobs[1].result().summary
    assert jobs[1].result().is_intact()


KILLED = """
import os, signal, sys
from functools import partial
from corpora import LINES, contents, numbered_tokenizer
from cloze.data import prepare as preparing
from cloze.data.document_chunks import DocumentChunks

def die(progress):
    if progress.shards == 4:
        os.kill(os.getpid(), signal.SIGKILL)

# without a guard: this must not run twice
preparing.DocumentChunks = partial(DocumentChunks, min_bytes=1000)
text, folder = sys.argv[1:]
preparing.prepare_corpus(text, numbered_tokenizer(), folder, LINES, workers=2, progress=die)
"""


def test_a_killed_run_continues_and_leaves_no_process(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    path = os.pathsep.join(sys.path)
    # Workers hold this pipe too: reading to its end waits until the last of them has gone.
    ended = subprocess.run(
        [sys.executable, script, source, tmp_path / "c"],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    seen = []
    prepare_corpus(
        source, numbered_tokenizer(), tmp_path / "c", LINES, workers=1, progress=seen.append
    )
    assert seen[-1].reused >= 4
    prepare_corpus(source, numbered_tokenizer(), tmp_path / "straight", LINES, workers=1)
    assert contents(tmp_path / "c") == contents(tmp_path / "straight")


# What can go wrong.


def test_a_full_disk_loses_nothing(tmp_path, many_shards, monkeypatch):
    source = write_documents(tmp_path / "a.txt", some_documents())
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(shards.os, "fsync", full)
    with raises(FolderError, "disk"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", LINES, workers=1)
    names = files_of(tmp_path / "c" / "shards")
    assert names
    assert all(name.endswith(".safetensors") and name[0] != "." for name in names)
    monkeypatch.undo()
    seen = []
    prepare_corpus(
        source, numbered_tokenizer(), tmp_path / "c", LINES, workers=1, progress=seen.append
    )
    assert not list((tmp_path / "c" / "shards").glob(".*"))


def test_a_worker_that_cannot_write_is_reported(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    made = prepare_corpus(source, numbered_tokenizer(), tmp_path / "made", LINES, workers=1)
    for shard in (made.folder / "shards").iterdir():
        (tmp_path / "c" / "shards" / shard.name).mkdir(parents=True)
    with raises(FolderError, "directory"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", LINES, workers=2)
