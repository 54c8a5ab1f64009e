"""The numbers that a run tells: what they are called, how they are written and how they are drawn.

The keys of MEASURES are the names in metrics.jsonl and of a run's scores; whatever shows them (the
terminal, the report, the card, the end of a command) takes its words from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cloze.plot.format import format_duration, format_number, format_percent

Write: TypeAlias = Callable[[float], str]
Lines: TypeAlias = Literal["both", "training", "held out", "set"]  # "set": by us, not measured

_LARGE = 1000  # for a loss


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart over the steps. Measures that have the same one are drawn in it together."""

    title: str
    unit: str = ""  # of the y axis
    note: str = ""
    include: tuple[float, ...] = ()  # what the y axis reaches to, whatever was measured
    lines: Lines = "both"
    against: tuple[str, ...] = ()  # measures on held-out text that are drawn beside it as levels
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One of the numbers."""

    label: str
    format: Write = format_number
    phrase: str = ""  # with the number in it, where the label in front of it would not do
    result: str = ""  # what it is called in the table at a run's end
    terms: tuple[str, ...] = ()  # what objectives and judges call it
    chart: Chart | None = None

    def describe(self, value: float) -> str:
        """The number in words."""
        return (self.phrase or f"{self.label} {{}}").format(self.format(value))


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _loss(value: float) -> str:
    """Always with the same decimals, so that the number does not jump about."""
    return f"{value:.3f}" if abs(value) < _LARGE else format_number(value)


def _bleu(value: float) -> str:
    return f"{value:.1f}"


def _of_hundred(value: float) -> str:
    return format_percent(value / 100)


def _precise(value: float) -> str:
    """Correlations and errors are no shares."""
    return f"{value:.4f}"


_TASKS = ("classify", "tag", "answer", "choose", "translate")
_JUDGED = "On the dev data, whenever the model was judged."
SCORES = Chart(title="Scores", lines="held out", note=_JUDGED)
CORRELATIONS = Chart(title="Correlations", lines="held out", note=_JUDGED)

# in the order in which their charts stand on a page
METRICS: Mapping[str, Metric] = {
    "step": Metric(label="step", format=_count),
    "tokens": Metric(label="tokens", phrase="{} tokens"),
    "mlm_loss": Metric(
        label="MLM loss",
        format=_loss,
        result="held-out loss",
        terms=("mlm",),
        chart=Chart(title="Loss", unit="nats a masked token", wide=True),
    ),
    "loss": Metric(
        label="loss", format=_loss, result="held-out loss", chart=Chart(title="Loss", wide=True)
    ),
    "perplexity": Metric(label="perplexity", result="held-out perplexity", terms=("perplexity",)),
    "mlm_accuracy": Metric(
        label="MLM accuracy",
        format=format_percent,
        result="masked words right",
        terms=("mlm.accuracy",),
        chart=Chart(
            title="MLM accuracy",
            include=(0,),
            against=("unigram_accuracy", "teacher_accuracy"),
            note="Unigram is what always saying the most frequent token gets.",
        ),
    ),
    "lm_accuracy": Metric(
        label="LM accuracy",
        format=format_percent,
        result="next words right",
        terms=("lm.accuracy",),
        chart=Chart(
            title="LM accuracy",
            include=(0,),
            against=("unigram_accuracy",),
            note="Next tokens guessed right. Unigram is what always saying the most frequent one "
            "gets.",
        ),
    ),
    "teacher_accuracy": Metric(
        label="teacher", format=format_percent, result="by the teacher", terms=("mlm.teacher",)
    ),
    "unigram_accuracy": Metric(
        label="unigram", format=format_percent, result="by the commonest word", terms=("unigram",)
    ),
    "soft_loss": Metric(
        label="soft targets",
        format=_loss,
        terms=("soft",),
        chart=Chart(
            title="Soft targets",
            unit="T²·KL, nats a masked token",
            note="How far the guesses are from the teacher's.",
        ),
    ),
    "cosine_loss": Metric(
        label="cosine loss",
        format=_loss,
        result="1 − cosine with the teacher",
        terms=("cosine",),
        chart=Chart(
            title="Cosine loss",
            unit="1 − cos, a token",
            note="How far the vectors of the last layer are from the teacher's.",
        ),
    ),
    "bleu": Metric(
        label="BLEU",
        format=_bleu,
        chart=Chart(
            title="BLEU",
            unit="from 0 to 100",
            include=(0,),
            lines="held out",
            note="Of the dev sentences, by which the model is chosen.",
        ),
    ),
    # what labelled data are scored by (cloze.metrics.scorer)
    "accuracy": Metric(
        label="accuracy",
        format=format_percent,
        terms=tuple(f"{task}.accuracy" for task in _TASKS),
        chart=SCORES,
    ),
    "f1": Metric(label="F1", format=format_percent, chart=SCORES),
    "f1_macro": Metric(label="F1, mean of classes", format=format_percent, chart=SCORES),
    "matthews": Metric(label="Matthews", format=_precise, chart=CORRELATIONS),
    "pearson": Metric(label="Pearson", format=_precise, chart=CORRELATIONS),
    "spearman": Metric(label="Spearman", format=_precise, chart=CORRELATIONS),
    "squared_error": Metric(label="squared error", format=_precise),
    "precision": Metric(label="precision", format=format_percent, chart=SCORES),
    "recall": Metric(label="recall", format=format_percent, chart=SCORES),
    "exact": Metric(label="exact", format=format_percent, chart=SCORES),
    "has_answer_f1": Metric(label="F1, where there is an answer", format=format_percent),
    "has_answer_exact": Metric(label="exact, where there is one", format=format_percent),
    "no_answer": Metric(label="right, where there is none", format=format_percent),
    "score": Metric(label="score", format=format_percent),
    # what language models and translators are scored by (cloze.tasks.evaluate_own)
    "word_perplexity": Metric(label="perplexity of a word"),
    "bits_per_byte": Metric(label="bits a byte", format=_precise),
    **{
        f"precision_{n}": Metric(label=f"precision, {n}-grams", format=_of_hundred)
        for n in range(1, 5)
    },
    "brevity": Metric(label="brevity penalty", format=_precise),
    "detection_loss": Metric(label="detection loss", format=_loss, terms=("detection",)),
    "detection_accuracy": Metric(
        label="told apart",
        format=format_percent,
        result="tokens told apart",
        terms=("detection.accuracy",),
        chart=Chart(
            title="Replaced tokens",
            against=("original_accuracy",),
            note="Tokens told apart: is it the text's or the generator's? Original is what calling "
            "all of them the text's gets, at the end.",
        ),
    ),
    "original_accuracy": Metric(
        label="original",
        format=format_percent,
        phrase="all original {}",
        result="by calling all original",
        terms=("detection.original",),
    ),
    "generator_loss": Metric(label="generator loss", format=_loss, terms=("generator",)),
    "generator_accuracy": Metric(
        label="generator accuracy",
        format=format_percent,
        terms=("generator.accuracy",),
        chart=Chart(
            title="Generator accuracy",
            include=(0,),
            note="Masked tokens that the generator would guess right.",
        ),
    ),
    "correction_loss": Metric(label="correction loss", format=_loss, terms=("correction",)),
    "correction_accuracy": Metric(
        label="correction accuracy",
        format=format_percent,
        terms=("correction.accuracy",),
        chart=Chart(
            title="Correction accuracy",
            include=(0,),
            note="Tokens the model restores where the generator has put others.",
        ),
    ),
    "nsp_loss": Metric(label="NSP loss", format=_loss, terms=("nsp",)),
    "nsp_accuracy": Metric(
        label="NSP accuracy",
        format=format_percent,
        result="next sentences right",
        terms=("nsp.accuracy",),
        chart=Chart(
            title="NSP accuracy",
            include=(0.45,),  # so that a line at chance does not lie on the axis
            against=("commoner_pair_accuracy",),
            note="Pairs told right: do they follow each other? Commoner is what always saying the "
            "commoner answer gets; the ends of documents make the two uneven.",
        ),
    ),
    "sop_loss": Metric(label="SOP loss", format=_loss, terms=("sop",)),
    "sop_accuracy": Metric(
        label="SOP accuracy",
        format=format_percent,
        result="sentence orders right",
        terms=("sop.accuracy",),
        chart=Chart(
            title="SOP accuracy",
            include=(0.45,),
            against=("commoner_pair_accuracy",),
            note="Pairs told right: do they stand in the order of the text, or are they swapped? "
            "Commoner is what always saying the commoner answer gets.",
        ),
    ),
    "commoner_pair_accuracy": Metric(
        label="commoner",
        format=format_percent,
        result="by the commoner answer",
        terms=("commoner",),
    ),
    "lr": Metric(
        label="learning rate", chart=Chart(title="Learning rate", include=(0,), lines="set")
    ),
    "grad_norm": Metric(label="gradient norm"),
    "tokens_per_second": Metric(
        label="tokens/s",
        phrase="{} tokens/s",
        chart=Chart(title="Tokens a second", include=(0,), lines="training"),
    ),
    "real_share": Metric(label="real", format=format_percent, phrase="{} real"),
    "seconds": Metric(label="time", format=format_duration, phrase="{}"),
    "fraction": Metric(label="done", format=format_percent, phrase="{} done"),
    "left": Metric(label="left", format=format_duration, phrase="{} left"),
}


def metric_label(name: str) -> str:
    """The words for a measure; any other name as it is."""
    return METRICS[name].label if name in METRICS else name.replace("_", " ")
