"""Public data sets have the published numbers of examples."""

import lzma
from collections import Counter

import pytest

from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.questions import read_question_examples
from cloze.data.labelled.tables import read_text_examples
from cloze.data.labelled.tag_schemes import tags_to_spans
from cloze.data.labelled.tags import read_tagged_examples
from cloze.errors import InputError
from helpers import raises

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("file", "rows", "classes", "columns"),
    [
        ("sst2/dev.tsv", 872, 2, ("1", None, "2")),
        ("glue/SST-2/dev.tsv", 872, 2, ("sentence", None, "label")),
        ("glue/CoLA/dev.tsv", 1043, 2, ("4", None, "2")),
        ("glue/CoLA/train.tsv.xz", 8551, 2, ("4", None, "2")),
        ("glue/MRPC/dev.tsv", 408, 2, ("#1 String", "#2 String", "Quality")),
        ("glue/RTE/dev.tsv", 277, 2, ("sentence1", "sentence2", "label")),
        ("glue/STS-B/dev.tsv", 1500, 0, ("sentence1", "sentence2", "score")),
        ("glue/QNLI/dev.tsv.xz", 5463, 2, ("question", "sentence", "label")),
        ("pairs/quora/dev.txt.xz", 10_000, 2, ("1", "2", "3")),
        ("pairs/snli/dev.txt.xz", 9842, 3, ("1", "2", "3")),
        ("pairs/scitail/dev.txt.xz", 1304, 2, ("1", "2", "3")),
        ("imdb/train.tsv.xz", 6000, 2, ("text", None, "label")),
        ("chinese/ChnSentiCorp/dev.tsv", 1200, 2, ("1", None, "2")),
        ("chinese/tnews/dev.tsv", 10_000, 15, ("1", None, "2")),
        ("chinese/AFQMC/dev.txt", 4316, 2, ("1", "2", "3")),
    ],
)
def test_tables(data_dir, file, rows, classes, columns):
    text, pair, label = columns
    number = not classes
    found = list(read_text_examples(data_dir / file))
    assert found == list(
        read_text_examples(data_dir / file, text_column=text, pair_column=pair, label_column=label)
    )
    assert len(found) == rows
    assert all(one.text and (one.pair is not None) == (pair is not None) for one in found)
    labels = {one.label for one in found}
    assert all(isinstance(one, float) for one in labels) if number else len(labels) == classes


def test_sick_has_two_labels(data_dir):
    file = data_dir / "sick" / "dev.tsv"
    numbers = [one.label for one in read_text_examples(file, label_column="relatedness_score")]
    assert len(numbers) == 500
    assert all(isinstance(one, float) and 1 <= one <= 5 for one in numbers)
    names = {one.label for one in read_text_examples(file, label_column="entailment_judgment")}
    assert names == {"NEUTRAL", "ENTAILMENT", "CONTRADICTION"}


@pytest.mark.parametrize(
    ("file", "sentences", "documents", "spans"),
    [
        (
            "conll2003/eng.train.xz",
            14_041,
            946,
            {"LOC": 7140, "PER": 6600, "ORG": 6321, "MISC": 3438},
        ),
        ("conll2003/eng.testa.xz", 3250, 216, {"PER": 1842, "LOC": 1837, "ORG": 1341, "MISC": 922}),
        ("chinese/ner/resume/test.char.bmes", 477, 477, {"TITLE": 772, "ORG": 553, "NAME": 112}),
        ("chinese/ner/weibo/test.all.bmes", 270, 270, {"PER.NOM": 172, "PER.NAM": 113}),
    ],
)
def test_entities(data_dir, file, sentences, documents, spans):
    found = list(read_tagged_examples(data_dir / file))
    assert len(found) == sentences
    assert len({one.document for one in found}) == documents
    counted = Counter(label for one in found for _, _, label in tags_to_spans(one.tags, "IOB2"))
    assert spans.items() <= counted.items()


@pytest.mark.parametrize(
    "file",
    [
        "sst2/dev.tsv",
        "chinese/ChnSentiCorp/dev.tsv",
        "chinese/tnews/dev.tsv",
        "chinese/AFQMC/dev.txt",
    ],
)
def test_tables_of_texts_are_not_read_as_tagged_words(data_dir, file):
    with raises(InputError, "label"):
        list(read_tagged_examples(data_dir / file))


def test_the_text_of_conllu_equals_its_text_comments(data_dir):
    file = data_dir / "ud_ewt" / "en_ewt-ud-dev.conllu.xz"
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        texts = [
            line.removeprefix("# text = ").rstrip("\n") for line in lines if "# text = " in line
        ]
    found = list(read_tagged_examples(file))
    assert [one.text for one in found] == texts
    assert len(found) == 2001
    assert len({tag for one in found for tag in one.tags}) == 17


@pytest.mark.parametrize(
    ("file", "questions", "none", "elsewhere"),
    [
        ("squad/dev-v1.1.json.xz", 2037, 0, 0),
        ("squad/dev-v2.0.json.xz", 1133, 608, 0),
        ("xquad/xquad.zh.json.xz", 963, 0, 0),
        ("chinese/cmrc2018/cmrc2018_trial.json", 1002, 0, 0),
        ("chinese/cmrc2018/cmrc2018_dev.json.xz", 3219, 0, 193),
    ],
)
def test_questions(data_dir, file, questions, none, elsewhere):
    found = list(read_question_examples(data_dir / file))
    assert len({one.origin.id for one in found}) == len(found) == questions
    assert sum(one.answers == () for one in found) == none
    answers = [(one.context, answer) for one in found for answer in one.answers]
    assert sum(answer.start < 0 for _, answer in answers) == elsewhere
    assert all(one.answers[0].start >= 0 for one in found if one.answers)
    assert all(c.startswith(a.text, a.start) for c, a in answers if a.start >= 0)


def test_dialogues(data_dir):
    found = list(read_choice_examples(data_dir / "dream" / "dev.json.xz"))
    assert len(found) == 2040
    assert {len(one.options) for one in found} == {3}
    assert {one.label for one in found} == {0, 1, 2}
