"""Predictions of a model for labelled examples, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.checkpoint.abilities import can
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tag_schemes import detect_tag_scheme
from cloze.errors import InputError
from cloze.metrics.measures import Scorer, main_metric
from cloze.metrics.measures import make_scorer as measured
from cloze.metrics.squad import is_chinese
from cloze.progress import ProgressCallback
from cloze.tasks.task_functions import TASK_FUNCTIONS


@dataclass(frozen=True, kw_only=True)
class ScoredPredictions:
    """What a model said about examples, and how it is scored."""

    examples: Sequence[Any] = field(repr=False)
    predictions: Sequence[Any] = field(repr=False)  # as many, in the same order
    gold: Sequence[Any] = field(repr=False)
    predicted: Sequence[Any] = field(repr=False)
    scorer: Scorer

    @property
    def scores(self) -> dict[str, float]:
        return self.scorer.scores

    @property
    def score(self) -> float:
        """*The* score of the task."""
        return self.scores[self.scorer.main]


def score_predictions(
    model: Model,
    examples: Sequence[Any],
    *,
    task: Task | None = None,
    chinese: bool | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> ScoredPredictions:
    """Ask the model about every example, and hold what it says against what is right.

    Answers in Chinese are scored by CMRC's rules, if `chinese` says so or the contexts are.
    """
    asked = task or require_task(model)
    if chinese is None:
        chinese = asked.name == "answer" and is_chinese(example.context for example in examples)
    predictions = TASK_FUNCTIONS[asked.name].predict(
        model, examples, task=asked, batch_tokens=batch_tokens, progress=progress
    )
    return compute_metrics(model, asked, examples, predictions, chinese=chinese)


def require_task(model: Model) -> Task:
    """What a model was trained for, or an error."""
    can(model, "do a task")
    if model.task is None:
        raise InputError(
            f"this model was trained for no task: its head is {model.head or 'missing'}",
            fix="fine-tune it first: cloze finetune TASK MODEL",
        )
    return model.task


def compute_metrics(
    model: Model,
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Any],
    *,
    chinese: bool = False,
) -> ScoredPredictions:
    """Predictions beside what is right."""
    kind = metric_kind(task.name, model.config.problem_type)
    gold = [gold_label(kind, example) for example in examples]
    said = [_said(kind, prediction) for prediction in predictions]
    return ScoredPredictions(
        examples=examples,
        predictions=predictions,
        gold=gold,
        predicted=said,
        scorer=measured(
            kind,
            gold,
            said,
            labels=model.labels if kind == "classify" else None,
            scheme=detect_tag_scheme(model.labels) if kind == "tag" else None,
            chinese=chinese,
        ),
    )


def metric_kind(task: str, problem: str | None) -> str:
    """What kind of thing is measured."""
    return "number" if task == "classify" and problem == "number" else task


def main_metric_of(task: str, problem: str | None, labels: Sequence[str]) -> str:
    """The name of *the* score."""
    scheme = detect_tag_scheme(labels) if task == "tag" else None
    return main_metric(metric_kind(task, problem), scheme=scheme)


def gold_label(kind: str, example: Any) -> Any:  # noqa: ANN401
    """What is right, or an error that says where it is not known."""
    known = getattr(example, {"tag": "tags", "answer": "answers"}.get(kind, "label"))
    if known is None:
        raise InputError(f"{example.origin}: no label to judge by", fix="label it, or leave it out")
    if kind == "answer":
        return [answer.text for answer in known]
    if kind == "classify" and isinstance(example, TextExample) and not isinstance(known, str):
        return f"{known:g}"
    return known


def _said(kind: str, prediction: Any) -> Any:  # noqa: ANN401
    return {
        "classify": lambda: prediction.label,
        "number": lambda: prediction.score,
        "tag": lambda: prediction.tags,
        "answer": lambda: prediction.text,
        "choose": lambda: prediction.option,
    }[kind]()
