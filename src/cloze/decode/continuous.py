"""Continuous batching: rows join and leave the batch between two steps.

Yu et al. 2022 (Orca), §3.1: scheduling by iteration.  b rows, t steps, v vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor

from cloze.decode.config import SamplingOptions
from cloze.decode.core import MergingDecoder
from cloze.decode.history import History
from cloze.decode.prompts import make_prompt_decoder, start_rows
from cloze.decode.sampling import SampledRow, draw_and_read
from cloze.models.language import LanguageModel
from cloze.nn.utils import float64_device


@dataclass(kw_only=True, eq=False)
class GeneratedRow:
    """A continuation that is being generated, with options of its own."""

    prompt: Sequence[int]
    sampling: SamplingOptions
    draws: Tensor  # t random numbers in float64; t is the maximum number of tokens, eos included
    eos_id: int | None
    banned_ids: frozenset[int] = frozenset()
    should_stop: Callable[[Sequence[int]], bool] | None = None
    top_log_probs: int = 0  # alternatives to record for every token
    sampled: SampledRow = field(default_factory=SampledRow)
    log_probs: list[float] = field(default_factory=list)  # of every token
    alternatives: list[list[tuple[int, float]]] = field(default_factory=list)
    num_steps: int = 0

    @property
    def is_finished(self) -> bool:
        return self.sampled.finish_reason is not None or self.num_steps >= len(self.draws)

    @cached_property
    def history(self) -> History:
        """The tokens so far, for the penalties that depend on them."""
        return History(
            [self.prompt],
            self.draws.device,
            repetition_penalty=self.sampling.repetition_penalty,
            no_repeat_ngram_size=self.sampling.no_repeat_ngram_size,
        )

    def update(self, token: int, log_prob: float, is_allowed: bool) -> None:
        """Append a token, or finish."""
        row, self.num_steps = self.sampled, self.num_steps + 1
        row.update(token, log_prob, is_allowed, self.eos_id)
        if row.finish_reason is None:
            self.log_probs.append(log_prob)
            if self.should_stop and self.should_stop(row.tokens):
                row.finish_reason = "stop"


class ContinuousBatch:
    """The rows that a language model continues together; any number may join at any step.

    Rows do not depend on each other: each gets the tokens that `sample` would give it alone.
    """

    def __init__(self, model: LanguageModel) -> None:
        decoder = make_prompt_decoder(model)
        self._starter, self._decoder = decoder, cast(MergingDecoder[Any], decoder)
        self._waiting: list[GeneratedRow] = []
        self._rows: list[GeneratedRow] = []
        self._tokens: Tensor | None = None
        self._state: Any = None

    def __len__(self) -> int:
        return len(self._rows) + len(self._waiting)

    def add(self, rows: Sequence[GeneratedRow]) -> None:
        """Let rows join at the next step, which reads their prompts."""
        self._waiting.extend(rows)

    def remove(self, rows: Sequence[GeneratedRow]) -> None:
        """Let rows leave before they are finished."""
        self._waiting = [row for row in self._waiting if row not in rows]
        kept = [n for n, row in enumerate(self._rows) if row not in rows]
        if len(kept) < len(self._rows):
            self._keep(kept)

    def clear(self) -> None:
        """Remove all rows."""
        self._waiting, self._rows, self._tokens, self._state = [], [], None, None

    @torch.inference_mode()
    def step(self) -> list[GeneratedRow]:
        """One more token of every row; returns all rows, of which the finished ones leave."""
        reached: list[GeneratedRow] = []
        if self._rows:
            assert self._tokens is not None
            log_probs, self._state = self._decoder.step(self._tokens, self._state)
            self._tokens = self._sample(self._rows, log_probs, self._state)
            reached += self._rows
            self._keep([n for n, row in enumerate(self._rows) if not row.is_finished])
        if self._waiting:
            joined, self._waiting = self._waiting, []
            tokens, state = self._start(joined)
            log_probs, state = self._decoder.step(tokens, state)
            tokens = self._sample(joined, log_probs, state)
            reached += joined
            self._join(joined, tokens, state)
        return reached

    def _start(self, rows: Sequence[GeneratedRow]) -> tuple[Tensor, Any]:
        """Rows with the same prompt, such as several samples of a text, read it once."""
        prompts = list({tuple(row.prompt): None for row in rows})
        numbers = {prompt: number for number, prompt in enumerate(prompts)}
        return start_rows(
            self._starter,
            prompts,
            [numbers[tuple(row.prompt)] for row in rows],
            max_new_tokens=max(len(row.draws) for row in rows),
        )

    def _join(self, rows: list[GeneratedRow], tokens: Tensor, state: Any) -> None:  # noqa: ANN401
        alive = [n for n, row in enumerate(rows) if not row.is_finished]
        if not alive:
            return
        if len(alive) < len(rows):
            indices = torch.tensor(alive, device=tokens.device)
            tokens, state = tokens[indices], self._decoder.reorder(state, indices)
        rows = [rows[n] for n in alive]
        if self._rows:
            assert self._tokens is not None
            tokens = torch.cat([self._tokens, tokens])
            state = self._decoder.merge([self._state, state])
        self._rows, self._tokens, self._state = self._rows + rows, tokens, state

    def _keep(self, kept: Sequence[int]) -> None:
        """Keep the rows with these indices."""
        if len(kept) == len(self._rows):
            return
        if not kept:
            self._rows, self._tokens, self._state = [], None, None
            return
        assert self._tokens is not None
        indices = torch.tensor(kept, device=self._tokens.device)
        self._rows = [self._rows[n] for n in kept]
        self._tokens = self._tokens[indices]
        self._state = self._decoder.reorder(self._state, indices)

    def _sample(self, rows: Sequence[GeneratedRow], log_probs: Tensor, state: Any) -> Tensor:  # noqa: ANN401
        """The next token of each row (b); rows with the same options are sampled together."""
        model_device = log_probs.device
        log_probs = log_probs.to(float64_device(model_device))
        normalizer = getattr(state, "log_normalizer", None)
        tokens = torch.empty(len(rows), dtype=torch.long, device=log_probs.device)

        def options(number: int) -> tuple[str, tuple[int, ...]]:
            return repr(rows[number].sampling), tuple(sorted(rows[number].banned_ids))

        for _, group in groupby(sorted(range(len(rows)), key=options), key=options):
            numbers = list(group)
            indices = torch.tensor(numbers, device=log_probs.device)
            some = log_probs[indices]  # b v
            allowed = some
            first = rows[numbers[0]]
            if first.history.is_needed:
                allowed = torch.cat(
                    [
                        rows[n].history.apply(
                            log_probs[n : n + 1],
                            None if normalizer is None else normalizer[n : n + 1],
                        )
                        for n in numbers
                    ]
                )
            if first.banned_ids:
                banned = torch.tensor(sorted(first.banned_ids), device=allowed.device)
                allowed = allowed.index_fill(-1, banned, -torch.inf)
            draws = torch.stack([rows[n].draws[rows[n].num_steps] for n in numbers])
            drawn, values = draw_and_read(some, allowed, first.sampling, draws.to(some.device))
            tokens[indices] = drawn
            for n, (token, log_prob, is_allowed) in zip(numbers, values, strict=True):
                self._record(rows[n], log_probs[n])
                rows[n].update(int(token), log_prob, bool(is_allowed))
                rows[n].history.extend(tokens[n : n + 1])
        return tokens.to(model_device)

    @staticmethod
    def _record(row: GeneratedRow, log_probs: Tensor) -> None:
        if row.top_log_probs:
            best = log_probs.topk(min(row.top_log_probs, len(log_probs)))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            row.alternatives.append(list(pairs))
