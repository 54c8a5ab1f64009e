"""Our kernels beside what torch compiles or has: milliseconds there, and there and back.

    python bench/kernels.py

At the sizes of a step of BERT base and of our own small model: 131,072 tokens in sequences of 128.
Needs CUDA. Each pair is timed in one run, ours and theirs in turn; gradients are computed anew.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from rich.table import Table
from torch import Tensor, ops
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.rotary import Turn, parted, turn_of
from common import tell, versions

TOKENS, LENGTH, WIDTH = 131_072, 128, 64
DEVICE, KIND = torch.device("cuda"), torch.bfloat16
Function = Callable[..., Tensor]


def milliseconds(call: Callable[[], object], rounds: int = 20) -> float:
    for _ in range(3):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(rounds):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / rounds


def timed(function: Function, inputs: list[Tensor]) -> tuple[float, float]:
    """There, and there and back."""
    slope = torch.randn_like(function(*inputs))
    with torch.no_grad():
        there = milliseconds(lambda: function(*inputs))
    both = milliseconds(lambda: torch.autograd.grad(function(*inputs), inputs, slope))
    return there, both


def compiled(function: Function) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def given(*shapes: tuple[int, ...], weights: int = 0) -> list[Tensor]:
    """Random numbers, the last `weights` of them in float32."""
    kinds = [KIND] * (len(shapes) - weights) + [torch.float32] * weights
    return [
        torch.randn(shape, device=DEVICE, dtype=kind, requires_grad=True)
        for shape, kind in zip(shapes, kinds, strict=True)
    ]


def gated(inner: Tensor) -> Tensor:
    value, gate = inner.chunk(2, -1)
    return F.gelu(value) * gate


def flash(qkv: Tensor, turn: Turn | None, bounds: Tensor, share: float) -> Tensor:
    places = torch.arange(TOKENS, device=DEVICE) % LENGTH
    parts = parted(qkv, None if turn is None else turn.at(places))
    return ops.aten._flash_attention_forward(
        *parts, bounds, bounds, LENGTH, LENGTH, share, False, False
    )[0]


def tiled(qkv: Tensor, turn: Turn | None, bounds: Tensor, share: float) -> Tensor:
    none = qkv.new_empty(0)
    cos, sin = (none, none) if turn is None else turn
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return ops.cloze.tile_attention(qkv, bounds, cos, sin, seed, LENGTH, LENGTH, share, False)


def normed(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    total = (x + F.dropout(y, share)).float()
    return F.layer_norm(total, (x.shape[-1],), weight, bias).to(x.dtype)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return ops.cloze.add_norm(x, y, weight, bias, seed, 1e-5, share)[0]


def pairs() -> dict[str, tuple[Function, Function, list[Tensor]]]:
    """Theirs, ours, and what both are given."""
    bounds = torch.arange(0, TOKENS + 1, LENGTH, device=DEVICE, dtype=torch.int32)
    found: dict[str, tuple[Function, Function, list[Tensor]]] = {}
    for name, heads, turn, share in (
        ("attention, 12 heads", 12, None, 0.0),
        ("attention, 12 heads, dropout", 12, None, 0.1),
        ("attention, 5 heads, rotary", 5, turn_of(LENGTH, WIDTH, device=DEVICE), 0.0),
    ):
        how = {"turn": turn, "bounds": bounds, "share": share}
        numbers = given((TOKENS, 3 * heads, WIDTH))
        found[name] = (compiled(partial(flash, **how)), partial(tiled, **how), numbers)
    for name, width, function, is_gated in (
        ("gelu, 3072", 3072, F.gelu, False),
        ("gated gelu, 2 × 864", 1728, gated, True),
    ):
        own = partial(ops.cloze.gelu, gated=is_gated)
        found[name] = (compiled(function), own, given((TOKENS, width)))
    for share in (0.0, 0.1):
        numbers = given((TOKENS, 768), (TOKENS, 768), (768,), (768,), weights=2)
        theirs, own = (partial(one, share=share) for one in (normed, add_norm))
        found[f"norm of a sum, 768, dropout {share}"] = (compiled(theirs), own, numbers)
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    assert kernels.usable(torch.empty(1, device=DEVICE, dtype=KIND)), "there is no Triton here"
    table = Table("", "torch", "cloze", "", "torch, and back", "cloze, and back", "")
    for name, (theirs, own, inputs) in pairs().items():
        (a, b), (c, d) = timed(theirs, inputs), timed(own, inputs)
        row = (f"{a:.3f}", f"{c:.3f}", f"{a / c:.2f} ×", f"{b:.3f}", f"{d:.3f}", f"{b / d:.2f} ×")
        table.add_row(name, *row)
        print(name, *row, flush=True)
    tell(table, f"milliseconds, {torch.cuda.get_device_name()}, {versions('torch')}")


if __name__ == "__main__":
    main()
