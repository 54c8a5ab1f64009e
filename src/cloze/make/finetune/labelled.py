"""The labelled data of a run: examples to learn from and to judge by, and the labels they have."""

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.task import Task
from cloze.config import one_of
from cloze.data.files import PathLike
from cloze.data.labelled.examples import (
    NOWHERE,
    ChoiceExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.data.streams import check_rows
from cloze.errors import InputError
from cloze.make.finetune.recipe import FinetuneRecipe
from cloze.tasks.judge import ScoredPredictions, gold_label, main_metric_of, metric_kind
from cloze.tasks.scoring import label_index
from cloze.tasks.task_functions import TASK_FUNCTIONS

EXAMPLES = {
    "classify": TextExample,
    "tag": TaggedExample,
    "answer": QuestionExample,
    "choose": ChoiceExample,
}
OUTSIDE = "O"  # the tag of no span
WHOLE = 1 << 32  # of a hash


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """What a run learns from and is judged by."""

    task: Task
    train: Sequence[Any]
    dev: Sequence[Any]
    held_out: bool  # the dev data were taken from the training data
    labels: tuple[str, ...]
    problem: str | None
    skipped: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # of the labels to learn from
    measures: tuple[str, ...] = ()  # whose mean chooses; the task's own if there is none

    @property
    def measure(self) -> str:
        """The name of the score that chooses."""
        own = main_metric_of(self.task.name, self.problem, self.labels)
        return " and ".join(self.measures) or own

    def score(self, judged: ScoredPredictions) -> float:
        """The score that chooses."""
        found = judged.scores
        chosen = self.measures or (judged.scorer.main,)
        return fmean(found[one_of("run.measures", name, found)] for name in chosen)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What data these are."""
        return {
            "train": [len(self.train), _digest(self.train)],
            "dev": [len(self.dev), _digest(self.dev)],
            "labels": list(self.labels),
        }

    def class_weights(self) -> Tensor:
        """All / (classes · those of a class): every class weighs as much as another."""
        total = sum(self.counts.values())
        weights = [total / (len(self.labels) * max(1, self.counts[name])) for name in self.labels]
        return torch.tensor(weights)

    def summary(self) -> dict[str, Any]:
        """For data.json and the report."""
        return {
            "training": len(self.train),
            "dev": len(self.dev),
            "skipped": self.skipped,
            **({"classes": len(self.labels)} if self.counts else {}),
        }

    def described(self) -> str:
        """In a line."""
        from_train = " (held out of the training data)" if self.held_out else ""
        skipped = f", {_counted(self.skipped, 'row')} passed over" if self.skipped else ""
        kinds = "a number" if self.problem == "number" else _counted(len(self.labels), "label")
        what = f", {kinds}" if self.task.name in ("classify", "tag") else ""
        return (
            f"{_counted(len(self.train), 'example')} to learn from, "
            f"{len(self.dev):,} to judge by{from_train}{what}{skipped}"
        )


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def gather(
    recipe: FinetuneRecipe, train: PathLike | Iterable[Any], dev: PathLike | Iterable[Any]
) -> Labelled:
    """Read the data of a run and learn its labels."""
    errors: list[InputError] = []
    learned = list(_read(recipe, train, errors))
    if recipe.task == "classify" and learned:  # what labels are is told by the training data
        number = isinstance(learned[0].label, float)
        recipe = replace(recipe, data=replace(recipe.data, number=number))
    judged = list(_read(recipe, dev, errors))
    held_out = not judged and recipe.data.hold_out > 0
    if held_out:
        judged = [one for one in learned if _held_out(one, recipe.data.hold_out)]
        learned = [one for one in learned if not _held_out(one, recipe.data.hold_out)]
    if not learned:
        raise InputError("there is nothing to learn from", fix="check what the files hold")
    labels, problem, counts = labels_of(recipe.task, learned)
    if problem == "number":
        recipe.check_loss("the labels are numbers")
    _check_judged(metric_kind(recipe.task, problem), judged, labels)
    table = recipe.data
    policy = table.policy or ("window" if recipe.task in ("answer", "tag") else "head")
    task = Task(
        name=recipe.task,
        policy=policy,
        stride=table.stride,
        context=table.context,
        none=recipe.task == "answer" and any(one.answers == () for one in learned),
    )
    return Labelled(
        task=task,
        train=learned,
        dev=judged,
        held_out=held_out,
        labels=labels,
        problem=problem,
        skipped=len(errors),
        counts=counts,
        measures=recipe.run.measures,
    )


def listed_sources(given: PathLike | Iterable[Any]) -> list[Any]:
    """One path or data set, several, or what is in a list: rows or examples."""
    if isinstance(given, str | os.PathLike):
        return [given]
    return list(given) if isinstance(given, list | tuple | Iterator) else [check_rows(given)]


def labels_of(
    task: str, examples: Sequence[Any]
) -> tuple[tuple[str, ...], str | None, Counter[str]]:
    """The labels of the examples in a lasting order, the kind of problem, and how often each is."""
    if task in ("answer", "choose"):
        return ("LABEL_0", "LABEL_1")[: 2 if task == "answer" else 1], None, Counter()
    if task == "tag":
        counts = Counter(tag for one in examples for tag in one.tags or ())
        names = sorted(counts, key=lambda tag: (tag != OUTSIDE, tag[1:], tag))
        return tuple(names), None, counts
    missing = next((one for one in examples if one.label is None), None)
    if missing is not None:
        raise InputError(f"{missing.origin}: no label to learn", fix="label it, or leave it out")
    if any(isinstance(one.label, float) for one in examples):
        return ("LABEL_0",), "number", Counter()
    counts = Counter(one.label for one in examples)
    if len(counts) == 1:
        raise InputError(
            f"all examples have the label {next(iter(counts))!r}",
            fix="check the label column: there is nothing to tell apart",
        )
    return tuple(sorted(counts, key=_natural)), "classes", counts


def _check_judged(kind: str, examples: Sequence[Any], labels: Sequence[str]) -> None:
    """Each can be judged: better said now than after the first epoch."""
    for one in examples:
        right = gold_label(kind, one)
        for label in {"classify": [right], "tag": right}.get(kind, []):
            label_index(labels, label, one.origin)


def _natural(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then words by letters."""
    number = label.removeprefix("-").isdecimal()
    return not number, float(label) if number else 0.0, label


def _read(
    recipe: FinetuneRecipe, given: PathLike | Iterable[Any], errors: list[InputError]
) -> Iterator[Any]:
    listed = listed_sources(given)
    if listed and not _is_source(listed[0]):
        _check_examples(recipe.task, listed)
        return iter(listed)
    table = recipe.data
    options: dict[str, Any] = {"on_error": errors.append if table.skip_bad else "raise"}
    if recipe.task == "classify":
        options |= {name: getattr(table, name) for name in ("text", "pair", "label", "number")}
    if recipe.task == "tag":
        options |= {"column": table.column, "scheme": table.scheme}
    return TASK_FUNCTIONS[recipe.task].read(listed, **options)


def _is_source(one: object) -> bool:
    """Whether it is a path, a data set, or a row of one; a tuple is taken for an example."""
    return isinstance(one, os.PathLike | Iterable) and not isinstance(one, tuple)


def _check_examples(task: str, given: Sequence[Any]) -> None:
    wanted = EXAMPLES[task]
    for one in given:
        if not isinstance(one, wanted):
            raise InputError(
                f"{str(one)[:80]} is no example of the task {task}",
                fix=f"give {wanted.__name__}s of cloze.data.labelled.examples, mappings, or files",
            )


def _held_out(example: Any, share: float) -> bool:  # noqa: ANN401
    """By a hash of its text: the same examples whatever their order, and copies on one side."""
    return zlib.crc32(_text(example).encode("utf-8", "surrogatepass")) < share * WHOLE


def _text(example: Any) -> str:  # noqa: ANN401
    """What must not stand on both sides: of questions the context they share."""
    if isinstance(example, QuestionExample):
        return example.context
    pair = example.pair if isinstance(example, TextExample) else None
    return f"{example.text}\0{pair or ''}"


def _digest(examples: Sequence[Any]) -> int:
    digest = 0
    for example in examples:
        said = repr(replace(example, origin=NOWHERE))  # files may have been moved
        digest = zlib.crc32(said.encode("utf-8", "surrogatepass"), digest)
    return digest
