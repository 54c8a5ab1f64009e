"""ARPA files: the layout, what others write, what is wrong with a file and where."""

import math
import re

import numpy as np
import pytest

from cloze.errors import InputError
from cloze.interop.arpa import read_arpa, write_arpa
from cloze.models.configs.ngram import BOS, UNK
from grams import text_model

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


def test_what_is_written_by_its_rules():
    model = text_model(3)
    text = "".join(write_arpa(model.words, model.module))
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
        (sequence,) = model.sequences([text])
        (scored,) = model.log_probs([sequence])
        spelled = [model.words[id_] for id_ in sequence]
        expected = [
            log10(word, tuple(spelled[max(0, at - 2) : at])) for at, word in enumerate(spelled)
        ][1:]
        assert scored == pytest.approx(np.array(expected) * math.log(10), abs=1e-5)


def test_what_others_write():
    words, model = read(SMALL)
    assert words == ["<unk>", "<s>", "</s>", "cat", "sat"]
    assert np.exp(model.next_log_probs([BOS])[3]) == pytest.approx(10**-0.1)
    assert np.exp(model.next_log_probs([BOS])[4]) == pytest.approx(10 ** (-0.30103 - 0.4))
    assert model.next_log_probs([])[BOS] == -np.inf  # whatever the file says


def test_spaces_for_tabs_and_a_shouted_unk():
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
        ("\\data\\", "data", r"x.arpa:7: \\1-grams: comes before \\data\\"),
        ("ngram 2=3", "ngram 3=3", r"x.arpa:5: 'ngram 3=3' is not 'ngram 2=' and a count"),
        ("ngram 1=5\nngram 2=3\n", "", r"x.arpa:5: the header counts 0 orders\n.*from 1 to 5"),
        ("1=5", "1=6", r"x.arpa:13: \\1-grams: holds 5 n-grams, the header says 6"),
        ("1=5", "1=4", r"x.arpa:12: there are more n-grams than the header says"),
        ("2=3", "2=4", r"x.arpa:18: \\2-grams: holds 3 n-grams, the header says 4"),
        ("2=3", "2=2", r"x.arpa:17: there are more n-grams than the header says"),
        ("\\2-grams:", "\\3-grams:", r"x.arpa:14: \\3-grams: stands where \\2-grams: should"),
        ("\\end\\", "\\fin\\", r"x.arpa:19: \\fin\\ stands where \\end\\ should"),
        ("\\end\\", "", r"x.arpa:19: the file ends before \\end\\"),
        ("-0.3\tcat", "nan\tcat", r"x.arpa:11: the log probability is nan"),
        ("-0.3\tcat", "-inf\tcat", r"x.arpa:11: the log probability is -inf"),
        ("-0.3\tcat", "0.3\tcat", r"x.arpa:11: the log probability is 0.3\n.*not above 1"),
        ("-0.3\tcat", "many\tcat", r"x.arpa:11: there is no number .* 'many'"),
        ("sat\t-0.1", "sat\tnan", r"x.arpa:12: the back-off weight is nan\n.*log₁₀ of a number"),
        ("cat sat", "cat sat -1", r"x.arpa:16: this is no 2-gram with its log probability"),
        ("cat sat", "cat", r"x.arpa:16: this is no 2-gram"),
        ("cat sat", "cat dog", r"x.arpa:16: 'dog' is not among the 1-grams"),
        ("sat </s>", "cat sat", r"x.arpa:17: this 2-gram stood above already"),
        ("\tsat\t", "\tcat\t", r"x.arpa:12: this 1-gram stood above already"),
        ("\t</s>\n-0.3", "\tend\n-0.3", r"x.arpa:12: there is no </s> among the 1-grams"),
    ],
)
def test_what_can_be_wrong(old, new, problem):
    with pytest.raises(InputError, match=problem):
        read(SMALL.replace(old, new, 1))


def test_an_order_too_high():
    counts = "".join(f"ngram {n}=0\n" for n in range(3, 8))
    with pytest.raises(InputError, match="counts 7 orders\n.*from 1 to 5"):
        read(SMALL.replace("ngram 2=3\n", "ngram 2=3\n" + counts))


def test_a_context_that_is_missing():
    text = SMALL.replace("2=3\n", "2=3\nngram 3=2\n").replace(
        "\\end\\", "\\3-grams:\n-0.1\t<s> cat sat\n-0.1\tsat cat sat\n\\end\\"
    )
    with pytest.raises(InputError, match="x.arpa:22: the 3-gram's context is not among"):
        read(text)


@pytest.mark.parametrize("piece", ["two words", "", "<s>"])
def test_pieces_that_cannot_be_written(piece):
    model = text_model(1)
    words = [*model.words[:-1], piece]
    with pytest.raises(InputError, match="cannot stand in an ARPA file\n.*without white space"):
        "".join(write_arpa(words, model.module))
