"""Cross-entropy over a large vocabulary in little memory.  m vectors, d width, v vocabulary.

The logits of all masked positions are the largest tensor of a small model's step: 1.2 GB in
bfloat16 with 30,000 tokens and 20,000 positions, and as much again for their gradient. Here they
are computed for a few thousand positions at a time, together with the gradients of the hidden
vectors and of the weight (Hsu et al. 2024, Liger kernel).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.nn import kernels

CHUNK_SIZE = 8192  # positions at a time
# On a CPU: positions whose logits are in memory at a time, and logits in a cache (4 MB).
_CPU_CHUNK_SIZE, _CPU_BLOCK = 1024, 1 << 20
# a matrix product on a GPU takes three times as long with 30,522 tokens as with 30,528
_VOCAB_MULTIPLE = 64
ChunkLoss: TypeAlias = Callable[
    [Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor, Tensor]
]


def fused_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    chunk: int = CHUNK_SIZE,
    is_static: bool = True,
) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(hidden·weightᵀ + bias)[target], and how many targets have the top logit.

    Products are computed in the dtype of `hidden`, the softmax in float32. Targets of IGNORE_INDEX
    are left out. With `is_static` the number of vectors is the same in all calls, so that it is
    worth to compile what a GPU has no kernel for (float32).
    """
    loss, hits, _ = _apply(hidden, weight, bias, _Options(targets, None, chunk, is_static))
    return loss, hits


