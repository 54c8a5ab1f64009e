"""Texts, pairs and labels from tables."""

import gzip
import json
from collections import UserDict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloze.data.labelled import records
from cloze.data.labelled.examples import Origin, TextExample
from cloze.data.labelled.tables import ROWS_INSPECTED, read_text_examples
from cloze.errors import InputError
from helpers import Mentions, raises


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def parts(source: object, **options: object) -> list[tuple[object, ...]]:
    return [(one.text, one.pair, one.label) for one in read_text_examples(source, **options)]


def survey(source: object, **options: object) -> tuple[list[object], list[str]]:
    """The labels that could be read, and what was said about the rest."""
    errors: list[InputError] = []
    found = [one.label for one in read_text_examples(source, on_error=errors.append, **options)]
    return found, [error.problem for error in errors]


# --- the layouts of public data sets, with rows of our own


@pytest.mark.parametrize(
    ("name", "data", "columns", "first"),
    [
        ("a.tsv", "a fine film\t1\na bad one\t0\n", ("1", None, "2"), ("a fine film", None, "1")),
        (
            "cola.tsv",
            "x01\t1\t\tHe left.\nx01\t0\t*\tLeft he it.\nx02\t0\t?*\tIt he.\n",
            ("4", None, "2"),
            ("He left.", None, "1"),
        ),
        (
            "sst.tsv.gz",
            gzip.compress(b"sentence\tlabel\nso fine \t1\n"),
            ("sentence", None, "label"),
            ("so fine ", None, "1"),
        ),
        (
            "mrpc.tsv",
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
            '1\t7\t8\t" He said .\tHe "said" .\n',
            ("#1 String", "#2 String", "Quality"),
            ('" He said .', 'He "said" .', "1"),
        ),
        (
            "qnli.tsv",
            "index\tquestion\tsentence\tlabel\n0\tWho?\tShe did.\tentailment\n",
            ("question", "sentence", "label"),
            ("Who?", "She did.", "entailment"),
        ),
        (
            "mnli.tsv",
            "index\tgenre\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
            "0\tx\t( a )\ta\tb\tneutral\tcontradiction\n",
            ("sentence1", "sentence2", "gold_label"),
            ("a", "b", "contradiction"),
        ),
        (
            "qqp.csv",
            'id,qid1,qid2,question1,question2,is_duplicate\n0,1,2,"Why, so?","How\nso?",1\n',
            ("question1", "question2", "is_duplicate"),
            ("Why, so?", "How\nso?", "1"),
        ),
        (
            "pairs.txt",
            "one here\ttwo here\t1\nc d\td e\t0\n",
            ("1", "2", "3"),
            ("one here", "two here", "1"),
        ),
        (
            "imdb.tsv",
            "label\trating\tid\ttext\n1\t9\tx1\tfine\n",
            ("text", None, "label"),
            ("fine", None, "1"),
        ),
        (
            "spam.tsv",
            "ham\tsee you\nspam\twin now\nham\thello you\n",
            ("2", None, "1"),
            ("see you", None, "ham"),
        ),
        (
            "news.csv",
            "3,Oil,Prices rose\n1,War,It ended\n3,Bank,It lent\n",
            ("2", "3", "1"),
            ("Oil", "Prices rose", "3"),
        ),
        (
            "zh.tsv",
            "房间太小\tnegative\n很好\tpositive\n",
            ("1", None, "2"),
            ("房间太小", None, "negative"),
        ),
        ("pandas.csv", ",text,label\n0,fine,1\n", ("text", None, "label"), ("fine", None, "1")),
        (
            "rest.csv",
            "utterance_en,intent\nhi,greet\n",
            ("utterance_en", None, "intent"),
            ("hi", None, "greet"),
        ),
        ("test.tsv", "index\tsentence\n0\tfine\n", ("sentence", None, None), ("fine", None, None)),
        ("lines.txt", "one\ntwo\n", ("1", None, None), ("one", None, None)),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 12 else "",
)
def test_columns_are_detected(
    tmp_path: Path,
    name: str,
    data: str | bytes,
    columns: tuple[str | None, ...],
    first: tuple[str | None, ...],
) -> None:
    path = write(tmp_path / name, data)
    text, pair, label = columns
    assert parts(path)[0] == first
    assert parts(path, text_column=text, pair_column=pair, label_column=label or False) == parts(
        path
    )


def test_an_example_has_its_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"two\nlines",x\nb,y\n')
    assert list(read_text_examples(path)) == [
        TextExample(text="two\nlines", label="x", origin=Origin(file=str(path), line=2)),
        TextExample(text="b", label="y", origin=Origin(file=str(path), line=4)),
    ]


def test_columns_are_requested_by_name_or_number(tmp_path: Path) -> None:
    sick = write(
        tmp_path / "sick.tsv",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\ta b\tc d\t3.5\tNEUTRAL\n2\te\tf\t4\tENTAILMENT\n",
    )
    assert parts(sick, label_column="entailment_judgment")[0] == ("a b", "c d", "NEUTRAL")
    assert parts(sick, label_column="Relatedness_Score") == [("a b", "c d", 3.5), ("e", "f", 4.0)]
    assert parts(sick, label_column=4, is_regression=False)[1] == ("e", "f", "4")
    assert parts(sick, text_column=3, label_column=5)[0] == (
        "c d",
        None,
        "NEUTRAL",
    )  # a lone text is asked for
    assert parts(sick, text_column="3", pair_column="2", label_column=5)[0] == (
        "c d",
        "a b",
        "NEUTRAL",
    )
    bare = write(tmp_path / "bare.tsv", "x\tfine thing\tpos\ny\tbad thing\tneg\n")
    assert parts(bare, text_column=2) == [("fine thing", None, "pos"), ("bad thing", None, "neg")]
    assert parts(bare, label_column=1)[0] == ("fine thing", "pos", "x")
    assert parts(bare, text_column=2, label_column=1)[0] == ("fine thing", None, "x")
    two = write(tmp_path / "two.tsv", "pos\ta b\nneg\tc d\n")
    assert parts(two, text_column=2)[0] == ("a b", None, "pos")
    assert parts(two, label_column=1)[0] == ("a b", None, "pos")


def test_labels_that_are_not_read_are_not_checked(tmp_path: Path) -> None:
    sick = write(tmp_path / "a.tsv", "text\trelatedness_score\tentailment_label\na\t\tx\nb\t1\t\n")
    assert parts(sick, label_column=False) == [("a", None, None), ("b", None, None)]
    bare = write(tmp_path / "b.tsv", "a b\t1\nc d\t\n")
    assert parts(bare, label_column=False) == [("a b", None, None), ("c d", None, None)]
    with raises(InputError, "column", "0", "2"):
        parts(bare, text_column=0)


def test_json_lines_arrays_parquet_and_data_sets(tmp_path: Path) -> None:
    rows = [
        {"premise": "a", "hypothesis": "b", "label": 1},
        {"premise": "c", "hypothesis": "d", "label": 0},
    ]
    want = [("a", "b", "1"), ("c", "d", "0")]
    text = "\n".join(map(json.dumps, rows))
    assert parts(write(tmp_path / "a.jsonl", text)) == want
    assert parts(write(tmp_path / "lines.json", text)) == want
    assert parts(write(tmp_path / "array.json", json.dumps(rows, indent=1))) == want
    assert parts(write(tmp_path / "data.json", json.dumps({"data": rows}))) == want
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert parts(tmp_path / "a.parquet") == want
    assert parts(UserDict(row) for row in rows) == want
    assert [str(one.origin) for one in read_text_examples([rows])] == ["<list>:1", "<list>:2"]


def test_classes_of_a_data_set_have_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    data = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features)
    assert parts(data) == [("a", None, "pos"), ("b", None, "neg"), ("c", None, None)]


