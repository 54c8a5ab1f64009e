"""`explain.neighbors`: the nearest words of a word during the training of word vectors.

v words, d dimensions, s snapshots.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.models.word2vec import Floats, WordVectors, normalize_vectors
from cloze.plot.format import format_number
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Bars, PagePart, Table
from cloze.plot.view import View
from cloze.tasks.explain.inputs import check_text
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.similar import plot_words, similar

_LINES = 6  # nearest words at the end, whose cosines are drawn
_FORMER = 3  # words that were nearest before, and are not any more


def neighbors(model: Model | PathLike, text: str | Sequence[str], *, top: int = 10) -> View:
    """Show the nearest words of words, and how they have changed during training.

    The vectors during training are those that `cloze pretrain --family word2vec` keeps with
    `--set run.snapshots=8`, of the 20,000 most frequent words; without them only the nearest words
    at the end are shown.

    Args:
        model: word vectors, or their folder.
        text: one or several words, separated by spaces.
        top: number of nearest words.
    """
    opened = open_model(model, "neighbors")
    in_range("top", top, 1, 1000)
    words = _split_words(text, opened.module)
    vectors: WordVectors = opened.module
    figures: list[PagePart] = []
    data: dict[str, Any] = {"words_read": [], "words": []}
    if vectors.snapshots is None:
        several = similar(opened, words, top=top)
        figures.append(plot_words(opened, words, several))
        for found in several:
            nearest = [(one.word, one.score) for one in found.words]
            figures.append(Bars(title=found.query, rows=nearest, as_percent=False))
            data["words"].append({"word": found.query, "snapshots": [_to_json(nearest)]})
        note = (
            "These word vectors have no snapshots of their training; train with --set "
            "run.snapshots=8 to see how neighbors change."
        )
        return View(title="Nearest words", figures=figures, data=data, note=note)
    data["words_read"] = list(vectors.snapshots.words_read)
    tables = [normalize_vectors(one) for one in vectors.snapshots.vectors]
    for word in words:
        row = _find_row(word, vectors)
        cosines = np.stack([table @ table[row] for table in tables])  # s v
        ranked = [_rank(one, row, top) for one in cosines]
        named = [
            [(vectors.words[n], float(one[n])) for n in rows]
            for one, rows in zip(cosines, ranked, strict=True)
        ]
        data["words"].append({"word": word, "snapshots": [_to_json(one) for one in named]})
        figures += [
            _draw_lines(word, cosines, ranked, vectors.words),
            _list_neighbors(word, named, vectors.snapshots.words_read),
        ]
    return View(
        title="Nearest words during training",
        figures=figures,
        data=data,
        note="A snapshot has read about twice as many words as the one before; the last one is the "
        "end of training.",
    )


def _split_words(text: str | Sequence[str], vectors: WordVectors) -> list[str]:
    if isinstance(text, str):
        check_text("text", text)
        words = text.replace(",", " ").split()
    else:
        words = list(text)
    known = [word for word in words if word in vectors]
    if not known:
        vectors[words[0]]  # raises, with similar words
    return list(dict.fromkeys(known))


def _find_row(word: str, vectors: WordVectors) -> int:
    row = vectors.find_row(word)
    assert vectors.snapshots is not None
    count = vectors.snapshots.vectors.shape[1]
    if row is None or row >= count:
        raise InputError(
            f"the word {word!r} is not among the {count:,} most frequent words, of which "
            "training has kept the vectors",
            fix="use a more frequent word",
        )
    return row


def _rank(cosines: Floats, row: int, top: int) -> list[int]:
    """The words with the largest cosines, without the word itself; of equal ones the first."""
    order = np.argsort(-cosines, kind="stable")
    return [int(n) for n in order[: top + 1] if n != row][:top]


def _to_json(nearest: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"word": word, "cosine": cosine} for word, cosine in nearest]


def _draw_lines(
    word: str, cosines: Floats, ranked: Sequence[Sequence[int]], words: Sequence[str]
) -> LineChart:
    final = list(ranked[-1][:_LINES])
    before = [rows[0] for rows in ranked[:-1] if rows and rows[0] not in ranked[-1]]
    former = list(dict.fromkeys(before))[-_FORMER:]
    numbers = list(range(1, len(cosines) + 1))
    series = [
        Series(name=words[n], x=numbers, y=[float(one) for one in cosines[:, n]]) for n in final
    ]
    series += [
        Series(
            name=f"{words[n]} (before)",
            x=numbers,
            y=[float(one) for one in cosines[:, n]],
            style="reference",
        )
        for n in former
    ]
    return LineChart(
        title=f"Nearest words of “{word}”",
        y_label="cosine",
        x_label="snapshot",
        series=series,
        wide=True,
    )


def _list_neighbors(
    word: str, named: Sequence[Sequence[tuple[str, float]]], words_read: Sequence[int]
) -> Table:
    count = max(map(len, named))
    rows = [
        [f"{one[rank][0]} {one[rank][1]:.2f}" if rank < len(one) else "" for one in named]
        for rank in range(count)
    ]
    return Table(
        title=f"“{word}” after so many words",
        columns=[format_number(read) for read in words_read],
        rows=rows,
    )
