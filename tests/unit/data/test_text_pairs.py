"""Pairs of texts from tables, tuples and running text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.labelled.pairs import PairColumns, PairExample, read_pair_examples
from cloze.data.made_pairs import make_pair_examples, read_documents
from cloze.data.pair_batch import EncodedTexts, PairLayout, PartOptions, RowShape, make_parts
from cloze.data.text_pairs import collect_pairs, load_text_pairs
from cloze.errors import InputError
from generated_examples import examples
from helpers import raises

TEXT = """A title
A first sentence of five words. A second sentence that follows it. A third one is here too.

Another title
Here is a paragraph with one sentence only, and it is long.
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(pairs):
    return [[pairs.texts[n] if n >= 0 else None for n in row] for row in pairs.rows.tolist()]


@pytest.mark.parametrize(
    ("name", "content", "rows", "scores"),
    [
        ("pairs.tsv", "a b\tc d\ne f\tg h\n", [["a b", "c d"], ["e f", "g h"]], None),
        ("named.tsv", "anchor\tpositive\na b\tc d\n", [["a b", "c d"]], None),
        ("three.tsv", "a b\tc d\te f\n", [["a b", "c d", "e f"]], None),
        ("scored.tsv", "a b\tc d\t3.5\ne\tf\t1\n", [["a b", "c d"], ["e", "f"]], [3.5, 1.0]),
        ("sts.csv", "sentence1,sentence2,score\na,b,2\n", [["a", "b"]], [2.0]),
        (
            "beir.jsonl",
            '{"query": "q", "pos": ["p1", "p2"], "neg": ["n1", "n2"]}\n'
            '{"query": "r", "pos": ["p"]}',
            [["q", "p1", "n1", "n2"], ["q", "p2", "n1", "n2"], ["r", "p", None, None]],
            None,
        ),
        (
            "numbered.jsonl",
            '{"anchor": "a", "positive": "p", "negative_1": "n", "negative_2": "m"}',
            [["a", "p", "n", "m"]],
            None,
        ),
        ("titles.jsonl", '{"id": 7, "title": "t", "text": "x y"}', [["t", "x y"]], None),
    ],
)
def test_the_columns_decide_what_rows_are(tmp_path, name, content, rows, scores):
    found = load_text_pairs([write(tmp_path / name, content)])
    assert rows_of(found) == rows
    assert (None if found.scores is None else found.scores.tolist()) == scores


def test_columns_can_be_named(tmp_path):
    path = write(tmp_path / "some.tsv", "id\tleft\tright\tother\n1\ta\tb\tc\n")
    columns = PairColumns(text="left", pair="right", negatives=("other",))
    assert rows_of(load_text_pairs([path], columns=columns)) == [["a", "b", "c"]]
    columns = PairColumns(text="2", pair="4")
    headless = write(tmp_path / "headless.tsv", "1\ta\tb\tc\n2\td\te\tf\n")
    assert rows_of(load_text_pairs([headless], columns=columns)) == [["a", "c"], ["d", "f"]]