def test_several_files_are_read_in_order_with_one_kind_of_label(tmp_path: Path) -> None:
    write(tmp_path / "1.tsv", "text\tscore\na\t1.5\n")
    write(tmp_path / "2.tsv", "text\tscore\nb\t2\n")
    assert [label for _, _, label in parts(tmp_path)] == [1.5, 2.0]
    assert [label for _, _, label in parts(f"{tmp_path}/*.tsv", is_regression=False)] == [
        "1.5",
        "2",
    ]


# --- labels


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        (["1", "0"], ["1", "0"]),
        (["1.0", "0.0"], ["1.0", "0.0"]),  # whole numbers are classes, however they are spelt
        (["1.5", "2"], [1.5, 2.0]),
        (["-1", "0", "1"], ["-1", "0", "1"]),
        (["-1", "-1"], [None, None]),
        (["", " "], [None, None]),
        (["1.5", "x"], ["1.5", "x"]),
        (["1_0.5", "2"], ["1_0.5", "2"]),
        ([" pos ", "neg"], ["pos", "neg"]),
    ],
)
def test_labels_are_names_numbers_or_unknown(
    tmp_path: Path, labels: list[str], want: list[object]
) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"t\t{one}\n" for one in labels))
    assert [label for _, _, label in parts(path)] == want


