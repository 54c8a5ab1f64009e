"""Batched beam search over any `IncrementalDecoder`; greedy search is a beam of size 1.

n sentences, k hypotheses of each, t tokens, v vocabulary. The rows of a sentence are adjacent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cloze.config import in_range
from cloze.decode.config import BeamConfig
from cloze.decode.core import Hypothesis, IncrementalDecoder, S


@torch.no_grad()
def beam_search(
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    config: BeamConfig,
    *,
    eos_id: int,
    max_lengths: Sequence[int],
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row of the state, best first.

    A step takes the 2k most probable continuations of a sentence. Those among the first k that end
    are finished; the k best others are continued. A sentence is done when k hypotheses are finished
    and no unfinished one scores better than the worst of them, or at its maximum length. Hypotheses
    that are unfinished then rank after all finished ones.

    Args:
        decoder: the model.
        state: its state, with one row per sentence.
        tokens: the first input token of each row, such as bos.
        config: options of the search.
        eos_id: the token that ends a hypothesis.
        max_lengths: the maximum number of tokens of each sentence, eos included.
    """
    device = tokens.device
    sentences = [_Beam(max_length=in_range("limit", most, 1, 1 << 30)) for most in max_lengths]
    active = list(sentences)
    totals = torch.zeros(len(active), 1, device=device)  # n k, log-probabilities
    generated = tokens.new_zeros(len(active), 0)  # (n k) t
    while active:
        log_probs, state = decoder.step(tokens, state)  # (n k) v
        if config.no_repeat_ngram_size:
            log_probs = _ban_repeated_ngrams(log_probs, generated, config.no_repeat_ngram_size)
        candidates = totals[..., None] + log_probs.unflatten(0, totals.shape)  # n k v
        top = candidates.flatten(1).topk(min(2 * config.beam, candidates[0].numel()))
        parents = top.indices // log_probs.shape[-1]
        parents += torch.arange(len(active), device=device)[:, None] * totals.shape[1]
        ids = top.indices % log_probs.shape[-1]
        expansions = zip(top.values.tolist(), parents.tolist(), ids.tolist(), strict=True)
        continued: list[_Expansion] = []
        remaining = []
        for sentence, columns in zip(active, expansions, strict=True):
            kept = sentence.update(list(zip(*columns, strict=True)), generated, config, eos_id)
            if kept:
                remaining.append(sentence)
                continued += kept
        active = remaining
        if active:
            values, rows, next_ids = zip(*continued, strict=True)
            indices = torch.tensor(rows, device=device)
            tokens = torch.tensor(next_ids, device=device)
            totals = candidates.new_tensor(values).unflatten(0, (len(active), config.beam))
            generated = torch.cat([generated[indices], tokens[:, None]], 1)
            state = decoder.reorder(state, indices)
    return [sentence.rank(config) for sentence in sentences]


_Expansion = tuple[float, int, int]
"""Log-probability, row of the hypothesis that is extended, next token."""


@dataclass(kw_only=True)
class _Beam:
    """The hypotheses of one sentence."""

    max_length: int
    length: int = 0
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)  # at the maximum length

    def update(
        self, expansions: Sequence[_Expansion], generated: Tensor, config: BeamConfig, eos_id: int
    ) -> list[_Expansion]:
        """The k expansions to continue, or none when the sentence is done."""
        self.length += 1
        alive: list[_Expansion] = []
        for rank, (value, row, token) in enumerate(expansions):
            if value == -math.inf or len(alive) == config.beam:
                break
            if token != eos_id:
                alive.append((value, row, token))
            elif rank < config.beam:
                self.finished.append(
                    self._make_hypothesis(generated[row].tolist(), value, config, finished=True)
                )
        self.finished = _best(self.finished, config.beam)
        if self.length == self.max_length:
            self.unfinished = [
                self._make_hypothesis(
                    [*generated[row].tolist(), token], value, config, finished=False
                )
                for value, row, token in alive
            ]
            return []
        if not alive or self._is_done(alive[0][0], config):
            return []
        missing = config.beam - len(alive)  # a small vocabulary, or most tokens are banned
        return alive + [(-math.inf, alive[0][1], alive[0][2])] * missing

    def rank(self, config: BeamConfig) -> list[Hypothesis]:
        return [*self.finished, *_best(self.unfinished, config.beam)][: config.n_best]

    def _is_done(self, best: float, config: BeamConfig) -> bool:
        full = len(self.finished) == config.beam
        return full and config.score(best, self.length + 1) <= self.finished[-1].score

    def _make_hypothesis(
        self, tokens: list[int], value: float, config: BeamConfig, *, finished: bool
    ) -> Hypothesis:
        return Hypothesis(
            tokens=tuple(tokens),
            score=config.score(value, self.length),
            log_probability=value,
            finished=finished,
        )


def _best(hypotheses: list[Hypothesis], most: int) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda one: -one.score)[:most]


def _ban_repeated_ngrams(log_probs: Tensor, generated: Tensor, size: int) -> Tensor:
    """The log-probabilities, −∞ for each token that would complete an n-gram a second time."""
    if generated.shape[1] < size:
        return log_probs
    ngrams = generated.unfold(1, size, 1)  # (n k) g size
    prefix = generated[:, generated.shape[1] - size + 1 :]  # (n k) size-1
    matches = (ngrams[..., :-1] == prefix[:, None]).all(-1)  # (n k) g
    rows, indices = matches.nonzero(as_tuple=True)
    log_probs = log_probs.clone()
    log_probs[rows, ngrams[rows, indices, -1]] = -torch.inf
    return log_probs
