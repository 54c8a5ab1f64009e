"""Models that write a target sequence for each source: one interface for both architectures.

An encoder–decoder encodes the source and attends to it. A decoder-only model reads source and
target as one sequence: bos, source, separator, target, eos.
b sentences, s source tokens, v vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from cloze.decode.causal_encoder import CausalEncoder, CausalEncoderState
from cloze.decode.core import PromptDecoder, S
from cloze.models.language import LoadedModel
from cloze.text.joint_bpe import (
    encode_plain,
    encode_sentences,
    truncate_plain,
    truncate_sentence,
)

# For models without a limit. A longer line is not a sentence, and the search would take minutes.
MAX_SOURCE_TOKENS = 1024


class Translator(PromptDecoder[S], Protocol[S]):
    """A decoder whose prompts are sources: `start(sources)`, `step` and `reorder`."""

    @property
    def eos_id(self) -> int:
        """The token that ends a target."""
        ...

    @property
    def max_source_length(self) -> int:
        """The maximum number of tokens of a source, special tokens included."""
        ...

    @property
    def has_positions(self) -> bool:
        """Whether the number of positions limits the source."""
        ...

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of sources; one that is too long has more than `max_source_length`."""
        ...

    def truncate_source(self, text: str, truncation: str) -> tuple[list[int], int]:
        """At most `max_source_length` ids, and the number of characters left out."""
        ...

    def limit_target(self, source: Sequence[int], wanted: int) -> int:
        """The maximum number of target tokens, eos included, for a source."""
        ...


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder:
    """A Transformer or a recurrent network with an encoder, as a `Translator`."""

    model: LoadedModel
    max_trained_source: int | None = None  # tokens that sources were truncated to in training

    @property
    def eos_id(self) -> int:
        eos_id: int = self.model.config.eos_id
        return eos_id

    @property
    def has_positions(self) -> bool:
        return self.model.module.max_positions is not None

    @property
    def max_source_length(self) -> int:
        limit: int | None = self.model.module.max_positions
        trained = self.max_trained_source
        if trained is None:
            trained = max(MAX_SOURCE_TOKENS, self.model.config.max_trained_length)
            return limit or trained
        return min(trained, limit or trained)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return encode_sentences(self.model.tokenizer, texts, limit=self.max_source_length)

    def truncate_source(self, text: str, truncation: str) -> tuple[list[int], int]:
        return truncate_sentence(self.model.tokenizer, text, self.max_source_length, truncation)

    def limit_target(self, source: Sequence[int], wanted: int) -> int:  # noqa: ARG002
        return min(wanted, self.model.module.max_positions or 1 << 30)

    def start(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Any]:
        """The bos token of each sentence (b), and the encoded sources."""
        ids, real = pad_sequences(sources, self.model.device)
        tokens = torch.full((len(sources),), self.model.config.bos_id, device=self.model.device)
        return tokens, self.model.module.init_state(ids, real)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: ANN401
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        found: tuple[Tensor, Any] = self.model.module.step(tokens, state)
        return found

    def reorder(self, state: Any, indices: Tensor) -> Any:  # noqa: ANN401
        """The state of the rows at `indices`."""
        return self.model.module.reorder(state, indices)


@dataclass(frozen=True, kw_only=True)
class SequenceTranslator:
    """A decoder-only model as a `Translator`: a source is the prompt bos, source, separator."""

    decoder: CausalEncoder
    separator_id: int
    max_source_length: int

    has_positions = True

    @property
    def eos_id(self) -> int:
        return self.decoder.border_ids[1]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        plain = encode_plain(self.decoder.model.tokenizer, texts, limit=self.max_source_length)
        bos_id, _ = self.decoder.border_ids
        return [make_prompt(ids, bos_id, self.separator_id) for ids in plain]

    def truncate_source(self, text: str, truncation: str) -> tuple[list[int], int]:
        most = max(1, self.max_source_length - NUM_SPECIAL)
        ids, chars = truncate_plain(self.decoder.model.tokenizer, text, most, truncation)
        return make_prompt(ids, self.decoder.border_ids[0], self.separator_id), chars

    def limit_target(self, source: Sequence[int], wanted: int) -> int:
        # the last token that is generated is not read
        return max(1, min(wanted, self.decoder.max_length - len(source) + 1))

    def start(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, CausalEncoderState]:
        """The separator of each row (b), and the source before it."""
        return self.decoder.start(sources)

    def reserve(self, state: CausalEncoderState, new_tokens: int) -> CausalEncoderState:
        """The state with memory for so many new tokens of each row."""
        return self.decoder.reserve(state, new_tokens)

    def step(self, tokens: Tensor, state: CausalEncoderState) -> tuple[Tensor, CausalEncoderState]:
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        return self.decoder.step(tokens, state)

    def reorder(self, state: CausalEncoderState, indices: Tensor) -> CausalEncoderState:
        """The state of the rows at `indices`."""
        return self.decoder.reorder(state, indices)


NUM_SPECIAL = 2  # of a prompt: bos and separator


def make_prompt(source: Sequence[int], bos_id: int, separator_id: int) -> list[int]:
    """What a decoder-only model reads before a target: bos, source, separator."""
    return [bos_id, *source, separator_id]


def pad_sequences(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad sequences of ids (b s), and mark which ids are not padding."""
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(real.shape, dtype=torch.long)
    ids[real] = torch.tensor([id_ for row in rows for id_ in row])
    return ids.to(device), real.to(device)
