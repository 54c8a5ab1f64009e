"""Continue texts: sampling or beam search for many prompts in batches, or one in a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cloze.decode.beam import beam_search
from cloze.decode.config import GenerationOptions
from cloze.decode.continuation import ContinuationText, TextChunks
from cloze.decode.continuous import GeneratedRow
from cloze.decode.core import Hypothesis, PromptDecoder
from cloze.decode.prompts import batch_rows, make_prompt_decoder, start_rows
from cloze.decode.sampling import iterate_samples, sample
from cloze.models.language import LanguageModel
from cloze.progress import ProgressCallback


@dataclass(frozen=True, kw_only=True)
class TextGenerator:
    """Texts and how to continue them; the options are those of `cloze.generate`."""

    model: LanguageModel
    texts: Sequence[str]
    options: GenerationOptions
    max_new_tokens: int
    samples: int = 1
    stop: bool = True
    stop_strings: tuple[str, ...] = ()
    include_stop_string: bool = False
    seed: int = 0

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The tokens of each text."""
        return [self.model.encode_prompt(text) for text in self.texts]

    @cached_property
    def continuations(self) -> list[ContinuationText]:
        """Decodes the continuations of each text."""
        return [
            ContinuationText(
                self.model,
                text,
                prompt,
                self.stop_strings,
                include_stop_string=self.include_stop_string,
            )
            for text, prompt in zip(self.texts, self.prompts, strict=True)
        ]

    @cached_property
    def _decoder(self) -> PromptDecoder[Any]:
        return make_prompt_decoder(self.model)

    @cached_property
    def _draws(self) -> Tensor:
        """Samples × steps; every text gets the same, so that it depends on the seed alone."""
        rng = torch.Generator().manual_seed(self.seed)
        size = (self.samples, self.max_new_tokens)
        return torch.rand(size, generator=rng, dtype=torch.float64)

    @torch.inference_mode()
    def generate(self, progress: ProgressCallback | None = None) -> list[list[Hypothesis]]:
        """The continuations of each text."""
        beam = self.options.beam or 1
        numbers = [n for n in range(len(self.prompts)) for _ in range(self.samples)]  # by row
        lengths = [beam * (len(self.prompts[n]) + self.max_new_tokens) for n in numbers]
        found: dict[int, list[Hypothesis]] = {}  # by row
        for batch in batch_rows(self.model, lengths):
            some = [numbers[row] for row in batch]
            if self.options.beam is not None:
                found.update(zip(batch, self._search(some), strict=True))
            else:
                hypotheses = self._sample(some, [row % self.samples for row in batch])
                found.update((row, [one]) for row, one in zip(batch, hypotheses, strict=True))
            if progress:
                progress("texts", len(found) // self.samples, len(self.texts))
        return [
            [one for n in range(self.samples) for one in found[start + n]]
            for start in range(0, len(numbers), self.samples)
        ]

    @torch.inference_mode()
    def stream(self) -> Iterator[str | Hypothesis]:
        """The chunks of the first sample of the first text, then the whole continuation."""
        chunks = TextChunks(self.continuations[0])
        steps = iterate_samples(
            *self._start([0]), self.options, draws=self._draws[:1], **self._make_settings([0])
        )
        for (row,) in steps:
            if chunk := chunks.read(row.tokens):
                yield chunk
        hypothesis = row.make_hypothesis()
        if chunk := chunks.read(hypothesis.tokens, is_last=True):
            yield chunk
        yield hypothesis

    def make_rows(self, top_log_probs: int = 0) -> list[list[GeneratedRow]]:
        """The samples of each text, as rows of a `ContinuousBatch`."""
        return [
            [
                GeneratedRow(
                    prompt=prompt,
                    sampling=self.options,
                    draws=self._draws[number],
                    eos_id=self.model.eos_id if self.stop else None,
                    banned_ids=frozenset(self._find_banned_ids()),
                    should_stop=continuation.has_stop_string if self.stop_strings else None,
                    top_log_probs=top_log_probs,
                )
                for number in range(self.samples)
            ]
            for prompt, continuation in zip(self.prompts, self.continuations, strict=True)
        ]

    def _find_banned_ids(self) -> set[int]:
        return {self.model.unk_id, None if self.stop else self.model.eos_id} - {None}  # type: ignore[return-value]

    def _sample(self, numbers: Sequence[int], samples: Sequence[int]) -> list[Hypothesis]:
        draws, settings = self._draws[samples], self._make_settings(numbers)
        return sample(*self._start(numbers), self.options, draws=draws, **settings)

    def _search(self, numbers: Sequence[int]) -> list[list[Hypothesis]]:
        lengths, settings = [self.max_new_tokens] * len(numbers), self._make_settings(numbers)
        config = self.options.make_beam_config()
        return beam_search(*self._start(numbers), config, max_lengths=lengths, **settings)

    def _start(self, numbers: Sequence[int]) -> tuple[PromptDecoder[Any], Any, Tensor]:
        tokens, state = start_rows(
            self._decoder, self.prompts, numbers, max_new_tokens=self.max_new_tokens
        )
        return self._decoder, state, tokens

    def _make_settings(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The settings of sampling and beam search for rows with these prompts."""
        eos_id = self.model.eos_id

        def should_stop(row: int, tokens: Sequence[int]) -> bool:
            return self.continuations[numbers[row]].has_stop_string(tokens)

        return {
            "eos_id": eos_id if self.stop else None,
            "banned_ids": self._find_banned_ids(),
            "prompts": [self.prompts[n] for n in numbers],
            "should_stop": should_stop if self.stop_strings else None,
        }
