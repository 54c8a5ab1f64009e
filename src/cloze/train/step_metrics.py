"""Turn training steps into rows of metrics, for metrics.jsonl, the display and the report."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloze.metrics.names import METRICS
from cloze.train.schedule import Budget, Progress

if TYPE_CHECKING:
    from cloze.train.step import Step

_TRAIN = {term: key for key, metric in METRICS.items() for term in metric.terms}
# as for other language models, which have no second loss
_HELD_OUT = {**_TRAIN, "lm": "loss"}
KEPT = "kept"


class StepMetrics:
    """Turns steps into rows, and measures the speed between two rows."""

    def __init__(
        self,
        budget: Budget,
        start: Progress,
        *,
        non_padding: float = 1.0,
        metric_names: Mapping[str, str] | None = None,
        unit: str = "tokens",
    ) -> None:
        self._budget, self._non_padding, self._names = budget, non_padding, metric_names or {}
        self._unit = unit  # of the data: tokens or images
        self._tokens, self._seconds = start.tokens, start.seconds

    def rows(self, step: "Step") -> list[dict[str, Any]]:
        """A row for the step and, if it was evaluated, one for the evaluation."""
        elapsed, done = step.seconds - self._seconds, step.tokens - self._tokens
        if elapsed > 0:
            self._tokens, self._seconds = step.tokens, step.seconds
        progress = Progress(step.number, step.tokens, step.seconds)
        is_only_loss = sum("." not in name for name in step.means) == 1
        row = {
            "kind": "train",
            "step": step.number,
            self._unit: step.tokens,
            "seconds": round(step.seconds, 3),
            "fraction": self._budget.fraction(progress),
            "lr": step.lr,
            "loss": step.loss,
            **_rename(step.means, _HELD_OUT if is_only_loss else _TRAIN, self._names),
            "grad_norm": step.grad_norm,
            f"{self._unit}_per_second": done / elapsed if elapsed > 0 else None,
            **({} if self._unit != "tokens" else {"non_padding_fraction": self._non_padding}),
            **({"skipped": True} if step.is_bad else {}),
        }
        return [row, *([make_eval_row(step.number, step.scores)] if step.scores else [])]


def make_eval_row(step: int, scores: Mapping[str, float]) -> dict[str, Any]:
    """The row of an evaluation."""
    return {"kind": "eval", "step": step, **scores}


def make_kept_row(step: int, scores: Mapping[str, float]) -> dict[str, Any]:
    """The row of the kept model, if it was changed after its evaluation."""
    return {"kind": KEPT, "step": step, **scores}


def held_out_scores(
    terms: Mapping[str, float], metric_names: Mapping[str, str] | None = None
) -> dict[str, float]:
    """The terms of an objective on held-out text, by the names of metrics.jsonl."""
    return _rename(terms, _HELD_OUT, metric_names or {})


def _rename(
    terms: Mapping[str, float], names: Mapping[str, str], metric_names: Mapping[str, str]
) -> dict[str, float]:
    """Terms by the names of metrics; `metric_names` gives some terms another name first.

    Of a sentence-order job, `nsp` is reported as `sop`: the head is the same, the pairs are not.
    """
    renamed = {metric_names.get(term, term): value for term, value in terms.items()}
    return {names.get(term, term): value for term, value in renamed.items()}