def test_labels_of_json_may_be_numbers_of_any_kind() -> None:
    assert parts([[{"text": "a", "label": one} for one in (1.0, 2, True)]]) == [
        ("a", None, "1"), ("a", None, "2"), ("a", None, "True"),
    ]  # fmt: skip
    assert parts([[{"text": "a", "label": one} for one in (0.5, 2)]])[1] == ("a", None, 2.0)
    assert parts([[{"text": "a", "label": None}, {"text": "b"}]]) == [
        ("a", None, None),
        ("b", None, None),
    ]


def test_a_row_without_a_label_among_others_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\na\tx\nb\t\nc\ty\n")
    assert survey(path) == (["x", "y"], [Mentions(f"{path}:3: ", "label")])
    assert survey([[{"text": "a", "label": "x"}, {"text": "b"}]])[1] == [
        Mentions("<list>:2: ", "label")
    ]


def test_numbers_must_be_finite_and_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tscore\na\t1.5\nb\tnan\nc\tinf\nd\t2\n")
    assert survey(path) == (
        [1.5, 2.0],
        [Mentions(f"{path}:3: ", "label", "nan"), Mentions(f"{path}:4: ", "label", "inf")],
    )
    path = write(tmp_path / "b.tsv", "text\tlabel\na\t1\nb\tgood\n")
    assert survey(path, is_regression=True) == ([1.0], [Mentions(f"{path}:3: ", "label", "'good'")])
    assert survey([[{"text": "a", "label": "x"}, {"text": "b", "label": float("nan")}]]) == (
        ["x"],
        [Mentions("<list>:2: ", "label", "missing")],
    )


def test_a_text_may_be_empty(tmp_path: Path) -> None:
    assert parts(write(tmp_path / "a.tsv", "\tb\t1\na\t\t0\n")) == [("", "b", "1"), ("a", "", "0")]


def test_later_rows_do_not_change_the_detected_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "t\t1\n" * ROWS_INSPECTED + "t\t0.5\n")
    assert [label for _, _, label in parts(path)] == ["1"] * ROWS_INSPECTED + ["0.5"]


