"""`evaluate` for models that summarize: ROUGE, beside that of the first three sentences."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.checkpoint.model import Model
from cloze.data.parallel_text import ParallelText
from cloze.data.source_target import load_pairs
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.metrics.baselines import describe_failure
from cloze.metrics.bootstrap import Metric
from cloze.metrics.rouge import Rouge, choose_tokenizer, compute_rouge, take_lead
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation
from cloze.tasks.summarize import summarize

BEAM = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class SummaryScores:
    """The ROUGE of summaries, and that of the first sentences of the texts."""

    rouge: Rouge
    lead: Rouge
    too_long: int = 0  # number of texts that were not summarized
    truncated_chars: Sequence[int] = field(default=(), repr=False)  # of each text, not read
    empty: int = 0  # number of other texts with an empty summary
    seconds: float = 0.0

    metric = "rouge_l"

    @property
    def count(self) -> int:
        """Number of texts."""
        return len(self.rouge.f1[self.metric])

    @property
    def baseline(self) -> dict[str, float]:
        """ROUGE of the first three sentences, by name."""
        return {f"lead_3_{name}": value for name, value in self.lead.scores.items()}

    @property
    def scores(self) -> dict[str, float]:
        """All scores, the main one first, then those of the baseline."""
        means = self.rouge.scores
        return {self.metric: means[self.metric], **means, **self.baseline}

    @property
    def bootstrap_metrics(self) -> dict[str, tuple[Metric, int]]:
        """By name: the metric of a resample, and the number of examples."""
        names = (self.metric, *(name for name in self.rouge.f1 if name != self.metric))
        return {name: (self.rouge.f1[name], self.count) for name in names}


def evaluate_summarizer(
    model: Model,
    data: Source | Sequence[Any],
    *,
    beam: int = BEAM,
    truncation: str | None = None,
    text_column: str | int | None = None,
    target_column: str | int | None = None,
    progress: ProgressCallback | None = None,
) -> CorpusEvaluation:
    """Compute the ROUGE of a model on texts and their summaries, as tables or aligned lines."""
    since = time.perf_counter()
    pairs = load_pairs(
        data,
        "summarize",
        text_column=text_column,
        target_column=target_column,
        name="the data of a model that summarizes",
    )
    made = score_summarizer(model, pairs, beam=beam, truncation=truncation, progress=progress)
    return CorpusEvaluation(
        kind="summarize",
        scores=made.scores,
        counts={
            "texts": len(pairs),
            "blank_pairs_left_out": pairs.num_blank,
            "too_long": made.too_long,
            "truncated": sum(map(bool, made.truncated_chars)),
            "empty_summaries": made.empty,
        },
        notes={
            "tokenizer": made.rouge.tokenize,
            "beam": str(beam),
            **({"note": failure} if (failure := describe_failure(made.scores)) else {}),
        },
        seconds=time.perf_counter() - since,
    )


def score_summarizer(
    model: Model,
    pairs: ParallelText,
    *,
    beam: int = BEAM,
    truncation: str | None = None,
    progress: ProgressCallback | None = None,
) -> SummaryScores:
    """Summarize the texts, and score the summaries.

    With truncation "error" a text that is too long counts as an empty summary.
    """
    since, failed = time.perf_counter(), list[InputError]()
    found = summarize(
        model,
        list(pairs.source),
        beam=beam,
        truncation=truncation,
        on_error=lambda _, error: failed.append(error),
        progress=progress,
    )
    texts = [one.text for one in found]
    scored = score_summaries(texts, pairs)
    return SummaryScores(
        rouge=scored.rouge,
        lead=scored.lead,
        too_long=len(failed),
        truncated_chars=[one.truncated_chars for one in found],
        empty=sum(not text.strip() for text in texts) - len(failed),
        seconds=time.perf_counter() - since,
    )


def score_summaries(texts: Sequence[str], pairs: ParallelText) -> SummaryScores:
    """The ROUGE of summaries, and of the first three sentences of the texts."""
    tokenize = choose_tokenizer(pairs.target)
    leads = [take_lead(source) for source in pairs.source]
    rouge, lead = (
        compute_rouge(some, pairs.target, tokenize=tokenize, find_sentences=True)
        for some in (texts, leads)
    )
    return SummaryScores(rouge=rouge, lead=lead)
