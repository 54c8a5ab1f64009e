"""Questions about a context, from SQuAD's JSON and flat rows."""

import json
from pathlib import Path

import pytest

from cloze.data.labelled.examples import Answer, Origin, QuestionExample
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


def test_squad_1_and_2(tmp_path: Path) -> None:
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


def test_an_answer_is_moved_to_its_nearest_occurrence() -> None:
    for given, expected in ((7, 8), (9, 8), (12, 13), (99, 13), (-5, 8)):
        assert answers_of(flat([{"text": "Bob", "answer_start": given}])) == (
            Answer(text="Bob", start=expected),
        )


def test_answers_that_are_not_in_the_context_come_last() -> None:
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
def test_an_invalid_question_is_reported(row: object, problem: str) -> None:
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
