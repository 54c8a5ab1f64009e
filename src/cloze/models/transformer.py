"""The Transformer: an encoder and a decoder of attention alone.  Vaswani et al. 2017.

b sentences, s source tokens, t target tokens, d width, v vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.models.configs.transformer import TransformerConfig
from cloze.nn.activations import ACTIVATIONS
from cloze.nn.attention import Attention
from cloze.nn.blocks import FeedForward
from cloze.nn.decoder import (
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    Memory,
    PostNorm,
    PreNorm,
    SelfAttention,
)
from cloze.nn.dropout import Dropout
from cloze.nn.masks import causal
from cloze.nn.norm import LayerNorm
from cloze.nn.positions import LearnedPositions, Sinusoids
from cloze.nn.precise import log_softmax

A = TypeVar("A", bound=Attention)

NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}


@dataclass(frozen=True, kw_only=True)
class DecoderState:
    """All that the next step needs: keys and values, of the source and of the words so far.

    b rows, n sentences, each with b/n rows beside each other, which look at one source together.
    """

    sources: tuple[Memory, ...]  # by layer, n s h d, computed once
    real: Tensor  # n 1 1 s
    owners: Tensor  # b, the sentence that each row translates
    pasts: tuple[Memory, ...] = ()  # by layer, one token longer with each step
    length: int = 0


class Transformer(nn.Module):
    """Embeddings ×√d, positions, encoder blocks, decoder blocks, the tied output."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.target = nn.Embedding(config.vocab_size, width)
        separate = config.embeddings == "separate"
        self.source = nn.Embedding(config.vocab_size, width) if separate else None
        self.output = (
            None if config.tie_embeddings else nn.Linear(width, config.vocab_size, bias=False)
        )
        learned = config.position_encoding == "learned"
        self.positions = (
            LearnedPositions(config.max_positions, width)
            if learned
            else Sinusoids(width, config.position_encoding)
        )
        self.dropout = Dropout(config.dropout)
        residual = partial(
            NORMS[config.norm], width, dropout=config.dropout, norm_eps=config.norm_eps
        )
        self.encoder = nn.ModuleList(
            EncoderBlock(_attention(Attention, config), _feed_forward(config), residual)
            for _ in range(config.num_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(
                _attention(SelfAttention, config),
                _attention(CrossAttention, config),
                _feed_forward(config),
                residual,
            )
            for _ in range(config.num_decoder_layers or config.num_layers)
        )
        # a pre-norm stack ends with a sum that nothing has normalised
        ends = config.norm == "pre"
        self.encoder_norm = LayerNorm(width, eps=config.norm_eps) if ends else nn.Identity()
        self.decoder_norm = LayerNorm(width, eps=config.norm_eps) if ends else nn.Identity()

    @property
    def limit(self) -> int | None:
        """The most tokens of a sentence; None: no end."""
        return self.positions.limit

    def encode(self, source: Tensor, real: Tensor) -> Tensor:
        """The encoder's top, b s d; `real` is False where a row is padded."""
        x = self._embed(source, self.target if self.source is None else self.source)
        for block in self.encoder:
            x = block(x, real[:, None, None])
        return self.encoder_norm(x)

    def forward(self, source: Tensor, real: Tensor, inputs: Tensor) -> Tensor:
        """The decoder's top at every target token (b t d), all in one pass.

        `inputs` are the right words shifted by one, beginning with bos (teacher forcing); the mask
        keeps each from seeing what comes after it.
        """
        top = self.encode(source, real)
        x = self._embed(inputs, self.target)
        mask = causal(inputs.shape[1], inputs.device)
        for block in self._decoder:
            x = block(x, mask, block.look(top), real[:, None, None])
        return self.decoder_norm(x)

    def logits(self, vectors: Tensor) -> Tensor:
        """Scores of the vocabulary, before any softmax: … d -> … v."""
        return F.linear(vectors, self.target.weight if self.output is None else self.output.weight)

    def start(self, source: Tensor, real: Tensor) -> DecoderState:
        """Read the sentences; nothing is said yet."""
        top = self.encode(source, real)
        return DecoderState(
            sources=tuple(block.look(top) for block in self._decoder),
            real=real[:, None, None],
            owners=torch.arange(len(source), device=source.device),
        )

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Log-probabilities of the next token (b v) after one more (b)."""
        x = self._embed(tokens[:, None], self.target, state.length)
        pasts = []
        for number_, block in enumerate(self._decoder):
            past = state.pasts[number_] if state.pasts else None
            x, seen = block.step(x, past, state.sources[number_], state.real)
            pasts.append(seen)
        scores = log_softmax(self.logits(self.decoder_norm(x[:, 0])))
        return scores, replace(state, pasts=tuple(pasts), length=state.length + 1)

    def reorder(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """The state of other rows: hypotheses that survive, once or several times."""
        kept, counts = state.owners[rows].unique_consecutive(return_counts=True)
        if (counts != counts[0]).any():  # then each row is a sentence of its own
            kept, counts = state.owners[rows], torch.ones_like(rows)
        sources, real = state.sources, state.real
        if len(kept) < len(real) or not torch.equal(kept, torch.arange(len(real)).to(kept)):
            sources = tuple(memory.rows(kept) for memory in sources)
            real = real[kept]
        return replace(
            state,
            sources=sources,
            real=real,
            owners=torch.arange(len(kept), device=kept.device).repeat_interleave(counts),
            pasts=tuple(memory.rows(rows) for memory in state.pasts),
        )

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Glorot and Bengio's uniform for matrices; embeddings from N(0, 1/d), √d of which is 1.

        The paper does not say; so begins its code, tensor2tensor.
        """
        for module in self.modules():
            if isinstance(module, LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, self.config.hidden_size**-0.5, generator=rng)
            elif isinstance(module, nn.Linear):
                fused = module.out_features == 3 * module.in_features
                parts = 3 if fused else 1  # query, key and value lie in one matrix
                for part in module.weight.chunk(parts):
                    bound = (6 / sum(part.shape)) ** 0.5
                    part.uniform_(-bound, bound, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()

    @property
    def _decoder(self) -> Iterator[DecoderBlock]:
        return iter(self.decoder)  # type: ignore[arg-type]

    def _embed(self, ids: Tensor, table: nn.Embedding, first: int = 0) -> Tensor:
        most = first + ids.shape[1]
        places = torch.arange(first, most, device=ids.device)
        x = table(ids) * self.config.hidden_size**0.5
        return self.dropout(x + self.positions(places, most).to(x.dtype))


def _attention(kind: type[A], config: TransformerConfig) -> A:
    return kind(config.hidden_size, config.num_heads, config.attention_dropout)


def _feed_forward(config: TransformerConfig) -> FeedForward:
    return FeedForward(config.hidden_size, config.intermediate_size, ACTIVATIONS[config.activation])
