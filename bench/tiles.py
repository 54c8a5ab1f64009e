"""Find the fastest tile sizes of the Triton kernels; copy the last line into their constants.

    python bench/tiles.py
    python bench/tiles.py long_keys gelu

The constants are in src/cloze/nn/kernels. Takes two minutes on an H200, most of it in Triton's
compiler.
"""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from kernels import DEVICE, KIND, TOKENS, WIDTH, attention_inputs, milliseconds, rotary_table
from torch import ops

from cloze.nn import kernels

CANDIDATES: dict[str, list[tuple[int | None, ...]]] = {
    "tiles.long_forward": [
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
    "tiles.long_queries": [  # timed together with the next
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
    "tiles.long_keys": [
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
    "tiles.short_forward": [
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
    "tiles.short_backward": [  # the last: in two kernels, with the tiles of long sequences
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
    "gelu.BACKWARD": [
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
    "decode.LINEAR": [
        (4, 2048, 4),
        (4, 1024, 4),
        (2, 2048, 4),
        (8, 1024, 4),
        (8, 512, 4),
        (4, 512, 2),
        (4, 2048, 8),
        (8, 2048, 8),
        (1, 2048, 2),
        (2, 1024, 2),
        (16, 512, 8),
    ],
    "decode.ATTENTION": [(64, 4), (32, 4), (128, 4), (64, 2), (128, 8), (256, 8)],
    "add_norm.FORWARD": [(4096, 4), (2048, 4), (1024, 4), (8192, 8), (4096, 8), (2048, 2)],
    "add_norm.BACKWARD": [
        (264, 4, 3),
        (264, 4, 2),
        (264, 4, 4),
        (264, 8, 3),
        (396, 4, 3),
        (528, 4, 3),
        (132, 8, 3),
    ],
}


def attention_call(kernel: str, heads: int, rotary: bool, p: float) -> Callable[[], object]:
    """A call of this kernel, or of the whole backward pass."""
    length = 128 if "short" in kernel else 512
    qkv = torch.randn(TOKENS, 3 * heads, WIDTH, device=DEVICE, dtype=KIND)
    inputs = attention_inputs(qkv, rotary_table(length) if rotary else None, length)
    options = (length, length, p, False)
    if "forward" in kernel:
        return lambda: ops.cloze.attention(*inputs, *options)
    out, lse = ops.cloze.attention(*inputs, *options)
    grad_out = torch.randn_like(out)
    return lambda: ops.cloze.attention_backward(grad_out, *inputs, out, lse, *options)


def other_call(constant: str) -> Callable[[], object]:
    if constant.startswith("decode"):
        return decode_call(constant)
    if constant.startswith("add_norm"):
        x, y, grad_out = (torch.randn(TOKENS, 768, device=DEVICE, dtype=KIND) for _ in range(3))
        weight, seed = torch.ones(768, device=DEVICE), torch.zeros(1, device=DEVICE).int()
        if "FORWARD" in constant:
            return lambda: ops.cloze.add_norm(x, y, weight, weight, seed, weight, 1e-5, 0.1)
        _, total, mean, scale = ops.cloze.add_norm(x, y, weight, weight, seed, weight, 1e-5, 0.1)
        return lambda: ops.cloze.add_norm_backward(
            grad_out, total, weight, seed, weight, mean, scale, 0.1
        )
    inner, grad_out = (torch.randn(TOKENS, 3072, device=DEVICE, dtype=KIND) for _ in range(2))
    bias = torch.randn(3072, device=DEVICE)
    if constant == "gelu.FORWARD":
        return lambda: ops.cloze.gelu(inner, bias, False)
    return lambda: ops.cloze.gelu_backward(inner, bias, grad_out, False)


def decode_call(constant: str) -> Callable[[], object]:
    """The linear layers of eight blocks of a GPT-2 of 1.5 B, or attention of 48, to one token."""
    width = 1600

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=DEVICE, dtype=KIND)

    if constant == "decode.ATTENTION":
        caches, qkv = draw(48, 2, 1, 256, 25, 64), draw(1, 3 * width)
        slot = torch.tensor([200], device=DEVICE)
        mask = torch.ones(1, 256, dtype=torch.bool, device=DEVICE)
        return lambda: [kernels.decode.attention(qkv, cache, slot, mask) for cache in caches]
    norm = torch.nn.LayerNorm(width, device=DEVICE, dtype=KIND)
    x, inner = draw(1, width), draw(1, 4 * width)
    blocks = [
        (draw(3 * width, width), draw(width, width), draw(4 * width, width), draw(width, 4 * width))
        for _ in range(8)
    ]

    @torch.no_grad()
    def call() -> None:
        for qkv, out, up, down in blocks:
            kernels.decode.linear(x, qkv, None, norm=norm)
            kernels.decode.linear(x, out, None, residual=x)
            kernels.decode.linear(x, up, None, norm=norm, activation="gelu_tanh")
            kernels.decode.linear(inner, down, None, residual=x)

    return call


def find_fastest(constant: str, candidates: list[Any], call: Callable[[], object]) -> Any:
    """The fastest, which stays set: of MODULE.CONSTANT, or of a field of it."""
    module, name, *field = constant.split(".")
    place, timed = getattr(kernels, module), []
    before = getattr(place, name)

    def put(candidate: Any) -> None:
        setattr(place, name, before._replace(**{field[0]: candidate}) if field else candidate)

    print(constant, flush=True)
    for one in candidates:
        put(one)
        try:
            timed.append((milliseconds(call, 10), one))
            print(f"   {timed[-1][0]:7.3f} ms  {one}", flush=True)
        except Exception as error:  # it may not fit the chip
            print(f"   fails       {one}: {str(error).strip().splitlines()[0][:100]}", flush=True)
    best = min(timed, key=lambda pair: pair[0])[1]
    put(best)
    return best


def time_constant(name: str) -> dict[str, Any]:
    """The fastest candidate for each constant of this name."""
    module, _, constant = name.partition(".")
    place = getattr(kernels, module)
    if module != "tiles":
        candidates = [type(getattr(place, constant))(*one) for one in CANDIDATES[name]]
        return {name: find_fastest(name, candidates, other_call(name))}
    candidates = [place.Tiles(*one) for one in CANDIDATES[name]]
    models = {"PLAIN": (12, False, 0.1), "ROTARY": (5, True, 0.0)}  # BERT-base, our small model
    return {
        full: find_fastest(full, candidates, attention_call(constant, *options))
        for full, options in (
            (f"tiles.{model}.{constant}", options) for model, options in models.items()
        )
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of constants (default: all)")
    wanted = parser.parse_args().names
    example = torch.empty(1, device=DEVICE, dtype=KIND)
    assert kernels.is_supported(example), "Triton is not installed"
    import_module("cloze.nn.kernels.decode")
    # a candidate that does not fit must fail instead of being replaced by small tiles
    kernels.tiles.estimate_shared_bytes = lambda *_, **__: 0
    best: dict[str, Any] = {}
    for name in CANDIDATES:
        if not wanted or any(part in name for part in wanted):
            best |= time_constant(name)
    for name, tiles in best.items():
        print(f"{name} = {tiles}")


if __name__ == "__main__":
    main()
