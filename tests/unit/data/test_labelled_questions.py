"""Questions with answers, and questions with options."""

import json
from pathlib import Path

import pytest

from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.examples import Answer, ChoiceExample, Origin, QuestionExample
from cloze.data.labelled.questions import read_question_examples
from cloze.errors import InputError
from helpers import Mentions, raises

CONTEXT = "Ann saw Bob. Bob saw Ann."


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return path


def squad(*questions: object) -> object:
    return {
        "version": "x",
        "data": [{"paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}],
    }


def flat(answers: object, **more: object) -> dict[str, object]:
    return {"id": "q", "question": "Who?", "context": CONTEXT, "answers": answers, **more}


def answers_of(row: object) -> object:
    (one,) = read_question_examples([[row]])
    return one.answers


def problems(read: object, source: object) -> list[str]:
    errors: list[InputError] = []
    list(read(source, on_error=errors.append))  # type: ignore[operator]
    return [error.problem for error in errors]


# --- answers


def test_squad_both_ways(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dev.json",
        squad(
            {"id": "a", "question": "Who?", "answers": [{"text": "Bob", "answer_start": 8}]},
            {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
            {"id": "c", "question": "When?"},
        ),
    )
    first, second, third = read_question_examples(path)
    assert first == QuestionExample(
        question="Who?",
        context=CONTEXT,
        answers=(Answer(text="Bob", start=8),),
        origin=Origin(file=str(path), line=1, id="a"),
    )
    assert (second.answers, third.answers) == ((), None)
    assert third.origin == Origin(file=str(path), line=3, id="c")


def test_flat_rows_of_data_sets(tmp_path: Path) -> None:
    rows = [
        flat({"text": ["Bob", "Ann"], "answer_start": [13, 0]}),
        flat({"text": [], "answer_start": []}),
    ]
    path = write(tmp_path / "a.jsonl", "\n" + "\n".join(map(json.dumps, rows)))
    first, second = read_question_examples(path)
    assert first.answers == (Answer(text="Bob", start=13), Answer(text="Ann", start=0))
    assert (second.answers, second.origin.line) == ((), 3)


def test_an_answer_is_moved_to_where_it_stands_nearest() -> None:
    for said, stands in ((7, 8), (9, 8), (12, 13), (99, 13), (-5, 8)):
        assert answers_of(flat([{"text": "Bob", "answer_start": said}])) == (
            Answer(text="Bob", start=stands),
        )


def test_answers_in_other_words_come_last() -> None:
    given = [{"text": "Robert", "answer_start": -1}, {"text": "Bob", "answer_start": -1}]
    assert answers_of(flat(given)) == (Answer(text="Bob", start=8), Answer(text="Robert", start=-1))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            flat([{"text": "Eve", "answer_start": 3}]),
            ("question q", "'Eve'", "context"),
        ),
        (flat([{"text": "", "answer_start": 3}]), ("question q", "''", "3")),
        (flat([{"text": "Bob"}]), ("question q", "'Bob'", "None")),
        (flat([{"answer_start": 3}]), ("question q", "None")),
        (flat("Bob"), ("question q", "'Bob'", "answers")),
        (flat({"text": ["Bob"], "answer_start": []}), "answers"),
        (
            flat([{"text": "Bob", "answer_start": 8}], is_impossible=True),
            ("impossible", "answers"),
        ),
        (flat(None, question=None), ("question q", "None")),
        (flat(None, context=3), ("question q", "3")),
        ({"question": "Who?"}, ("{'question': 'Who?'}", "context")),
        ({"context": "x"}, ("question", "context")),
        ({"context": "x", "qas": [3]}, ("3", "question", "context")),
        ("x", ("'x'", "question", "context")),
    ],
)
def test_a_bad_question_is_named(row: object, problem: str) -> None:
    with raises(InputError, "<list>:1", problem):
        list(read_question_examples([[row]]))


def test_the_rest_of_an_article_is_read(tmp_path: Path) -> None:
    good = {"id": "a", "question": "Who?", "answers": []}
    path = write(tmp_path / "a.json", squad(good, 3, good))
    assert problems(read_question_examples, path) == [
        Mentions(f"{path}:2: ", "3", "question", "context")
    ]
    errors: list[InputError] = []
    assert [one.origin.line for one in read_question_examples(path, on_error=errors.append)] == [
        1,
        3,
    ]
    with raises(InputError, "b.json:2", "JSON"):
        list(read_question_examples(write(tmp_path / "b.json", "{\n")))
    with raises(InputError, ".csv"):
        read_question_examples(write(tmp_path / "c.csv", "x"))
    with raises(InputError, "d.json"):
        list(read_question_examples(write(tmp_path / "d.json", {"data": []})))


