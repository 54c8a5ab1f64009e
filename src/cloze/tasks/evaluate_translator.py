"""`evaluate` for translators: BLEU, overall and by source length."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.parallel_text import ParallelText
from cloze.data.source_target import load_pairs
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.metrics.bleu import compute_bleu_by_length, compute_bleu_from_counts, count_ngrams
from cloze.metrics.bootstrap import Metric
from cloze.plot.line_chart import LineChart, Series
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation
from cloze.tasks.translate import translate

LENGTH_EDGES = (1, 6, 9, 12, 15, 18, 21, 26, 31, 41, 61, 1 << 30)  # words of the source
BEAM, BLEU = 4, "13a"


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslatorScores:
    """The scores of a translator, line by line."""

    counts: NDArray[np.int64] = field(repr=False)  # n-gram counts, as from `count_ngrams`
    tokenize: str
    too_long: int  # number of sentences that were not translated
    truncated_chars: Sequence[int] = field(repr=False)  # that were not read, of each sentence
    empty: int  # number of other sentences with an empty translation
    seconds: float

    metric = "bleu"

    @property
    def bootstrap_metrics(self) -> dict[str, tuple[Metric, int]]:
        """By name: the metric of a resample, and the number of examples."""
        return {self.metric: (self.score_subset, self.count)}

    @property
    def count(self) -> int:
        """Number of sentences."""
        return len(self.counts)

    def score_subset(self, chosen: NDArray[np.intp]) -> float:
        """BLEU of the lines with these indices."""
        return compute_bleu_from_counts(self.counts[chosen], tokenize=self.tokenize).score


def evaluate_translator(
    model: Model,
    data: Source | Sequence[Any],
    *,
    beam: int = BEAM,
    bleu: str = BLEU,
    truncation: str | None = None,
    text_column: str | int | None = None,
    target_column: str | int | None = None,
    progress: ProgressCallback | None = None,
) -> CorpusEvaluation:
    """Compute the BLEU of a translator on two files, source and target, or on tables."""
    since = time.perf_counter()
    pairs = load_pairs(
        data,
        "translate",
        text_column=text_column,
        target_column=target_column,
        name="the data of a translator",
    )
    made = score_translator(
        model, pairs, beam=beam, bleu=bleu, truncation=truncation, progress=progress
    )
    found = compute_bleu_from_counts(made.counts, tokenize=bleu)
    lengths = [len(source.split()) for source in pairs.source]
    by_length = compute_bleu_by_length(made.counts, lengths, LENGTH_EDGES, tokenize=bleu)
    middles = [
        (sum(some) / len(some), one.score)
        for (low, high), one in zip(pairwise(LENGTH_EDGES), by_length, strict=True)
        if one is not None and (some := [size for size in lengths if low <= size < high])
    ]
    chart = LineChart(
        title="BLEU by source length",
        x_label="words of the source",
        y_label="BLEU",
        include=(0.0,),
        series=[Series(name="BLEU", x=[x for x, _ in middles], y=[y for _, y in middles])],
    )
    return CorpusEvaluation(
        kind="translate",
        scores={
            "bleu": found.score,
            **{f"precision_{n}": one for n, one in enumerate(found.precisions, 1)},
            "brevity_penalty": found.brevity_penalty,
        },
        counts={
            "sentences": len(pairs),
            "blank_pairs_left_out": pairs.num_blank,
            "too_long": made.too_long,
            "truncated": sum(map(bool, made.truncated_chars)),
            "empty_translations": made.empty,
        },
        notes={"signature": found.signature, "beam": str(beam)},
        charts=(chart,),
        seconds=time.perf_counter() - since,
    )


def score_translator(
    model: Model,
    pairs: ParallelText,
    *,
    beam: int = BEAM,
    bleu: str = BLEU,
    truncation: str | None = None,
    progress: ProgressCallback | None = None,
) -> TranslatorScores:
    """Translate the source, and count the n-grams that are in the target.

    With truncation "error" a sentence that is too long counts as an empty translation.
    """
    since, failed = time.perf_counter(), list[InputError]()
    translations = translate(
        model,
        list(pairs.source),
        beam=beam,
        truncation=truncation,
        on_error=lambda _, error: failed.append(error),
        progress=progress,
    )
    counts = count_ngrams([one.text for one in translations], pairs.target, tokenize=bleu)
    seconds = time.perf_counter() - since
    return TranslatorScores(
        counts=counts,
        tokenize=bleu,
        too_long=len(failed),
        truncated_chars=[one.truncated_chars for one in translations],
        empty=sum(not one.text.strip() for one in translations) - len(failed),
        seconds=seconds,
    )
