"""`evaluate` for fine-tuned models: metrics and errors on labelled examples."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model, check_capability
from cloze.checkpoint.task import Task, infer_task, override_truncation
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    TaggedExample,
    TextExample,
    label_index,
)
from cloze.data.labelled.tag_schemes import detect_tag_scheme
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.metrics.multi_label import DEFAULT_THRESHOLD
from cloze.metrics.scorer import main_metric, make_scorer
from cloze.metrics.squad import is_chinese
from cloze.models.configs.encoder import MULTI_LABEL
from cloze.models.registry import resolve
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import Evaluation, SwapResult
from cloze.tasks.inputs import predict_each
from cloze.tasks.scored_predictions import OnBadRow, ScoredPredictions, gold_label

Data: TypeAlias = Source | Sequence[Source] | Sequence[Example]


@dataclass(frozen=True, kw_only=True)
class TaskFunctions:
    """The functions of one task, imported when they are used."""

    example: type
    reader: str
    module: str
    columns: tuple[str, ...] = ()  # keys of `Columns` that the reader has

    @property
    def read(self) -> Callable[..., Iterator[Any]]:
        """Files to examples."""
        return self._resolve(self.reader)

    @property
    def encode_examples(
        self,
    ) -> Callable[[Model, Sequence[Any], Task], Sequence[Sequence[EncodedExample]]]:
        return self._resolve(f"{self.module}:encode_examples")

    @property
    def predict(self) -> Callable[..., Sequence[Any]]:
        """Examples to predictions, in their order."""
        return self._resolve(f"{self.module}:predict")

    @property
    def postprocess(self) -> Callable[..., Sequence[Any]]:
        """Logits of encoded examples to predictions."""
        return self._resolve(f"{self.module}:postprocess")

    @staticmethod
    def _resolve(name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = resolve(name)
        return found


TASK_FUNCTIONS: dict[str, TaskFunctions] = {
    "classify": TaskFunctions(
        example=TextExample,
        reader="cloze.data.labelled.tables:read_text_examples",
        module="cloze.tasks.classify",
        columns=("text_column", "pair_column", "label_column", "label_delimiter"),
    ),
    "tag": TaskFunctions(
        example=TaggedExample,
        reader="cloze.data.labelled.tags:read_tagged_examples",
        module="cloze.tasks.tag",
        columns=("tag_column", "tag_scheme"),
    ),
    "answer": TaskFunctions(
        example=QuestionExample,
        reader="cloze.data.labelled.questions:read_question_examples",
        module="cloze.tasks.answer",
    ),
    "choose": TaskFunctions(
        example=ChoiceExample,
        reader="cloze.data.labelled.choices:read_choice_examples",
        module="cloze.tasks.choose",
    ),
}


class Columns(TypedDict, total=False):
    """Columns of tables, by name or 1-based number; detected by default."""

    text_column: str | int | None
    pair_column: str | int | None
    label_column: str | int | Sequence[str | int] | None
    label_delimiter: str | None
    tag_column: str | int | None
    tag_scheme: str | None


def evaluate_labelled(
    model: Model,
    data: Data,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    chinese: bool | None = None,
    swap: bool = False,
    skip_bad: bool = False,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
    **columns: Unpack[Columns],
) -> Evaluation:
    """Evaluate a fine-tuned model on labelled examples; options as in `evaluate`."""
    task = override_truncation(require_task(model), truncation, overlap)
    skipped: list[InputError] = []
    examples = read_labelled(model, data, skipped.append if skip_bad else None, **columns)
    if skip_bad:
        examples = _drop_unusable(model, task, examples, skipped.append)
    kind = metric_kind(task.name, model.problem_type)
    if not examples:
        raise InputError(
            "the data contain no examples",
            fix="check that the files are not empty"
            + (", and why all rows were skipped" if skipped else ""),
        )
    for example in examples:  # report missing labels before predicting
        gold_label(kind, example)
    if swap:
        _check_all_pairs(examples)
    if chinese and kind != "answer":
        raise InputError(
            "chinese (the rules of CMRC) is only for question answering", fix="leave it out"
        )
    since = time.perf_counter()
    result = score_predictions(
        model,
        examples,
        task=task,
        chinese=chinese,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    seconds = time.perf_counter() - since
    return Evaluation(
        result=result,
        labels=model.labels,
        skipped=tuple(skipped),
        seconds=seconds,
        swapped=_swap_pairs(model, task, result, batch_tokens) if swap else None,
    )


def read_labelled(
    model: Model, data: Data, on_error: OnBadRow | None = None, **columns: Unpack[Columns]
) -> list[Any]:
    """Read the examples of a model's task; `data` may also be a list of examples."""
    task = require_task(model)
    functions = TASK_FUNCTIONS[task.name]
    options: dict[str, Any] = {"on_error": on_error or "raise"}
    for name, value in columns.items():
        if value is not None:
            if name not in functions.columns:
                raise InputError(
                    f"{name} does not apply to the data of `{task.name}`",
                    fix=f"leave it out; these apply: {', '.join(functions.columns)}"
                    if functions.columns
                    else "leave it out",
                )
            options[name] = value
    kinds = tuple(one.example for one in TASK_FUNCTIONS.values())
    if isinstance(data, list | tuple) and data and isinstance(data[0], kinds):
        if not isinstance(data[0], functions.example):
            raise InputError(
                f"a model for `{task.name}` cannot use examples of type {type(data[0]).__name__}",
                fix=f"pass examples of type {functions.example.__name__}",
            )
        return list(data)
    if task.name == "classify":
        options["is_regression"] = model.problem_type == "regression"
        options["is_multi_label"] = model.problem_type == MULTI_LABEL
        options["labels"] = model.labels
        options["is_label_required"] = True
    return list(functions.read(data, **options))