# --- what is refused, and how


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.tsv", b"text\tlabel\na\tx\nb\n", ("a.tsv:3", "1", "2")),
        ("a.tsv", b"a b\t1\nb\t0\t0\n", ("a.tsv:2", "3", "2")),
        ("a.tsv", b"text\ttext\tlabel\na\tb\t1\n", ("a.tsv:1", "text")),
        ("a.tsv", b"label\tscore\tid\n1\t2\t3\n", "a.tsv:1"),
        ("a.tsv", b"1\ta\tb\tc\td\n", ("a.tsv:1", "5")),
        (
            "a.tsv",
            b"tweet_x\tstance\nI do\tfor\nno\tfor\n",
            ("a.tsv:1", "tweet_x", "stance"),
        ),
        (
            "a.tsv",
            b"".join(b"%da\t%dx b\n" % (n, n) for n in range(100)),
            ("a.tsv:1", "2"),
        ),
        (
            "a.tsv",
            b"text\trelatedness_score\tentailment_label\na\t1\tx\n",
            ("column", "label", "--label-column NAME"),
        ),
        ("a.tsv", b"text\tlabel\n", "a.tsv"),
        ("a.tsv", b"", "a.tsv"),
        ("a.tsv", b"text\tlabel\na\tx\n\xff\ty\n", ("a.tsv:3", "UTF-8")),
        ("a.tsv", b"\x7fELF\0\0\n", "a.tsv:1"),
        ("a.csv", b'text,label\n"a,b\n', "a.csv:2"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', ("a.jsonl:2", "1")),
        ("a.jsonl", b'"a"\n', ("a.jsonl:1", "a")),
        ("a.jsonl", b'{"text": "a"}\n{"n": 1}\n', ("a.jsonl:2", "text")),
        ("a.jsonl", b'{"text": 3}\n', ("a.jsonl:1", "3")),
        (
            "a.jsonl",
            b'{"text": "a", "label": [{"b": 1}]}\n',
            ("a.jsonl:1", "label", "{'b': 1}"),
        ),
        ("a.jsonl", b'{"text": "a"}\n{\n', ("a.jsonl:2", "JSON")),
        ("a.json", b'[\n{"text": "a"},\n{]\n', ("a.json:3", "JSON")),
        ("a.json", b'{"text": "a"}\n{]\n', ("a.json:2", "JSON")),
        ("a.json", b"[" * 100_000, ("a.json:1", "JSON")),
        ("a.json", b"\xff", ("a.json:1", "UTF-8")),
        ("a.json", b" ", "a.json"),
        ("a.doc", b"x", ".doc"),
        ("a.parquet", b"PAR1 and no more", ("a.parquet:1", "parquet")),
        ("a.tsv.gz", gzip.compress(b"text\tlabel\na\tx\n")[:-5], "gzip"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_invalid_input_is_reported(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    path = write(tmp_path / name, data)
    with raises(InputError, problem) as caught:
        parts(path)
    assert caught.value.fix
    errors = survey(path)[1]
    assert len(errors) == 1


def test_missing_columns_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\na\tx\n")
    with raises(InputError, "a.tsv:1", "lable", fix="label"):
        parts(path, label_column="lable")
    with raises(InputError, "a.tsv:1", "3", "2", fix="1"):
        parts(path, label_column=3)
    with raises(InputError, "folder"):
        read_text_examples([path, tmp_path / "missing.tsv"])
    with raises(InputError, "dict", "rows"):
        read_text_examples({"train": []})
    with raises(InputError, "b.tsv"):
        parts(write(tmp_path / "b.tsv", ""))


def test_rows_before_a_broken_one_are_read(tmp_path: Path) -> None:
    rows = b"text\tlabel\n" + b"a\tx\n" * 5
    path = write(tmp_path / "a.tsv.gz", gzip.compress(rows)[:-4])
    assert survey(path) == (["x"] * 5, [Mentions(f"{path}:7: ", "gzip")])


def test_a_json_file_that_is_too_large_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_JSON_CHARS", 2**20)
    path = write(tmp_path / "a.json", b'["' + b"x" * 2**20 + b'"]')
    with raises(InputError, "a.json", "1", fix="JSON"):
        parts(path)
