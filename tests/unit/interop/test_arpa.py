"""ARPA files: the format, files of other toolkits, errors with line numbers."""

import math
import re

import numpy as np
import pytest

from cloze.decode.language import language_model
from cloze.errors import InputError
from cloze.interop.arpa import read_arpa, write_arpa
from cloze.models.configs.ngram import BOS, UNK
from grams import text_model
from helpers import raises

SMALL = """made by hand

\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
0\t<s>\t-0.30103
-0.5\t</s>
-0.3\tcat\t-0.2
-0.4\tsat\t-0.1

\\2-grams:
-0.1\t<s> cat
-0.2\tcat sat
-0.3\tsat </s>

\\end\\
"""


def read(text, name="x.arpa"):
    return read_arpa(text.splitlines(keepends=True), name)


def plainly(text):
    """An ARPA file read by its rules alone: {n-gram: (log10 p, log10 back-off)} and the counts."""
    sections = re.split(r"^\\(?:data\\|(?:\d)-grams:|end\\)$", text, flags=re.MULTILINE)
    header, *grams, rest = sections[1:]
    assert rest.strip() == ""
    counts = [int(line.split("=")[1]) for line in header.split("\n") if line]
    found = {}
    for count, section in zip(counts, grams, strict=True):
        rows = [line.split("\t") for line in section.split("\n") if line]
        assert len(rows) == count
        for row in rows:
            found[tuple(row[1].split(" "))] = float(row[0]), float(row[2]) if len(row) > 2 else None
    return found, counts


def test_the_written_file():
    model = language_model(text_model(3))
    text = "".join(write_arpa(model.vocabulary, model.module))
    assert text.startswith("\\data\\\nngram 1=")
    assert text.endswith("\n\n\\end\\\n")
    found, counts = plainly(text)
    assert counts == [len(level.keys) for level in model.module.levels]
    assert found[("<s>",)][0] == -99
    assert found[("the", "cat", "sat")][1] is None  # the highest order has no weights

    def log10(word, context):
        if (*context, word) in found:
            return found[(*context, word)][0]
        weight = found.get(context, (0, 0))[1] or 0
        return weight + log10(word, context[1:])

    for text in ("the cat slept", "mat mat zebra the"):
        (sequence,) = model.encode_texts([text])
        (scored,) = model.log_probs([sequence])
        spelled = [model.vocabulary[id_] for id_ in sequence]
        expected = [
            log10(word, tuple(spelled[max(0, at - 2) : at])) for at, word in enumerate(spelled)
        ][1:]
        assert scored == pytest.approx(np.array(expected) * math.log(10), abs=1e-5)


def test_files_of_other_toolkits():
    words, model = read(SMALL)
    assert words == ["<unk>", "<s>", "</s>", "cat", "sat"]
    assert np.exp(model.next_log_probs([BOS])[3]) == pytest.approx(10**-0.1)
    assert np.exp(model.next_log_probs([BOS])[4]) == pytest.approx(10 ** (-0.30103 - 0.4))
    assert model.next_log_probs([])[BOS] == -np.inf  # whatever the file says


def test_spaces_instead_of_tabs_and_an_uppercase_unk():
    spaced = SMALL.replace("\t", "  ").replace("<unk>", "<UNK>").replace("cat sat", "<UNK> sat")
    words, model = read(spaced)
    assert words[UNK] == "<unk>"
    assert np.exp(model.next_log_probs([UNK])[4]) == pytest.approx(10**-0.2)


def test_a_file_without_unk():
    text = SMALL.replace("-1.0\t<unk>\n", "").replace("1=5", "1=4")
    words, model = read(text)
    assert words[UNK] == "<unk>"
    assert model.next_log_probs([])[UNK] == pytest.approx(-100 * math.log(10))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\\data\\", "data", ("x.arpa:7", "1")),
        ("ngram 2=3", "ngram 3=3", ("x.arpa:5", "ngram 3=3", "ngram 2=")),
        ("ngram 1=5\nngram 2=3\n", "", ("x.arpa:5", "0", "1", "5")),
        ("1=5", "1=6", ("x.arpa:13", "1", "5", "6")),
        ("1=5", "1=4", "x.arpa:12"),
        ("2=3", "2=4", ("x.arpa:18", "2", "3", "4")),
        ("2=3", "2=2", "x.arpa:17"),
        ("\\2-grams:", "\\3-grams:", ("x.arpa:14", "3", "2")),
        ("\\end\\", "\\fin\\", "x.arpa:19"),
        ("\\end\\", "", "x.arpa:19"),
        ("-0.3\tcat", "nan\tcat", ("x.arpa:11", "nan")),
        ("-0.3\tcat", "-inf\tcat", "x.arpa:11"),
        ("-0.3\tcat", "0.3\tcat", ("x.arpa:11", "0.3", "1")),
        ("-0.3\tcat", "many\tcat", ("x.arpa:11", "many")),
        ("sat\t-0.1", "sat\tnan", ("x.arpa:12", "nan")),
        ("cat sat", "cat sat -1", ("x.arpa:16", "2")),
        ("cat sat", "cat", ("x.arpa:16", "2")),
        ("cat sat", "cat dog", ("x.arpa:16", "dog", "1")),
        ("sat </s>", "cat sat", ("x.arpa:17", "2")),
        ("\tsat\t", "\tcat\t", ("x.arpa:12", "1")),
        ("\t</s>\n-0.3", "\tend\n-0.3", ("x.arpa:12", "/s", "1")),
    ],
)
def test_errors_have_line_numbers(old, new, problem):
    with raises(InputError, problem):
        read(SMALL.replace(old, new, 1))


def test_an_order_that_is_too_high():
    counts = "".join(f"ngram {n}=0\n" for n in range(3, 8))
    with raises(InputError, "7", fix="1 to 5"):
        read(SMALL.replace("ngram 2=3\n", "ngram 2=3\n" + counts))


def test_a_missing_context():
    text = SMALL.replace("2=3\n", "2=3\nngram 3=2\n").replace(
        "\\end\\", "\\3-grams:\n-0.1\t<s> cat sat\n-0.1\tsat cat sat\n\\end\\"
    )
    with raises(InputError, "x.arpa:22", "3"):
        read(text)


@pytest.mark.parametrize("piece", ["two words", "", "<s>"])
def test_tokens_that_cannot_be_written(piece):
    model = language_model(text_model(1))
    words = [*model.vocabulary[:-1], piece]
    with raises(InputError, "ARPA", fix="space"):
        "".join(write_arpa(words, model.module))
