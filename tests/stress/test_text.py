"""Every line of the corpora through the tokenizers; a vocabulary of all English text."""

import lzma
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from cloze.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.stress, pytest.mark.data]

PUBLISHED = {"uncased": True, "cased": False, "chinese": True}


@pytest.mark.parity
@pytest.mark.parametrize("text", ["wiki-00.txt.xz", "wiki-zh-00.txt.xz"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_line_has_the_ids_and_offsets_of_transformers(name: str, text: str, data_dir: Path):
    transformers = pytest.importorskip("transformers", reason="pip install 'cloze[peers]'")
    path = data_dir / "vocab" / f"bert-base-{name}-vocab.txt"
    ours = Tokenizer.load(path)
    peer = transformers.BertTokenizer(vocab=str(path), do_lower_case=PUBLISHED[name])
    seen = 0
    with lzma.open(data_dir / "text" / text, "rt", encoding="utf-8") as lines:
        while batch := list(islice(lines, 2000)):
            theirs = peer(batch, return_offsets_mapping=True)
            found = ours.encode_batch(batch)
            assert [encoding.ids for encoding in found] == theirs["input_ids"]
            assert [encoding.offsets for encoding in found] == theirs["offset_mapping"]
            seen += len(batch)
    print(f"{name} {text}: {seen:,} lines alike")  # noqa: T201
    assert seen > 50_000


LEARN = """
import lzma, resource, sys, time
from pathlib import Path
from cloze.text.tokenizer_training import train_tokenizer

def lines(folder):
    for path in sorted(folder.glob("*.xz")):
        if not path.name.startswith("wiki-zh"):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                yield from file

start = time.monotonic()
train_tokenizer(lines(Path(sys.argv[1])), vocab_size=32_000).save(sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
print(peak, time.monotonic() - start)
"""


def test_a_vocabulary_of_all_english_text_fits_in_memory_and_is_the_same_twice(
    data_dir: Path, tmp_path: Path
):
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", LEARN, str(data_dir / "text"), str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        peak, seconds = map(float, run.stdout.split())
        print(f"peak {peak / 2**30:.2f} GiB, {seconds:.0f} s")  # noqa: T201
        assert peak < 4 * 2**30
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert Tokenizer.load(tmp_path / "1").vocab_size == 32_000
