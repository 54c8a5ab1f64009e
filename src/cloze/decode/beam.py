"""Batched beam search over any `IncrementalDecoder`; greedy search is a beam of size 1.

n sentences, k hypotheses of each, v vocabulary. The rows of a sentence are adjacent.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from cloze.config import in_range
from cloze.decode.config import BeamConfig
from cloze.decode.core import FinishReason, Hypothesis, IncrementalDecoder, S, ShouldStop
from cloze.decode.history import History


@torch.no_grad()
def beam_search(  # noqa: PLR0913 - the options are keyword-only arguments
    decoder: IncrementalDecoder[S],
    state: S,
    tokens: Tensor,
    config: BeamConfig,
    *,
    eos_id: int | None,
    max_lengths: Sequence[int],
    banned_ids: Iterable[int] = (),
    prompts: Sequence[Sequence[int]] | None = None,
    should_stop: ShouldStop | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row of the state, best first.

    A step takes the 2k most probable continuations of a sentence. Those among the first k that end
    are finished; the k best others are continued. A sentence is done when k hypotheses are finished
    and, depending on `config.early_stopping`, no unfinished one scores better than the worst of
    them, or at its maximum length. Hypotheses that are unfinished then rank after all finished
    ones, or with `config.ranks_unfinished_last` False those among the first k rank by their score.

    Args:
        decoder: the model.
        state: its state, with one row per sentence.
        tokens: the first input token of each row, such as bos.
        config: options of the search.
        eos_id: the token that ends a hypothesis.
        max_lengths: the maximum number of tokens of each sentence, eos included.
        banned_ids: tokens that are never generated, whatever their probability.
        prompts: the tokens of each row so far, `tokens` included, which the repetition penalty and
            the ban of n-grams apply to (default: only generated ones).
        should_stop: whether a hypothesis, given by its sentence and its tokens, ends after its last
            token.
    """
    device = tokens.device
    sentences = [
        _Beam(number=number, max_length=in_range("limit", most, 1, 1 << 30))
        for number, most in enumerate(max_lengths)
    ]
    ending = _Ending(config=config, eos_id=eos_id, should_stop=should_stop)
    active = list(sentences)
    totals = raw_totals = torch.zeros(len(active), 1, device=device)  # n k, log-probabilities
    generated: list[tuple[int, ...]] = [()] * len(active)  # n k
    banned = torch.tensor(sorted(set(banned_ids)), dtype=torch.long, device=device)
    history = History(
        generated if prompts is None else prompts,
        device,
        repetition_penalty=config.repetition_penalty,
        no_repeat_ngram_size=config.no_repeat_ngram_size,
    )
    while active:
        raw_log_probs, state = decoder.step(tokens, state)  # (n k) v
        log_probs = history.apply(raw_log_probs)
        if len(banned):
            log_probs = log_probs.index_fill(-1, banned, -torch.inf)
        expansions = _find_expansions(totals, log_probs, raw_totals, raw_log_probs, 2 * config.beam)
        continued: list[_Expansion] = []
        remaining = []
        for sentence, some in zip(active, expansions, strict=True):
            kept = sentence.update(some, generated, ending)
            if kept:
                remaining.append(sentence)
                continued += kept
        active = remaining
        if active:
            indices = torch.tensor([one.row for one in continued], device=device)
            tokens = torch.tensor([one.token for one in continued], device=device)
            shape = (len(active), config.beam)
            totals = log_probs.new_tensor([one.value for one in continued]).view(shape)
            raw_totals = log_probs.new_tensor([one.raw for one in continued]).view(shape)
            generated = [(*generated[one.row], one.token) for one in continued]
            history.extend(tokens, indices)
            state = decoder.reorder(state, indices)
    return [sentence.rank(config) for sentence in sentences]


class _Expansion(NamedTuple):
    """A hypothesis and a next token."""

    value: float  # log-probability after the repetition penalty
    raw: float  # log-probability
    row: int  # of the hypothesis that is extended
    token: int


