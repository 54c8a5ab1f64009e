"""Language models of every family: one interface to suggest, generate and score."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeGuard, cast

import numpy as np

from cloze.errors import InputError
from cloze.models.language import LanguageModel, LoadedModel, Logs, WordLanguageModel, batches
from cloze.models.ngram import BackoffStep
from cloze.models.registry import resolve


def language_model(model: LoadedModel | LanguageModel) -> LanguageModel:
    """Adapt a loaded model to `LanguageModel`; a `LanguageModel` is returned as it is.

    Models of other kinds, and encoders that are not causal, are an error.
    """
    if is_language_model(model):
        return model
    model = cast(LoadedModel, model)
    adapter = model.family.language_model
    if adapter is None:
        raise InputError(
            f"{model.family.description} is not a language model",
            fix="use a language model: one trained with cloze pretrain --family ngram, nnlm or "
            "lstm, or a causal BERT",
        )
    adapted: LanguageModel = resolve(adapter)(model)
    return adapted


def is_language_model(model: object) -> TypeGuard[LanguageModel]:
    """Whether an object has the methods of a `LanguageModel`."""
    return hasattr(model, "encode_prompt") and hasattr(model, "next_log_probs")


class NGramLanguageModel(WordLanguageModel):
    """An n-gram model as a `LanguageModel`."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.tokenizer)
        self.model = model
        self.kind = model.config.family
        self.module = model.module

    @property
    def context_size(self) -> int:
        order: int = self.model.config.order
        return order - 1

    def next_log_probs(self, context: Sequence[int]) -> Logs:
        """Log p(w | context) for every token, v."""
        log_probs: Logs = self.module.next_log_probs(context)
        return log_probs

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Logs]:
        """For each sequence log p of every token but its <s>."""
        for batch in batches(sequences):
            flat = np.fromiter((id_ for ids in batch for id_ in ids), dtype=np.int64)
            log_probs = self.module.log_probs(flat)
            for ids, end in zip(batch, accumulate(map(len, batch)), strict=True):
                yield log_probs[end - len(ids) + 1 : end]

    def backoff_path(self, context: Sequence[int], word: int) -> tuple[BackoffStep, ...]:
        """The back-off weights that are multiplied, and the probability at the end."""
        steps: tuple[BackoffStep, ...] = self.module.backoff_path(context, word)
        return steps
