"""The Triton kernels of cloze and the kernels of torch: milliseconds of forward and backward.

    python bench/kernels.py --lengths 128 512

The sizes are those of a step of BERT-base and of the preset `cloze`: 131,072 tokens. Needs CUDA.
Both kernels of a pair are measured alternately in one run; gradients are not accumulated.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from rich.table import Table
from torch import Tensor, ops
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.positions import RotaryTable, apply_rotary, compute_rotary_table
from common import print_result, versions

TOKENS, WIDTH = 131_072, 64
DEVICE, KIND = torch.device("cuda"), torch.bfloat16
Function = Callable[..., Tensor]


def milliseconds(call: Callable[[], object], rounds: int = 20) -> float:
    for _ in range(3):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(
        60_000_000
    )  # about 30 ms, so that all calls are queued before the first starts
    start.record()
    for _ in range(rounds):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / rounds


def measure_passes(function: Function, inputs: list[Tensor]) -> tuple[float, float]:
    """There, and there and back."""
    slope = torch.randn_like(function(*inputs))
    with torch.no_grad():
        there = milliseconds(lambda: function(*inputs))
    both = milliseconds(lambda: torch.autograd.grad(function(*inputs), inputs, slope))
    return there, both


def compile_function(function: Function) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def random_inputs(*shapes: tuple[int, ...], weights: int = 0) -> list[Tensor]:
    """Random numbers, the last `weights` of them in float32."""
    kinds = [KIND] * (len(shapes) - weights) + [torch.float32] * weights
    return [
        torch.randn(shape, device=DEVICE, dtype=kind, requires_grad=True)
        for shape, kind in zip(shapes, kinds, strict=True)
    ]


def gated_unit(inner: Tensor) -> Tensor:
    value, gate = inner.chunk(2, -1)
    return F.gelu(value) * gate


def bounds_of(length: int) -> Tensor:
    return torch.arange(0, TOKENS + 1, length, device=DEVICE, dtype=torch.int32)


def split_qkv(qkv: Tensor, table: RotaryTable | None, positions: Tensor) -> tuple[Tensor, ...]:
    query, key, value = qkv.chunk(3, -2)
    if table is not None:
        both = qkv[..., : 2 * query.shape[-2], :]  # rotated in one pass
        query, key = apply_rotary(both, table.select(positions)).chunk(2, -2)
    return query, key, value


def flash(qkv: Tensor, turn: RotaryTable | None, length: int, share: float) -> Tensor:
    parts = split_qkv(qkv, turn, torch.arange(TOKENS, device=DEVICE) % length)
    bounds = bounds_of(length)
    return ops.aten._flash_attention_forward(
        *parts, bounds, bounds, length, length, share, False, False
    )[0]


def attention_inputs(qkv: Tensor, turn: RotaryTable | None, length: int) -> tuple[Tensor, ...]:
    none = qkv.new_empty(0)
    cos, sin = (none, none) if turn is None else turn
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return qkv, bounds_of(length), cos, sin, seed


def compute_attention(qkv: Tensor, turn: RotaryTable | None, length: int, share: float) -> Tensor:
    inputs = attention_inputs(qkv, turn, length)
    return ops.cloze.attention(*inputs, length, length, share, False)[0]


def add_and_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    total = (x + F.dropout(y, share)).float()
    return F.layer_norm(total, (x.shape[-1],), weight, bias).to(x.dtype)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return ops.cloze.add_norm(x, y, weight, bias, seed, None, 1e-5, share)[0]


def pairs(lengths: list[int]) -> dict[str, tuple[Function, Function, list[Tensor]]]:
    """The kernel of torch, that of cloze, and their inputs."""
    found: dict[str, tuple[Function, Function, list[Tensor]]] = {}
    for length in lengths:
        for name, heads, turn, share in (
            (f"attention, {length}, 12 heads", 12, None, 0.0),
            (f"attention, {length}, 12 heads, dropout", 12, None, 0.1),
            (f"attention, {length}, 5 heads, rotary", 5, rotary_table(length), 0.0),
        ):
            how = {"turn": turn, "length": length, "share": share}
            numbers = random_inputs((TOKENS, 3 * heads, WIDTH))
            found[name] = (
                compile_function(partial(flash, **how)),
                partial(compute_attention, **how),
                numbers,
            )
    found["gelu, 3072, with its bias"] = (
        compile_function(lambda inner, bias: F.gelu(inner + bias.to(KIND))),
        lambda inner, bias: ops.cloze.gelu(inner, bias, False),
        random_inputs((TOKENS, 3072), (3072,), weights=1),
    )
    found["gated gelu, 2 × 864"] = (
        compile_function(gated_unit),
        lambda inner: ops.cloze.gelu(inner, None, True),
        random_inputs((TOKENS, 1728)),
    )
    for share in (0.0, 0.1):
        numbers = random_inputs((TOKENS, 768), (TOKENS, 768), (768,), (768,), weights=2)
        theirs, own = (partial(one, share=share) for one in (add_and_norm, add_norm))
        found[f"norm of a sum, 768, dropout {share}"] = (compile_function(theirs), own, numbers)
    return found


def rotary_table(length: int) -> RotaryTable:
    return compute_rotary_table(length, WIDTH, device=DEVICE)


def compare(lengths: list[int]) -> None:
    table = Table("", "torch", "cloze", "", "torch, and back", "cloze, and back", "")
    for name, (theirs, own, inputs) in pairs(lengths).items():
        (a, b), (c, d) = measure_passes(theirs, inputs), measure_passes(own, inputs)
        row = (f"{a:.3f}", f"{c:.3f}", f"{a / c:.2f} ×", f"{b:.3f}", f"{d:.3f}", f"{b / d:.2f} ×")
        table.add_row(name, *row)
        print(name, *row, flush=True)
    print_result(table, f"milliseconds, {torch.cuda.get_device_name()}, {versions('torch')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", nargs="*", type=int, default=[128, 512], help="of sequences")
    args = parser.parse_args()
    assert kernels.is_supported(torch.empty(1, device=DEVICE, dtype=KIND)), (
        "there is no Triton here"
    )
    compare(args.lengths)


if __name__ == "__main__":
    main()
