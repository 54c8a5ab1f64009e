"""`suggest`: the words that may come next, as on a phone's keyboard.  v vocabulary."""

from dataclasses import dataclass
from typing import overload

import numpy as np

from cloze.checkpoint.model import Model
from cloze.checkpoint.ngram import NGramModel
from cloze.config import in_range
from cloze.data.files import PathLike
from cloze.models.language import LanguageModel
from cloze.tasks.door import opened_language
from cloze.tasks.texts import texts_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A context on an n-gram model's way to a probability; the product over all of them is p."""

    context: tuple[str, ...]
    weight: float  # the back-off weight; at the last, the probability that it gave


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One word that may come next."""

    word: str
    probability: float
    id: int
    path: tuple[Asked, ...] = ()  # of n-gram models: from the longest known context down

    @property
    def order(self) -> int | None:
        """How many words the n-gram has that spoke, this one included."""
        return len(self.path[-1].context) + 1 if self.path else None


@dataclass(frozen=True, kw_only=True)
class Suggested:
    """A text and what may follow it, likeliest first."""

    text: str
    suggestions: tuple[Suggestion, ...]
    unknown: float  # the probability of a word outside the vocabulary, which is not suggested


@overload
def suggest(model: LanguageModel | Model | PathLike, text: str, *, top: int = 10) -> Suggested: ...
@overload
def suggest(
    model: LanguageModel | Model | PathLike, text: list[str], *, top: int = 10
) -> list[Suggested]: ...
def suggest(
    model: LanguageModel | Model | PathLike, text: str | list[str], *, top: int = 10
) -> Suggested | list[Suggested]:
    """The likeliest next words of a text, or of each of several texts.

    The text is read from the start of a sentence; its end is one of the words, as `</s>` or [SEP].
    An n-gram model also says how it came to each probability. An encoder must be one that reads
    left to right; it reads as much of the end of a long text as it has positions.
    """
    model = opened_language(model, "suggest")
    texts = texts_of(text)
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
            path=_path(model, context, id_),
        )
        for id_ in best.tolist()
        if logs[id_] > -np.inf
    ]
    return Suggested(text=text, suggestions=tuple(found), unknown=unknown)


def _path(model: LanguageModel, context: list[int], id_: int) -> tuple[Asked, ...]:
    if not isinstance(model, NGramModel):
        return ()
    return tuple(
        Asked(
            context=tuple(model.shown(word) for word in step.context),
            weight=float(np.exp(step.log_weight)),
        )
        for step in model.path(context, id_)
    )
