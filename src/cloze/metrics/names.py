"""Display names and number formats of all metrics.

The keys of METRICS are the names in metrics.jsonl and in the scores of a run. The terminal display,
report pages, model cards and command outputs take labels and formats from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from cloze.plot.format import format_duration, format_number, format_percent

Format: TypeAlias = Callable[[float], str]

_LARGE = 1000  # for a loss


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The names and the format of a metric."""

    label: str
    format: Format = format_number
    phrase: str = ""  # with {} for the number; default: the label and the number
    result: str = ""  # name in the results of a run; empty: not shown there
    terms: tuple[str, ...] = ()  # names in objectives

    def describe(self, value: float) -> str:
        """The value with its name: `MLM loss 2.500`, `8,192 tokens`."""
        return (self.phrase or f"{self.label} {{}}").format(self.format(value))


def _format_count(value: float) -> str:
    return f"{value:,.0f}"


def _format_loss(value: float) -> str:
    """With a fixed number of decimals, so that a live display does not jump."""
    return f"{value:.3f}" if abs(value) < _LARGE else format_number(value)


def _format_bleu(value: float) -> str:
    return f"{value:.1f}"


def _format_hundredths(value: float) -> str:
    return format_percent(value / 100)


def _format_precise(value: float) -> str:
    """For correlations and errors, which are not fractions."""
    return f"{value:.4f}"


_TASKS = ("classify", "tag", "answer", "choose", "embed", "translate")

