"""`score`: log-probabilities of texts and of their tokens; `score_pairs`: minimal pairs.

Nothing here imports torch at the top: n-gram models do not need it.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.data.labelled.minimal_pairs import MinimalPair, read_minimal_pairs
from cloze.data.objects import is_table
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.bootstrap import Interval, bootstrap_interval
from cloze.metrics.perplexity import perplexity
from cloze.models.language import LanguageModel, count_unknown
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import MAX_SHOWN, Result, Results
from cloze.tasks.inputs import Texts, check_size, check_texts, open_language_model, resolve_model

PLLMetric = Literal["original", "within_word_l2r"]
Reduction = Literal["sum", "mean"]
PLL_METRICS, REDUCTIONS = ("original", "within_word_l2r"), ("sum", "mean")


@dataclass(frozen=True, kw_only=True)
class TokenScore:
    """A token and its log-probability (natural logarithm)."""

    token: str
    id: int
    log_probability: float


@dataclass(frozen=True, kw_only=True, repr=False)
class TextScore(Result):
    """A text, its tokens and their log-probabilities."""

    text: str
    tokens: tuple[TokenScore, ...]
    unknown: int  # tokens outside the vocabulary, whose spelling is not scored

    record_columns = (
        *("text", "token", "id", "log_probability"),
        *("text_log_probability", "text_perplexity"),
    )

    @property
    def log_probability(self) -> float:
        """The sum over the tokens; of a masked model the pseudo-log-likelihood."""
        return math.fsum(one.log_probability for one in self.tokens)

    @property
    def mean_log_probability(self) -> float:
        """The mean over the tokens; NaN without tokens."""
        return self.log_probability / len(self.tokens) if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp(−mean); of a masked model the pseudo-perplexity."""
        return perplexity(-self.mean_log_probability)

    def reduce(self, reduction: Reduction) -> float:
        """The sum or the mean."""
        return self.log_probability if reduction == "sum" else self.mean_log_probability

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return {
            "text": self.text,
            "tokens": [asdict(one) for one in self.tokens],
            "log_probability": self.log_probability,
            "mean_log_probability": self.mean_log_probability,
            "perplexity": self.perplexity,
            "unknown": self.unknown,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per token, with the scores of the whole text beside it."""
        whole = {
            "text_log_probability": self.log_probability,
            "text_perplexity": self.perplexity,
        }
        return [{"text": self.text, **asdict(one), **whole} for one in self.tokens]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_result, render_tokens

        tokens = render_tokens((one.token, one.log_probability) for one in self.tokens)
        note = (
            f"log-probability {self.log_probability:.2f}, {len(self.tokens):,} tokens, "
            f"perplexity {self.perplexity:,.1f}"
        )
        return render_result(tokens, note=note)


class ScoreOptions(TypedDict, total=False):
    """The options of `score`."""

    pll_metric: PLLMetric | None
    include_eos: bool
    database: PathLike | None
    text_column: str | int | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def score(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: LanguageModel | Model | PathLike, text: str, **options: Unpack[ScoreOptions]
) -> TextScore: ...
@overload
def score(
    model: LanguageModel | Model | PathLike, text: Texts, **options: Unpack[ScoreOptions]
) -> Results[TextScore]: ...
@with_progress
def score(
    model: LanguageModel | Model | PathLike,
    text: str | Texts,
    *,
    pll_metric: PLLMetric | None = None,
    include_eos: bool = True,
    database: PathLike | None = None,
    text_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> TextScore | Results[TextScore]:
    """The log-probability of a text, or of each of several, with that of every token.

    A causal model (n-gram, NNLM, LSTM, causal BERT) gives log p(token | tokens before it). The text
    is one sentence: the begin symbol is the first context and not scored, and the end symbol is the
    last token. Texts do not depend on each other; an LSTM starts each from its initial state.

    A masked model (BERT and its relatives) gives the pseudo-log-likelihood: each token is masked in
    turn and predicted from all others (Salazar et al. 2020). [CLS] and [SEP] are not scored. In a
    text that is longer than the model's maximum, each token is predicted from those around it.

    Args:
        model: a language model, an encoder with a masked-LM head, or the folder of one.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        pll_metric: for masked models: "original" masks one token at a time (the default);
            "within_word_l2r" also masks the later tokens of the same word, as the others tell what
            the token is (Kauf and Ivanova 2023).
        include_eos: for causal models: score the end symbol, too.
        database: for a RETRO: the folder of a database of chunks, or of the run that made it.
            Default: nothing is retrieved.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        batch_tokens: for masked models: maximum number of tokens computed together.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    if pll_metric is not None:
        one_of("pll_metric", pll_metric, PLL_METRICS)
    found = resolve_model(model)
    texts = check_texts(text, text_column=text_column)
    check_size(texts, "score", fix=", or measure the perplexity of a file (cloze evaluate)")
    if database is not None and _is_masked(found):
        raise InputError("a masked model does not read a database", fix="leave database out")
    if _is_masked(found):
        results = _score_masked(
            found, texts, pll_metric or "original", batch_tokens=batch_tokens, progress=progress
        )
    else:
        language = open_language_model(found, "score")
        if database is not None:
            from cloze.tasks.chunk_retriever import add_database

            language = add_database(language, database)
        _check_causal_options(pll_metric)
        results = list(_score_causal(language, texts, include_eos=include_eos, progress=progress))
    return results[0] if isinstance(text, str) else Results(results)


def _is_masked(model: object) -> bool:
    return isinstance(model, Model) and model.family.kind == "encoder" and not model.is_causal


def _check_causal_options(pll_metric: str | None) -> None:
    if pll_metric is not None:
        raise InputError(
            "pll_metric is for masked models; this model predicts each token from those before it",
            fix="leave pll_metric out",
        )


def _score_causal(
    model: LanguageModel,
    texts: Sequence[str],
    *,
    include_eos: bool,
    progress: ProgressCallback | None,
) -> Iterator[TextScore]:
    sequences = model.encode_texts(texts)
    # `log_probs` of an LSTM reads all sequences as one text
    score_sequences = getattr(model, "sentence_log_probs", model.log_probs)
    for number, log_probs in enumerate(score_sequences(sequences)):
        ids, values = sequences[number][1:], log_probs.tolist()
        if not include_eos:
            ids, values = ids[:-1], values[:-1]
        yield TextScore(
            text=texts[number],
            tokens=tuple(
                TokenScore(token=model.decode_token(id_), id=id_, log_probability=value)
                for id_, value in zip(ids, values, strict=True)
            ),
            unknown=count_unknown(model, ids),
        )
        if progress:
            progress("texts", number + 1, len(texts))


def _score_masked(
    model: Model,
    texts: Sequence[str],
    pll_metric: PLLMetric,
    *,
    batch_tokens: int | None,
    progress: ProgressCallback | None,
) -> list[TextScore]:
    from cloze.tasks.pseudo_likelihood import compute_pseudo_log_likelihoods

    alignments, scores = compute_pseudo_log_likelihoods(
        model,
        texts,
        whole_words=pll_metric == "within_word_l2r",
        batch_tokens=batch_tokens,
        progress=progress,
    )
    tokenizer = model.tokenizer
    results = []
    for text, alignment, values in zip(texts, alignments, scores, strict=True):
        ids = [alignment.ids[position] for position in alignment.token_range()]
        results.append(
            TextScore(
                text=text,
                tokens=tuple(
                    TokenScore(
                        token=tokenizer.decode([id_], skip_special_tokens=False).strip(),
                        id=id_,
                        log_probability=value,
                    )
                    for id_, value in zip(ids, values, strict=True)
                ),
                unknown=sum(id_ == tokenizer.unk_id for id_ in ids),
            )
        )
    return results


@dataclass(frozen=True, kw_only=True)
class PairScore:
    """A minimal pair and the score of each sentence."""

    good: str
    bad: str
    good_score: float
    bad_score: float

    @property
    def difference(self) -> float:
        """The score of the acceptable sentence minus that of the other."""
        return self.good_score - self.bad_score

    @property
    def is_correct(self) -> bool:
        """Whether the acceptable sentence has the higher score."""
        return self.good_score > self.bad_score

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the pair."""
        return {**asdict(self), "difference": self.difference, "correct": self.is_correct}


@dataclass(frozen=True, kw_only=True, repr=False)
class MinimalPairScores(Result):
    """The scores of minimal pairs, and how often the acceptable sentence has the higher one."""

    pairs: tuple[PairScore, ...]
    accuracy: Interval  # with a 95 % bootstrap interval
    reduction: Reduction

    @property
    def mean_difference(self) -> float:
        """The mean of the differences of all pairs."""
        return math.fsum(one.difference for one in self.pairs) / len(self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of all pairs."""
        return {
            "accuracy": asdict(self.accuracy),
            "mean_difference": self.mean_difference,
            "reduction": self.reduction,
            "count": len(self.pairs),
            "pairs": [one.to_dict() for one in self.pairs],
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per pair."""
        return [one.to_dict() for one in self.pairs]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_result, render_table

        columns = ("acceptable", "unacceptable", "difference")
        rows = [(one.good, one.bad, round(one.difference, 4)) for one in self.pairs[:MAX_SHOWN]]
        more = f", the first {MAX_SHOWN} are shown" if len(self.pairs) > MAX_SHOWN else ""
        note = f"accuracy {self.accuracy} (chance: 0.5), {len(self.pairs):,} pairs{more}"
        return render_result(render_table(columns, rows), note=note)


def score_pairs(
    model: LanguageModel | Model | PathLike,
    pairs: Source | Iterable[tuple[str, str] | MinimalPair],
    *,
    reduction: Reduction = "sum",
    seed: int = 0,
    **options: Unpack[ScoreOptions],
) -> MinimalPairScores:
    """Score minimal pairs: how often does the acceptable sentence have the higher probability?

    Args:
        model: as for `score`.
        pairs: tuples (acceptable, unacceptable), or files or a table (a data frame, a `datasets`
            object, mappings) with the columns sentence_good and sentence_bad, as in BLiMP, or else
            two columns.
        reduction: compare the sum of the log-probabilities of a sentence, or their mean.
        seed: seed of the bootstrap.
        options: those of `score`.
    """
    one_of("reduction", reduction, REDUCTIONS)
    in_range("seed", seed, 0, (1 << 63) - 1)
    checked = _check_pairs(pairs)
    if not checked:
        raise InputError("there are no minimal pairs", fix="give at least one pair of sentences")
    texts = [text for pair in checked for text in pair]
    scores = [one.reduce(reduction) for one in score(model, texts, **options)]
    results = tuple(
        PairScore(good=good, bad=bad, good_score=scores[2 * n], bad_score=scores[2 * n + 1])
        for n, (good, bad) in enumerate(checked)
    )
    correct = np.array([one.is_correct for one in results], np.float64)
    rng = np.random.default_rng(seed)
    return MinimalPairScores(
        pairs=results,
        accuracy=bootstrap_interval(correct, len(results), rng=rng),
        reduction=reduction,
    )


def _check_pairs(pairs: Any) -> list[tuple[str, str]]:  # noqa: ANN401 (see `score_pairs`)
    if isinstance(pairs, str | os.PathLike) or is_table(pairs):
        return [(one.good, one.bad) for one in read_minimal_pairs(pairs)]
    checked: list[tuple[str, str]] = []
    rows = list(pairs)
    if rows and all(isinstance(row, str | os.PathLike | Mapping) for row in rows):
        return [(one.good, one.bad) for one in read_minimal_pairs(rows)]
    for number, row in enumerate(rows, 1):
        pair = (row.good, row.bad) if isinstance(row, MinimalPair) else row
        if not isinstance(pair, tuple | list) or [type(text) for text in pair] != [str, str]:
            raise InputError(
                f"pair {number:,} is not two texts",
                fix="give tuples of an acceptable and an unacceptable sentence",
            )
        checked.append((pair[0], pair[1]))
    return checked
