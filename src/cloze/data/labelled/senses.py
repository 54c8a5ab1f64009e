"""Words in sentences with their senses: NAME.data.txt with one label per line in NAME.gold.txt.

CoarseWSD-20 (Loureiro et al. 2021) has lines of the index of a word and a sentence, and the names
of its senses in classes_map.txt. WiC (Pilehvar & Camacho-Collados 2019) has pairs of sentences and
whether a word has the same sense in both (T or F): word, part of speech, its two indices, both
sentences.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from cloze.data.input_files import match_paths, open_text
from cloze.data.labelled.examples import UNKNOWN_ORIGIN, Origin
from cloze.errors import InputError
from cloze.files import PathLike

DATA, GOLD, NAMES = ".data.txt", ".gold.txt", "classes_map.txt"
_SENTENCE, _PAIR = 2, 5  # columns of a line
_INDICES = re.compile(r"(\d{1,6})-(\d{1,6})")

Span = tuple[int, int]  # start and end characters


@dataclass(frozen=True, slots=True, kw_only=True)
class SenseExample:
    """A word in a text, or in two texts, and its label."""

    text: str
    word: Span
    label: str
    lemma: str  # the word in lower case, or as the data name it
    pair: str | None = None
    pair_word: Span | None = None
    origin: Origin = UNKNOWN_ORIGIN


def is_sense_data(source: object) -> bool:
    """Whether a source names files of senses."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).endswith(DATA)


def read_sense_examples(source: PathLike) -> Iterator[SenseExample]:
    """The examples of a file, or of several that a glob names, in order."""
    for path in match_paths(os.fspath(source)):
        rows = _read_lines(path)
        gold_path = path.with_name(path.name.removesuffix(DATA) + GOLD)
        if not gold_path.exists():
            raise InputError(
                f"{path}: its labels are missing", fix=f"put them into {gold_path.name} beside it"
            )
        labels = _read_lines(gold_path)
        if len(rows) != len(labels):
            raise InputError(
                f"{path} has {len(rows):,} lines, and {gold_path.name} has {len(labels):,}",
                fix="write one label for each line",
            )
        names = _read_names(path.with_name(NAMES))
        for number, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
            origin = Origin(file=str(path), line=number)
            yield _parse_row(row.split("\t"), names.get(label, label), origin)


def _read_lines(path: Path) -> list[str]:
    with open_text(path) as file:
        return [line.rstrip("\r\n") for line in file if line.strip()]


def _read_names(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    with open_text(path) as file:
        try:
            names = json.loads(file.read())
        except ValueError as error:
            raise InputError(f"{path}: invalid JSON: {error}", fix="fix or remove it") from None
    if not isinstance(names, dict):
        raise InputError(f"{path}: not a JSON object", fix='write {"0": "name", …}')
    return {str(key): str(name) for key, name in names.items()}


def _parse_row(fields: Sequence[str], label: str, origin: Origin) -> SenseExample:
    if len(fields) == _SENTENCE and fields[0].isdecimal():
        word = _find_word(fields[1], int(fields[0]), origin)
        lemma = fields[1][slice(*word)].lower()
        return SenseExample(text=fields[1], word=word, label=label, lemma=lemma, origin=origin)
    indices = _INDICES.fullmatch(fields[2]) if len(fields) == _PAIR else None
    if indices is None:
        raise InputError(
            f"{origin}: neither an index and a sentence nor a word, its part of speech, its two "
            "indices and two sentences",
            fix="separate the columns with tabs, such as 4<tab>she sat on the bank .",
        )
    lemma, _, _, text, pair = fields
    return SenseExample(
        text=text,
        word=_find_word(text, int(indices[1]), origin),
        label=label,
        lemma=lemma.lower(),
        pair=pair,
        pair_word=_find_word(pair, int(indices[2]), origin),
        origin=origin,
    )


def _find_word(sentence: str, index: int, origin: Origin) -> Span:
    """The characters of a word, counted from 0 between spaces."""
    words = sentence.split(" ")
    if index >= len(words) or not words[index]:
        raise InputError(f"{origin}: there is no word {index}", fix="count words from 0")
    start = [0, *accumulate(len(word) + 1 for word in words)][index]
    return start, start + len(words[index])
