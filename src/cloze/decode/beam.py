"""Beam search, batched, over anything that can step; greedy is a beam of one.

n sentences, k hypotheses of each, v vocabulary. The rows of a sentence stand together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from cloze.config import check_choices, in_range, number
from cloze.decode.core import LENGTH_NORMALIZATIONS, Hypothesis, S, Stepper


@dataclass(frozen=True, kw_only=True)
class BeamConfig:
    """How to search."""

    size: int = 4
    n_best: int = 1  # hypotheses to give back, at most `size`
    length_normalization: Literal["wu", "average"] = "wu"
    length_penalty: float = 0.6  # of the length penalty; 0: none
    no_repeat_ngram_size: int = 0  # no n-gram of this length comes twice; 0: any may

    def __post_init__(self) -> None:
        check_choices(self)
        in_range("beam", self.size, 1, 1024)
        in_range("best", self.n_best, 1, self.size)
        number("alpha", self.length_penalty, 0.0, 10.0)
        in_range("no_repeat", self.no_repeat_ngram_size, 0, 1024)

    def score(self, log_probability: float, length: int) -> float:
        """What ranks a hypothesis of so many tokens, its end among them."""
        return log_probability / LENGTH_NORMALIZATIONS[self.length_normalization](
            length, self.length_penalty
        )


@torch.no_grad()
def beam_search(
    stepper: Stepper[S],
    state: S,
    first: Tensor,
    search: BeamConfig,
    *,
    eos: int,
    limits: Sequence[int],
) -> list[list[Hypothesis]]:
    """The best hypotheses about each row of the state, best first.

    A step takes the likeliest 2k continuations of a sentence. Those of the first k that end are
    kept aside, the k best others live on. A sentence is done when k have ended and nothing alive
    scores better than the worst of these; or at its limit of tokens, the end among them: what is
    alive then is cut off, and comes after all that ended.

    Args:
        stepper: the model.
        state: what it remembers, a row for each sentence.
        first: the token that each row begins with, such as bos.
        search: how to search.
        eos: the token that ends a hypothesis.
        limits: the most tokens of each sentence.
    """
    sentences = [_Sentence(limit=in_range("limit", limit, 1, 1 << 30)) for limit in limits]
    active, tokens = list(sentences), first
    live = torch.zeros(len(active), 1, device=first.device)  # n k, log-probabilities
    said = first.new_zeros(len(active), 0)  # (n k) t
    while active:
        scores, state = stepper.step(tokens, state)  # (n k) v
        if search.no_repeat_ngram_size:
            scores = _without_repeats(scores, said, search.no_repeat_ngram_size)
        totals = live[..., None] + scores.unflatten(0, live.shape)  # n k v
        found = totals.flatten(1).topk(min(2 * search.size, totals[0].numel()))
        parents = found.indices // scores.shape[-1]
        parents += torch.arange(len(active), device=first.device)[:, None] * live.shape[1]
        words = found.indices % scores.shape[-1]
        choices = zip(found.values.tolist(), parents.tolist(), words.tolist(), strict=True)
        chosen: list[_Choice] = []
        waiting = []
        for sentence, found_here in zip(active, choices, strict=True):
            going = sentence.take(list(zip(*found_here, strict=True)), said, search, eos)
            if going:
                waiting.append(sentence)
                chosen += going
        active = waiting
        if active:
            values, rows, nexts = zip(*chosen, strict=True)
            order = torch.tensor(rows, device=first.device)
            tokens = torch.tensor(nexts, device=first.device)
            live = totals.new_tensor(values).unflatten(0, (len(active), search.size))
            said = torch.cat([said[order], tokens[:, None]], 1)
            state = stepper.reorder(state, order)
    return [sentence.rank(search) for sentence in sentences]


_Choice = tuple[float, int, int]
"""Log-probability, row that it goes on from, token."""


@dataclass(kw_only=True)
class _Sentence:
    """What is known about one sentence so far."""

    limit: int
    length: int = 0
    ended: list[Hypothesis] = field(default_factory=list)
    cut: list[Hypothesis] = field(default_factory=list)

    def take(
        self, choices: Sequence[_Choice], said: Tensor, search: BeamConfig, eos: int
    ) -> list[_Choice]:
        """The k choices that live on, or none when the sentence is done."""
        self.length += 1
        alive: list[_Choice] = []
        for rank, (value, row, word) in enumerate(choices):
            if value == -math.inf or len(alive) == search.size:
                break
            if word != eos:
                alive.append((value, row, word))
            elif rank < search.size:
                self.ended.append(
                    self._make_hypothesis(said[row].tolist(), value, search, ended=True)
                )
        self.ended = _best(self.ended, search.size)
        if self.length == self.limit:
            self.cut = [
                self._make_hypothesis([*said[row].tolist(), word], value, search, ended=False)
                for value, row, word in alive
            ]
            return []
        if not alive or self._is_finished(alive[0][0], search):
            return []
        missing = search.size - len(alive)  # a small vocabulary, or most of it forbidden
        return alive + [(-math.inf, alive[0][1], alive[0][2])] * missing

    def rank(self, search: BeamConfig) -> list[Hypothesis]:
        return [*self.ended, *_best(self.cut, search.size)][: search.n_best]

    def _is_finished(self, best: float, search: BeamConfig) -> bool:
        full = len(self.ended) == search.size
        return full and search.score(best, self.length + 1) <= self.ended[-1].score

    def _make_hypothesis(
        self, tokens: list[int], value: float, search: BeamConfig, *, ended: bool
    ) -> Hypothesis:
        return Hypothesis(
            tokens=tuple(tokens),
            score=search.score(value, self.length),
            log_probability=value,
            finished=ended,
        )


def _best(found: list[Hypothesis], most: int) -> list[Hypothesis]:
    return sorted(found, key=lambda one: -one.score)[:most]


def _without_repeats(scores: Tensor, said: Tensor, size: int) -> Tensor:
    """The scores, with −∞ for each token that would end an n-gram for the second time."""
    if said.shape[1] < size:
        return scores
    grams = said.unfold(1, size, 1)  # (n k) g size
    begun = said[:, said.shape[1] - size + 1 :]  # (n k) size-1
    again = (grams[..., :-1] == begun[:, None]).all(-1)  # (n k) g
    rows, places = again.nonzero(as_tuple=True)
    scores = scores.clone()
    scores[rows, grams[rows, places, -1]] = -torch.inf
    return scores
