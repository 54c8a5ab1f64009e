"""Multiple choice, from DREAM's JSON and from rows under many names."""

import json
from pathlib import Path

import pytest

from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.examples import ChoiceExample, Origin
from cloze.errors import InputError
from helpers import Mentions


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return path


def problems(read: object, source: object) -> list[str]:
    errors: list[InputError] = []
    list(read(source, on_error=errors.append))  # type: ignore[operator]
    return [error.problem for error in errors]


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
def test_an_invalid_choice_is_reported(row: object, problem: str) -> None:
    assert problems(read_choice_examples, [[row]]) == [Mentions("<list>:1: ", problem)]


RACE = {
    "article": "Tom has a cat.",
    "questions": ["Who has a cat?", "Tom has a _ ."],
    "options": [["Tom", "Ann", "Bob", "Eve"], ["dog", "bird", "cat", "fish"]],
    "answers": ["A", "C"],
    "id": "middle1.txt",
}


def test_articles_of_race_as_files_and_lines(tmp_path: Path) -> None:
    folder = tmp_path / "middle"
    folder.mkdir()
    write(folder / "1.txt", json.dumps(RACE))
    write(folder / "2.txt", {**RACE, "id": "middle2.txt", "answers": ["B", "D"]})  # indented
    lines = write(tmp_path / "race.jsonl", json.dumps(RACE) + "\n" + json.dumps(RACE) + "\n")
    first, second, third, fourth = read_choice_examples(folder)
    assert first == ChoiceExample(
        text="Tom has a cat.",
        question="Who has a cat?",
        options=("Tom", "Ann", "Bob", "Eve"),
        label=0,
        origin=Origin(file=str(folder / "1.txt"), line=1, id="middle1.txt#1"),
    )
    assert [one.label for one in (second, third, fourth)] == [2, 1, 3]
    assert fourth.origin.id == "middle2.txt#2"
    found = list(read_choice_examples(lines))
    assert [(one.label, one.origin.line) for one in found] == [(0, 1), (2, 1), (0, 2), (2, 2)]
    assert list(read_choice_examples([RACE]))[1].options == ("dog", "bird", "cat", "fish")
    hidden = {key: RACE[key] for key in ("article", "questions", "options")}
    assert [one.label for one in read_choice_examples([hidden])] == [None, None]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"answers": ["A"]}, ("2 questions", "1 answers")),
        ({"options": None}, ("2 questions", "options")),
        ({"answers": ["A", "E"]}, ("question 2", "'E'")),
        ({"options": [["Tom", "Ann"], ["dog"]]}, ("question 2", "options")),
    ],
)
def test_invalid_articles_of_race_are_reported(changes: dict, problem: tuple[str, ...]) -> None:
    assert problems(read_choice_examples, [{**RACE, **changes}]) == [
        Mentions("<list>:1: ", *problem)
    ]
