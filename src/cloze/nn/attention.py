"""Multi-head attention, and the key-value cache for decoding.

b batch, t tokens (n of a flat row), s source tokens, h heads, d head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cloze.errors import ConfigError
from cloze.nn.context import AttentionContext
from cloze.nn.layers import dropout
from cloze.nn.layout import Packed, Varlen
from cloze.nn.positions import RotaryTable, apply_rotary

_MIN_ROOM = 32  # tokens by which a cache grows at least
CUDNN_DEVICES = {"cuda"}
_NOT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class KeyValue(NamedTuple):
    """Keys and values that queries attend to."""

    key: Tensor  # b s h d
    value: Tensor  # b s h d

    def select(self, rows: Tensor) -> "KeyValue":
        """The keys and values of these rows of the batch."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


@dataclass
class _KVBuffer:
    """Memory for keys and values, which the caches of successive steps share.

    The tokens of a head are adjacent, because a step reads one head after another.
    """

    key: Tensor  # b h c d, c the capacity
    value: Tensor  # b h c d
    used: int = 0  # tokens that some cache has written


@dataclass
class KVCache:
    """The keys and values of one block, kept between decoding steps.

    They are in buffers that have room for more tokens: `reserve`, or twice as many whenever they
    are full. A copy (`dataclasses.replace`) is cheap and independent: both share a buffer, and the
    second of them that appends to it gets its own.
    """

    encoder_kv: KeyValue | None = None  # of the source, computed once; for cross-attention
    reserve: int = 0  # tokens that will be cached, if that is known
    length: int = 0  # tokens that are cached
    buffer: _KVBuffer | None = None

    @property
    def past(self) -> KeyValue | None:
        """Keys and values of the tokens so far."""
        if self.buffer is None:
            return None
        return self._read(self.buffer)

    def append(self, key: Tensor, value: Tensor) -> KeyValue:
        """All keys and values, including those of the new tokens (b t h d)."""
        start, end = self.length, self.length + key.shape[1]
        key, value = key.transpose(1, 2), value.transpose(1, 2)  # b h t d
        buffer = self.buffer
        if buffer is None and end >= self.reserve:  # a prompt may be all there is
            buffer = _KVBuffer(key, value)
        elif buffer is None or buffer.used > start or buffer.key.shape[2] < end:
            capacity = self.reserve if end <= self.reserve else max(end + _MIN_ROOM, 2 * start)
            buffer = self._copy_buffer(key, capacity)
        if buffer.key is not key:
            buffer.key[:, :, start:end] = key
            buffer.value[:, :, start:end] = value
        buffer.used = self.length = end
        self.buffer = buffer
        return self._read(buffer)

    def _read(self, buffer: _KVBuffer) -> KeyValue:
        return KeyValue(
            *(one[:, :, : self.length].transpose(1, 2) for one in (buffer.key, buffer.value))
        )

    def convert(self, dtype: torch.dtype) -> "KVCache":
        """The cache in another precision."""
        if self.buffer is None or self.buffer.key.dtype == dtype:
            return self
        like = self.buffer.key[:, :, :0].to(dtype)
        capacity = max(self.reserve, self.buffer.key.shape[2])
        return replace(self, buffer=self._copy_buffer(like, capacity))

    def reorder(self, rows: Tensor) -> "KVCache":
        """The cache of these rows; that of the source is unchanged."""
        if self.buffer is None:
            return replace(self)
        key = self.buffer.key
        return replace(self, buffer=self._copy_buffer(key, key.shape[2], rows))

    def _copy_buffer(self, like: Tensor, capacity: int, rows: Tensor | None = None) -> _KVBuffer:
        """A buffer with the tokens of this cache, of all rows or of these, and room for more."""
        count, heads, _, width = like.shape
        size = (count if rows is None else len(rows), heads, capacity, width)
        new = _KVBuffer(like.new_empty(size), like.new_empty(size), self.length)
        if self.buffer is not None:
            pairs = (new.key, self.buffer.key), (new.value, self.buffer.value)
            for target, source in pairs:
                target, source = target[:, :, : self.length], source[:, :, : self.length]
                if rows is not None and like.device.type == "cpu":
                    torch.index_select(source, 0, rows, out=target)  # without a second copy
                else:
                    target.copy_(source if rows is None else source.index_select(0, rows))
        return new

    def select_tokens(self, indices: Tensor, capacity: int) -> KeyValue:
        """Keys and values of these tokens of each row (b k), padded with zeros: b h c d."""
        assert self.buffer is not None
        heads, width = self.buffer.key.shape[1], self.buffer.key.shape[3]
        wanted = indices[:, None, :, None].expand(-1, heads, -1, width)  # b h k d
        padding = (0, 0, 0, capacity - indices.shape[1])
        return KeyValue(
            *(
                F.pad(one[:, :, : self.length].gather(2, wanted), padding)
                for one in (self.buffer.key, self.buffer.value)
            )
        )

    @classmethod
    def merge(cls, parts: Sequence[KeyValue], length: int) -> "KVCache":
        """A cache with the rows of several (b h c d each), of which `length` tokens are used."""
        dtype = parts[0].key.dtype
        key, value = (
            torch.cat([one.to(dtype) for one in some]) for some in zip(*parts, strict=True)
        )
        return cls(reserve=key.shape[2], length=length, buffer=_KVBuffer(key, value, used=length))

    def reorder_encoder(self, sources: Tensor) -> "KVCache":
        """The cache of these sources; that of the tokens so far is unchanged."""
        return replace(self, encoder_kv=self.encoder_kv and self.encoder_kv.select(sources))


