"""Examples with their predictions on report pages: the worst errors, and some correct ones.

A run stores them as JSON, from which its page can be built again; `evaluate` shows the same parts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from cloze.data.labelled.tag_schemes import tags_to_spans
from cloze.metrics.charts import plot_confusion_counts
from cloze.metrics.scorer import PLAIN
from cloze.plot.format import format_percent
from cloze.plot.marked_text import Mark, MarkedText
from cloze.plot.page import Bars, Card, Cell, Grid, PagePart, Quote, Section, Table
from cloze.tasks.scored_predictions import (
    NO_LABEL,
    SEVERITIES,
    PredictionError,
    ScoredPredictions,
    find_errors,
)

Shown: TypeAlias = dict[str, Any]  # an example as JSON
MAX_TEXT, _MAX_CELL = 2_000, 300  # characters of a text that are shown, on a card and in a table
WRONG, RIGHT = 20, 5  # examples of a run
_DEV = "On the dev data, of the model in the folder."
_MAX_CONTEXT = 160  # characters of a passage around its answers


def describe_outcome(
    result: ScoredPredictions,
    confusion: Mapping[str, Any] | None = None,
    label_scores: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Confusion matrix, scores by label and examples of a run's evaluation, ready for JSON."""
    errors = find_errors(result)
    return {
        "kind": result.kind,
        "scheme": result.scheme,
        "count": len(result.examples),
        "num_errors": len(errors),
        "confusion": confusion,
        "label_scores": label_scores,
        "wrong": [describe_example(result, one.number, one) for one in errors[:WRONG]],
        "right": describe_correct(result, errors),
    }


def describe_correct(
    result: ScoredPredictions, errors: Iterable[PredictionError], count: int = RIGHT
) -> list[Shown]:
    """The first correct examples; of tags and answers first those that have any."""
    wrong = {one.number for one in errors}
    right = [number for number in range(len(result.examples)) if number not in wrong]
    right.sort(key=lambda number: not _has_content(result, number))
    return [describe_example(result, number) for number in right[:count]]


def _has_content(result: ScoredPredictions, number: int) -> bool:
    gold = result.gold[number]
    if result.kind == "tag":
        return any(tag != "O" for tag in gold)
    return bool(gold) if result.kind == "answer" else True


def describe_example(
    result: ScoredPredictions, number: int, error: PredictionError | None = None
) -> Shown:
    """An example with its gold label and its prediction, ready for JSON."""
    example, prediction = result.examples[number], result.predictions[number]
    shown: Shown = {"source": Path(str(example.origin)).name}
    if error is not None:
        shown["severity"] = error.severity
    if result.kind == "tag":
        shown["text"] = example.text
        for name, tags in (("gold", result.gold), ("predicted", result.predicted)):
            shown[name] = _find_spans(example.words, tags[number], result.scheme)
    elif result.kind == "answer":
        gold = {(one.start, one.start + len(one.text)) for one in example.answers if one.start >= 0}
        shown |= {
            "text": example.context,
            "question": example.question,
            "gold": sorted(gold),
            "predicted": [prediction.start, prediction.end] if prediction.text else None,
            "probability": prediction.probability,
        }
    elif result.kind == "choose":
        shown |= {
            "text": example.text,
            "question": example.question,
            "options": list(example.options),
            "gold": result.gold[number],
            "probabilities": list(prediction.scores),
        }
    else:
        pair = getattr(example, "pair", None)
        shown |= {
            "text": example.text if pair is None else f"{example.text} | {pair}",
            "gold": error.gold if error else _format_label(result.gold[number]),
            "predicted": error.predicted if error else _format_label(result.predicted[number]),
            "probability": getattr(prediction, "score", None),
        }
    return shown


def _format_label(label: object) -> str:
    if isinstance(label, str):
        return label
    if isinstance(label, Iterable):  # of a multi-label task
        return ", ".join(map(str, label)) or NO_LABEL
    return f"{label:.4g}" if isinstance(label, float) else str(label)


def _find_spans(
    words: Sequence[tuple[int, int]], tags: Sequence[str], scheme: str | None
) -> list[tuple[int, int, str]]:
    """Labelled spans as characters; for tags of words, each word is a span."""
    if scheme == PLAIN:
        return [(*word, tag) for word, tag in zip(words, tags, strict=True)]
    return [
        (words[first][0], words[last - 1][1], label)
        for first, last, label in tags_to_spans(tags, scheme)
    ]


