"""Labelled examples: one record for each task, and each knows the file and line it came from."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an example stood, for whoever must name it."""

    file: str = ""
    line: int = 0
    id: str | None = None  # its own name, where the data give one

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else f"example {self.line}"


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample:
    """A text, or a pair, and what it is: a class by name, or a number."""

    text: str
    pair: str | None = None
    label: str | float | None = None  # None: not known
    origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExample:
    """A sentence with its words marked off, and a tag for each word.

    Tags of spans are IOB2, whatever the file had: O, B-PER, I-PER. Tags of another kind (parts of
    speech) are as they are.
    """

    text: str
    words: tuple[tuple[int, int], ...]  # characters of each word
    tags: tuple[str, ...] | None = None
    document: int = 0  # sentences of one document follow each other and share this number
    origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A stretch of a context."""

    text: str
    start: int  # -1: the data say that the context has it in other words (CMRC 2018)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionExample:
    """A question about a context."""

    question: str
    context: str
    answers: tuple[Answer, ...] | None = None  # (): the context does not say; None: not known
    origin: Origin = UNKNOWN_ORIGIN  # its id is the question's


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample:
    """Options, one of which goes best with a text (and a question about it)."""

    text: str
    options: tuple[str, ...]
    question: str | None = None
    label: int | None = None  # the number of the right one
    origin: Origin = UNKNOWN_ORIGIN


Example: TypeAlias = TextExample | TaggedExample | QuestionExample | ChoiceExample
