"""The labelled data of a run: training and dev examples and their labels."""

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from reprlib import repr as shorten
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.config import one_of
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import (
    DEV,
    TRAIN,
    UNKNOWN_ORIGIN,
    ChoiceExample,
    QuestionExample,
    TaggedExample,
    TextExample,
    format_labels,
    label_index,
)
from cloze.data.labelled.formats import EXPECTED
from cloze.data.objects import Frame, Rows, open_rows, pair_texts_with_labels
from cloze.device import resolve_device
from cloze.errors import InputError
from cloze.files import PathLike, write_json
from cloze.make.extend_model import extend_model
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.metrics.multi_label import find_label_thresholds, make_label_matrix
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.nn.fuse import move_to_device
from cloze.report.page import write_report
from cloze.tasks.evaluate_labelled import (
    TASK_FUNCTIONS,
    compute_metrics,
    find_main_metric,
    label_probabilities,
    metric_kind,
    score_predictions,
)
from cloze.tasks.scored_predictions import ScoredPredictions, gold_label
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, METRICS_FILE, append_metrics
from cloze.train.step_metrics import make_kept_row

EXAMPLES = {
    "classify": TextExample,
    "tag": TaggedExample,
    "answer": QuestionExample,
    "choose": ChoiceExample,
}
OUTSIDE = "O"  # the tag outside of spans
HASH_RANGE = 1 << 32
MIN_EXAMPLES = 50  # from this many on, mostly different labels are an error


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The data of a run, read and checked."""

    task: Task
    train: Sequence[Any]
    dev: Sequence[Any]
    held_out: bool  # the dev data are a part of the training files
    labels: tuple[str, ...]
    problem: str | None
    skipped: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # of the training labels
    # their mean selects the best model (default: the task's own)
    selection_metrics: tuple[str, ...] = ()

    @property
    def selection_metric(self) -> str:
        """The name of the selection score."""
        own = find_main_metric(self.task.name, self.problem, self.labels)
        return " and ".join(self.selection_metrics) or own

    def score(self, dev_examples: ScoredPredictions) -> float:
        """The selection score."""
        found = dev_examples.scores
        chosen = self.selection_metrics or (dev_examples.scorer.main,)
        return fmean(found[one_of("run.selection_metrics", name, found)] for name in chosen)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identifies the data: counts, checksums and labels."""
        return {
            "train": [len(self.train), _checksum(self.train)],
            "dev": [len(self.dev), _checksum(self.dev)],
            "labels": list(self.labels),
        }

    def class_weights(self) -> Tensor:
        """Examples / (classes · examples of the class), so that every class counts the same.

        With several labels per text, each label has two classes: texts without and with it (2 c).
        """
        total = sum(self.counts.values())
        if self.problem == MULTI_LABEL:  # examples without and with each label
            counts = torch.tensor([self.counts[name] for name in self.labels])
            both = torch.stack([len(self.train) - counts, counts])
            return len(self.train) / (2 * both.clamp(min=1))
        weights = [total / (len(self.labels) * max(1, self.counts[name])) for name in self.labels]
        return torch.tensor(weights)

    def summary(self) -> dict[str, Any]:
        """The counts for data.json and the report."""
        return {
            "training": len(self.train),
            "dev": len(self.dev),
            "skipped": self.skipped,
            **({"classes": len(self.labels)} if self.counts else {}),
        }

    def describe(self) -> str:
        """The data in one line."""
        from_train = " (held out of the training data)" if self.held_out else ""
        skipped = f", {_format_count(self.skipped, 'row')} skipped" if self.skipped else ""
        labels = (
            "numeric labels"
            if self.problem == "regression"
            else _format_count(len(self.labels), "label")
        )
        if self.problem == MULTI_LABEL:
            labels += " (a text may have several)"
        kind = f", {labels}" if self.task.name in ("classify", "tag") else ""
        return (
            f"{_format_count(len(self.train), 'training example')}, "
            f"{_format_count(len(self.dev), 'dev example')}{from_train}{kind}{skipped}"
        )


