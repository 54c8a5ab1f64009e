"""Written examples are read back; every broken row is reported."""

import csv
import io
import json
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import assume, example, given
from hypothesis import strategies as st

from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.questions import read_question_examples
from cloze.data.labelled.tables import read_text_examples
from cloze.data.labelled.tag_schemes import (
    convert_to_iob2,
    detect_tag_scheme,
    spans_to_tags,
    tags_to_spans,
)
from cloze.data.labelled.tags import read_tagged_examples
from cloze.errors import InputError
from cloze.text.words import find_words

ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=30)
FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\r\n\t"), max_size=30)
WORD = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\ufeff\r\n\t "), min_size=1, max_size=9
)
NAME = st.sampled_from(["pos", "neg", "zur Not", "-"])
LABEL = st.sampled_from(["A", "B", "a-b"])


def read(reader, name, data, **options):
    """What a reader makes of a file, and what it says about the rest."""
    errors: list[InputError] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data.encode())
        found = list(reader(path, on_error=errors.append, **options))
    return found, errors


@st.composite
def spans(draw, count=None):
    """How many words there are, and spans in them that do not overlap."""
    count = draw(st.integers(0, 12)) if count is None else count
    borders = sorted(draw(st.sets(st.integers(0, count), max_size=8)))
    pairs = zip(borders[::2], borders[1::2], strict=False)
    found = [(first, last, draw(LABEL)) for first, last in pairs]
    # borders that touch: the one behind the last of a span may begin another
    more = [(a[1], b[0], draw(LABEL)) for a, b in pairwise(found)]
    return count, sorted([*found, *(one for one in more if draw(st.booleans()))])


def in_scheme(spans, count, scheme):
    tags = ["O"] * count
    for number, (first, last, label) in enumerate(spans):
        before = spans[number - 1] if number else (0, -1, "")
        need = scheme != "IOB1" or (before[1] == first and before[2] == label)
        tags[first:last] = [f"{'B' if need else 'I'}-{label}"] + [f"I-{label}"] * (last - first - 1)
        if scheme == "BIOES":
            tags[last - 1] = f"{'S' if last - first == 1 else 'E'}-{label}"
    return tags


# --- schemes


@given(spans(), st.sampled_from(["IOB1", "IOB2", "BIOES"]))
def test_spans_round_trip_through_every_scheme(drawn, scheme):
    count, want = drawn
    tags = in_scheme(want, count, scheme)
    assert tags_to_spans(tags, scheme) == tags_to_spans(tags) == want
    assert convert_to_iob2(tags) == spans_to_tags(want, count)
    if any(last - first > 1 for first, last, _ in want) and scheme != "BIOES":
        assert detect_tag_scheme(tags) in ("IOB1", "IOB2")


@given(st.lists(st.sampled_from(["O", *(f"{p}-{x}" for p in "BIES" for x in "AB")]), max_size=9))
def test_any_tags_give_ordered_spans(tags):
    found = tags_to_spans(tags, "BIOES")
    covered = [index for first, last, _ in found for index in range(first, last)]
    assert covered == [index for index, tag in enumerate(tags) if tag != "O"]
    assert tags_to_spans(convert_to_iob2(tags, "BIOES"), "IOB2") == found


# --- tables


@given(st.lists(st.tuples(ANY, ANY, NAME), min_size=1, max_size=9))
def test_pairs_in_csv(rows):
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["sentence1", "sentence2", "label"], *rows])
    found, errors = read(read_text_examples, "a.csv", table.getvalue())
    assert [(one.text, one.pair, one.label) for one in found] == rows
    assert not errors


@given(st.lists(st.tuples(FIELD, NAME, st.booleans()), min_size=1, max_size=9))
@example([("", "-", True), ('"', "pos", True)])
def test_texts_in_tsv_with_broken_rows(rows):
    # otherwise another reader may see quoted fields
    assume(all(good for *_, good in rows) or all('"' not in text for text, *_ in rows))
    assume(all('""' not in text for text, *_ in rows))
    lines = [
        "sentence\tlabel",
        *(f"{text}\t{label}" if good else f"{text}\t{label}\t" for text, label, good in rows),
    ]
    found, errors = read(read_text_examples, "a.tsv", "\n".join(lines))
    assert [(one.text, one.label, one.origin.line) for one in found] == [
        (text, label, line) for line, (text, label, good) in enumerate(rows, 2) if good
    ]
    assert len(errors) == sum(not good for *_, good in rows)


