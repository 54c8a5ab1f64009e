"""`explain.backoff`: which n-grams the probability of each word of a text comes from."""

from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from typing import Any

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.language import language_model
from cloze.files import PathLike
from cloze.plot.format import format_number
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import PagePart, Table
from cloze.plot.view import View
from cloze.tasks.explain.inputs import check_text
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.suggest import BackoffStep, explain_backoff, suggest


def backoff(model: Model | PathLike, text: str, *, top: int = 5) -> View:
    """Show how an n-gram model computes the probability of each word of a text.

    If the model has seen a word after its context, it stores the probability. Otherwise it
    multiplies by the back-off weight of the context and drops the first word of it (Katz 1987). The
    product of the weights and of the probability at the end is p(word | context).

    Args:
        model: an n-gram model, or its folder.
        text: the text.
        top: number of words that may come next, for which the same is shown.
    """
    opened = open_model(model, "backoff")
    check_text("text", text)
    in_range("top", top, 1, 1000)
    adapter = language_model(opened)
    ids = adapter.encode_prompt(text)
    order = int(opened.config.order)
    words = [
        _describe_word(adapter.decode_token(ids[n]), explain_backoff(adapter, ids[:n], ids[n]))
        for n in range(1, len(ids))
    ]
    following = [
        _describe_word(one.word, one.backoff_path)
        for one in suggest(opened, text, top=top).suggestions
    ]
    figures: list[PagePart] = []
    for title, rows in (
        ("Each word of the text", words),
        ("The most probable next words", following),
    ):
        if rows:
            figures += [_draw_orders(title, rows, order), _list_paths(title, rows)]
    return View(
        title="Back-off path",
        figures=figures,
        data={"order": order, "words": words, "next": following},
        note="A filled cell is the n-gram whose probability is stored; the numbers above it are "
        "back-off weights of longer contexts, after which the word was not seen.",
    )


def _describe_word(word: str, path: Sequence[BackoffStep]) -> dict[str, Any]:
    return {
        "word": word,
        "probability": prod(step.weight for step in path),
        "order": len(path[-1].context) + 1,
        "path": [asdict(step) | {"context": list(step.context)} for step in path],
    }


def _draw_orders(title: str, words: Sequence[dict[str, Any]], order: int) -> Heatmap:
    values: list[list[float | None]] = []
    shades: list[list[float]] = []
    for length in range(order - 1, -1, -1):  # words of the context
        steps = [
            next((step for step in one["path"] if len(step["context"]) == length), None)
            for one in words
        ]
        values.append([None if step is None else step["weight"] for step in steps])
        shades.append([float(one["order"] == length + 1) for one in words])
    return Heatmap(
        title=title,
        values=values,
        shades=shades,
        rows=[f"{length}-gram" for length in range(order, 0, -1)],
        columns=[one["word"] for one in words],
    )


def _list_paths(title: str, words: Sequence[dict[str, Any]]) -> Table:
    return Table(
        title=title,
        columns=("word", "probability", "n-gram", "path"),
        rows=[
            (one["word"], one["probability"], one["order"], _format_path(one["word"], one["path"]))
            for one in words
        ],
    )


def _format_path(word: str, path: Sequence[dict[str, Any]]) -> str:
    """The weights and the probability that are multiplied."""
    *skipped, last = path
    parts = [f"γ({' '.join(step['context'])}) {format_number(step['weight'])}" for step in skipped]
    given = f" | {' '.join(last['context'])}" if last["context"] else ""
    return " · ".join([*parts, f"p({word}{given}) {format_number(last['weight'])}"])