def build_sections(content: Mapping[str, Any]) -> list[Section]:
    """The sections of a run's page: confusion matrix, scores by label, errors, correct examples."""
    kind, confusion = content["kind"], content.get("confusion")
    found = []
    if confusion:
        what = "words" if kind == "tag" else "examples"
        matrix = plot_confusion_counts(confusion["counts"], confusion["labels"], what=what)
        found.append(Section(title="Confusion matrix", note=_DEV, parts=[matrix]))
    if table := content.get("label_scores"):
        part = Table(columns=table["columns"], rows=table["rows"])
        found.append(Section(title="Scores by label", note=_DEV, parts=[part]))
    wrong, right = content["wrong"], content["right"]
    if wrong:
        total, count = content["num_errors"], content["count"]
        first = f"The worst {len(wrong):,} of " if len(wrong) < total else ""
        severity = SEVERITIES["tag, plain" if content.get("scheme") == PLAIN else kind]
        note = f"{first}{total:,} errors in {count:,} dev examples, ranked by {severity}."
        parts = build_example_parts(kind, wrong, severity)
        found.append(Section(title="Worst errors", note=note, parts=parts))
    if right:
        parts = build_example_parts(kind, right)
        note = f"{len(right):,} of {content['count'] - content['num_errors']:,}."
        found.append(Section(title="Correct predictions", note=note, parts=parts))
    return found


def build_example_parts(kind: str, listed: Sequence[Shown], severity: str = "") -> list[PagePart]:
    """Examples as cards, or as a table if they are texts with labels."""
    if kind in _CARDS:
        return [Grid(parts=[_CARDS[kind](one) for one in listed])]
    columns = ["text", "gold", "predicted", severity or "probability", "source"]
    key = "severity" if severity else "probability"
    rows: list[list[Cell]] = [
        [
            _shorten(one["text"], _MAX_CELL),
            one["gold"],
            one["predicted"],
            None if one.get(key) is None else round(one[key], 4),
            one["source"],
        ]
        for one in listed
    ]
    if all(row[3] is None for row in rows):
        columns, rows = columns[:3] + columns[4:], [row[:3] + row[4:] for row in rows]
    return [Table(columns=columns, rows=rows)]


def _tag_card(one: Shown) -> Card:
    text = one["text"]
    sides = [
        MarkedText(
            text=_shorten(text),
            title=side,
            marks=[
                Mark(start=start, end=end, label=label)
                for start, end, label in one[side]
                if end <= MAX_TEXT
            ],
        )
        for side in ("gold", "predicted")
    ]
    same = one["gold"] == one["predicted"]
    return Card(head=sides[0], parts=[] if same else sides[1:], note=one["source"])


def _answer_card(one: Shown) -> Card:
    gold = [tuple(span) for span in one["gold"]][:1]  # more are variants of the same answer
    predicted = [tuple(one["predicted"])] if one["predicted"] else []
    if predicted and predicted[0] in {tuple(span) for span in one["gold"]}:
        gold = predicted
    missing = [] if predicted else ["predicted: no answer"]
    if not gold:
        missing.append("gold: no answer")
    passage = MarkedText(
        text=one["text"], marks=_merge_answers(gold, predicted), max_context=_MAX_CONTEXT
    )
    probability = f"probability {format_percent(one['probability'])}"
    note = " · ".join([*missing, probability, one["source"]])
    return Card(head=Quote(text=one["question"]), parts=[passage], note=note)


def _merge_answers(
    gold: Sequence[tuple[int, ...]], predicted: Sequence[tuple[int, ...]]
) -> list[Mark]:
    """Marks that do not overlap: gold, predicted, and the characters that are both."""
    edges = sorted({edge for span in (*gold, *predicted) for edge in span})
    marks = []
    for start, end in pairwise(edges):
        names = [
            name
            for name, spans in (("gold", gold), ("predicted", predicted))
            if any(first <= start and end <= last for first, last in spans)
        ]
        if names:
            marks.append(Mark(start=start, end=end, label=" and ".join(names)))
    return marks


def _choice_card(one: Shown) -> Card:
    bars = Bars(
        rows=list(zip(one["options"], one["probabilities"], strict=True)),
        highlighted=one["options"][one["gold"]],
    )
    head = Quote(text=_shorten(one["text"]), note=one["question"] or "")
    return Card(head=head, parts=[bars], note=one["source"])


def _shorten(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


_CARDS: Mapping[str, Callable[[Shown], Card]] = {
    "tag": _tag_card,
    "answer": _answer_card,
    "choose": _choice_card,
}