# --- options


def test_dialogues_with_several_questions(tmp_path: Path) -> None:
    asked = [{"question": f"Q{n}?", "choice": ["x", "y", "z"], "answer": "z"} for n in (1, 2)]
    path = write(tmp_path / "dream.json", [[["M: Hi.", "W: Yes?"], asked, "7-1"]])
    first, second = read_choice_examples(path)
    assert first == ChoiceExample(
        text="M: Hi.\nW: Yes?",
        question="Q1?",
        options=("x", "y", "z"),
        label=2,
        origin=Origin(file=str(path), line=1, id="7-1#1"),
    )
    assert second.origin == Origin(file=str(path), line=2, id="7-1#2")


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ({"article": "t", "question": "q", "options": ["x", "y"], "answer": "B"}, ("t", "q", 1)),
        ({"startphrase": "t", "ending0": "x", "ending1": "y", "label": 1}, ("t", None, 1)),
        ({"ctx": "t", "endings": ["x", "y"], "label": "0"}, ("t", None, 0)),
        (
            {
                "question": "q",
                "choices": {"label": ["A", "B"], "text": ["x", "y"]},
                "answerKey": "A",
            },
            ("q", None, 0),
        ),
        (
            {
                "question": "q",
                "choices": {"label": ["1", "2"], "text": ["x", "y"]},
                "answerKey": "1",
            },
            ("q", None, 0),
        ),
        (
            {"premise": "t", "question": "cause", "choice1": "x", "choice2": "y", "label": 0},
            ("t", "cause", 0),
        ),
        ({"context": "t", "answerA": "x", "answerB": "y", "label": "b"}, ("t", None, 1)),
        ({"goal": "t", "sol1": "x", "sol2": "y", "label": -1}, ("t", None, None)),
        ({"text": ["t", "u"], "options": ["x", "y"]}, ("t\nu", None, None)),
        ({"text": "t", "options": ["x", "y"], "label": ""}, ("t", None, None)),
        ({"text": "t", "options": ["x", "y"], "label": "y"}, ("t", None, 1)),
    ],
)
def test_options_under_many_names(row: object, want: tuple[object, ...]) -> None:
    (one,) = read_choice_examples([[row]])
    assert (one.text, one.question, one.label) == want
    assert one.options == ("x", "y")


def test_options_in_a_table(tmp_path: Path) -> None:
    path = write(
        tmp_path / "swag.csv",
        'startphrase,ending0,ending1,label\n"He, he",x,y,1\nShe,x,z,0\nIt,x\n',
    )
    errors: list[InputError] = []
    found = list(read_choice_examples(path, on_error=errors.append))
    assert [(one.text, one.options, one.label) for one in found] == [
        ("He, he", ("x", "y"), 1), ("She", ("x", "z"), 0),
    ]  # fmt: skip
    assert [error.problem for error in errors] == [Mentions(f"{path}:4: ", "2 columns", "4")]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": "t", "options": ["x", "y"], "label": 2}, ("label 2", "2 options")),
        (
            {"text": "t", "options": ["x", "y"], "label": "C"},
            ("label 'C'", "2 options"),
        ),
        ({"text": "t", "options": ["x", "x"], "label": "x"}, ("label 'x'", "options")),
        ({"text": "t", "options": ["1", "2"], "label": "1"}, ("label '1'", "options")),
        ({"text": "t", "options": ["x"], "label": 0}, "options"),
        ({"text": "t", "label": 0}, "options"),
        ({"text": "t", "options": ["x", 3]}, "3"),
        ({"options": ["x", "y"]}, ("text", "question")),
        ([["t"], [], "id"], ("question", "options")),
        ([["t"], ["q"], "id"], ("'q'", "options")),
    ],
)
def test_a_bad_choice_is_named(row: object, problem: str) -> None:
    assert problems(read_choice_examples, [[row]]) == [Mentions("<list>:1: ", problem)]
