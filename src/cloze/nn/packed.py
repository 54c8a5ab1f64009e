"""Linear layers on a CPU with packed weights, and decoding steps with them.

A step reads every weight for a few vectors, so its time is that of reading memory. torch's own
matrix product reaches half of the memory's bandwidth with row-major weights; oneDNN reaches nearly
all of it with weights in the block layout of its kernels. A packed step computes what the plain
blocks compute, without dropout, with a packed copy of each matrix.

b rows, d width, v vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, KVCache
from cloze.nn.block import Block, FeedForward, GatedFeedForward, PostNormBlock, PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LMHead
from cloze.nn.layers import ACTIVATIONS, Activation

CACHE_DTYPE = torch.float32  # of packed steps
_ROWS = 8  # weights are packed for so many rows, a layout that is fast for one row as well
_MIN_STEPS = 16  # that repay the packing
_MIN_WEIGHTS = 1 << 20  # a smaller model is in the processor's caches anyway

Attend = Callable[[Attention, Tensor, AttentionContext], Tensor]  # n 3h d -> n (h d)

_FUSED_ACTIVATIONS: Mapping[Activation, tuple[str, str]] = {  # name and algorithm in oneDNN
    F.gelu: ("gelu", "none"),
    ACTIVATIONS["gelu_new"]: ("gelu", "tanh"),
    F.relu: ("relu", ""),
    F.tanh: ("tanh", ""),
}


def can_pack(model: Encoder) -> bool:
    """Whether a model's steps are faster with packed weights, and there is memory for a copy."""
    return all(map(is_packable, model.blocks)) and can_pack_weights(list(_weights(model)))


def can_pack_weights(weights: Sequence[Tensor]) -> bool:
    """Whether products with packed copies of these matrices are faster, and there is memory."""
    return (
        hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and torch.backends.mkldnn.is_available()
        and all(weight.device.type == "cpu" for weight in weights)
        and {weight.dtype for weight in weights} in ({torch.float32}, {torch.bfloat16})
        and (weights[0].dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
        and sum(weight.numel() for weight in weights) >= _MIN_WEIGHTS
        and 2 * sum(weight.nbytes for weight in weights) <= _available_memory()
    )


def is_packable(block: Block) -> bool:
    """Whether a block computes what `PackedBlock` does."""
    kind = type(block.attention)
    return (
        type(block) in (PreNormBlock, PostNormBlock)
        and block.cross_attention is None
        and type(block.ffn) in (FeedForward, GatedFeedForward)
        and (kind.forward, kind.compute_heads) == (Attention.forward, Attention.compute_heads)
    )


def list_linears(block: Block) -> tuple[nn.Linear, ...]:
    """The layers of a block whose matrices are packed."""
    return block.attention.qkv, block.attention.out, block.ffn.up, block.ffn.down


def _weights(model: Encoder) -> Iterator[Tensor]:
    """The matrices that are packed, the LM head's last."""
    for block in model.blocks:
        yield from (linear.weight for linear in list_linears(block))
    yield _lm_head_operands(model)[0]


def _lm_head_operands(model: Encoder) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the LM head."""
    head = model.task_heads[model.lm_head or ""]
    assert isinstance(head, LMHead)
    return model.embeddings.word.weight if head.weight is None else head.weight, head.bias


def identify_weight(weight: Tensor) -> tuple[int, int]:
    """Where a weight is, and how often it was changed."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def has_hooks(block: Block) -> bool:
    """Whether something observes or changes what a block computes."""
    parts = (block, block.attention, block.ffn, *list_linears(block))
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)


