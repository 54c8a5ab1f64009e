"""Scores without a model: what a prediction that ignores the text would reach.

| task | baseline | metric |
|---|---|---|
| classify | the most frequent label | accuracy |
| classify, several labels per text | the most frequent labels, as many as are best | micro F1 |
| tag | the most frequent tag | accuracy of words |
| regression | the mean | mean squared error |
| choose | chance | accuracy |
| answer, if questions may have none | no answer | F1 |
| summarize | the first three sentences | ROUGE-L |
| embed | the model before the training | Spearman correlation, MRR, nDCG@10 |
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any

from cloze.metrics.multi_label import compute_majority_f1
from cloze.metrics.names import METRICS

# the metric that each baseline is compared with, and whether lower values are better
COMPARED = {
    "majority_baseline": ("accuracy", False),
    "chance_baseline": ("accuracy", False),
    "no_answer_baseline": ("f1", False),
    "mean_baseline": ("mean_squared_error", True),
    "unigram_baseline": ("mlm_accuracy", False),
    "unigram_perplexity": ("perplexity", True),
    "lead_3_rouge_l": ("rouge_l", False),
    "initial_spearman": ("spearman", False),
    "initial_mrr": ("mrr", False),
    "initial_ndcg_at_10": ("ndcg_at_10", False),
}
_INITIAL = "the vectors were as good before the training"
_REASONS = {
    "lead_3_rouge_l": "the first three sentences are as good",
    **dict.fromkeys(("initial_spearman", "initial_mrr", "initial_ndcg_at_10"), _INITIAL),
}
# the same for causal models, and for several labels per text
_OTHERS = {"unigram_baseline": "lm_accuracy", "majority_baseline": "f1_micro"}
_TOLERANCE = 1e-9  # scores that are equal but for rounding


def compute_baseline(
    kind: str, gold: Sequence[Any], num_options: Iterable[int] = ()
) -> dict[str, float]:
    """The baseline of a task by its name among the metrics; empty if there is none.

    Args:
        kind: classify, multi_label, regression, tag, answer or choose.
        gold: the gold labels: tags by sentence, all correct answers of a question.
        num_options: of each question of `choose`.
    """
    if not gold or (kind == "answer" and all(gold)):
        return {}
    makers: dict[str, tuple[str, Callable[[], float]]] = {
        "classify": ("majority_baseline", lambda: _most_frequent(gold)),
        "multi_label": ("majority_baseline", lambda: compute_majority_f1(gold)),
        "tag": (
            "majority_baseline",
            lambda: _most_frequent([tag for tags in gold for tag in tags]),
        ),
        "regression": ("mean_baseline", lambda: pvariance([float(value) for value in gold])),
        "choose": ("chance_baseline", lambda: fmean(1 / count for count in num_options)),
        "answer": ("no_answer_baseline", lambda: fmean(not answers for answers in gold)),
    }
    if kind not in makers:
        return {}
    name, compute = makers[kind]
    return {name: compute()}


def list_compared(name: str) -> tuple[str, ...]:
    """The metrics that a baseline is compared with."""
    first = (COMPARED[name][0],) if name in COMPARED else ()
    return (*first, *((_OTHERS[name],) if name in _OTHERS else ()))


def _most_frequent(labels: Sequence[Any]) -> float:
    return max(Counter(labels).values()) / len(labels) if labels else 0.0


def describe_failure(scores: Mapping[str, float]) -> str | None:
    """That a score is not better than its baseline, if both are given and it is not."""
    for name, (metric, is_lower_better) in COMPARED.items():
        key = metric if metric in scores else _OTHERS.get(name, metric)
        if name not in scores or key not in scores:
            continue
        score, baseline = scores[key], scores[name]
        better = baseline - score if is_lower_better else score - baseline
        if better <= _TOLERANCE:
            side = "below" if is_lower_better else "above"
            return (
                f"{METRICS[key].describe(score)} is not {side} the "
                f"{METRICS[name].describe(baseline)}: "
                + _REASONS.get(name, "predictions that ignore the text are as good")
            )
    return None
