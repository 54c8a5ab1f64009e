"""Running text for a neural language model: training and dev lines, and their token ids."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloze.data.sources import Source, read_rows
from cloze.errors import InputError
from cloze.make.recipe.data import LanguageModelData
from cloze.make.sources import no_text_error
from cloze.models.configs.ngram import EOS
from cloze.models.language import Vocabulary
from cloze.text.tokenizer import Tokenizer

_BATCH = 1000  # lines tokenized at once


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Sentences, none of them blank."""

    train: list[str]
    dev: list[str]


def read_lines(sources: Sequence[Source], table: LanguageModelData) -> Lines:
    """The lines of the sources; the last ones are held out if no `dev` is named."""
    train, dev = (_read_column(some, table.text_column) for some in (sources, table.dev))
    if not table.dev and table.hold_out:
        kept = len(train) - math.ceil(table.hold_out * len(train))
        if train and not kept:
            raise InputError(
                "a single line cannot be split into training and dev text",
                fix="give more text, or name dev text: --dev PATH",
            )
        train, dev = train[:kept], train[kept:]
    if not train:
        raise no_text_error()
    return Lines(train=train, dev=dev)


def _read_column(sources: Sequence[Source], column: str | None) -> list[str]:
    if not sources:
        return []
    return [row.text for row in read_rows(list(sources), column=column) if row.text.strip()]


@dataclass(frozen=True)
class RunningText:
    """Running text as token ids, with an end token after every sentence."""

    ids: NDArray[np.int32]

    @classmethod
    def of(cls, lines: Sequence[str], tokenizer: Tokenizer) -> "RunningText":
        """Tokenize lines."""
        vocabulary = Vocabulary(tokenizer)
        parts = [
            np.array(
                [
                    number
                    for ids in vocabulary.encode(lines[at : at + _BATCH])
                    if ids
                    for number in (*ids, EOS)
                ],
                np.int32,
            )
            for at in range(0, len(lines), _BATCH)
        ]
        ids = np.concatenate([*parts, np.zeros(0, np.int32)])
        if not len(ids):
            raise no_text_error()
        return cls(ids)

    def frequencies(self, words: int) -> NDArray[np.float32]:
        """How often each word occurs, plus one."""
        return np.bincount(self.ids, minlength=words).astype(np.float32) + 1

    @cached_property
    def fingerprint(self) -> list[int]:
        """Identifies the text: its length and a checksum."""
        return [len(self.ids), zlib.crc32(self.ids.tobytes())]
