"""Our kernels beside what torch compiles or has: milliseconds there, and there and back.

    python bench/kernels.py --lengths 128 512
    python bench/kernels.py --sweep

At the sizes of a step of BERT base and of our own small model: 131,072 tokens. Needs CUDA. Each
pair is timed in one run, ours and theirs in turn; gradients are computed anew. With --sweep: which
of a few ways to cut each kernel is the fastest. The best goes into the constant of that name in
src/cloze/nn/kernels.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, ops
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.rotary import Turn, parted, turn_of
from common import tell, versions

TOKENS, WIDTH = 131_072, 64
DEVICE, KIND = torch.device("cuda"), torch.bfloat16
Function = Callable[..., Tensor]


def milliseconds(call: Callable[[], object], rounds: int = 20) -> float:
    for _ in range(3):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(60_000_000)  # some 30 ms, so that all is asked for before the first begins
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


def bounds_of(length: int) -> Tensor:
    return torch.arange(0, TOKENS + 1, length, device=DEVICE, dtype=torch.int32)


def flash(qkv: Tensor, turn: Turn | None, length: int, share: float) -> Tensor:
    places = torch.arange(TOKENS, device=DEVICE) % length
    parts = parted(qkv, None if turn is None else turn.at(places))
    bounds = bounds_of(length)
    return ops.aten._flash_attention_forward(
        *parts, bounds, bounds, length, length, share, False, False
    )[0]


def attention_inputs(qkv: Tensor, turn: Turn | None, length: int) -> tuple[Tensor, ...]:
    none = qkv.new_empty(0)
    cos, sin = (none, none) if turn is None else turn
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return qkv, bounds_of(length), cos, sin, seed


def attended(qkv: Tensor, turn: Turn | None, length: int, share: float) -> Tensor:
    inputs = attention_inputs(qkv, turn, length)
    return ops.cloze.attention(*inputs, length, length, share, False)[0]


def normed(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    total = (x + F.dropout(y, share)).float()
    return F.layer_norm(total, (x.shape[-1],), weight, bias).to(x.dtype)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, share: float) -> Tensor:
    seed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return ops.cloze.add_norm(x, y, weight, bias, seed, None, 1e-5, share)[0]


def pairs(lengths: list[int]) -> dict[str, tuple[Function, Function, list[Tensor]]]:
    """Theirs, ours, and what both are given."""
    found: dict[str, tuple[Function, Function, list[Tensor]]] = {}
    for length in lengths:
        for name, heads, turn, share in (
            (f"attention, {length}, 12 heads", 12, None, 0.0),
            (f"attention, {length}, 12 heads, dropout", 12, None, 0.1),
            (f"attention, {length}, 5 heads, rotary", 5, turned(length), 0.0),
        ):
            how = {"turn": turn, "length": length, "share": share}
            numbers = given((TOKENS, 3 * heads, WIDTH))
            found[name] = (compiled(partial(flash, **how)), partial(attended, **how), numbers)
    found["gelu, 3072, with its bias"] = (
        compiled(lambda inner, bias: F.gelu(inner + bias.to(KIND))),
        lambda inner, bias: ops.cloze.gelu(inner, bias, False),
        given((TOKENS, 3072), (3072,), weights=1),
    )
    found["gated gelu, 2 × 864"] = (
        compiled(gated),
        lambda inner: ops.cloze.gelu(inner, None, True),
        given((TOKENS, 1728)),
    )
    for share in (0.0, 0.1):
        numbers = given((TOKENS, 768), (TOKENS, 768), (768,), (768,), weights=2)
        theirs, own = (partial(one, share=share) for one in (normed, add_norm))
        found[f"norm of a sum, 768, dropout {share}"] = (compiled(theirs), own, numbers)
    return found


def turned(length: int) -> Turn:
    return turn_of(length, WIDTH, device=DEVICE)


SECONDS = 240  # a sweep ends after them, wherever it is
SWEPT: dict[str, list[tuple[int | None, ...]]] = {
    "attention.LONG_FORWARD": [
        (128, 64, 8, 3),
        (128, 64, 8, 2),
        (128, 64, 4, 3),
        (128, 128, 8, 2),
        (64, 64, 4, 3),
        (64, 64, 4, 2),
        (64, 128, 4, 2),
        (128, 64, 4, 2),
        (128, 32, 4, 3),
        (64, 64, 4, 4),
        (128, 128, 8, 3),
        (64, 32, 4, 3),
    ],
    "attention.LONG_QUERIES": [  # timed together with the next
        (128, 64, 8, 2, 128),
        (128, 64, 8, 3, 128),
        (128, 64, 8, 2),
        (128, 128, 8, 2),
        (64, 64, 4, 2),
        (64, 64, 4, 3, 128),
        (64, 64, 4, 2, 168),
        (128, 64, 4, 2),
        (64, 128, 4, 2),
        (128, 32, 8, 3, 128),
        (64, 32, 4, 3, 128),
        (128, 32, 4, 2),
    ],
    "attention.LONG_KEYS": [
        (64, 64, 4, 2, 168),
        (64, 64, 4, 2),
        (64, 64, 4, 3, 168),
        (128, 64, 8, 2, 128),
        (128, 64, 8, 2),
        (128, 32, 8, 2, 128),
        (64, 32, 4, 2, 128),
        (64, 128, 8, 2),
        (64, 128, 4, 2),
        (32, 64, 4, 3),
        (128, 128, 8, 2),
        (32, 128, 8, 2),
        (32, 128, 4, 2),
    ],
    "attention.SHORT_FORWARD": [
        (128, 64, 8, 2),
        (128, 64, 8, 1),
        (128, 64, 4, 2),
        (128, 128, 8, 1),
        (64, 128, 4, 1),
        (64, 64, 4, 2),
        (128, 32, 8, 2),
        (128, 32, 4, 2),
        (128, 128, 4, 1),
    ],
    "attention.SHORT_REVERSE": [  # the last: in two kernels, cut as the long ones are
        (128, 32, 8, 2, 128),
        (128, 32, 8, 1, 128),
        (128, 64, 8, 2, 128),
        (128, 64, 8, 2),
        (128, 64, 8, 1),
        (128, 128, 8, 1),
        (128, 32, 4, 2),
        (128, 64, 4, 1),
        (128, 32, 8, 3, 128),
        (128, 16, 8, 3, 128),
        (64, 64, 4, 1),
    ],
    "gelu.FORWARD": [
        (1024, 1, 4, 1),
        (1024, 2, 4, 1),
        (1024, 4, 4, 1),
        (1024, 8, 4, 2),
        (512, 1, 2, 1),
        (2048, 1, 8, 1),
    ],
    "gelu.REVERSE": [
        (1024, 128, 4, 3),
        (1024, 128, 4, 1),
        (1024, 64, 4, 2),
        (512, 128, 2, 3),
        (1024, 256, 4, 4),
        (1024, 32, 4, 1),
        (1024, 128, 8, 3),
        (1024, 16, 4, 1),
        (512, 64, 4, 2),
        (2048, 64, 8, 2),
    ],
    "add_norm.FORWARD": [(4096, 4), (2048, 4), (1024, 4), (8192, 8), (4096, 8), (2048, 2)],
    "add_norm.REVERSE": [
        (528, 4, 3, 128),
        (528, 4, 2, 128),
        (528, 4, 1, 128),
        (1056, 4, 3, 128),
        (396, 4, 3, 168),
        (264, 8, 2, 128),
        (528, 4, 4, 128),
        (792, 4, 2, 128),
        (528, 8, 2, 64),
        (264, 4, 3, None),
        (264, 8, 3, 128),
    ],
}


def attention_call(constant: str, heads: int, rotary: bool, share: float) -> Callable[[], object]:
    """The kernel, or all on the way back, that this constant cuts."""
    length = 128 if "SHORT" in constant else 512
    qkv = torch.randn(TOKENS, 3 * heads, WIDTH, device=DEVICE, dtype=KIND)
    inputs = attention_inputs(qkv, turned(length) if rotary else None, length)
    how = (length, length, share, False)
    if "FORWARD" in constant:
        return lambda: ops.cloze.attention(*inputs, *how)
    out, logs = ops.cloze.attention(*inputs, *how)
    slope = torch.randn_like(out)
    return lambda: ops.cloze.attention_backward(slope, *inputs, out, logs, *how)


def other_call(constant: str) -> Callable[[], object]:
    if constant.startswith("add_norm"):
        x, y, slope = (torch.randn(TOKENS, 768, device=DEVICE, dtype=KIND) for _ in range(3))
        weight, seed = torch.ones(768, device=DEVICE), torch.zeros(1, device=DEVICE).int()
        if "FORWARD" in constant:
            return lambda: ops.cloze.add_norm(x, y, weight, weight, seed, weight, 1e-5, 0.1)
        _, *kept = ops.cloze.add_norm(x, y, weight, weight, seed, weight, 1e-5, 0.1)
        total, mean, scale = kept
        return lambda: ops.cloze.add_norm_backward(
            slope, total, weight, seed, weight, mean, scale, 0.1
        )
    inner, slope = (torch.randn(TOKENS, 3072, device=DEVICE, dtype=KIND) for _ in range(2))
    bias = torch.randn(3072, device=DEVICE)
    if constant == "gelu.FORWARD":
        return lambda: ops.cloze.gelu(inner, bias, False)
    return lambda: ops.cloze.gelu_backward(inner, bias, slope, False)


def best_of(constant: str, ways: list[Any], call: Callable[[], object], until: float) -> list[Any]:
    """All that work, the fastest first, which stays set."""
    module, _, name = constant.partition(".")
    place, found = getattr(kernels, module), []
    before = getattr(place, name)
    for way in ways:
        if time.monotonic() > until:
            print("   no time is left for the rest")
            break
        setattr(place, name, way)
        try:
            found.append((milliseconds(call, 10), way))
            print(f"   {found[-1][0]:7.3f} ms  {way}", flush=True)
        except Exception as error:  # a way that does not fit the chip is no reason to stop
            print(f"   fails       {way}: {str(error).strip().splitlines()[0][:100]}", flush=True)
    found.sort(key=lambda one: one[0])
    setattr(place, name, found[0][1] if found else before)
    return [way for _, way in found]


def tell_long(name: str, function: Function) -> None:
    there, both = timed(
        partial(function, turn=None, length=512, share=0.1), given((TOKENS, 36, WIDTH))
    )
    print(f"{name}, 512, 12 heads, dropout: {there:.3f} ms, and back {both:.3f} ms", flush=True)


def sweep() -> None:
    until = time.monotonic() + SECONDS
    tell_long("flash attention", flash)
    for constant, table in SWEPT.items():
        module, _, name = constant.partition(".")
        place = getattr(kernels, module)
        ways = [type(getattr(place, name))(*way) for way in table]
        print(constant, flush=True)
        if module == "attention":
            best = best_of(constant, ways, attention_call(constant, 12, False, 0.1), until)
            print("   with 5 heads, rotary, no dropout:")
            best_of(constant, ways, attention_call(constant, 5, True, 0.0), until)
            setattr(place, name, best[0] if best else ways[0])
        else:
            best = best_of(constant, ways, other_call(constant), until)
        if best:
            print(f"{constant} = {best[0]}", flush=True)
    tell_long("cloze, so cut", attended)


def compare(lengths: list[int]) -> None:
    table = Table("", "torch", "cloze", "", "torch, and back", "cloze, and back", "")
    for name, (theirs, own, inputs) in pairs(lengths).items():
        (a, b), (c, d) = timed(theirs, inputs), timed(own, inputs)
        row = (f"{a:.3f}", f"{c:.3f}", f"{a / c:.2f} ×", f"{b:.3f}", f"{d:.3f}", f"{b / d:.2f} ×")
        table.add_row(name, *row)
        print(name, *row, flush=True)
    tell(table, f"milliseconds, {torch.cuda.get_device_name()}, {versions('torch')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", nargs="*", type=int, default=[128, 512], help="of sequences")
    parser.add_argument("--sweep", action="store_true", help="ways to cut our kernels instead")
    args = parser.parse_args()
    assert kernels.usable(torch.empty(1, device=DEVICE, dtype=KIND)), "there is no Triton here"
    if args.sweep:
        sweep()
    else:
        compare(args.lengths)


if __name__ == "__main__":
    main()
