"""Tagged sentences from every file format."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloze.data.labelled.examples import Origin, TaggedExample
from cloze.data.labelled.tags import read_tagged_examples
from cloze.errors import InputError
from cloze.text.words import find_words, join_words
from helpers import Mentions, raises


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def words(one: TaggedExample) -> list[str]:
    return [one.text[start:end] for start, end in one.words]


def survey(source: object, **options: object) -> tuple[list[TaggedExample], list[str]]:
    errors: list[InputError] = []
    found = list(read_tagged_examples(source, on_error=errors.append, **options))
    return found, [error.problem for error in errors]


def conllu(*rows: str) -> str:
    """Rows of ID FORM UPOS DEPREL MISC, the other columns left open."""
    lines = []
    for row in rows:
        if row.startswith("#") or not row:
            lines.append(row)
        else:
            number, form, upos, deprel, misc = row.split()
            lines.append("\t".join([number, form, "_", upos, "_", "_", "_", deprel, "_", misc]))
    return "\n".join(lines) + "\n"


# --- columns


def test_conll_columns_with_documents(tmp_path: Path) -> None:
    path = write(
        tmp_path / "eng.train.gz",
        gzip.compress(
            b"-DOCSTART- -X- O O\n\nOslo NNP I-NP I-LOC\nBergen NNP I-NP B-LOC\n. . O O\r\n\n\n"
            b"Ann NNP I-NP I-PER\n\n-DOCSTART- -X- O O\nBob NNP I-NP I-PER\n \n"
        ),
    )
    first, second, third = read_tagged_examples(path)
    assert first == TaggedExample(
        text="Oslo Bergen .",
        words=((0, 4), (5, 11), (12, 13)),
        tags=("B-LOC", "B-LOC", "O"),
        document=1,
        origin=Origin(file=str(path), line=3),
    )
    assert (second.text, second.tags, second.document) == ("Ann", ("B-PER",), 1)
    assert (third.text, third.document, third.origin.line) == ("Bob", 2, 11)
    assert [one.tags for one in read_tagged_examples(path, tag_column=2)][1:] == [
        ("NNP",),
        ("NNP",),
    ]


def test_documents_are_numbered_over_all_files(tmp_path: Path) -> None:
    bare = write(tmp_path / "a.conll", "a O\n\nb O\n")
    marked = write(tmp_path / "b.conll", "a O\n\nb O\n\n-DOCSTART- O\n\nc O\n")
    assert [one.document for one in read_tagged_examples([bare, marked, marked])] == [
        1,
        2,
        3,
        3,
        4,
        5,
        5,
        6,
    ]


def test_tabs_separate_columns_if_there_are_any(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "New York\tB-LOC\n!\tO\n")
    (one,) = read_tagged_examples(path)
    assert words(one) == ["New York", "!"]
    assert one.tags == ("B-LOC", "O")


def test_words_alone_have_no_tags(tmp_path: Path) -> None:
    assert [
        one.tags for one in read_tagged_examples(write(tmp_path / "a.txt", "one\ntwo\n\nthree\n"))
    ] == [
        None,
        None,
    ]


def test_the_scheme_is_detected_from_the_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bmes", "北 S-LOC\n\n张 B-PER\n三 E-PER\n\n京 I-LOC\n")
    assert [one.tags for one in read_tagged_examples(path)] == [
        ("B-LOC",),
        ("B-PER", "I-PER"),
        ("B-LOC",),
    ]
    assert next(read_tagged_examples(path, tag_scheme="plain")).tags == ("S-LOC",)
    with raises(InputError, "BIX"):
        read_tagged_examples(path, tag_scheme="BIX")


def test_characters_and_tags_on_one_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dev.char.bmes", "好\tO\n高 勇 ， 1 9 岁\tB-NAME E-NAME O O O O\n\n李 某\tO O\n"
    )
    first, second, third = read_tagged_examples(path)
    assert (first.text, second.text, third.text) == ("好", "高勇， 1 9 岁", "李某")
    assert words(second) == ["高", "勇", "，", "1", "9", "岁"]
    assert second.tags == ("B-NAME", "I-NAME", "O", "O", "O", "O")
    assert [one.origin.line for one in (first, second, third)] == [1, 2, 4]


def test_an_ideographic_space_is_a_word(tmp_path: Path) -> None:
    (one,) = read_tagged_examples(write(tmp_path / "a.bmes", "好 O\n\u3000 O\n人 B-PER\n"))
    assert words(one) == ["好", "\u3000", "人"]


def test_conllu_words_ranges_and_empty_nodes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.conllu",
        conllu(
            "# newdoc id = d1",
            "# text = I don't.",
            "1 I PRON nsubj _",
            "2-3 don't _ _ SpaceAfter=No",
            "2 do AUX aux _",
            "3 n't PART advmod _",
            "3.1 go VERB _ _",
            "4 . PUNCT punct _",
            "",
            "1-2 du _ _ _",
            "1 de ADP case _",
            "2 le DET det _",
            "3 vin NOUN obl SpaceAfter=No|X=1",
            "4 ! PUNCT punct _",
            "",
            "# newdoc",
            "1 Ja INTJ root _",
        ),
    )
    first, second, third = read_tagged_examples(path)
    assert (first.text, second.text) == ("I don't.", "de le vin!")
    assert words(first) == ["I", "do", "n't", "."]
    assert first.tags == ("PRON", "AUX", "PART", "PUNCT")
    assert [one.document for one in (first, second, third)] == [1, 1, 2]
    assert next(read_tagged_examples(path, tag_column="deprel")).tags == (
        "nsubj",
        "aux",
        "advmod",
        "punct",
    )
    assert next(read_tagged_examples(path, tag_column=2)).tags == ("I", "do", "n't", ".")


def test_a_range_longer_than_its_sentence_is_read_fast(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", conllu("1-999999999 ab _ _ _", "1 a X x _", "2 b X x _"))
    assert [one.text for one in read_tagged_examples(path)] == ["ab"]


# --- JSON


def test_spans_of_a_text_become_tags_of_whole_words(tmp_path: Path) -> None:
    text = "Ann-Marie lives in 北京市, Pre-War Oslo."
    rows = [
        {
            "text": text,
            "spans": [
                {"start": 19, "end": 21, "label": "LOC"},
                {"start": 0, "end": 9, "label": "PER"},
            ],
        },
        {"text": text, "entities": [{"start_offset": 32, "end_offset": 36, "type": "LOC"}]},
        {"text": text, "label": [[24, 27, "TIME"], [24, 27, "TIME"]]},
        {"text": "Oslosk", "spans": [[0, 4, "LOC"]]},
        {"text": " Oslo ", "spans": [[0, 6, "LOC"]]},
        {"text": "Oslo", "spans": []},
        {"text": "Oslo"},
    ]  # fmt: skip
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    found = list(read_tagged_examples(path))
    spans = [
        [(w, t) for w, t in zip(words(one), one.tags or (), strict=False) if t != "O"]
        for one in found
    ]
    assert spans[0] == [
        ("Ann", "B-PER"), ("-", "I-PER"), ("Marie", "I-PER"), ("北", "B-LOC"), ("京", "I-LOC"),
    ]  # fmt: skip
    assert spans[1:5] == [
        [("Oslo", "B-LOC")],
        [("Pre", "B-TIME")],
        [("Oslo", "B-LOC")],
        [("Oslo", "B-LOC")],
    ]
    assert words(found[3]) == ["Oslo", "sk"]
    assert [one.tags for one in found[5:]] == [("O",), None]
    assert len({one.document for one in found}) == len(rows)


def test_words_with_tags_of_data_sets(tmp_path: Path) -> None:
    rows = [{"tokens": ["Ann", "left"], "ner_tags": ["I-PER", "O"], "upos": ["PROPN", "VERB"]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", [rows]):
        (one,) = read_tagged_examples(source)
        assert (one.text, one.tags) == ("Ann left", ("B-PER", "O"))
        assert next(read_tagged_examples(source, tag_column="upos")).tags == ("PROPN", "VERB")


def test_tags_of_a_data_set_that_are_numbers_have_names() -> None:
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    )
    data = datasets.Dataset.from_dict(
        {"tokens": [["Ann", "Lee", "ran"]], "ner_tags": [[1, 2, 0]]}, features
    )
    assert [one.tags for one in read_tagged_examples(data)] == [("B-PER", "I-PER", "O")]


# --- words


def test_words_are_joined_with_spaces_except_between_wide_characters() -> None:
    text, spans = join_words(["GDP", "增", "长", "5", "%", "。", "”", "ok", "！"])
    assert text == "GDP 增长 5 % 。 ” ok ！"
    assert [text[a:b] for a, b in spans] == ["GDP", "增", "长", "5", "%", "。", "”", "ok", "！"]
    assert join_words(["「", "増", "」", "、", "加"])[0] == "「増」、加"
    assert join_words(["a", "b", "c"], {0})[0] == "ab c"
    assert join_words([]) == ("", ())


def test_words_are_found_as_in_basic_tokenization() -> None:
    text = "It's 5€, naïve हिन्दी\t中文!\u200b $x"
    marked = [text[a:b] for a, b in find_words(text)]
    assert marked == [
        "It",
        "'",
        "s",
        "5€",
        ",",
        "naïve",
        "हिन्दी",
        "中",
        "文",
        "!",
        "\u200b",
        "$",
        "x",
    ]
    assert find_words("abcd", {2}) == ((0, 2), (2, 4))
    assert find_words("") == ()


# --- what is refused, and how


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.conll", "a X O\nb O\n\nc X O\n", ("a.conll:2", "2", "3")),
        ("a.conll", "a\tO\n\tO\n\nc\tO\n", "a.conll:2"),
        ("a.conll", b"c O\n\n\xff O\nd O\n", ("a.conll:3", "UTF-8")),
        ("a.bmes", "好 人\tO O\n好 人\tO\n", ("a.bmes:2", "2", "1")),
        (
            "a.conllu",
            conllu("1 a X x _", "", "1 b X x _") + "2\tx\n",
            ("a.conllu:4", "2", "CoNLL", "10"),
        ),
        ("a.conllu", conllu("1 a X x _", "", "b c X x _"), ("a.conllu:3", "b")),
        (
            "a.conllu",
            conllu("1 a X x _", "", "1 b X x _").replace("b", ""),
            ("3", "tag", "empty"),
        ),
    ],
)
def test_an_invalid_row_is_reported_and_its_sentence_skipped(
    tmp_path: Path, name: str, data: str | bytes, problem: str
) -> None:
    path = write(tmp_path / name, data)
    with raises(InputError, problem):
        list(read_tagged_examples(path))
    found, problems = survey(path)
    assert len(found) == len(problems) == 1


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"text": "a b c", "spans": [[0, 3, "X"], [2, 5, "Y"]]},
            ("'X' (characters 0 to 3)", "'Y' (characters 2 to 5)", "overlap"),
        ),
        ({"text": "a b", "spans": [[1, 2, "X"]]}, ("'X' (characters 1 to 2)", "word")),
        (
            {"text": "a b", "spans": [[0, 4, "X"]]},
            ("[0, 4, 'X']", "3 characters"),
        ),
        ({"text": "a b", "spans": [{"start": 0, "end": 1}]}, ("[0, 1, None]", "span")),
        ({"text": "a b", "spans": [[1, 1, "X"]]}, ("[1, 1, 'X']", "span")),
        ({"text": "a b", "spans": "X"}, ("spans", "list")),
        ({"text": 3}, ("3", "text")),
        ({"tokens": ["a"], "tags": ["O", "O"]}, ("1", "2 tags")),
        ({"tokens": ["a"], "tags": "O"}, ("1", "list")),
        ({"tokens": ["a"], "tags": [3]}, ("tag", "3")),
        ({"tokens": ["a", ""]}, ("word", "empty")),
        ({"tokens": "a"}, ("words", "list")),
        ({"words": [1]}, ("1", "text")),
        ({"sentence": "a"}, ("spans", "tags")),
        ([1], ("spans", "tags")),
    ],
)
def test_an_invalid_record_is_reported(tmp_path: Path, row: object, problem: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "fine"}\n' + json.dumps(row))
    with raises(InputError, "a.jsonl:2", problem):
        list(read_tagged_examples(path))
    found, problems = survey(path)
    assert len(found) == len(problems) == 1


def test_labelled_texts_are_not_read_as_words(tmp_path: Path) -> None:
    data = "text\tlabel\na good film\tpos\n\nso bad\tneg\ndull\tneg\nit was fine\tpos\n"
    path = write(tmp_path / "a.tsv", data)
    with raises(InputError, "a.tsv:2", "a good film", fix="classify"):
        list(read_tagged_examples(path))


@pytest.mark.parametrize(
    "data",
    [
        "这部电影真的很好看\t正面\n服务太差，再也不来\t负面\n不错\t正面\n",
        "text\tlabel\n很好！\tpos\n太差。\tneg\n还行，不贵\tpos\n",
        "花呗支持高铁票吗\t为什么不支持花呗\t0\n花呗账单有没有结清\t下月花呗账单\t1\n",
        "อาหารที่ร้านนี้อร่อยมากๆเลย\tpos\nบริการแย่มากไม่กลับไปอีกแล้ว\tneg\n",
    ],
)
def test_labelled_texts_without_spaces_are_not_read_as_words(tmp_path: Path, data: str) -> None:
    with raises(InputError, "a.tsv:", fix="classify"):
        list(read_tagged_examples(write(tmp_path / "a.tsv", data)))


def test_a_few_long_words_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "中华人民共和国\tNR\n成立\tVV\n了\tAS\n。\tPU\n")
    (one,) = read_tagged_examples(path)
    assert words(one) == ["中华人民共和国", "成立", "了", "。"]


def test_missing_columns_and_binary_files_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a X O\n")
    with raises(InputError, "a.conll:1", "4", "3"):
        list(read_tagged_examples(path, tag_column=4))
    with raises(InputError, "ner"):
        list(read_tagged_examples(path, tag_column="ner"))
    with raises(InputError, "CoNLL", "pos", fix="xpos"):
        list(
            read_tagged_examples(
                write(tmp_path / "b.conllu", conllu("1 a X x _")), tag_column="pos"
            )
        )
    with raises(InputError, "c.conll"):
        list(read_tagged_examples(write(tmp_path / "c.conll", "")))
    with raises(InputError, "d.conll"):
        list(read_tagged_examples(write(tmp_path / "d.conll", "\n\n")))
    with raises(InputError, "e.conll:1"):
        list(read_tagged_examples(write(tmp_path / "e.conll", b"\x7fELF\0")))
    cut = write(tmp_path / "f.conll.gz", gzip.compress(b"a O\n\nb O\n")[:-4])
    found, problems = survey(cut)
    assert [one.text for one in found] == ["a"]
    assert problems == [Mentions(f"{cut}:4: ", "gzip")]


PLUS = """# global.columns = ID FORM UPOS NER:TAG
# newdoc id = d1
# text = Ada didn't.
1\tAda\tPROPN\tB-PER
2-3\tdidn't\t_\t_
2\tdid\tAUX\t_
3\tn't\tPART\t*
4\t.\tPUNCT\t_

