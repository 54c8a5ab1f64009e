"""`suggest`: the most probable next words of a text.  v vocabulary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.continuation import ContinuationText
from cloze.files import PathLike
from cloze.models.language import LanguageModel, Logs
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inputs import Texts, check_prompts, check_texts, open_language_model


@dataclass(frozen=True, kw_only=True)
class BackoffStep:
    """A context that an n-gram model looked up; the product of all weights is the probability."""

    context: tuple[str, ...]
    weight: float  # the back-off weight of the context; of the last one, the word's probability


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One possible next word."""

    word: str
    probability: float
    id: int
    backoff_path: tuple[BackoffStep, ...] = ()  # of n-gram models, from the longest known context

    @property
    def order(self) -> int | None:
        """The length of the n-gram that gave the probability, this word included."""
        return len(self.backoff_path[-1].context) + 1 if self.backoff_path else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Suggestions(Result):
    """A text and its most probable next words, best first."""

    text: str
    suggestions: tuple[Suggestion, ...]
    unk_probability: float  # of the unknown token, which is not suggested
    truncated_chars: int = 0  # characters at the start of the text that were not read

    record_columns = ("text", "word", "probability", "id", "order")

    def to_records(self) -> list[dict[str, Any]]:
        """A row per word; `order` is None unless the model is an n-gram model."""
        names = self.record_columns[1:]
        return [
            {"text": self.text, **{name: getattr(one, name) for name in names}}
            for one in self.suggestions
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_bars, render_result, render_text

        bars = render_bars((one.word, one.probability) for one in self.suggestions)
        parts = render_text(f"{self.text} …"), bars
        return render_result(*parts, truncated_chars=self.truncated_chars)


@overload
def suggest(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: LanguageModel | Model | PathLike,
    text: str,
    *,
    top: int = 10,
    truncation: str | None = None,
    text_column: str | int | None = None,
    progress: ProgressOption = None,
) -> Suggestions: ...
@overload
def suggest(
    model: LanguageModel | Model | PathLike,
    text: Texts,
    *,
    top: int = 10,
    truncation: str | None = None,
    text_column: str | int | None = None,
    progress: ProgressOption = None,
) -> Results[Suggestions]: ...
@with_progress
def suggest(
    model: LanguageModel | Model | PathLike,
    text: str | Texts,
    *,
    top: int = 10,
    truncation: str | None = None,
    text_column: str | int | None = None,
    progress: ProgressCallback | None = None,
) -> Suggestions | Results[Suggestions]:
    """The most probable next words of a text, or of each of several texts.

    The text is read as the start of a sentence; the end of the sentence (`</s>` or [SEP]) is one of
    the words. With an n-gram model each suggestion also has the back-off steps of its probability.
    An encoder must be causal.

    Args:
        model: a language model, or its folder.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        top: number of words.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        truncation: for texts that are longer than the maximum of a causal encoder, or than 65,536
            tokens for an LSTM: tail (it reads the last tokens) or error. Default: tail, with a
            warning.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    model = open_language_model(model, "suggest")
    texts = check_texts(text, text_column=text_column)
    in_range("top", top, 1, len(model.vocabulary))
    unread = check_prompts(model, texts, truncation)
    prompts = [model.encode_prompt(one) for one in texts]
    results: dict[int, Suggestions] = {}
    for number, log_probs in _iterate_next_log_probs(model, prompts):
        ranked = _rank_words(model, texts[number], prompts[number], log_probs, top)
        results[number] = replace(ranked, truncated_chars=unread[number])
        if progress:
            progress("texts", len(results), len(texts))
    return results[0] if isinstance(text, str) else Results(results[n] for n in range(len(texts)))


def append_word(model: LanguageModel | Model | PathLike, text: str, suggestion: Suggestion) -> str:
    """The text with a suggested word after it, and a space between them where one belongs."""
    model = open_language_model(model, "suggest")
    context = model.encode_prompt(text)
    return text + ContinuationText(model, text, context).decode([suggestion.id])


def _iterate_next_log_probs(
    model: LanguageModel, prompts: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Logs]]:
    """The number of each prompt and log p(w | prompt) for every token w (v), in any order."""
    if not hasattr(model, "start"):  # an n-gram model, which needs no torch
        return ((n, model.next_log_probs(prompt)) for n, prompt in enumerate(prompts))
    from cloze.decode.prompts import iterate_next_log_probs

    return iterate_next_log_probs(model, prompts)


def _rank_words(
    model: LanguageModel, text: str, prompt: list[int], log_probs: Logs, top: int
) -> Suggestions:
    log_probs = np.array(log_probs, dtype=np.float64)  # v
    unk_probability = 0.0
    if model.unk_id is not None:
        unk_probability = float(np.exp(log_probs[model.unk_id]))
        log_probs[model.unk_id] = -np.inf
    best = np.argsort(-log_probs, kind="stable")[:top]
    suggestions = [
        Suggestion(
            word=model.decode_token(id_),
            probability=float(np.exp(log_probs[id_])),
            id=id_,
            backoff_path=explain_backoff(model, prompt, id_),
        )
        for id_ in best.tolist()
        if log_probs[id_] > -np.inf
    ]
    return Suggestions(text=text, suggestions=tuple(suggestions), unk_probability=unk_probability)


def explain_backoff(
    model: LanguageModel, context: Sequence[int], id_: int
) -> tuple[BackoffStep, ...]:
    """The steps of an n-gram model to p(token | context); empty for other models."""
    path = getattr(model, "backoff_path", None)  # of an n-gram model
    if path is None:
        return ()
    return tuple(
        BackoffStep(
            context=tuple(model.decode_token(word) for word in step.context),
            weight=float(np.exp(step.log_weight)),
        )
        for step in path(context, id_)
    )
