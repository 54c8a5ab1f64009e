"""Preparing all text: in bounded memory, through many kills, with the ids of the tokenizer."""

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cloze.data.document_encoder import DocumentEncoder, EncoderSettings
from cloze.data.prepare import prepare_corpus
from cloze.data.sources import read_rows
from cloze.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.stress, pytest.mark.data]

ENGLISH = ("wiki-0*", "wiki-short-*", "books-*", "reviews-*")
SCRIPT = """
import sys
from cloze.data.prepare import prepare_corpus
from cloze.text.tokenizer import Tokenizer
vocab, folder, *sources = sys.argv[1:]
print(prepare_corpus(sources, Tokenizer.load(vocab), folder, workers=2).summary)
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def vocab(data_dir) -> Path:
    return data_dir / "vocab" / "bert-base-uncased-vocab.txt"


def family(root: int) -> list[int]:
    """A process and all that it started."""
    members = [root]
    for member in members:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                members += map(int, task.read_text().split())
            except OSError:
                continue
    return members


def memory(process: int) -> int:
    """Bytes, each shared page divided among those who share it."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def test_all_english_text_is_prepared_in_three_gibibytes(data_dir, script, vocab, tmp_path):
    sources = [data_dir / "text" / f"{name}.txt.xz" for name in ENGLISH]
    process = subprocess.Popen([sys.executable, script, vocab, tmp_path / "c", *sources])
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(memory, family(process.pid))))
        time.sleep(0.2)
    assert process.returncode == 0
    print(f"peak {peak / 2**20:,.0f} MiB")  # noqa: T201
    assert 100 * 2**20 < peak < 3 * 2**30


def test_twenty_kills_lose_nothing(data_dir, script, vocab, tmp_path):
    source = data_dir / "text" / "wiki-03.txt.xz"
    moments = random.Random(0)
    killed = 0
    while killed < 20:
        process = subprocess.Popen([sys.executable, script, vocab, tmp_path / "c", source])
        timer = threading.Timer(moments.uniform(0.3, 2.0), process.kill)
        timer.start()
        ended = process.wait()
        timer.cancel()
        if ended != -signal.SIGKILL:  # done in spite of the kills: begin again
            assert ended == 0
            (tmp_path / "c" / "corpus.json").unlink()
            for shard in list((tmp_path / "c" / "shards").iterdir())[::2]:
                shard.unlink()
        killed += ended == -signal.SIGKILL
    tokenizer = Tokenizer.load(vocab)
    resumed = prepare_corpus(source, tokenizer, tmp_path / "c", workers=2)
    assert resumed.is_intact()
    straight = prepare_corpus(source, tokenizer, tmp_path / "straight", workers=1)
    assert resumed.summary == straight.summary
    for name in ("sentence_starts", "document_starts"):
        assert np.array_equal(getattr(resumed, name), getattr(straight, name))
    assert not list((tmp_path / "c" / "shards").glob(".*"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wiki-00", "bert-base-uncased"),
        ("books-00", "bert-base-cased"),
        ("wiki-zh-00", "bert-base-chinese"),
    ],
)
def test_every_line_has_the_ids_of_the_tokenizer(data_dir, text, words):
    tokenizer = Tokenizer.load(data_dir / "vocab" / f"{words}-vocab.txt")
    encoder = DocumentEncoder(EncoderSettings.from_tokenizer(tokenizer, "lines", None))
    batch: list[str] = []
    for row in read_rows(data_dir / "text" / f"{text}.txt.xz"):
        batch.append(row.text)
        if len(batch) == 2000:
            ids, _, lengths = encoder._encode_sentences(batch)
            whole = tokenizer.encode_ids(batch, add_special_tokens=False)
            assert lengths.tolist() == [len(line) for line in whole]
            assert ids.tolist() == [i for line in whole for i in line]
            batch = []
