"""Draw the figures of docs/seq2seq.md and docs/transformer.md: python docs/img/translation.py.

With --model and --text it also draws the alignment of a translation by that model.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import cloze
from cloze.nn.positions import compute_sinusoids
from cloze.plot.alignment import AlignmentLines, alignment_heatmap
from cloze.plot.heatmap import Heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.vector_heatmap import VectorHeatmap


def plot_softmax() -> LineChart:
    """The third output of the softmax of [a, a, 2a], and its gradient."""
    points = [n / 10 for n in range(1, 151)]
    outputs, gradients = [], []
    for a in points:
        x = torch.tensor([a, a, 2 * a], dtype=torch.float64, requires_grad=True)
        y = x.softmax(-1)[2]
        y.backward()
        outputs.append(y.item())
        gradients.append(x.grad[2].item())
    return LineChart(
        title="softmax of [a, a, 2a]",
        x_label="a",
        include=[0, 1],
        series=[
            Series(name="third output", x=points, y=outputs),
            Series(name="its gradient", x=points, y=gradients),
        ],
    )


def plot_dot_products() -> LineChart:
    """The variance of q·k for unit-variance q and k, with and without ÷√d."""
    rng = torch.Generator().manual_seed(0)
    widths = [4, 8, 16, 32, 64, 128, 256]
    variances = []
    for width in widths:
        q, k = (torch.randn(20_000, width, generator=rng) for _ in range(2))
        variances.append((q * k).sum(1).var().item())
    scaled = [one / width for one, width in zip(variances, widths, strict=True)]
    return LineChart(
        title="variance of q·k",
        x_label="width d",
        series=[
            Series(name="q·k", x=widths, y=variances),
            Series(name="q·k ÷ √d", x=widths, y=scaled),
            Series(name="d", x=widths, y=widths, style="reference"),
        ],
    )


def plot_positions() -> VectorHeatmap:
    """Sinusoidal positions 0 … 63, a row each, with 32 dimensions."""
    return VectorHeatmap(
        title="sinusoidal positions 0 … 63, interleaved, 32 dimensions",
        rows=["" if n % 8 else str(n) for n in range(64)],
        values=compute_sinusoids(64, 32).tolist(),
        limit=1.0,
        unit="",
    )


def plot_gradients() -> LineChart:
    """The gradient of the last state with respect to earlier inputs."""
    series = []
    for kind in ("rnn", "gru", "lstm"):
        torch.manual_seed(0)
        net = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](8, 32, batch_first=True)
        if kind == "lstm":
            with torch.no_grad():
                net.bias_ih_l0[32:64].fill_(1.0)
        x = torch.randn(64, 40, 8, requires_grad=True)
        net(x)[0][:, -1].sum().backward()
        norms = x.grad.norm(dim=-1).mean(0).flip(0)
        steps = list(range(40))
        series.append(Series(name=kind, x=steps, y=(norms / norms[0]).tolist()))
    return LineChart(
        title="gradient of the last state, random weights",
        x_label="steps back",
        y_label="relative to the last input",
        log=True,
        series=series,
    )


def plot_example() -> Heatmap:
    """An alignment as an example, not computed by a model."""
    return alignment_heatmap(
        ["Tom", "chase", "Jerry"],
        ["汤姆", "追逐", "杰瑞"],
        [[0.6, 0.2, 0.2], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5]],
        title="Tom chase Jerry",
    )


def plot_alignment(folder: str, text: str, out: Path) -> None:
    """The alignment of a model's translation, as a heat map and as lines."""
    (best,) = cloze.translate(cloze.load(folder), text, align=True).candidates
    words = {"source": best.alignment.source, "target": best.alignment.target}
    weights = best.alignment.weights.tolist()
    alignment_heatmap(**words, weights=weights).save(out / "alignment-heat.svg")
    AlignmentLines(title="Alignment", **words, weights=weights).save(out / "alignment-lines.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--model", help="a translator")
    parser.add_argument("--text", help="a sentence for it")
    given = parser.parse_args()
    plot_softmax().save(given.out / "softmax.svg")
    plot_dot_products().save(given.out / "dot-product.svg")
    plot_positions().save(given.out / "positions.svg")
    plot_gradients().save(given.out / "vanishing.svg")
    plot_example().save(given.out / "tom-chase-jerry.svg")
    if given.model:
        plot_alignment(given.model, given.text, given.out)