@given(
    st.lists(
        st.tuples(ANY, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=9
    )
)
def test_numbers_in_json_lines(rows):
    data = "\n".join(json.dumps({"text": text, "score": score}) for text, score in rows)
    found, errors = read(read_text_examples, "a.jsonl", data, is_regression=True)
    assert not errors
    if any(score != -1 for _, score in rows):
        assert [(one.text, one.label) for one in found] == rows


# --- tags


@st.composite
def sentences(draw):
    words = draw(st.lists(WORD, min_size=1, max_size=8))
    return words, draw(spans(len(words)))[1]


@given(
    st.lists(sentences(), min_size=1, max_size=5),
    st.sampled_from(["IOB1", "IOB2", "BIOES"]),
    st.data(),
)
def test_columns_with_broken_rows(drawn, scheme, data):
    broken = data.draw(st.sets(st.integers(1, len(drawn) - 1))) if len(drawn) > 1 else set()
    lines = []
    for number, (words, found) in enumerate(drawn):
        tags = in_scheme(found, len(words), scheme)
        lines += [f"{word} x {tag}" for word, tag in zip(words, tags, strict=True)]
        lines += ["one-too-few x"] if number in broken else []
        lines.append("")
    found, errors = read(read_tagged_examples, "a.conll", "\n".join(lines), tag_scheme=scheme)
    kept = [one for number, one in enumerate(drawn) if number not in broken]
    if any(word.startswith("-DOCSTART-") for words, _ in drawn for word in words):
        return
    assert [[one.text[a:b] for a, b in one.words] for one in found] == [words for words, _ in kept]
    assert [tags_to_spans(one.tags) for one in found] == [spans for _, spans in kept]
    assert len(errors) == len(broken)


@given(ANY, st.data())
def test_spans_of_characters(text, data):
    _, drawn = data.draw(spans(len(text)))
    # a border beside a blank moves to the word
    trimmed = [
        (first + len(part) - len(part.lstrip()), last - len(part) + len(part.rstrip()), label)
        for first, last, label in drawn
        if (part := text[first:last]).strip()
    ]
    row = json.dumps(
        {"text": text, "spans": [one for one in drawn if text[one[0] : one[1]].strip()]}
    )
    found, errors = read(read_tagged_examples, "a.jsonl", row)
    assert not errors
    (one,) = found
    assert one.text == text
    again = [
        (one.words[a][0], one.words[b - 1][1], label)
        for a, b, label in tags_to_spans(one.tags or ())
    ]
    assert again == trimmed


@given(ANY, st.sets(st.integers(0, 30)))
def test_words_leave_only_white_space(text, cuts):
    words = find_words(text, cuts)
    assert "".join(text[a:b] for a, b in words) == "".join(text.split())
    assert all(a < b and not cuts & set(range(a + 1, b)) for a, b in words)


# --- questions


@given(st.lists(st.tuples(ANY, ANY, st.lists(st.tuples(st.integers(0, 29), st.integers(1, 9))))))
def test_answers_are_at_their_start(drawn):
    qas, want = [], []
    for number, (question, context, spans) in enumerate(drawn):
        answers = [(context[a : a + n], a) for a, n in spans if context[a : a + n]]
        listed = [{"text": text, "answer_start": start} for text, start in answers]
        qas.append(
            {"context": context, "qas": [{"id": number, "question": question, "answers": listed}]}
        )
        want.append((question, context, answers, str(number)))
    found, errors = read(
        read_question_examples, "a.json", json.dumps({"data": [{"paragraphs": qas}]})
    )
    assert len(errors) == (not drawn)  # there is nothing in it
    assert [
        (one.question, one.context, [(a.text, a.start) for a in one.answers], one.origin.id)
        for one in found
    ] == want


@given(
    st.lists(st.tuples(ANY, st.lists(FIELD, min_size=1, max_size=4), st.integers(0, 3)), min_size=1)
)
def test_choices_with_invalid_labels(drawn):
    rows = [{"text": text, "options": options, "label": label} for text, options, label in drawn]
    found, errors = read(read_choice_examples, "a.jsonl", "\n".join(map(json.dumps, rows)))
    good = [row for row in rows if len(row["options"]) > 1 and row["label"] < len(row["options"])]
    assert [
        {"text": one.text, "options": list(one.options), "label": one.label} for one in found
    ] == good
    assert len(errors) == len(rows) - len(good)