# newdoc id = d2
1\tParis\tPROPN\tB-LOC
"""


def test_conllu_plus_names_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllup", PLUS)
    first, second = read_tagged_examples(path)
    assert words(first) == ["Ada", "did", "n't", "."]
    assert first.text == "Ada didn't ."
    assert first.tags == ("PROPN", "AUX", "PART", "PUNCT")
    assert (first.document, second.document) == (1, 2)
    assert (first.origin.line, second.origin.line) == (4, 11)
    for column in ("NER:TAG", "ner:tag", 4):
        first, second = read_tagged_examples(path, tag_column=column)
        assert first.tags == ("B-PER", "O", "O", "O")  # no tag is O
        assert second.tags == ("B-LOC",)


def test_conllu_plus_may_lack_columns_of_conllu(tmp_path: Path) -> None:
    plain = "# global.columns = FORM MISC NE\nin\t_\t_\nParis\tSpaceAfter=No\tLOC\n.\t_\t_\n"
    (one,) = read_tagged_examples(write(tmp_path / "a.txt", plain))
    assert (one.text, one.tags) == ("in Paris.", ("O", "LOC", "O"))  # by default the last column


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        (PLUS, "net", ("global.columns", "net")),
        ("# global.columns = ID WORD\n1\ta\n", None, ("a.conllup:1", "FORM")),
        ("# global.columns = ID FORM NE\n1\ta\n", None, ("a.conllup:2", "2", "3")),
        ("# global.columns = ID FORM NE\nx\ta\tO\n", None, ("a.conllup:2", "'x'")),
    ],
)
def test_invalid_conllu_plus_is_reported(tmp_path, text, column, problem) -> None:
    path = write(tmp_path / "a.conllup", text)
    with raises(InputError, problem):
        list(read_tagged_examples(path, tag_column=column))