def test_objects_of_python():
    assert rows_of(load_text_pairs([("a", "b"), ("c", "d")])) == [["a", "b"], ["c", "d"]]
    assert rows_of(load_text_pairs([("a", "b", "n")])) == [["a", "b", "n"]]
    scored = load_text_pairs([("a", "b", 0.5), ("c", "d", 1)])
    assert scored.kind == "scored pairs"
    assert scored.scores.tolist() == [0.5, 1.0]
    mappings = [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d"}]
    assert rows_of(load_text_pairs(mappings)) == [["a", "b"], ["c", "d"]]
    examples = [PairExample(text="a", positive="b", negatives=("n",))]
    assert rows_of(load_text_pairs(examples)) == [["a", "b", "n"]]


def test_running_text_without_a_choice_is_paired_with_itself(tmp_path):
    found = load_text_pairs([write(tmp_path / "text.txt", TEXT)])
    assert found.is_simcse
    assert len(found) == 4
    table = write(tmp_path / "text.jsonl", json.dumps({"text": "One sentence is in here."}))
    assert load_text_pairs([table]).is_simcse


def test_pairs_made_from_documents(tmp_path):
    path = write(tmp_path / "text.txt", TEXT)

    def made(kind, **options):
        found = make_pair_examples(read_documents([path]), [kind], **options)
        return [(one.text, one.positive) for one in found]

    first = TEXT.splitlines()[1]
    assert made("title") == [
        ("A title", first),
        ("Another title", "Here is a paragraph with one sentence only, and it is long."),
    ]
    one, two, three = (f"{part}." for part in first.rstrip(".").split(". "))
    assert made("neighbours") == [(one, two)]
    assert made("simcse", max_per_document=1)[0][0] in (one, two, three)
    shorter = made("word-deletion")
    assert [anchor for anchor, _ in shorter[:3]] == [one, two, three]
    assert all(set(rest.split()) <= set(anchor.split()) for anchor, rest in shorter)
    assert made("word-deletion", seed=1) != shorter == made("word-deletion")
    for seed in range(20):
        ((sentence, rest),) = made("inverse-cloze", seed=seed)
        others = [other for other in (one, two, three) if other != sentence]
        assert rest in (" ".join(others), first)
    assert made("inverse-cloze", seed=3) == made("inverse-cloze", seed=3)
    assert len({made("inverse-cloze", seed=seed)[0] for seed in range(20)}) > 2


def test_errors_say_what_to_do(tmp_path):
    with raises(InputError, "score", fix="number"):
        load_text_pairs([write(tmp_path / "s.tsv", "sentence1\tsentence2\tscore\na\tb\tentails\n")])
    labels = "".join(f"text {n}\tother {n}\tneutral\n" for n in range(30))
    with raises(InputError, "labels", fix="--pair-column"):
        load_text_pairs([write(tmp_path / "nli.tsv", labels)])
    with raises(InputError, "score"):
        collect_pairs([PairExample(text="a", positive="b", score=1.0), PairExample(text="c")])
    with raises(InputError, fix="--text-column"):
        load_text_pairs([write(tmp_path / "x.jsonl", '{"colour": "a", "shape": "b"}')])
    errors = []
    path = write(tmp_path / "bad.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": 3}\n')
    assert len(list(read_pair_examples([path], on_error=errors.append))) == 1
    assert len(errors) == 1


def test_hold_out_keeps_the_rows_of_an_anchor_together():
    examples = [PairExample(text=f"q{n % 20}", positive=f"p{n}") for n in range(200)]
    train, dev = collect_pairs(examples).hold_out(0.1, 1000)
    assert len(train) + len(dev) == 200
    assert 20 <= len(dev) < 40
    anchors = [{row[0] for row in rows_of(part)} for part in (train, dev)]
    assert not anchors[0] & anchors[1]
    shuffled = collect_pairs(reversed(examples)).hold_out(0.1, 1000)[1]
    assert sorted(rows_of(shuffled)) == sorted(rows_of(dev))
    assert len(collect_pairs(examples).hold_out(0.5, 10)[1]) == 10


def test_scores_are_scaled_for_cosines():
    found = load_text_pairs([("a", "b", 0), ("c", "d", 2.5), ("e", "f", 5)]).scale_scores()
    assert found.scores.tolist() == [0.0, 0.5, 1.0]
    unchanged = load_text_pairs([("a", "b", -1), ("c", "d", 0.5)])
    assert unchanged.scale_scores() is unchanged


@examples(40)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=4, max_size=40),
    columns=st.integers(2, 4),
    tokens=st.integers(20, 200),
    world=st.integers(1, 3),
    is_fixed=st.booleans(),
)
def test_parts_contain_every_vector_once(lengths, columns, tokens, world, is_fixed):
    texts = EncodedTexts([[n] * length for n, length in enumerate(lengths)])
    rng = np.random.default_rng(len(lengths))
    rows = rng.integers(0, len(lengths), (5, columns))
    rows[0, 2:] = -1
    layout = PairLayout.from_rows(rows)
    shape = RowShape(max(tokens, 20), 20) if is_fixed else None
    options = PartOptions(tokens=tokens, shape=shape)
    parts = [
        part
        for rank in range(world)
        for part in make_parts(layout, texts, options, rank=rank, world_size=world)
    ]
    seen = np.concatenate([part.vectors for part in parts])
    assert sorted(seen.tolist()) == list(range(layout.num_vectors))
    assert sum(part.counts["embed"] for part in parts) == 5
    for part in parts:
        assert part.size <= max(tokens, 20)
        expected = np.concatenate([[n] * lengths[n] for n in part.sample_ids])
        assert part.input_ids.tolist() == expected.tolist()
        if shape:
            assert len(part) <= shape.sequences


def test_random_spans_are_of_one_paragraph():
    paragraphs = [" ".join(f"{name}{n}" for n in range(40)) for name in "ab"]
    made = list(make_pair_examples(iter([["A title", *paragraphs]] * 50), ("random-spans",)))
    assert len(made) == 100
    for number, pair in enumerate(made):
        for span in (pair.text, pair.positive):
            assert span in paragraphs[number % 2]
            assert 4 <= len(span.split()) <= 20
    assert len({pair.text for pair in made}) > 50


def test_made_pairs_know_their_kind():
    documents = list(read_documents([TEXT.splitlines()]))
    pairs = collect_pairs(make_pair_examples(iter(documents), ("title", "simcse")))
    same = pairs.rows[:, 0] == pairs.rows[:, 1]
    assert pairs.groups.tolist() == same.astype(int).tolist()
    train, dev = pairs.hold_out(0.5, 10)
    for part in (train, dev, pairs.select(np.array([0, 2]))):
        assert part.groups.tolist() == (part.rows[:, 0] == part.rows[:, 1]).astype(int).tolist()
