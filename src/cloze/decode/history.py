"""The tokens of each row so far, and the penalties that depend on them.

b rows, t tokens, g n-grams, v vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class History:
    """The prompts and generated tokens of a batch, b t; shorter rows begin with −1."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        device: torch.device,
        *,
        repetition_penalty: float,
        no_repeat_ngram_size: int,
    ) -> None:
        self.repetition_penalty = repetition_penalty
        self.no_repeat_ngram_size = no_repeat_ngram_size
        self.is_needed = repetition_penalty != 1 or no_repeat_ngram_size > 0
        longest = max(map(len, prompts)) if self.is_needed else 0
        rows = [[-1] * (longest - len(ids)) + list(ids) for ids in prompts] if longest else []
        shape = (len(prompts), longest)
        self._ids = torch.tensor(rows, dtype=torch.long, device=device).reshape(shape)

    def apply(self, scores: Tensor, log_normalizer: Tensor | None = None) -> Tensor:
        """Log-probabilities or logits (b v) after both penalties.

        The result may differ from log-probabilities by a constant of each row.
        """
        if self.repetition_penalty != 1:
            if log_normalizer is not None:
                scores = scores + log_normalizer.to(scores.device)
            scores = penalize_repetition(scores, self._ids, self.repetition_penalty)
        if self.no_repeat_ngram_size:
            scores = ban_repeated_ngrams(scores, self._ids, self.no_repeat_ngram_size)
        return scores

    def extend(self, tokens: Tensor, indices: Tensor | None = None) -> None:
        """Append a token to each row, or to the rows at `indices`, which become the rows."""
        if self.is_needed:
            ids = self._ids if indices is None else self._ids[indices]
            self._ids = torch.cat([ids, tokens[:, None]], 1)


def penalize_repetition(scores: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Logits x / θ if x > 0, else x · θ, of the tokens so far.  Keskar et al. 2019, § 4.1."""
    known = _find_known(ids, scores)
    ids = torch.where(known, ids, 0)
    seen = scores.gather(1, ids)
    penalized = torch.where(seen < 0, seen * penalty, seen / penalty)
    # an unknown token leaves the score of token 0 as it is
    nothing, reduce = (torch.inf, "amin") if penalty > 1 else (-torch.inf, "amax")
    return scores.scatter_reduce(1, ids, torch.where(known, penalized, nothing), reduce)


def ban_repeated_ngrams(scores: Tensor, ids: Tensor, size: int) -> Tensor:
    """The scores, −∞ for each token that would complete an n-gram a second time."""
    if ids.shape[1] < size:
        return scores
    ngrams = ids.unfold(1, size, 1)  # b g size
    prefix = ids[:, ids.shape[1] - size + 1 :]  # b size-1
    matches = (ngrams[..., :-1] == prefix[:, None]).all(-1)  # b g
    last = ngrams[..., -1]
    known = _find_known(last, scores)
    limits = torch.where(matches & known, -torch.inf, torch.inf).to(scores.dtype)
    return scores.scatter_reduce(1, torch.where(known, last, 0), limits, "amin")


def _find_known(ids: Tensor, scores: Tensor) -> Tensor:
    """Which ids have a score: not padding, nor an unknown word of an open vocabulary (ELMo)."""
    return (ids >= 0) & (ids < scores.shape[1])
