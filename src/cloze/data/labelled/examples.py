"""Labelled examples: one class for each task, with the file and line of every example."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from cloze.errors import InputError
from cloze.text.long_texts import Gap

SHOWN_LABELS = 6  # in an error
LABEL_CHARS = 40
TRAIN, DEV = "<train>", "<dev>"  # tables that are passed to `finetune`


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file and line of an example, for error messages."""

    file: str = ""
    line: int = 0
    id: str | None = None  # its id in the data, if there is one

    def __str__(self) -> str:
        return format_position(self.file, self.line) if self.file else f"example {self.line}"


def format_position(file: str, line: int) -> str:
    """A line of a file, or a row of the training or dev table, for a message."""
    return f"{file[1:-1]}, row {line:,}" if file in (TRAIN, DEV) else f"{file}:{line}"


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample:
    """A text or a pair of texts with its label: a class, a number, or several classes."""

    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None  # None: unknown
    origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExample:
    """A sentence with its words and a tag for each word.

    Span tags are IOB2 (O, B-PER, I-PER), for every scheme of the file. Other tags, such as parts
    of speech, are unchanged.
    """

    text: str
    words: tuple[tuple[int, int], ...]  # characters of each word
    tags: tuple[str, ...] | None = None
    document: int = 0  # consecutive sentences of a document have the same number
    origin: Origin = UNKNOWN_ORIGIN
    whole: tuple[str, tuple[Gap, ...]] | None = None  # the text, if this is only its two ends
    is_streamed: bool = False  # a long text in windows; `words` is empty, they are found later


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer span of a context."""

    text: str
    start: int  # -1: the text does not occur in the context (CMRC 2018)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionExample:
    """A question about a context."""

    question: str
    context: str
    answers: tuple[Answer, ...] | None = None  # (): unanswerable; None: unknown
    origin: Origin = UNKNOWN_ORIGIN  # with the id of the question


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample:
    """A multiple-choice example: a text, an optional question, and options."""

    text: str
    options: tuple[str, ...]
    question: str | None = None
    label: int | None = None  # index of the correct option
    origin: Origin = UNKNOWN_ORIGIN


Example: TypeAlias = TextExample | TaggedExample | QuestionExample | ChoiceExample


def label_index(labels: Sequence[str], label: str, origin: Origin) -> int:
    """The index of a label; raise if it is unknown, with its origin and similar labels."""
    try:
        return labels.index(label)
    except ValueError:
        similar = get_close_matches(label, labels, n=3)
        raise InputError(
            f"{origin}: the model has no label {format_labels([label])}",
            fix=f"did you mean {format_labels(similar, ' or ')}?"
            if similar
            else f"its labels are {format_labels(labels)}",
        ) from None


def format_labels(labels: Sequence[str], separator: str = ", ") -> str:
    """The first labels for a message, long ones shortened."""
    shown = [
        repr(one if len(one) <= LABEL_CHARS else f"{one[: LABEL_CHARS - 1]}…")
        for one in labels[:SHOWN_LABELS]
    ]
    more = f"{separator}… ({len(labels):,} in all)" if len(labels) > SHOWN_LABELS else ""
    return separator.join(shown) + more