def _format_count(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def read_labelled_data(
    recipe: FinetuneRecipe, train: PathLike | Iterable[Any], dev: PathLike | Iterable[Any]
) -> Labelled:
    """Read the data of a run and collect its labels."""
    errors: list[InputError] = []
    train_examples = list(_read_examples(recipe, train, errors))
    if recipe.task == "classify" and train_examples:
        # the training data decide whether labels are numbers
        number = isinstance(train_examples[0].label, float)
        recipe = replace(recipe, data=replace(recipe.data, is_regression=number))
    dev_examples = list(_read_examples(recipe, dev, errors, train_examples))
    held_out = not dev_examples and recipe.data.hold_out > 0
    if held_out:
        is_dev = [_is_held_out(one, recipe.data.hold_out) for one in train_examples]
        dev_examples = list(compress(train_examples, is_dev))
        train_examples = [one for one, out in zip(train_examples, is_dev, strict=True) if not out]
    if not train_examples:
        raise InputError("there are no training examples", fix="check the files of --train")
    labels, problem, counts = labels_of(
        recipe.task, train_examples, dev_examples if held_out else ()
    )
    if problem == "regression":
        recipe.check_regression()
    _check_dev_labels(metric_kind(recipe.task, problem), dev_examples, labels)
    table = recipe.data
    policy = table.truncation or ("window" if recipe.task in ("answer", "tag") else "head")
    task = Task(
        name=recipe.task,
        truncation=policy,
        overlap=table.overlap,
        context=table.context,
        allow_no_answer=recipe.task == "answer"
        and any(one.answers == () for one in train_examples),
    )
    return Labelled(
        task=task,
        train=train_examples,
        dev=dev_examples,
        held_out=held_out,
        labels=labels,
        problem=problem,
        skipped=len(errors),
        counts=counts,
        selection_metrics=recipe.run.selection_metrics,
    )


def list_sources(given: PathLike | Frame | Iterable[Any]) -> list[Any]:
    """A list of paths and tables, or of rows and examples."""
    if isinstance(given, str | os.PathLike):
        return [given]
    labelled = pair_texts_with_labels(given)
    if labelled is not None:
        return [labelled]
    return list(given) if isinstance(given, list | tuple | Iterator) else [open_rows(given)]


def finetune_fingerprint(recipe: FinetuneRecipe, data: Labelled) -> dict[str, Any]:
    """What must be equal for a run to be resumed."""
    texts = ("language_model.general_text", "language_model.unlabelled")
    settings = run_fingerprint(recipe, "data.train", "data.dev", "model", *texts)
    return {"recipe": settings, "data": data.fingerprint}


def adapt_model(
    base: Model,
    data: Labelled,
    recipe: FinetuneRecipe,
    heads: Iterable[str],
    *,
    tokenizer: Tokenizer | None = None,
    **changes: Any,  # noqa: ANN401
) -> Model:
    """The model with these heads, the labels and the recipe's maximum length, on its device.

    The tokenizer, by default the model's own, may have new tokens.
    """
    length, tokenizer = recipe.data.max_length, tokenizer or base.tokenizer
    if length is not None:
        tokenizer = tokenizer.with_max_length(length)
    rng = torch.Generator().manual_seed(recipe.run.seed)
    labels: dict[str, Any] = {"labels": data.labels, "problem_type": data.problem}
    model = extend_model(base, tokenizer, heads, rng=rng, **labels, **changes)
    move_to_device(model.module, resolve_device(recipe.run.device))
    return model


def choose_label_thresholds(
    model: Model, scored: ScoredPredictions
) -> tuple[Model, ScoredPredictions]:
    """The model with the thresholds that give each label its best F1, and its scores with them."""
    assert model.task is not None
    gold = make_label_matrix(scored.gold, model.labels)
    found = find_label_thresholds(gold, label_probabilities(scored.predictions, model.labels))
    thresholds = dict(zip(model.labels, found, strict=True))
    task = replace(model.task, thresholds=thresholds)
    predictions = [one.apply_thresholds(thresholds) for one in scored.predictions]
    return replace(model, task=task), compute_metrics(model, task, scored.examples, predictions)


def set_label_thresholds(
    result: RunResult, data: Labelled, out: Path, recipe: FinetuneRecipe
) -> RunResult:
    """Choose the thresholds of the best model on the dev data, and store them in its folder."""
    best = load(out, quiet=True)
    scored = score_predictions(best, data.dev, batch_tokens=recipe.run.eval_batch_tokens)
    chosen, scored = choose_label_thresholds(best, scored)
    chosen.save_into(out)
    scores = {**scored.scores, **scored.baseline}
    append_metrics(out / METRICS_FILE, make_kept_row(result.best_step, scores))
    return replace(result, score=data.score(scored), scores=scores)


def class_weights(data: Labelled, recipe: FinetuneRecipe, device: torch.device) -> Tensor | None:
    """The weight of each class in the loss; None if all are equal."""
    is_balanced = recipe.loss.class_weights == "balanced"
    return data.class_weights().to(device) if is_balanced else None


def count_truncated(
    groups: Sequence[Sequence[EncodedExample]], data: Labelled, callbacks: CallbackList
) -> int:
    """How many training sequences are too long, which is logged."""
    truncated = sum(any(getattr(item, "truncated_chars", 0) for item in group) for group in groups)
    if truncated:
        callbacks.on_log(
            f"{truncated:,} sequences are too long and truncated ({data.task.truncation})"
        )
    return truncated


def write_outputs(out: Path, data: Labelled, truncated: int) -> None:
    """Write the facts about the data and the report into the run's folder."""
    write_json(out / DATA_FACTS, {**data.summary(), "truncated": truncated})
    write_report(out)


def labels_of(
    task: str, examples: Sequence[Any], held_out: Sequence[Any] = ()
) -> tuple[tuple[str, ...], str | None, Counter[str]]:
    """The labels in a stable order, the problem type, and the number of examples of each label."""
    if task in ("answer", "choose"):
        return ("LABEL_0", "LABEL_1")[: 2 if task == "answer" else 1], None, Counter()
    if task == "tag":
        counts = Counter(tag for one in examples for tag in one.tags or ())
        names = sorted(counts, key=lambda tag: (tag != OUTSIDE, tag[1:], tag))
        return tuple(names), None, counts
    missing = next((one for one in examples if one.label is None), None)
    if missing is not None:
        raise InputError(
            f"{missing.origin}: the label is missing",
            fix=f"add a label, or remove the row; `{task}` needs {EXPECTED[task]}",
        )
    if any(isinstance(one.label, float) for one in examples):
        return ("LABEL_0",), "regression", Counter()
    if any(isinstance(one.label, tuple) for one in examples):
        counts = count_labels(examples)
        # a rare label may occur in the held-out part only
        names = sorted({*counts, *count_labels(held_out)}, key=_label_sort_key)
        if not names:
            raise InputError(
                "no example has a label", fix="check the label column, or add labels to examples"
            )
        return tuple(names), MULTI_LABEL, counts
    counts = Counter(one.label for one in examples)
    if len(counts) == 1:
        raise InputError(
            f"all examples have the label {next(iter(counts))!r}",
            fix="check the label column: a classifier needs two labels",
        )
    _check_distinct(counts)
    return tuple(sorted(counts, key=_label_sort_key)), "single_label_classification", counts


def _check_distinct(counts: Counter[str]) -> None:
    """Raise if most examples have a label of their own."""
    total = counts.total()
    if total >= MIN_EXAMPLES and len(counts) > total / 2:
        raise InputError(
            f"the label column is probably wrong: {total:,} training examples have {len(counts):,} "
            f"different labels, such as {format_labels(list(counts)[:2])}",
            fix="name it with --label-column (label_column= in Python); if the labels are numbers "
            "to predict, use --regression (regression=True)",
        )


def count_labels(examples: Sequence[Any]) -> Counter[str]:
    """How many examples have each label, if an example may have several."""
    return Counter(label for one in examples for label in gold_label("multi_label", one))


def _check_dev_labels(kind: str, examples: Sequence[Any], labels: Sequence[str]) -> None:
    """Check that the labels of the dev data are known, before the first epoch and not after it."""
    for one in examples:
        gold = gold_label(kind, one)
        for label in {"classify": [gold], "tag": gold, "multi_label": gold}.get(kind, []):
            label_index(labels, label, one.origin)


def _label_sort_key(label: str) -> tuple[bool, float, str]:
    """Sort key: numbers by value, then words alphabetically."""
    number = label.removeprefix("-").isdecimal()
    return not number, float(label) if number else 0.0, label


def _read_examples(
    recipe: FinetuneRecipe,
    given: PathLike | Iterable[Any],
    errors: list[InputError],
    train: Sequence[Any] = (),
) -> Iterator[Any]:
    listed = list_sources(given)
    for one in listed:
        if isinstance(one, Rows):
            one.name = DEV if train else TRAIN
    if listed and not _is_source(listed[0]):
        _check_examples(recipe.task, listed)
        return iter(listed)
    table = recipe.data
    options: dict[str, Any] = {"on_error": errors.append if table.skip_bad else "raise"}
    if recipe.task == "classify":
        options |= {
            "text_column": table.text_column,
            "pair_column": table.pair_column,
            "label_column": table.label_column,
            "label_delimiter": table.label_delimiter,
            "is_regression": table.is_regression,
            "is_label_required": True,
        }
        if train:  # the training data decide whether there are several labels, and which
            several = isinstance(train[0].label, tuple)
            options["is_multi_label"] = several
            options["labels"] = set(count_labels(train)) if several else None
        elif table.is_regression is False:  # a delimiter is a part of the class name
            options["is_multi_label"] = False
    if recipe.task == "tag":
        options |= {"tag_column": table.tag_column, "tag_scheme": table.tag_scheme}
    return TASK_FUNCTIONS[recipe.task].read(listed, **options)


def _is_source(one: object) -> bool:
    """Whether it is a path, a dataset, or a row of one; a tuple is an example."""
    return isinstance(one, os.PathLike | Iterable) and not isinstance(one, tuple)


def _check_examples(task: str, given: Sequence[Any]) -> None:
    wanted = EXAMPLES[task]
    for one in given:
        if not isinstance(one, wanted):
            raise InputError(
                f"{shorten(one)} is not an example for the task {task}",
                fix=f"pass files, a data frame, mappings, {wanted.__name__} objects"
                + (", or (text, label) tuples" if task == "classify" else ""),
            )


def _is_held_out(example: Any, fraction: float) -> bool:  # noqa: ANN401
    """Decided by a hash of the text: independent of the order, and duplicates stay together."""
    return zlib.crc32(_text_of(example).encode("utf-8", "surrogatepass")) < fraction * HASH_RANGE


def _text_of(example: Any) -> str:  # noqa: ANN401
    """The text that training and dev data must not share: of questions, their context."""
    if isinstance(example, QuestionExample):
        return example.context
    pair = example.pair if isinstance(example, TextExample) else None
    return f"{example.text}\0{pair or ''}"


def _checksum(examples: Sequence[Any]) -> int:
    digest = 0
    for example in examples:
        content = repr(replace(example, origin=UNKNOWN_ORIGIN))  # files may have been moved
        digest = zlib.crc32(content.encode("utf-8", "surrogatepass"), digest)
    return digest