def _find_expansions(
    totals: Tensor, log_probs: Tensor, raw_totals: Tensor, raw_log_probs: Tensor, count: int
) -> list[list[_Expansion]]:
    """The most probable expansions of each sentence, with one copy to the host.

    Totals are n k, log-probabilities (n k) v.
    """
    n, k = totals.shape
    candidates = totals[..., None] + log_probs.unflatten(0, (n, k))  # n k v
    top = candidates.flatten(1).topk(min(count, candidates[0].numel()))
    raw = top.values
    if raw_log_probs is not log_probs:
        all_raw = raw_totals[..., None] + raw_log_probs.unflatten(0, (n, k))
        raw = all_raw.flatten(1).gather(1, top.indices)
    size = log_probs.shape[-1]
    parents = top.indices // size + torch.arange(n, device=totals.device)[:, None] * k
    columns = (top.values, raw, parents, top.indices % size)
    rows = torch.stack([one.double() for one in columns], -1).tolist()
    return [
        [_Expansion(value, raw, int(parent), int(token)) for value, raw, parent, token in row]
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """When hypotheses and the search end."""

    config: BeamConfig
    eos_id: int | None
    should_stop: ShouldStop | None


_EMPTY = Hypothesis(tokens=(), score=0.0, log_probability=0.0, finish_reason="end")


@dataclass(kw_only=True)
class _Beam:
    """The hypotheses of one sentence."""

    number: int
    max_length: int
    length: int = 0
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)  # at the maximum length
    best: Hypothesis | None = None  # of those that are continued

    def update(
        self,
        expansions: Sequence[_Expansion],
        generated: Sequence[tuple[int, ...]],
        ending: _Ending,
    ) -> list[_Expansion]:
        """The k expansions to continue, or none when the sentence is done."""
        config = ending.config
        self.length += 1
        alive: list[_Expansion] = []
        for rank, one in enumerate(expansions):
            if one.value == -math.inf or len(alive) == config.beam:
                break
            reason = self._find_reason(one, generated, ending)
            if reason is None:
                alive.append(one)
            is_first = rank < config.beam
            if reason is not None and is_first:
                self.finished.append(self._make_hypothesis(one, generated, config, reason))
            elif (
                reason is None
                and self.length == self.max_length
                and (is_first or config.ranks_unfinished_last)
            ):
                self.unfinished.append(self._make_hypothesis(one, generated, config, "length"))
        self.finished = _best(self.finished, config.beam)
        if not alive and not self.finished:  # no token is allowed
            self.finished = [replace(self.best or _EMPTY, finish_reason="end")]
        if not alive or self.length == self.max_length or self._is_done(alive[0].value, config):
            return []
        self.best = self._make_hypothesis(alive[0], generated, config, "length")
        missing = config.beam - len(alive)  # a small vocabulary, or most tokens are banned
        return alive + [alive[0]._replace(value=-math.inf)] * missing

    def _find_reason(
        self, one: _Expansion, generated: Sequence[tuple[int, ...]], ending: _Ending
    ) -> FinishReason | None:
        if one.token == ending.eos_id:
            return "end"
        if ending.should_stop and ending.should_stop(self.number, (*generated[one.row], one.token)):
            return "stop"
        return None

    def _make_hypothesis(
        self,
        one: _Expansion,
        generated: Sequence[tuple[int, ...]],
        config: BeamConfig,
        reason: FinishReason,
    ) -> Hypothesis:
        return Hypothesis(
            tokens=generated[one.row] if reason == "end" else (*generated[one.row], one.token),
            score=config.score(one.value, self.length),
            log_probability=one.raw,
            finish_reason=reason,
        )

    def rank(self, config: BeamConfig) -> list[Hypothesis]:
        if not config.ranks_unfinished_last:
            return _best([*self.finished, *self.unfinished], config.n_best)
        return [*self.finished, *_best(self.unfinished, config.beam)][: config.n_best]

    def _is_done(self, best: float, config: BeamConfig) -> bool:
        if len(self.finished) < config.beam:
            return False
        return config.is_done(best, self.finished[-1].score, self.length, self.max_length)


def _best(hypotheses: list[Hypothesis], most: int) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda one: -one.score)[:most]