def _available_memory() -> float:
    """Bytes that a process can still allocate; unlimited if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else 1e15


class PackedLinear:
    """W·x + b, with an activation or a residual added, of a packed copy of W."""

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int) -> None:
        self.bias = bias
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        name, algorithm = _FUSED_ACTIVATIONS.get(activation, ("none", ""))  # type: ignore[arg-type]
        linear = torch.ops.mkldnn._linear_pointwise
        y: Tensor = linear(x, self.weight, self.bias, name, [], algorithm)
        return y if activation is None or name != "none" else activation(y)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Residual + W·x + b."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.weight, self.bias, "add"
        )
        return y


class AnyLinear(Protocol):
    """A linear layer of a block that is computed in another way."""

    def __call__(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        """activation(W·x + b)."""

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Residual + W·x + b."""


class PackedBlock:
    """Tokens through a block: one of each row if there is a cache, else those of a flat row."""

    def __init__(
        self,
        block: Block,
        pack: Callable[[nn.Linear], AnyLinear],
        attend: Attend | None = None,
    ) -> None:
        """`pack` makes the layers; `attend` computes attention without a cache."""
        self.qkv, self.out, self.up, self.down = map(pack, list_linears(block))
        self.attend = attend

    def __call__(
        self, block: Block, x: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        if isinstance(block, PreNormBlock):
            mixed = self._attend(block.attention, block.attention_norm(x), context, cache)
            x = self.out.add(mixed, x)
            return self.down.add(self._expand(block.ffn, block.ffn_norm(x)), x)
        assert isinstance(block, PostNormBlock)
        mixed = self._attend(block.attention, x, context, cache)
        x = block.attention_norm(self.out.add(mixed, x))
        return block.ffn_norm(self.down.add(self._expand(block.ffn, x), x))

    def _attend(
        self, attention: Attention, x: Tensor, context: AttentionContext, cache: KVCache | None
    ) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3 * attention.num_heads, -1))  # n 3h d
        if cache is None and self.attend is not None:
            return self.attend(attention, qkv.float(), context).to(x.dtype)
        qkv = qkv[:, None]  # b 1 3h d
        # attention of torch on a CPU is several times as fast in float32 as in bfloat16
        return attention.attend(qkv.float(), context, cache)[:, 0].to(x.dtype)

    def _expand(self, ffn: FeedForward, x: Tensor) -> Tensor:
        if isinstance(ffn, GatedFeedForward):
            value, gate = self.up(x).chunk(2, -1)
            return ffn.activation(value) * gate
        return self.up(x, ffn.activation)


class PackedStep:
    """One token of each row through the blocks and the LM head of a model: b d -> b v."""

    def __init__(self, model: Encoder) -> None:
        self._packed = [identify_weight(weight) for weight in _weights(model)]

        def pack(linear: nn.Linear) -> PackedLinear:
            return PackedLinear(linear.weight, linear.bias, _ROWS)

        self._blocks = [PackedBlock(block, pack) for block in model.blocks]
        self._lm_head = PackedLinear(*_lm_head_operands(model), _ROWS)

    def is_valid(self, model: Encoder) -> bool:
        """Whether it was made for the weights that the model has now."""
        return self._packed == [identify_weight(weight) for weight in _weights(model)]

    def __call__(
        self, model: Encoder, x: Tensor, context: AttentionContext, caches: Sequence[KVCache]
    ) -> Tensor:
        """The caches must be in `CACHE_DTYPE`."""
        for packed, block, cache in zip(self._blocks, model.blocks, caches, strict=True):
            x = packed(block, x, context, cache)
        return self._lm_head(model.lm_head_operands(model.norm(x))[0])

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a model has no packed weights."""
        return type(None), ()


def get_packed_step(model: Encoder, *, steps: int | None) -> PackedStep | None:
    """The packed step of a model, kept with it; None if its blocks must be called.

    Packing takes as long as several steps, so it is not done if fewer `steps` follow.
    """
    if any(map(has_hooks, model.blocks)):
        return None
    packed: PackedStep | None = model.__dict__.get("_packed_step")
    if packed is None or not packed.is_valid(model):
        is_worth_it = steps is None or steps >= _MIN_STEPS
        packed = PackedStep(model) if is_worth_it and can_pack(model) else None
        model.__dict__["_packed_step"] = packed
    return packed
