"""`classify`: classification and regression of texts and pairs.  b examples, c labels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import NSP_LABELS, Task, override_truncation
from cloze.data.labelled.batch import make_compact
from cloze.data.labelled.examples import Origin, TextExample, label_index
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.multi_label import DEFAULT_THRESHOLD
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.classify_features import encode_compared_pairs, encode_text_words
from cloze.tasks.classify_images import (
    TEMPLATE,
    ImageClassification,
    classify_given_images,
)
from cloze.tasks.image_inputs import ImageInputs
from cloze.tasks.inference import (
    TextItem,
    check_pair_support,
    compute_logits,
    encode_long,
    iterate_window_logits,
    iterate_windows,
    needs_streaming,
    predict_in_order,
    predicts_next_sentence,
    resolve_task,
)
from cloze.tasks.inputs import (
    OnError,
    Texts,
    check_pairs,
    open_model,
    warn_truncated,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Classification(Result):
    """The predicted label of a text, or its labels if it may have several."""

    text: str
    pair: str | None = None
    label: str  # the most probable one
    score: float  # the label's probability; for a regression model, the predicted number
    scores: Mapping[str, float]  # of every label, best first
    # of a multi-label model: those whose probability reaches their threshold, best first
    labels: tuple[str, ...] | None = None
    truncated_chars: int = 0  # characters left out by truncation

    record_columns = ("text", "pair", "label", "score")

    def keep_top(self, count: int) -> "Classification":
        """A copy with the scores of the best `count` labels only."""
        return replace(self, scores=dict(islice(self.scores.items(), count)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return {
            "text": self.text,
            "pair": self.pair,
            **({} if self.labels is None else {"predicted": list(self.labels)}),
            "labels": [{"label": label, "score": score} for label, score in self.scores.items()],
            "truncated_chars": self.truncated_chars,
        }

    def apply_thresholds(self, thresholds: Mapping[str, float]) -> "Classification":
        """A copy with the labels whose probability reaches their threshold (default 0.5)."""
        found = (
            label
            for label, score in self.scores.items()
            if score >= thresholds.get(label, DEFAULT_THRESHOLD)
        )
        return replace(self, labels=tuple(found))

    def to_records(self) -> list[dict[str, Any]]:
        """One row, with the score of every label in a column of its own."""
        row = {name: getattr(self, name) for name in self.record_columns}
        if self.labels is not None:
            row["labels"] = list(self.labels)
        for label in sorted(self.scores):
            row[f"score: {label}" if label in row else label] = self.scores[label]
        return [row]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_bars, render_note, render_result, render_text

        texts = [render_text(text) for text in (self.text, self.pair) if text is not None]
        bold = {self.label} if self.labels is None else set(self.labels)
        shown = render_bars(self.scores.items(), bold=bold)
        if len(self.scores) == 1:  # a number, or the only label
            shown = render_note(f"{self.label} {self.score:.4f}")
        return render_result(*texts, shown, truncated_chars=self.truncated_chars)


class ClassifyOptions(TypedDict, total=False):
    """The options of `classify`."""

    truncation: str | None
    overlap: int | None
    text_column: str | int | None
    pair_column: str | int | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def classify(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    **options: Unpack[ClassifyOptions],
) -> Classification: ...
@overload
def classify(
    model: Model | PathLike,
    text: Texts,
    pair: Iterable[str] | None = None,
    **options: Unpack[ClassifyOptions],
) -> Results[Classification]: ...
@overload
def classify(
    model: Model | PathLike,
    *,
    images: list[Any],
    labels: Sequence[str],
    template: str | Sequence[str] = TEMPLATE,
    on_error: OnError | None = None,
    **options: Unpack[ClassifyOptions],
) -> Results[ImageClassification]: ...
@overload
def classify(
    model: Model | PathLike,
    *,
    images: ImageInputs,
    labels: Sequence[str],
    template: str | Sequence[str] = TEMPLATE,
    on_error: OnError | None = None,
    **options: Unpack[ClassifyOptions],
) -> ImageClassification | Results[ImageClassification]: ...
@with_progress
def classify(
    model: Model | PathLike,
    text: str | Texts | None = None,
    pair: str | Iterable[str] | None = None,
    *,
    images: ImageInputs | None = None,
    labels: Sequence[str] | None = None,
    template: str | Sequence[str] = TEMPLATE,
    truncation: str | None = None,
    overlap: int | None = None,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
    on_error: OnError | None = None,
) -> Classification | Results[Classification] | ImageClassification | Results[ImageClassification]:
    """Predict the label of a text, of a pair of texts or of an image, and all probabilities.

    A model that was trained with several labels per text predicts those whose probability reaches
    their threshold (`labels`); the folder has a threshold for each label (`cloze.json`). A
    pre-trained model with a next-sentence head classifies pairs as "next" or "not next". A model of
    texts and images (CLIP) classifies images by labels that you name, without any training.

    Args:
        model: a model for classification, or its folder.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        pair: the second text of each, for a model that was trained on pairs.
        images: in place of texts, an image or several, as in `embed`.
        labels: with images, the labels to choose from, such as ["a red heart", "a dog"].
        template: with images, the text of a label, with {} in its place; the vectors of several
            are averaged.
        truncation: for texts that are too long: head, tail, head+tail, window (all of the text, in
            overlapping windows) or error. Default: the setting of the folder, else head; then a
            warning says how much was not read.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        pair_column: column of the second text (default: auto-detected).
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
        on_error: with images, called with the index and the error of one of several that fails;
            its result has the error. Default: the error is raised.
    """
    if images is not None or labels is not None:
        _check_image_options(text, pair, images)
        return classify_given_images(
            model,
            images,
            labels,
            template=template,
            truncation=truncation,
            on_error=on_error,
            progress=progress,
        )
    model = open_model(model, "classify")
    task = override_truncation(resolve_task("classify", model), truncation, overlap)
    texts, pairs = check_pairs(text, pair, text_column, pair_column)
    seconds: Sequence[str | None] = pairs or [None] * len(texts)
    examples = [
        TextExample(text=one, pair=other, origin=Origin(line=number))
        for number, (one, other) in enumerate(zip(texts, seconds, strict=True), 1)
    ]
    found = predict(model, examples, task=task, batch_tokens=batch_tokens, progress=progress)
    if truncation is None:
        warn_truncated([one.truncated_chars for one in found], model.max_length)
    return found[0] if isinstance(text, str) else Results(found)


def _check_image_options(text: object, pair: object, images: object) -> None:
    if images is None or text is not None or pair is not None:
        raise InputError(
            "labels are given for texts" if images is None else "there are texts and images",
            fix="leave out labels: a model for texts has its own"
            if images is None
            else "give either texts or images",
        )


def encode_examples(
    model: Model, examples: Sequence[TextExample], task: Task
) -> list[list[TextItem]]:
    """Encode each example as one sequence, or one per window, classified at [CLS].

    If the task is symmetric, a pair is encoded in both orders.
    """
    features = task.features or (model.task and model.task.features)
    if features and features.compares_pairs:
        return encode_compared_pairs(model, examples, task, encode_examples)
    if features and features.reads_words:
        return encode_text_words(model, examples, task, _find_targets)
    texts, pairs = [e.text for e in examples], [e.pair for e in examples]
    if any(pair is not None for pair in pairs):
        check_pair_support(model)
    groups: list[list[TextItem]] = []
    sequences = model.tokenizer.encode_ids_and_types(texts, pairs, limit=model.max_length)
    for number, (example, (ids, type_ids)) in enumerate(zip(examples, sequences, strict=True)):
        targets = _find_targets(model, example)
        if len(ids) <= model.max_length:
            parts = [TextItem(ids=ids, type_ids=type_ids, targets=targets, example=number)]
        else:
            encodings = encode_long(
                model, example.text, example.pair, task=task, name=example.origin
            )
            # the windows of a long text need little memory, because training keeps them all
            store = make_compact if needs_streaming(task, example.text, example.pair) else list
            parts = [
                TextItem(
                    ids=store(one.ids),
                    type_ids=store(one.type_ids),
                    targets=targets,
                    example=number,
                    truncated_chars=one.truncated_chars if len(encodings) == 1 else 0,
                )
                for one in encodings
            ]
        groups.append(parts)
    return _add_swapped(model, examples, groups, task) if task.is_symmetric else groups


def _add_swapped(
    model: Model,
    examples: Sequence[TextExample],
    groups: Sequence[Sequence[TextItem]],
    task: Task,
) -> list[list[TextItem]]:
    """The items of pairs with the same pair in the other order."""
    _check_one_sequence(task)
    pairs = [number for number, example in enumerate(examples) if example.pair is not None]
    other = [
        replace(examples[n], text=examples[n].pair or "", pair=examples[n].text) for n in pairs
    ]
    plain = replace(task, transformation=None)
    found = dict(zip(pairs, encode_examples(model, other, plain) if other else (), strict=True))
    return [
        [replace(group[0], other=found[number][0])] if number in found else list(group)
        for number, group in enumerate(groups)
    ]


def _check_one_sequence(task: Task) -> None:
    if task.is_symmetric and task.truncation_strategy == "window":
        raise InputError(
            "the transformation 'similarity' does not support truncation 'window': it needs a "
            "single sequence in each order",
            fix="use truncation='head', 'tail' or 'head+tail' (command line: --truncation head)",
        )


def predict(
    model: Model,
    examples: Sequence[TextExample],
    *,
    task: Task | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Classification]:
    """Classify each example; results are in the order of the examples.

    The logits of windows are averaged, which is the normalized geometric mean of the probabilities:
    a confident window has more weight than an uncertain one. Numbers are averaged, too.
    """
    task = resolve_task("classify", model, task)
    head = "nsp" if predicts_next_sentence(model) else "sequence"
    if head == "nsp":
        _check_all_pairs(examples)

    def predict_all(some: Sequence[TextExample]) -> list[Classification]:
        groups = encode_examples(model, some, task)
        flat = [item for group in groups for item in group]
        logits = compute_logits(
            model, flat, head=head, batch_tokens=batch_tokens, progress=progress
        )
        return postprocess(model, some, groups, logits, task=task)

    def predict_long(example: TextExample) -> Classification:
        _check_one_sequence(task)
        if example.pair is not None:
            check_pair_support(model)
        windows = iterate_windows(model, example.text, example.pair, task=task, name=example.origin)
        items = (TextItem(ids=one.ids, type_ids=one.type_ids) for one in windows)
        found = iterate_window_logits(
            model, items, len(windows), head=head, batch_tokens=batch_tokens, progress=progress
        )
        total = torch.zeros(1, dtype=torch.float64)
        for _, logits in found:  # 1 c each
            total = total + logits
        item = TextItem(ids=(), type_ids=())
        mean = (total / len(windows)).float()
        return postprocess(model, [example], [[item]], [mean], task=task)[0]

    return predict_in_order(
        examples,
        predict_all,
        predict_long,
        is_long=lambda one: needs_streaming(task, one.text, one.pair),
    )


def postprocess(
    model: Model,
    examples: Sequence[TextExample],
    groups: Sequence[Sequence[TextItem]],
    logits: Sequence[Tensor],
    *,
    task: Task | None = None,
) -> list[Classification]:
    """Compute the label of each example from the logits of its items (1 c each)."""
    if not groups:
        return []
    parts = torch.cat(list(logits)).split([len(group) for group in groups])
    means = torch.stack([part.mean(0) for part in parts])  # b c
    labels, problem = model.labels, model.problem_type
    if predicts_next_sentence(model):
        labels, problem = NSP_LABELS, None
    if problem == "regression":
        values = means
    elif problem == MULTI_LABEL or len(labels) == 1:  # as in transformers
        values = means.sigmoid()
    else:
        values = means.softmax(-1)
    order = values.argsort(dim=-1, descending=True, stable=True).tolist()
    found = [
        Classification(
            text=example.text,
            pair=example.pair,
            label=labels[best[0]],
            score=row[best[0]],
            scores={labels[n]: row[n] for n in best},
            truncated_chars=sum(item.truncated_chars for item in group),
        )
        for example, group, row, best in zip(examples, groups, values.tolist(), order, strict=True)
    ]
    if problem != MULTI_LABEL:
        return found
    own = task or model.task
    thresholds: Mapping[str, float] = {} if own is None else own.thresholds
    return [one.apply_thresholds(thresholds) for one in found]


def _check_all_pairs(examples: Sequence[TextExample]) -> None:
    single = next((one for one in examples if one.pair is None), None)
    if single is not None:
        raise InputError(
            f"{single.origin}: this model has no labels for a single text; "
            "it predicts whether one text follows another",
            fix="give the second text as pair (--pair, --pair-column), or fine-tune the model "
            "(cloze finetune classify)",
        )


def _find_targets(model: Model, example: TextExample) -> tuple[Any, ...]:
    """A class or a number; with several labels a vector with 1 for each of them."""
    label = example.label
    if label is None:
        return ()
    if model.problem_type == MULTI_LABEL:
        given = label if isinstance(label, tuple) else (str(label),)
        indices = {label_index(model.labels, name, example.origin) for name in given}
        return (tuple(float(index in indices) for index in range(len(model.labels))),)
    if isinstance(label, tuple):
        raise InputError(
            f"{example.origin}: the model predicts one label, but there are {len(label)}: "
            f"{', '.join(label)}",
            fix="use data with one label per text, or a model that was trained with several",
        )
    if model.problem_type != "regression":
        name = label if isinstance(label, str) else f"{label:g}"
        return (label_index(model.labels, name, example.origin),)
    try:
        value = float(label)
    except ValueError:
        raise InputError(
            f"{example.origin}: the model predicts numbers, but the label is {label!r}",
            fix="correct the row, or use a model for classification",
        ) from None
    if not math.isfinite(value):
        raise InputError(
            f"{example.origin}: the label must be a finite number, but is {label}",
            fix="correct the row",
        )
    return (value,)
