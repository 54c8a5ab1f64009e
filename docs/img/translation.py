"""Draws the pictures of docs/seq2seq.md and docs/transformer.md: python docs/img/translation.py.

Given a translator's folder and a sentence it draws that model's alignment, too.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import cloze
from cloze.nn.positions import sinusoids
from cloze.plot.alignment import AlignmentLines, alignment_heat
from cloze.plot.cells import Cells
from cloze.plot.chart import LineChart, Series
from cloze.plot.heat import Heat

HERE = Path(__file__).parent


def softmax_saturates() -> LineChart:
    """Of [a, a, 2a]: the third share, and its gradient."""
    points = [n / 10 for n in range(1, 151)]
    shares, slopes = [], []
    for a in points:
        x = torch.tensor([a, a, 2 * a], dtype=torch.float64, requires_grad=True)
        y = x.softmax(-1)[2]
        y.backward()
        shares.append(y.item())
        slopes.append(x.grad[2].item())
    return LineChart(
        title="softmax of [a, a, 2a]",
        x_label="a",
        include=[0, 1],
        series=[
            Series(name="third share", x=points, y=shares),
            Series(name="its gradient", x=points, y=slopes),
        ],
    )


def dot_products_grow() -> LineChart:
    """The variance of q·k for unit-variance q and k, with and without ÷√d."""
    rng = torch.Generator().manual_seed(0)
    widths = [4, 8, 16, 32, 64, 128, 256]
    found = []
    for width in widths:
        q, k = (torch.randn(20_000, width, generator=rng) for _ in range(2))
        found.append((q * k).sum(1).var().item())
    scaled = [one / width for one, width in zip(found, widths, strict=True)]
    return LineChart(
        title="variance of q·k",
        x_label="width d",
        series=[
            Series(name="q·k", x=widths, y=found),
            Series(name="q·k ÷ √d", x=widths, y=scaled),
            Series(name="d", x=widths, y=widths, style="reference"),
        ],
    )


def waves() -> Cells:
    """Positions 0 … 63, a row each, in 32 numbers."""
    return Cells(
        title="sinusoidal positions 0 … 63, interleaved: 32 numbers each",
        rows=["" if n % 8 else str(n) for n in range(64)],
        values=sinusoids(64, 32).tolist(),
        limit=1.0,
        unit="",
    )


def vanishing() -> LineChart:
    """How much the last state feels a word so many steps before it."""
    series = []
    for kind in ("rnn", "gru", "lstm"):
        torch.manual_seed(0)
        net = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](8, 32, batch_first=True)
        if kind == "lstm":
            with torch.no_grad():
                net.bias_ih_l0[32:64].fill_(1.0)
        x = torch.randn(64, 40, 8, requires_grad=True)
        net(x)[0][:, -1].sum().backward()
        felt = x.grad.norm(dim=-1).mean(0).flip(0)
        steps = list(range(40))
        series.append(Series(name=kind, x=steps, y=(felt / felt[0]).tolist()))
    return LineChart(
        title="gradient of the last state, fresh weights",
        x_label="steps back",
        y_label="share",
        log=True,
        series=series,
    )


def tom() -> Heat:
    """The example of the notes, with numbers of our own where they give none."""
    return alignment_heat(
        ["Tom", "chase", "Jerry"],
        ["汤姆", "追逐", "杰瑞"],
        [[0.6, 0.2, 0.2], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5]],
        title="Tom chase Jerry",
    )


def learned(folder: str, text: str) -> None:
    """What a trained model looks at."""
    (best,) = cloze.translate(cloze.load(folder), text, align=True).candidates
    words = {"source": best.alignment.source, "target": best.alignment.target}
    weights = best.alignment.weights.tolist()
    alignment_heat(**words, weights=weights).save(HERE / "alignment-heat.svg")
    AlignmentLines(title="Alignment", **words, weights=weights).save(HERE / "alignment-lines.svg")


if __name__ == "__main__":
    softmax_saturates().save(HERE / "softmax.svg")
    dot_products_grow().save(HERE / "dot-product.svg")
    waves().save(HERE / "positions.svg")
    vanishing().save(HERE / "vanishing.svg")
    tom().save(HERE / "tom-chase-jerry.svg")
    if len(sys.argv) > 1:
        learned(*sys.argv[1:])
