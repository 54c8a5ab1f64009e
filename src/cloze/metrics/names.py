"""The numbers that a run tells: what they are called, how they are written and how they are drawn.

The keys of MEASURES are the names in metrics.jsonl and of a run's scores; whatever shows them (the
terminal, the report, the card, the end of a command) takes its words from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cloze.plot.numbers import duration, percent, short

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
class Measure:
    """One of the numbers."""

    label: str
    write: Write = short
    line: str = ""  # with the number in it, where the label in front of it would not do
    result: str = ""  # what it is called in the table at a run's end
    terms: tuple[str, ...] = ()  # what objectives and judges call it
    chart: Chart | None = None

    def said(self, value: float) -> str:
        """The number in words."""
        return (self.line or f"{self.label} {{}}").format(self.write(value))


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _loss(value: float) -> str:
    """Always with the same decimals, so that the number does not jump about."""
    return f"{value:.3f}" if abs(value) < _LARGE else short(value)


def _bleu(value: float) -> str:
    return f"{value:.1f}"


def _of_hundred(value: float) -> str:
    return percent(value / 100)


def _precise(value: float) -> str:
    """Correlations and errors are no shares."""
    return f"{value:.4f}"


_TASKS = ("classify", "tag", "answer", "choose", "translate")
_JUDGED = "On the dev data, whenever the model was judged."
SCORES = Chart(title="Scores", lines="held out", note=_JUDGED)
CORRELATIONS = Chart(title="Correlations", lines="held out", note=_JUDGED)

# in the order in which their charts stand on a page
MEASURES: Mapping[str, Measure] = {
    "step": Measure(label="step", write=_count),
    "tokens": Measure(label="tokens", line="{} tokens"),
    "mlm_loss": Measure(
        label="MLM loss",
        write=_loss,
        result="held-out loss",
        terms=("mlm",),
        chart=Chart(title="Loss", unit="nats a masked token", wide=True),
    ),
    "loss": Measure(
        label="loss", write=_loss, result="held-out loss", chart=Chart(title="Loss", wide=True)
    ),
    "perplexity": Measure(label="perplexity", result="held-out perplexity", terms=("perplexity",)),
    "mlm_accuracy": Measure(
        label="MLM accuracy",
        write=percent,
        result="masked words right",
        terms=("mlm.accuracy",),
        chart=Chart(
            title="MLM accuracy",
            include=(0,),
            against=("unigram_accuracy", "teacher_accuracy"),
            note="Unigram is what always saying the most frequent token gets.",
        ),
    ),
    "lm_accuracy": Measure(
        label="LM accuracy",
        write=percent,
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
    "teacher_accuracy": Measure(
        label="teacher", write=percent, result="by the teacher", terms=("mlm.teacher",)
    ),
    "unigram_accuracy": Measure(
        label="unigram", write=percent, result="by the commonest word", terms=("unigram",)
    ),
    "soft_loss": Measure(
        label="soft targets",
        write=_loss,
        terms=("soft",),
        chart=Chart(
            title="Soft targets",
            unit="T²·KL, nats a masked token",
            note="How far the guesses are from the teacher's.",
        ),
    ),
    "cosine_loss": Measure(
        label="cosine loss",
        write=_loss,
        result="1 − cosine with the teacher",
        terms=("cosine",),
        chart=Chart(
            title="Cosine loss",
            unit="1 − cos, a token",
            note="How far the vectors of the last layer are from the teacher's.",
        ),
    ),
    "bleu": Measure(
        label="BLEU",
        write=_bleu,
        chart=Chart(
            title="BLEU",
            unit="from 0 to 100",
            include=(0,),
            lines="held out",
            note="Of the dev sentences, by which the model is chosen.",
        ),
    ),
    # what labelled data are scored by (cloze.metrics.scorer)
    "accuracy": Measure(
        label="accuracy",
        write=percent,
        terms=tuple(f"{task}.accuracy" for task in _TASKS),
        chart=SCORES,
    ),
    "f1": Measure(label="F1", write=percent, chart=SCORES),
    "f1_macro": Measure(label="F1, mean of classes", write=percent, chart=SCORES),
    "matthews": Measure(label="Matthews", write=_precise, chart=CORRELATIONS),
    "pearson": Measure(label="Pearson", write=_precise, chart=CORRELATIONS),
    "spearman": Measure(label="Spearman", write=_precise, chart=CORRELATIONS),
    "squared_error": Measure(label="squared error", write=_precise),
    "precision": Measure(label="precision", write=percent, chart=SCORES),
    "recall": Measure(label="recall", write=percent, chart=SCORES),
    "exact": Measure(label="exact", write=percent, chart=SCORES),
    "has_answer_f1": Measure(label="F1, where there is an answer", write=percent),
    "has_answer_exact": Measure(label="exact, where there is one", write=percent),
    "no_answer": Measure(label="right, where there is none", write=percent),
    "score": Measure(label="score", write=percent),
    # what language models and translators are scored by (cloze.tasks.evaluate_own)
    "word_perplexity": Measure(label="perplexity of a word"),
    "bits_per_byte": Measure(label="bits a byte", write=_precise),
    **{
        f"precision_{n}": Measure(label=f"precision, {n}-grams", write=_of_hundred)
        for n in range(1, 5)
    },
    "brevity": Measure(label="brevity penalty", write=_precise),
    "detection_loss": Measure(label="detection loss", write=_loss, terms=("detection",)),
    "detection_accuracy": Measure(
        label="told apart",
        write=percent,
        result="tokens told apart",
        terms=("detection.accuracy",),
        chart=Chart(
            title="Replaced tokens",
            against=("original_accuracy",),
            note="Tokens told apart: is it the text's or the generator's? Original is what calling "
            "all of them the text's gets, at the end.",
        ),
    ),
    "original_accuracy": Measure(
        label="original",
        write=percent,
        line="all original {}",
        result="by calling all original",
        terms=("detection.original",),
    ),
    "generator_loss": Measure(label="generator loss", write=_loss, terms=("generator",)),
    "generator_accuracy": Measure(
        label="generator accuracy",
        write=percent,
        terms=("generator.accuracy",),
        chart=Chart(
            title="Generator accuracy",
            include=(0,),
            note="Masked tokens that the generator would guess right.",
        ),
    ),
    "correction_loss": Measure(label="correction loss", write=_loss, terms=("correction",)),
    "correction_accuracy": Measure(
        label="correction accuracy",
        write=percent,
        terms=("correction.accuracy",),
        chart=Chart(
            title="Correction accuracy",
            include=(0,),
            note="Tokens the model restores where the generator has put others.",
        ),
    ),
    "nsp_loss": Measure(label="NSP loss", write=_loss, terms=("nsp",)),
    "nsp_accuracy": Measure(
        label="NSP accuracy",
        write=percent,
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
    "sop_loss": Measure(label="SOP loss", write=_loss, terms=("sop",)),
    "sop_accuracy": Measure(
        label="SOP accuracy",
        write=percent,
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
    "commoner_pair_accuracy": Measure(
        label="commoner", write=percent, result="by the commoner answer", terms=("commoner",)
    ),
    "lr": Measure(
        label="learning rate", chart=Chart(title="Learning rate", include=(0,), lines="set")
    ),
    "grad_norm": Measure(label="gradient norm"),
    "tokens_per_second": Measure(
        label="tokens/s",
        line="{} tokens/s",
        chart=Chart(title="Tokens a second", include=(0,), lines="training"),
    ),
    "real_share": Measure(label="real", write=percent, line="{} real"),
    "seconds": Measure(label="time", write=duration, line="{}"),
    "fraction": Measure(label="done", write=percent, line="{} done"),
    "left": Measure(label="left", write=duration, line="{} left"),
}


def called(name: str) -> str:
    """The words for a measure; any other name as it is."""
    return MEASURES[name].label if name in MEASURES else name.replace("_", " ")
