"""The Transformer: an encoder and a decoder with attention.  Vaswani et al. 2017.

b sentences, s source tokens, t target tokens, d width, v vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.models.configs.transformer import TransformerConfig
from cloze.nn.attention import Attention, CrossAttention, KVCache, is_identity
from cloze.nn.block import Block, BlockList, FeedForward, PostNormBlock, PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.layers import ACTIVATIONS, Dropout, LayerNorm
from cloze.nn.layout import Packed, add_end_tokens
from cloze.nn.positions import LearnedPositions, SinusoidalPositions
from cloze.nn.utils import log_softmax


@dataclass(frozen=True, kw_only=True)
class DecoderState:
    """The decoder's state between steps: keys and values of the source and of the tokens so far.

    b rows, n sentences; each sentence has b/n adjacent rows, which share its source.
    """

    caches: tuple[KVCache, ...]  # by layer: of the tokens so far b t h d, of the source n s h d
    encoder_mask: Tensor  # n s, False where a row is padded
    owners: Tensor  # b, the sentence that each row translates
    length: int = 0  # tokens so far


class Transformer(nn.Module):
    """Embeddings ×√d, positions, encoder blocks, decoder blocks, the tied output."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.target_embeddings = nn.Embedding(config.vocab_size, size)
        separate = config.embeddings == "separate"
        self.source_embeddings = nn.Embedding(config.vocab_size, size) if separate else None
        self.output = (
            None if config.tie_embeddings else nn.Linear(size, config.vocab_size, bias=False)
        )
        self.position_encoding = (
            LearnedPositions(config.max_positions, size)
            if config.position_encoding == "learned"
            else SinusoidalPositions(size, config.position_encoding)
        )
        self.dropout = Dropout(config.dropout)
        decoder_layers = config.num_decoder_layers or config.num_layers
        self.encoder = BlockList(
            _build_block(config, decoder=False) for _ in range(config.num_layers)
        )
        self.decoder = BlockList(_build_block(config, decoder=True) for _ in range(decoder_layers))
        # the output of the last pre-norm block is not normalized
        pre_norm = config.norm == "pre"
        self.encoder_norm = LayerNorm(size, eps=config.norm_eps) if pre_norm else nn.Identity()
        self.decoder_norm = LayerNorm(size, eps=config.norm_eps) if pre_norm else nn.Identity()

    @property
    def max_positions(self) -> int | None:
        """The maximum number of tokens of a sentence; None: no limit."""
        return self.position_encoding.max_positions

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """The encoder's last layer, b s d; `source_mask` is False where a row is padded."""
        table = self.target_embeddings if self.source_embeddings is None else self.source_embeddings
        context = AttentionContext(source_mask, max_seqlen=source.shape[1], device=source.device)
        x = self._embed(source, table)
        for block in self.encoder:
            x = block(x, context)
        return self.encoder_norm(x)

    @property
    def num_layers(self) -> int:
        """The number of layers of the encoder."""
        return len(self.encoder)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Packed,
        token_type_ids: Tensor | None = None,  # noqa: ARG002
    ) -> Iterator[Tensor]:
        """The embeddings, then the output of each encoder layer, as contextual vectors: n d.

        Sentences are read with an end token, as in training, which has no vector here.
        """
        longest = self.max_positions
        ids, packed, kept = add_end_tokens(input_ids, attention_mask, self.config.eos_id, longest)
        table = self.target_embeddings if self.source_embeddings is None else self.source_embeddings
        context = AttentionContext(packed, max_seqlen=packed.max_seqlen, device=ids.device)
        x = table(ids) * self.config.hidden_size**0.5
        positions = self.position_encoding(packed.position_ids, packed.max_seqlen)
        x = self.dropout(x + positions.to(x.dtype))
        yield x[kept]
        *lower, last = self.encoder
        for block in lower:
            x = block(x, context)
            yield x[kept]
        yield self.encoder_norm(last(x, context))[kept]

    def forward(self, source: Tensor, source_mask: Tensor, inputs: Tensor) -> Tensor:
        """The decoder's last layer at every target token (b t d), all in one pass.

        `inputs` are the target tokens shifted by one, beginning with bos (teacher forcing); the
        causal mask prevents attention to later tokens.
        """
        context = AttentionContext(
            max_seqlen=inputs.shape[1],
            device=inputs.device,
            is_causal=True,
            encoder_states=self.encode(source, source_mask),
            encoder_mask=source_mask,
        )
        x = self._embed(inputs, self.target_embeddings)
        for block in self.decoder:
            x = block(x, context)
        return self.decoder_norm(x)

    def logits(self, vectors: Tensor) -> Tensor:
        """Logits over the vocabulary: … d -> … v."""
        table = self.target_embeddings if self.output is None else self.output
        return F.linear(vectors, table.weight)

    def init_state(self, source: Tensor, source_mask: Tensor) -> DecoderState:
        """Encode the sentences: the state before the first token."""
        states = self.encode(source, source_mask)
        crosses = [block.cross_attention for block in self.decoder]
        return DecoderState(
            caches=tuple(KVCache(encoder_kv=one.project_encoder(states)) for one in crosses if one),
            encoder_mask=source_mask,
            owners=torch.arange(len(source), device=source.device),
        )

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Log-probabilities of the next token (b v) after one more (b)."""
        length = state.length + 1
        x = self._embed(tokens[:, None], self.target_embeddings, state.length)
        context = AttentionContext(
            max_seqlen=length, device=tokens.device, encoder_mask=state.encoder_mask
        )
        caches = tuple(replace(cache) for cache in state.caches)  # the state itself is not changed
        for block, cache in zip(self.decoder, caches, strict=True):
            x = block(x, context, cache)
        log_probs = log_softmax(self.logits(self.decoder_norm(x[:, 0])))
        return log_probs, replace(state, caches=caches, length=length)

    def reorder(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """The state of these rows, such as the hypotheses that a beam keeps."""
        if is_identity(rows, len(state.owners)):
            return state
        sources, counts = state.owners[rows].unique_consecutive(return_counts=True)
        if (counts != counts[0]).any():  # then each row has its own copy of the source
            sources, counts = state.owners[rows], torch.ones_like(rows)
        caches, mask = tuple(cache.reorder(rows) for cache in state.caches), state.encoder_mask
        if len(sources) < len(mask) or not torch.equal(
            sources, torch.arange(len(mask)).to(sources)
        ):
            caches = tuple(cache.reorder_encoder(sources) for cache in caches)
            mask = mask[sources]
        return replace(
            state,
            caches=caches,
            encoder_mask=mask,
            owners=torch.arange(len(sources), device=sources.device).repeat_interleave(counts),
        )

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Matrices uniform by Glorot and Bengio 2010; embeddings from N(0, 1/d), used times √d.

        The paper does not specify it; this is how its code, tensor2tensor, does it.
        """
        for module in self.modules():
            if isinstance(module, LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, self.config.hidden_size**-0.5, generator=rng)
            elif isinstance(module, nn.Linear):
                is_qkv = module.out_features == 3 * module.in_features
                for matrix in module.weight.chunk(3 if is_qkv else 1):
                    bound = (6 / sum(matrix.shape)) ** 0.5
                    matrix.uniform_(-bound, bound, generator=rng)
                if module.bias is not None:
                    module.bias.zero_()

    def _embed(self, ids: Tensor, table: nn.Embedding, first_position: int = 0) -> Tensor:
        length = first_position + ids.shape[1]
        position_ids = torch.arange(first_position, length, device=ids.device)
        x = table(ids) * self.config.hidden_size**0.5
        return self.dropout(x + self.position_encoding(position_ids, length).to(x.dtype))


def _build_block(config: TransformerConfig, *, decoder: bool) -> Block:
    size = config.hidden_size
    attention = Attention(size, config.num_heads, config.attention_dropout)
    cross_attention = (
        CrossAttention(size, config.num_heads, config.attention_dropout) if decoder else None
    )
    ffn = FeedForward(size, config.intermediate_size, ACTIVATIONS[config.activation])
    if config.norm == "post":
        return PostNormBlock(
            attention,
            ffn,
            cross_attention=cross_attention,
            dropout=config.dropout,
            norm_eps=config.norm_eps,
        )
    return PreNormBlock(
        attention,
        ffn,
        cross_attention=cross_attention,
        attention_norm=LayerNorm(size, eps=config.norm_eps),
        cross_attention_norm=LayerNorm(size, eps=config.norm_eps) if decoder else None,
        ffn_norm=LayerNorm(size, eps=config.norm_eps),
        dropout=config.dropout,
        ffn_dropout=config.dropout,
    )