def fused_linear_sample(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    draws: Tensor,
    *,
    chunk: int = CHUNK_SIZE,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and a token sampled from the softmax of each vector: m ids, without a gradient.

    `draws` are m uniform numbers from [0, 1), for inverse transform sampling.
    """
    return _apply(hidden, weight, bias, _Options(targets, draws, chunk))


class _Options(NamedTuple):
    targets: Tensor
    draws: Tensor | None
    chunk: int
    is_static: bool = True


def _apply(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, options: _Options
) -> tuple[Tensor, Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor, Tensor] = _FusedLinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, options
    )
    return outputs


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, for a loss that is scaled by a scalar."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        options: _Options,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            return _forward(ctx, hidden, weight, bias, options)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        return (
            grad_hidden * grad.to(grad_hidden.dtype),
            grad_weight * grad,
            None if grad_bias is None else grad_bias * grad,
            None,
        )


def _forward(
    ctx: Any,  # noqa: ANN401
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    options: _Options,
) -> tuple[Tensor, Tensor, Tensor]:
    vocab_size = len(weight)
    padded_weight, padded_bias = _pad_vocabulary(weight, bias, hidden.dtype)  # v d, v
    needs_grad = any(ctx.needs_input_grad)
    grad_hidden = torch.empty_like(hidden) if needs_grad else None
    grad_weight = torch.zeros_like(padded_weight, dtype=weight.dtype) if needs_grad else None
    has_bias = needs_grad and bias is not None
    grad_bias = (
        padded_weight.new_zeros(len(padded_weight), dtype=weight.dtype) if has_bias else None
    )
    loss = hidden.new_zeros((), dtype=torch.float32)
    hits = torch.zeros_like(loss)
    sampled = [options.targets[:0]]
    size = min(options.chunk, _CPU_CHUNK_SIZE) if hidden.device.type == "cpu" else options.chunk
    for start in range(0, len(hidden), size):
        chunk = slice(start, start + size)
        draws = None if options.draws is None else options.draws[chunk]
        logits = F.linear(hidden[chunk], padded_weight, padded_bias)  # chunk v
        chunk_loss, chunk_hits, grad, samples = _compute_chunk_loss(
            *(logits, options.targets[chunk], draws, grad_bias),
            is_compiled=logits.is_cuda and options.is_static,
        )
        loss, hits = loss + chunk_loss, hits + chunk_hits
        sampled.append(samples)
        if grad_hidden is not None and grad_weight is not None:
            grad_hidden[chunk] = grad @ padded_weight
            grad_weight += grad.T @ hidden[chunk]
    unpadded = (None if part is None else part[:vocab_size] for part in (grad_weight, grad_bias))
    ctx.save_for_backward(grad_hidden, *unpadded)
    ids = torch.cat(sampled)
    ctx.mark_non_differentiable(hits, ids)
    return loss, hits, ids


def _pad_vocabulary(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Weight and bias, on a GPU padded to a multiple with tokens that have a logit of −∞."""
    padded_weight, padded_bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    missing = -len(weight) % _VOCAB_MULTIPLE
    if weight.is_cuda and missing:
        padded_weight = F.pad(padded_weight, (0, 0, 0, missing))
        if padded_bias is None:
            padded_bias = padded_weight.new_zeros(len(weight))
        padded_bias = F.pad(padded_bias, (0, missing), value=-torch.inf)
    return padded_weight, padded_bias


def _compute_chunk_loss(
    logits: Tensor,
    targets: Tensor,
    draws: Tensor | None,
    grad_bias: Tensor | None,
    *,
    is_compiled: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`_compute_plain_chunk_loss`, on a GPU with a kernel or compiled, on a CPU in blocks.

    The gradient of the bias is added to `grad_bias`.
    """
    if logits.device.type == "cpu":
        return _compute_cpu_chunk_loss(logits, targets, draws, grad_bias)
    if draws is None and kernels.is_supported(logits):
        losses, hits, grad = torch.ops.cloze.cross_entropy(logits, targets)
        found = losses.sum(), hits.sum(), grad, targets[:0]
    else:
        compute = _compile_chunk_loss() if is_compiled else _compute_plain_chunk_loss
        found = compute(logits, targets, draws)
    if grad_bias is not None:
        grad_bias += found[2].sum(0, dtype=grad_bias.dtype)
    return found


def _compute_plain_chunk_loss(
    logits: Tensor, targets: Tensor, draws: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, hits, gradient of the logits, and sampled tokens; none without draws."""
    is_target = targets != IGNORE_INDEX
    target = targets.clamp(min=0)[:, None]
    log_probs = logits.float().log_softmax(-1)
    loss = -(log_probs.gather(1, target).squeeze(1) * is_target).sum()
    hits = ((logits.argmax(-1) == targets) & is_target).sum().float()
    ids = torch.arange(logits.shape[-1], device=logits.device)
    probs = log_probs.exp()
    grad = (probs - (ids == target).float()) * is_target[:, None]
    samples = targets[:0]
    if draws is not None:
        below = probs.cumsum(-1) <= draws[:, None]
        samples = below.sum(-1).clamp(max=len(ids) - 1)  # rounding may leave the sum short of 1
    return loss, hits, grad.to(logits.dtype), samples


def _compute_cpu_chunk_loss(
    logits: Tensor, targets: Tensor, draws: Tensor | None, grad_bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same; the gradient replaces the logits.

    Tensors of all logits would be written to memory and read again by each operation, so a few rows
    at a time are computed in a buffer that stays in the cache. The loss is log Σ exp(z − max z) −
    (z[target] − max z), where the sum is the reciprocal of the highest probability.
    """
    vocab_size = logits.shape[-1]
    rows = max(1, _CPU_BLOCK // vocab_size)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    buffers = logits.new_empty((2, min(rows, len(logits)), vocab_size), dtype=dtype)
    losses, hits, samples = [buffers.new_zeros(())], [buffers.new_zeros(())], [targets[:0]]
    for start in range(0, len(logits), rows):
        block, ids = logits[start : start + rows], targets[start : start + rows]
        upcast, probs = buffers[:, : len(block)]
        upcast.copy_(block)
        torch.softmax(upcast, -1, out=probs)
        if draws is not None:
            below = probs.cumsum(-1) <= draws[start : start + rows, None]
            samples.append(below.sum(-1).clamp(max=vocab_size - 1))
        is_target, target = ids != IGNORE_INDEX, ids.clamp(min=0)[:, None]
        target_logits, top_logits = upcast.gather(1, target).squeeze(1), upcast.amax(-1)
        loss = -probs.amax(-1).log() - (target_logits - top_logits)
        losses.append(torch.where(is_target, loss, 0.0).sum())
        # several tokens may have the top logit: the first one counts
        is_top = (is_target & (target_logits >= top_logits)).nonzero().squeeze(1)
        hits.append((upcast[is_top].max(-1).indices == ids[is_top]).sum().to(dtype))
        probs.scatter_add_(1, target, probs.new_full((1, 1), -1.0).expand_as(target))
        if not is_target.all():
            probs[~is_target] = 0
        if grad_bias is not None:
            grad_bias += probs.sum(0)
        block.copy_(probs)
    return torch.stack(losses).sum(), torch.stack(hits).sum(), logits, torch.cat(samples)


@cache
def _compile_chunk_loss() -> ChunkLoss:
    """Compiled on first use: importing the compiler is slow."""
    return torch.compile(_compute_plain_chunk_loss, dynamic=False)
