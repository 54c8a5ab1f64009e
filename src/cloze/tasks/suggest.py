"""`suggest`: the words that may come next, as on a phone's keyboard.  v vocabulary."""

from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.files import PathLike
from cloze.models.language import LanguageModel
from cloze.tasks.inputs import check_texts, open_language_model


@dataclass(frozen=True, kw_only=True)
class BackoffStep:
    """A context on an n-gram model's way to a probability; the product over all of them is p."""

    context: tuple[str, ...]
    weight: float  # the back-off weight; at the last, the probability that it gave


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One word that may come next."""

    word: str
    probability: float
    id: int
    backoff_path: tuple[
        BackoffStep, ...
    ] = ()  # of n-gram models: from the longest known context down

    @property
    def order(self) -> int | None:
        """How many words the n-gram has that spoke, this one included."""
        return len(self.backoff_path[-1].context) + 1 if self.backoff_path else None


@dataclass(frozen=True, kw_only=True)
class Suggestions:
    """A text and what may follow it, likeliest first."""

    text: str
    suggestions: tuple[Suggestion, ...]
    unk_probability: float  # of a word outside the vocabulary, which is not suggested

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return asdict(self)


@overload
def suggest(
    model: LanguageModel | Model | PathLike, text: str, *, top: int = 10
) -> Suggestions: ...
@overload
def suggest(
    model: LanguageModel | Model | PathLike, text: list[str], *, top: int = 10
) -> list[Suggestions]: ...
def suggest(
    model: LanguageModel | Model | PathLike, text: str | list[str], *, top: int = 10
) -> Suggestions | list[Suggestions]:
    """The likeliest next words of a text, or of each of several texts.

    The text is read from the start of a sentence; its end is one of the words, as `</s>` or [SEP].
    An n-gram model also says how it came to each probability. An encoder must be one that reads
    left to right; it reads as much of the end of a long text as it has positions.
    """
    model = open_language_model(model, "suggest")
    texts = check_texts(text)
    if not isinstance(text, str):
        return [suggest(model, one, top=top) for one in texts]
    in_range("top", top, 1, len(model.words))
    context = model.begin(text)
    logs = np.array(model.next_log_probs(context), dtype=np.float64)  # v
    unknown = 0.0
    if model.unknown is not None:
        unknown = float(np.exp(logs[model.unknown]))
        logs[model.unknown] = -np.inf
    best = np.argsort(-logs, kind="stable")[:top]
    found = [
        Suggestion(
            word=model.shown(id_),
            probability=float(np.exp(logs[id_])),
            id=id_,
            backoff_path=_path(model, context, id_),
        )
        for id_ in best.tolist()
        if logs[id_] > -np.inf
    ]
    return Suggestions(text=text, suggestions=tuple(found), unk_probability=unknown)


def _path(model: LanguageModel, context: list[int], id_: int) -> tuple[BackoffStep, ...]:
    path = getattr(model, "path", None)  # of an n-gram model
    if path is None:
        return ()
    return tuple(
        BackoffStep(
            context=tuple(model.shown(word) for word in step.context),
            weight=float(np.exp(step.log_weight)),
        )
        for step in path(context, id_)
    )
