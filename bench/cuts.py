"""Which way to cut each of our kernels is the fastest; what is found goes into its constant.

    python bench/cuts.py
    python bench/cuts.py long_keys gelu

In src/cloze/nn/kernels stand the constants that are printed last. Two minutes on an H200, most of
them for Triton's compiler.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from kernels import DEVICE, KIND, TOKENS, WIDTH, attention_inputs, milliseconds, rotary_table
from torch import ops

from cloze.nn import kernels

WAYS: dict[str, list[tuple[int | None, ...]]] = {
    "attention.long_forward": [
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
    "attention.long_queries": [  # timed together with the next
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
    "attention.long_keys": [
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
    "attention.short_forward": [
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
    "attention.short_reverse": [  # the last: in two kernels, cut as the long ones are
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
        (264, 4, 3),
        (264, 4, 2),
        (264, 4, 4),
        (264, 8, 3),
        (396, 4, 3),
        (528, 4, 3),
        (132, 8, 3),
    ],
}


def attention_call(kernel: str, heads: int, rotary: bool, share: float) -> Callable[[], object]:
    """This kernel, or all on the way back."""
    length = 128 if "short" in kernel else 512
    qkv = torch.randn(TOKENS, 3 * heads, WIDTH, device=DEVICE, dtype=KIND)
    inputs = attention_inputs(qkv, rotary_table(length) if rotary else None, length)
    how = (length, length, share, False)
    if "forward" in kernel:
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


def best_of(constant: str, ways: list[Any], call: Callable[[], object]) -> Any:
    """The fastest, which stays set: of MODULE.CONSTANT, or of a field of it."""
    module, name, *field = constant.split(".")
    place, found = getattr(kernels, module), []
    before = getattr(place, name)

    def put(way: Any) -> None:
        setattr(place, name, before._replace(**{field[0]: way}) if field else way)

    print(constant, flush=True)
    for way in ways:
        put(way)
        try:
            found.append((milliseconds(call, 10), way))
            print(f"   {found[-1][0]:7.3f} ms  {way}", flush=True)
        except Exception as error:  # a way that does not fit the chip is no reason to stop
            print(f"   fails       {way}: {str(error).strip().splitlines()[0][:100]}", flush=True)
    best = min(found, key=lambda one: one[0])[1]
    put(best)
    return best


def cut(name: str) -> dict[str, Any]:
    """The best way for each constant of this name."""
    module, _, constant = name.partition(".")
    place = getattr(kernels, module)
    if module != "attention":
        ways = [type(getattr(place, constant))(*way) for way in WAYS[name]]
        return {name: best_of(name, ways, other_call(name))}
    ways = [place.Tiles(*way) for way in WAYS[name]]
    models = {"PLAIN": (12, False, 0.1), "TURNED": (5, True, 0.0)}  # BERT base, and our small one
    return {
        one: best_of(one, ways, attention_call(constant, *how))
        for one, how in ((f"attention.{model}.{constant}", how) for model, how in models.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names; else all")
    wanted = parser.parse_args().names
    assert kernels.is_supported(torch.empty(1, device=DEVICE, dtype=KIND)), (
        "there is no Triton here"
    )
    best: dict[str, Any] = {}
    for name in WAYS:
        if not wanted or any(part in name for part in wanted):
            best |= cut(name)
    for name, way in best.items():
        print(f"{name} = {way}")


if __name__ == "__main__":
    main()