METRICS: Mapping[str, Metric] = {
    "step": Metric(label="step", format=_format_count),
    "tokens": Metric(label="tokens", phrase="{} tokens"),
    "images": Metric(label="images", phrase="{} images"),
    # pre-training
    "mlm_loss": Metric(
        label="MLM loss", format=_format_loss, result="held-out loss", terms=("mlm",)
    ),
    "loss": Metric(label="loss", format=_format_loss, result="held-out loss"),
    "perplexity": Metric(label="perplexity", result="held-out perplexity", terms=("perplexity",)),
    "backward_perplexity": Metric(
        label="backward perplexity", result="held-out backward perplexity"
    ),
    "unigram_perplexity": Metric(label="unigram perplexity", result="unigram perplexity"),
    "mlm_accuracy": Metric(
        label="MLM accuracy",
        format=format_percent,
        result="MLM accuracy",
        terms=("mlm.accuracy",),
    ),
    # the auxiliary loss of fine-tuning; in pre-training it is the only one, and called loss
    "lm_loss": Metric(label="LM loss", format=_format_loss, terms=("lm",)),
    "lm_accuracy": Metric(
        label="LM accuracy",
        format=format_percent,
        result="next-token accuracy",
        terms=("lm.accuracy",),
    ),
    "teacher_accuracy": Metric(
        label="teacher", format=format_percent, result="teacher", terms=("mlm.teacher",)
    ),
    "unigram_baseline": Metric(
        label="unigram baseline",
        format=format_percent,
        result="unigram baseline",
        terms=("unigram",),
    ),
    "soft_loss": Metric(label="soft-target loss", format=_format_loss, terms=("soft",)),
    "cosine_loss": Metric(
        label="cosine loss",
        format=_format_loss,
        result="1 − cosine to the teacher",
        terms=("cosine",),
    ),
    "bleu": Metric(label="BLEU", format=_format_bleu),
    **{
        f"{prefix}rouge_{name}": Metric(
            label=f"{label}ROUGE-{shown}", format=format_percent, result=result and label + result
        )
        for prefix, label in (("", ""), ("lead_3_", "lead-3 "))
        for name, shown, result in (
            ("l", "L", "ROUGE-L"),
            ("1", "1", "ROUGE-1"),
            ("2", "2", "ROUGE-2"),
            ("lsum", "Lsum", ""),
        )
    },
    # images
    "diffusion": Metric(
        label="prediction error", format=_format_precise, result="held-out prediction error"
    ),
    "reconstruction": Metric(
        label="reconstruction error", format=_format_precise, result="held-out error"
    ),
    "clip_loss": Metric(label="contrastive loss", format=_format_loss, terms=("clip",)),
    "clip_accuracy": Metric(
        label="captions found", format=format_percent, terms=("clip.accuracy",)
    ),
    "recall_at_1": Metric(label="recall@1", format=format_percent, result="recall@1"),
    "recall_at_5": Metric(label="recall@5", format=format_percent, result="recall@5"),
    "chance_recall_at_1": Metric(
        label="recall@1 by chance", format=format_percent, result="recall@1 by chance"
    ),
    **{
        f"{name}_recall_at_{k}": Metric(label=f"{label} recall@{k}", format=format_percent)
        for name, label in (("text_to_image", "text → image"), ("image_to_text", "image → text"))
        for k in (1, 5)
    },
    # labelled data (cloze.metrics.scorer)
    "accuracy": Metric(
        label="accuracy",
        format=format_percent,
        terms=tuple(f"{task}.accuracy" for task in _TASKS),
    ),
    "f1": Metric(label="F1", format=format_percent),
    "f1_macro": Metric(label="macro F1", format=format_percent),
    "f1_micro": Metric(label="micro F1", format=format_percent),
    "f1_samples": Metric(label="F1 per example", format=format_percent),
    "subset_accuracy": Metric(label="subset accuracy", format=format_percent),
    "mean_average_precision": Metric(label="mean average precision", format=format_percent),
    "matthews_correlation": Metric(label="Matthews correlation", format=_format_precise),
    "pearson": Metric(label="Pearson correlation", format=_format_precise),
    "spearman": Metric(label="Spearman correlation", format=_format_precise),
    # sentence embeddings
    "embed_loss": Metric(label="contrastive loss", format=_format_loss, terms=("embed",)),
    "mrr": Metric(label="MRR", format=_format_precise),
    "recall_at_10": Metric(label="recall@10", format=format_percent),
    "ndcg_at_10": Metric(label="nDCG@10", format=_format_precise),
    **{
        f"initial_{name}": Metric(
            label=f"{label} before training",
            format=_format_precise,
            result=f"{label} before training",
        )
        for name, label in (("spearman", "Spearman"), ("mrr", "MRR"), ("ndcg_at_10", "nDCG@10"))
    },
    "mean_squared_error": Metric(label="mean squared error", format=_format_precise),
    "precision": Metric(label="precision", format=format_percent),
    "recall": Metric(label="recall", format=format_percent),
    "exact_match": Metric(label="exact match", format=format_percent),
    "has_answer_f1": Metric(label="F1 (has answer)", format=format_percent),
    "has_answer_exact_match": Metric(label="exact match (has answer)", format=format_percent),
    "no_answer_accuracy": Metric(label="accuracy (no answer)", format=format_percent),
    "score": Metric(label="score", format=format_percent),
    # language models and translators
    "perplexity_without_retrieval": Metric(label="perplexity without retrieval"),
    "word_perplexity": Metric(label="perplexity per word"),
    "bits_per_byte": Metric(label="bits per byte", format=_format_precise),
    "bits_per_character": Metric(label="bits per character", format=_format_precise),
    **{
        f"precision_{n}": Metric(label=f"{n}-gram precision", format=_format_hundredths)
        for n in range(1, 5)
    },
    "brevity_penalty": Metric(label="brevity penalty", format=_format_precise),
    # replaced-token detection
    "detection_loss": Metric(label="detection loss", format=_format_loss, terms=("detection",)),
    "detection_accuracy": Metric(
        label="detection accuracy",
        format=format_percent,
        result="detection accuracy",
        terms=("detection.accuracy",),
    ),
    "all_original_baseline": Metric(
        label="all-original baseline",
        format=format_percent,
        result="all-original baseline",
        terms=("detection.original",),
    ),
    "generator_loss": Metric(label="generator loss", format=_format_loss, terms=("generator",)),
    "generator_accuracy": Metric(
        label="generator accuracy", format=format_percent, terms=("generator.accuracy",)
    ),
    "correction_loss": Metric(label="correction loss", format=_format_loss, terms=("correction",)),
    "correction_accuracy": Metric(
        label="correction accuracy", format=format_percent, terms=("correction.accuracy",)
    ),
    # pairs of segments
    "nsp_loss": Metric(label="NSP loss", format=_format_loss, terms=("nsp",)),
    "nsp_accuracy": Metric(
        label="NSP accuracy",
        format=format_percent,
        result="NSP accuracy",
        terms=("nsp.accuracy",),
    ),
    "sop_loss": Metric(label="SOP loss", format=_format_loss, terms=("sop",)),
    "sop_accuracy": Metric(
        label="SOP accuracy",
        format=format_percent,
        result="SOP accuracy",
        terms=("sop.accuracy",),
    ),
    "majority_baseline": Metric(
        label="majority baseline",
        format=format_percent,
        result="majority baseline",
        terms=("majority",),
    ),
    "chance_baseline": Metric(label="chance", format=format_percent, result="chance"),
    "no_answer_baseline": Metric(
        label="no-answer baseline", format=format_percent, result="no-answer baseline"
    ),
    "mean_baseline": Metric(
        label="error of the mean", format=_format_precise, result="error of the mean"
    ),
    # the run itself
    "lr": Metric(label="learning rate"),
    "grad_norm": Metric(label="gradient norm"),
    "tokens_per_second": Metric(label="tokens/s", phrase="{} tokens/s"),
    "images_per_second": Metric(label="images/s", phrase="{} images/s"),
    "non_padding_fraction": Metric(
        label="non-padding tokens", format=format_percent, phrase="{} non-padding"
    ),
    "seconds": Metric(label="time", format=format_duration, phrase="{}"),
    "fraction": Metric(label="done", format=format_percent, phrase="{} done"),
    "seconds_left": Metric(label="time left", format=format_duration, phrase="{} left"),
}


def metric_label(name: str) -> str:
    """The label of a metric; other names with spaces for underscores."""
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def format_score(name: str, value: float) -> str:
    """A score of labelled data: fractions in percent with two decimals, the others as numbers."""
    if name not in METRICS or not isfinite(value):
        return f"{value:.4f}"
    format_value = METRICS[name].format
    return format_percent(value, 2) if format_value is format_percent else format_value(value)