def is_identity(rows: Tensor, count: int) -> bool:
    """Whether `rows` are 0, 1, 2 … of this many rows, so that there is nothing to reorder."""
    return len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device))


def compute_attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(QKᵀ/√d), masked scores at −∞.  Vaswani et al. 2017, eq. 1."""
    scores = (query / query.shape[-1] ** 0.5) @ key.transpose(-2, -1)  # b h q k
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1)


def compute_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> Tensor:
    """softmax(QKᵀ/√d)·V of b t h d each, with the heads concatenated: b t (h d)."""
    query, key, value = (part.transpose(-3, -2) for part in (query, key, value))  # b h t d
    if dropout_p > 0 and query.device.type == "cpu":  # torch's fused CPU kernel has no dropout
        weights = compute_attention_weights(query, key, mask)
        heads = dropout(weights, dropout_p, training=True) @ value
    else:
        heads = scaled_dot_product_attention(query, key, value, mask, dropout_p)
    return heads.transpose(-3, -2).flatten(-2)  # b h t d -> b t (h d)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0
) -> Tensor:
    """The function of torch (b h t d each), without cuDNN's kernel for gradients with a mask.

    From torch 2.11 that kernel is the default on Hopper GPUs. Its gradient with a mask is NaN for
    some lengths if all scores of a row are very negative
    (https://github.com/pytorch/pytorch/issues/196678).
    """
    if mask is None or query.device.type not in CUDNN_DEVICES or not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p)
    with sdpa_kernel(_NOT_CUDNN):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p)


def compute_varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: AttentionContext,
    *,
    window_size: int | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """softmax(QKᵀ/√d)·V within each sequence of a `Varlen` row, n h d each.

    On a GPU this is flash attention (Dao 2023), in bfloat16 or float16. Elsewhere the scores of all
    pairs of tokens in the row are computed and masked, which is only practical for small rows.
    """
    layout = context.layout
    assert isinstance(layout, Varlen)
    if query.device.type != "cuda":
        mask = context.attn_mask(window_size)
        query, key, value = (part.transpose(0, 1) for part in (query, key, value))  # h n d
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p).transpose(0, 1)
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise ConfigError(
            f"attention over variable-length rows on a GPU cannot be computed in {query.dtype}",
            fix="train in bfloat16 (--dtype bfloat16)",
        )
    reach = context.reach(window_size)
    side = -1 if reach is None else reach
    # torch's public function for this has no dropout
    return torch.ops.aten._flash_attention_forward(
        *(query, key, value),
        *(layout.cu_seqlens, layout.cu_seqlens),
        *(layout.max_seqlen, layout.max_seqlen),
        dropout_p,
        context.is_causal,
        False,  # return_debug_mask
        window_size_left=side,
        window_size_right=side,
    )[0]


class Attention(nn.Module):
    """softmax(QKᵀ/√d)·V in every head, then a projection of the concatenated heads.

    Vaswani et al. 2017, §3.2. Query, key and value are one matrix product. Attention weights are
    not stored; `weights` computes them again (see `cloze.interpret.capture`). With a `window_size`
    each token attends to half of it on each side.
    """

    supports_varlen = True  # rows whose lengths only the device knows

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        window_size: int | None = None,
    ) -> None:
        super().__init__()
        check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.window_size = window_size
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.out = nn.Linear(hidden_size, hidden_size, bias=bias)

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        return self.out(self.compute_heads(x, context, cache))

    def prepare(self, context: AttentionContext) -> None:
        """Compute the mask of this layer ahead of the forward pass, unless another layer has."""
        if not isinstance(context.layout, Packed | Varlen):
            context.attn_mask(self.window_size)

    def compute_heads(
        self, x: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        """The concatenated heads, before `out`: b t (h d)."""
        qkv = self.qkv(x).unflatten(-1, (3 * self.num_heads, -1))  # b t 3h d
        return self.attend(qkv, context, cache)

    def attend(
        self, qkv: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        """The concatenated heads from query, key and value: b t 3h d -> b t (h d)."""
        query, key, value = self.split_qkv(qkv, context)
        if cache is not None:
            key, value = cache.append(key, value)
        dropout_p = self.dropout if self.training else 0.0
        if isinstance(context.layout, Varlen):
            return compute_varlen_attention(
                *(query, key, value, context), window_size=self.window_size, dropout_p=dropout_p
            ).flatten(-2)
        if isinstance(context.layout, Packed):
            return self._attend_runs((query, key, value), context, dropout_p)
        return compute_attention(query, key, value, context.attn_mask(self.window_size), dropout_p)

    def split_qkv(self, qkv: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002
        """Query, key and value, each b t h d, of b t 3h d."""
        query, key, value = qkv.chunk(3, -2)
        return query, key, value

    def compute_qkv(
        self, x: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each b t h d; keys and values of a cache that has the new ones."""
        query, key, value = self.split_qkv(
            self.qkv(x).unflatten(-1, (3 * self.num_heads, -1)), context
        )
        past = None if cache is None else cache.past
        return (query, key, value) if past is None else (query, *past)

    def weights(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        """The attention weights of every head: b h q k."""
        query, key, _ = self.compute_qkv(x, context, cache)
        mask = context.attn_mask(self.window_size)
        return compute_attention_weights(query.transpose(-3, -2), key.transpose(-3, -2), mask)

    def sequence_weights(self, x: Tensor, context: AttentionContext) -> list[Tensor]:
        """The attention weights within each sequence of a `Packed` row: h t t each."""
        assert isinstance(context.layout, Packed)
        query, key, _ = self.compute_qkv(x, context)
        found: list[Tensor] = []
        for start, count, length in context.layout.runs:
            run = slice(start, start + count * length)
            q, k = (part[run].unflatten(0, (count, length)) for part in (query, key))  # b t h d
            mask = context.run_mask(length, self.window_size)
            found.extend(self._compute_run_weights(q, k, mask))
        return found

    def _compute_run_weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """The weights of sequences of one length: b t h d each -> b h t t."""
        return compute_attention_weights(query.transpose(-3, -2), key.transpose(-3, -2), mask)

    def _attend_runs(
        self, parts: tuple[Tensor, ...], context: AttentionContext, dropout_p: float
    ) -> Tensor:
        assert isinstance(context.layout, Packed)
        runs = context.layout.runs
        sizes = [count * length for _, count, length in runs]
        mixed = []
        split = zip(*(part.split(sizes) for part in parts), strict=True)
        for run, (_, count, length) in zip(split, runs, strict=True):
            query, key, value = (part.unflatten(0, (count, length)) for part in run)  # b t h d
            mask = context.run_mask(length, self.window_size)
            mixed.append(compute_attention(query, key, value, mask, dropout_p).flatten(0, 1))
        return torch.cat(mixed)  # n (h d)


class RotaryAttention(Attention):
    """Attention whose queries and keys are rotated by their positions.  Su et al. 2021."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        rope_theta: float,
        bias: bool = True,
        window_size: int | None = None,
    ) -> None:
        super().__init__(hidden_size, num_heads, dropout, bias=bias, window_size=window_size)
        self.rope_theta = rope_theta

    def prepare(self, context: AttentionContext) -> None:
        """Compute mask and rotary table ahead of the forward pass, unless another layer has."""
        super().prepare(context)
        self.rotary_table(context)

    def rotary_table(self, context: AttentionContext, *, by_token: bool = True) -> RotaryTable:
        head_size = self.out.in_features // self.num_heads
        return context.rotary_table(head_size, self.rope_theta, by_token=by_token)

    def split_qkv(self, qkv: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        """Query and key, rotated, and value, each b t h d."""
        both, value = qkv.split([2 * self.num_heads, self.num_heads], -2)  # rotated in one pass
        query, key = apply_rotary(both, self.rotary_table(context)).chunk(2, -2)
        return query, key, value


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder.  Vaswani et al. 2017, §3.2.3.

    The three matrices are stored as one, as in self-attention.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        return self.out(self.compute_heads(x, context, cache))

    def compute_heads(
        self, x: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        """The concatenated heads, before `out`: b t (h d).

        If there are fewer sources than rows, each source is shared by the same number of adjacent
        rows (the hypotheses of a beam), which attend to it like the tokens of one row.
        """
        encoder_kv = self._encoder_kv(context, cache)
        query = self._query(x.reshape(len(encoder_kv.key), -1, x.shape[-1]))
        dropout_p = self.dropout if self.training else 0.0
        mixed = compute_attention(query, *encoder_kv, context.encoder_mask, dropout_p)
        return mixed.reshape(x.shape)

    def project_encoder(self, states: Tensor) -> KeyValue:
        """Keys and values of the encoder's output, the same for all decoding steps."""
        width = self.out.in_features
        both = F.linear(states, self.qkv.weight[width:], self.qkv.bias[width:])
        return KeyValue(*both.unflatten(-1, (2 * self.num_heads, -1)).chunk(2, -2))  # b s h d

    def compute_qkv(
        self, x: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The query of each target token (b t h d), key and value of each source token."""
        encoder_kv = self._encoder_kv(context, cache)
        return self._query(x.reshape(len(encoder_kv.key), -1, x.shape[-1])), *encoder_kv

    def weights(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        """The attention weights of each target token over the source tokens: b h t s."""
        query, key, _ = self.compute_qkv(x, context, cache)
        return compute_attention_weights(
            query.transpose(-3, -2), key.transpose(-3, -2), context.encoder_mask
        )

    def _encoder_kv(self, context: AttentionContext, cache: KVCache | None) -> KeyValue:
        if cache is not None and cache.encoder_kv is not None:
            return cache.encoder_kv
        assert context.encoder_states is not None
        return self.project_encoder(context.encoder_states)

    def _query(self, x: Tensor) -> Tensor:
        width = self.out.in_features
        query = F.linear(x, self.qkv.weight[:width], self.qkv.bias[:width])
        return query.unflatten(-1, (self.num_heads, -1))  # b t h d


def check_heads(hidden_size: int, num_heads: int) -> None:
    """Raise unless hidden_size is divisible by num_heads."""
    if hidden_size % num_heads:
        raise ConfigError(
            f"hidden_size {hidden_size} is not divisible by num_heads {num_heads}",
            fix=f"use a multiple of {num_heads}",
        )