def score_predictions(
    model: Model,
    examples: Sequence[Any],
    *,
    task: Task | None = None,
    chinese: bool | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> ScoredPredictions:
    """Predict all examples, and compare the predictions with the gold labels.

    `chinese` scores answers by the rules of CMRC. Default: if most contexts are Chinese.
    """
    task = task or require_task(model)
    if chinese is None:
        chinese = task.name == "answer" and is_chinese(example.context for example in examples)
    predictions = TASK_FUNCTIONS[task.name].predict(
        model, examples, task=task, batch_tokens=batch_tokens, progress=progress
    )
    return compute_metrics(model, task, examples, predictions, chinese=chinese)


def compute_metrics(
    model: Model,
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Any],
    *,
    chinese: bool = False,
) -> ScoredPredictions:
    """Compare predictions with the gold labels of the examples."""
    kind = metric_kind(task.name, model.problem_type)
    scheme = detect_tag_scheme(model.labels) if kind == "tag" else None
    gold = [gold_label(kind, example) for example in examples]
    probabilities = None
    if kind == "multi_label":
        _check_known_labels(model, examples, gold)
        probabilities = label_probabilities(predictions, model.labels)
    predicted = [_predicted_label(kind, prediction) for prediction in predictions]
    return ScoredPredictions(
        kind=kind,
        examples=examples,
        predictions=predictions,
        gold=gold,
        predicted=predicted,
        scorer=make_scorer(
            kind,
            gold,
            predicted,
            labels=model.labels if kind in ("classify", "multi_label") else None,
            scheme=scheme,
            chinese=chinese,
            probabilities=probabilities,
        ),
        thresholds={label: task.thresholds.get(label, DEFAULT_THRESHOLD) for label in model.labels}
        if kind == "multi_label"
        else {},
        scheme=scheme,
        chinese=chinese,
    )


def label_probabilities(predictions: Sequence[Any], labels: Sequence[str]) -> NDArray[np.float64]:
    """The probability of every label (n k)."""
    return np.array([[one.scores[label] for label in labels] for one in predictions], np.float64)


def _check_known_labels(
    model: Model, examples: Sequence[Any], gold: Sequence[Sequence[str]]
) -> None:
    for example, labels in zip(examples, gold, strict=True):
        for label in labels:
            label_index(model.labels, label, example.origin)


def require_task(model: Model) -> Task:
    """The task a model was fine-tuned for, or an error."""
    if model.task is None:
        check_capability(model, "do a task")
    if model.task is None and (implied := infer_task(model.head)) is not None:
        raise InputError(
            f"this model has a head for `{implied.name}` ({model.head}), but its task is not set",
            fix="save the model and load it again: then the task follows from the head",
        )
    if model.task is None:
        raise InputError(
            "this model was not fine-tuned for a task: "
            + (f"its head is {model.head}" if model.head else "it has no task head"),
            fix="fine-tune it first: cloze finetune TASK MODEL",
        )
    return model.task


def metric_kind(task: str, problem: str | None) -> str:
    """The kind of metrics of a task: its name, `regression` or `multi_label`."""
    kinds = {"regression": "regression", MULTI_LABEL: "multi_label"}
    return kinds.get(problem or "", task) if task == "classify" else task


def find_main_metric(task: str, problem: str | None, labels: Sequence[str]) -> str:
    """The name of the main score."""
    scheme = detect_tag_scheme(labels) if task == "tag" else None
    return main_metric(metric_kind(task, problem), scheme=scheme)


def _predicted_label(kind: str, prediction: Any) -> Any:  # noqa: ANN401
    names = {"classify": "label", "regression": "score", "tag": "tags", "answer": "text"}
    return getattr(prediction, {"multi_label": "labels", **names}.get(kind, "option"))


def _drop_unusable(
    model: Model, task: Task, examples: Sequence[Any], report: OnBadRow
) -> list[Any]:
    """Remove and report examples without a label, or that the model cannot encode."""
    kind = metric_kind(task.name, model.problem_type)

    def encode(some: Sequence[Any]) -> Sequence[Any]:
        for example in some:
            gold_label(kind, example)
        return TASK_FUNCTIONS[task.name].encode_examples(model, some, task)

    good = []
    for example, outcome in predict_each(encode, examples):
        if isinstance(outcome, InputError):
            report(outcome)
        else:
            good.append(example)
    return good


def _check_all_pairs(examples: Sequence[Example]) -> None:
    single = next((one for one in examples if getattr(one, "pair", None) is None), None)
    if single is not None:
        raise InputError(
            f"{single.origin}: swap needs pairs of texts, but this is a single text",
            fix="leave out swap, or use data in which all examples are pairs",
        )


def _swap_pairs(
    model: Model, task: Task, result: ScoredPredictions, batch_tokens: int | None
) -> SwapResult:
    swapped = [replace(one, text=one.pair, pair=one.text) for one in result.examples]
    predictions = TASK_FUNCTIONS[task.name].predict(
        model, swapped, task=task, batch_tokens=batch_tokens
    )
    scored = compute_metrics(model, task, swapped, predictions)
    both = list(zip(result.predictions, predictions, strict=True))
    number = model.problem_type == "regression"
    sides = zip(result.predicted, scored.predicted, strict=True)
    return SwapResult(
        agreement=None if number else fmean(_as_set(one) == _as_set(other) for one, other in sides),
        difference=fmean(abs(one.score - other.scores[one.label]) for one, other in both),
        scores=scored.scores,
    )


def _as_set(predicted: str | tuple[str, ...]) -> set[str]:
    return set(predicted) if isinstance(predicted, tuple) else {predicted}
