"""Decode many prompts together, in batches of bounded size.  b rows, v vocabulary."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from cloze.data.batch import batch_by_tokens
from cloze.decode.core import PromptDecoder, S
from cloze.models.language import LanguageModel, Logs

BATCH_TOKENS = 8192  # the KV cache of a BERT base takes 74 KB per token
GPU_BATCH_TOKENS = 32_768
_BATCH_LOGITS = 1 << 23  # rows times vocabulary; sampling sorts the probabilities in float64


def make_prompt_decoder(model: LanguageModel) -> PromptDecoder[Any]:
    """The model itself if it can decode prompts together, or a decoder that calls it for each row.

    N-gram models and models that define only `next_log_probs` are of the second kind.
    """
    if hasattr(model, "start"):
        return cast(PromptDecoder[Any], model)
    return ContextDecoder(model)


def batch_rows(model: LanguageModel, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of rows, longest first, in batches whose tokens and logits fit into memory.

    `lengths` are the numbers of tokens, of the prompt and to be generated.
    """
    device = getattr(model, "device", torch.device("cpu"))
    batch_tokens = BATCH_TOKENS if device.type == "cpu" else GPU_BATCH_TOKENS
    max_rows = max(1, _BATCH_LOGITS // len(model.vocabulary))
    least = -(-batch_tokens // max_rows)  # a row counts as this many tokens at least
    return batch_by_tokens([max(length, least) for length in lengths], batch_tokens)


def start_rows(
    decoder: PromptDecoder[S],
    prompts: Sequence[Sequence[int]],
    rows: Sequence[int],
    *,
    max_new_tokens: int | None = None,
) -> tuple[Tensor, S]:
    """Start a batch whose rows are these prompts; a prompt of several rows is read once.

    A decoder with a method `reserve` is told how many tokens will be generated at most.
    """
    numbers = {prompt: n for n, prompt in enumerate(dict.fromkeys(rows))}
    tokens, state = decoder.start([prompts[prompt] for prompt in numbers])
    if max_new_tokens is not None and hasattr(decoder, "reserve"):
        state = decoder.reserve(state, max_new_tokens)
    if len(numbers) == len(rows):
        return tokens, state
    indices = torch.tensor([numbers[prompt] for prompt in rows], device=tokens.device)
    return tokens[indices], decoder.reorder(state, indices)


@torch.inference_mode()
def iterate_next_log_probs(
    model: LanguageModel, prompts: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Logs]]:
    """The number of each prompt and log p(w | prompt) for every token w (v), longest first."""
    decoder = make_prompt_decoder(model)
    for batch in batch_rows(model, [len(prompt) for prompt in prompts]):
        log_probs, _ = decoder.step(*decoder.start([prompts[n] for n in batch]))
        yield from zip(batch, log_probs.cpu().numpy(), strict=True)


class ContextDecoder:
    """A `PromptDecoder` whose state is the tokens of each row, for models without a state."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, list[tuple[int, ...]]]:
        tokens = torch.tensor([prompt[-1] for prompt in prompts])
        return tokens, [tuple(prompt[:-1]) for prompt in prompts]

    def step(
        self, tokens: Tensor, state: list[tuple[int, ...]]
    ) -> tuple[Tensor, list[tuple[int, ...]]]:
        rows = [(*row, token) for row, token in zip(state, tokens.tolist(), strict=True)]
        distinct = {row: n for n, row in enumerate(dict.fromkeys(rows))}
        log_probs = np.stack([self._model.next_log_probs(row) for row in distinct])
        return torch.from_numpy(log_probs)[[distinct[row] for row in rows]], rows  # b v

    def reorder(self, state: list[tuple[int, ...]], indices: Tensor) -> list[tuple[int, ...]]:
        return [state[row] for row in indices.tolist()]

    def merge(self, states: Sequence[list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
        """One state with the rows of several."""
        return [row for state in states for row in state]
