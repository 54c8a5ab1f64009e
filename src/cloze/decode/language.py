"""Language models by their family: one interface for suggesting, generating and scoring."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeGuard, cast

import numpy as np

from cloze.errors import InputError
from cloze.models.language import LanguageModel, LoadedModel, Logs, WordLanguageModel, batches
from cloze.models.ngram import Step
from cloze.models.registry import resolve


def language_model(model: LoadedModel | LanguageModel) -> LanguageModel:
    """A loaded model as a `LanguageModel`; what is one already is returned as it is.

    A model of another kind, or an encoder that is not causal, is an error.
    """
    if is_language_model(model):
        return model
    model = cast(LoadedModel, model)
    adapter = model.family.language_model
    if adapter is None:
        raise InputError(
            f"{model.family.description} is not a language model",
            fix="load a language model: one that cloze pretrain made with --model ngram, nnlm or "
            "lstm, or a causal BERT",
        )
    made: LanguageModel = resolve(adapter)(model)
    return made


def is_language_model(model: object) -> TypeGuard[LanguageModel]:
    """Whether an object has the methods of a `LanguageModel`."""
    return hasattr(model, "begin") and hasattr(model, "next_log_probs")


class NGramLanguageModel(WordLanguageModel):
    """An n-gram model as a `LanguageModel`."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.tokenizer)
        self.model = model
        self.kind = model.config.family
        self.module = model.module

    def next_log_probs(self, context: Sequence[int]) -> Logs:
        """Log p(w | context) for every word, v."""
        found: Logs = self.module.next_log_probs(context)
        return found

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Logs]:
        """For each sequence log p of every word but its <s>."""
        for batch in batches(sequences):
            flat = np.fromiter((id_ for one in batch for id_ in one), dtype=np.int64)
            found = self.module.log_probs(flat)
            for one, end in zip(batch, accumulate(map(len, batch)), strict=True):
                yield found[end - len(one) + 1 : end]

    def path(self, context: Sequence[int], word: int) -> tuple[Step, ...]:
        """The back-off weights that were multiplied, and the probability they lead to."""
        found: tuple[Step, ...] = self.module.path(context, word)
        return found
