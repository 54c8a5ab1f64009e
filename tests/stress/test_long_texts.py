"""One text of 100 MB through every function of encoders: under 700 MB of memory each."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.stress

SCRIPT = """
import resource, sys
sys.path[:0] = sys.argv[4].split(":")
import cloze
from helpers import tiny_model
what, size, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = "the cat sat on the mat and it was a fine day "
text = "a" * size if what.endswith("one word") else (words * (size // len(words) + 1))[:size]
what = what.split(",")[0]
if what == "embed":
    cloze.embed("cloze-en", text, truncation="head")
elif what == "embed tail":
    cloze.embed("cloze-en", text, truncation="head+tail")
elif what == "fill":
    half = size // 2
    assert cloze.fill("cloze-en", f"{text[:half]} [MASK] {text[half:]}").masks
elif what == "too long":
    try:
        cloze.tokenize("cloze-en", "a").ids
        cloze.load("cloze-en").tokenizer.encode(text, max_length=512)
        raise SystemExit("no error")
    except cloze.ClozeError as error:
        assert "tokens" in str(error)
elif what == "classify":
    cloze.classify(tiny_model("sequence"), text, truncation="head")
elif what == "pair":
    cloze.classify(tiny_model("sequence"), "the cat", text, truncation="head")
elif what == "tag":
    assert cloze.tag(tiny_model("token", labels=("O", "B-A")), text, truncation="tail").untagged
elif what == "answer":
    cloze.answer(tiny_model("span"), "the cat", text, truncation="head")
elif what == "choose":
    cloze.choose(tiny_model("choice"), text, ["the cat", "a mat"], truncation="head")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # Linux counts in KB
print(f"{sys.argv[1]}: {peak} MB")
assert peak < limit, peak
"""
FUNCTIONS = (
    *("embed", "embed, one word", "embed tail", "fill", "too long", "classify"),
    *("classify, one word", "pair", "tag", "answer", "choose"),
)


def read_long_text(what: str, size: int, limit: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, what, str(size), str(limit), ":".join(sys.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    print(ran.stdout.strip())  # noqa: T201


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_text_of_100_megabytes(what):
    read_long_text(what, 100_000_000, 700)
