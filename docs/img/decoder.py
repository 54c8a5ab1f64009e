"""Draw the figure of docs/decoder.md: python docs/img/decoder.py."""

from pathlib import Path

from cloze.nn.layout import causal_mask
from cloze.plot.heatmap import Heatmap

TOKENS = ["bos", "a", "dog", "runs", "<|sep|>", "ein", "Hund", "läuft"]
TARGETS = {"<|sep|>": "ein", "ein": "Hund", "Hund": "läuft", "läuft": "eos"}


def plot_attention() -> Heatmap:
    """Which token (row) attends to which (column), and what it predicts."""
    mask = causal_mask(len(TOKENS)).float().tolist()
    rows = [f"{token} → {TARGETS[token]}" if token in TARGETS else token for token in TOKENS]
    shades = [
        [value * (1.0 if token in TARGETS else 0.35) for value in row]
        for token, row in zip(TOKENS, mask, strict=True)
    ]
    return Heatmap(
        title="Source, separator and target in one sequence",
        values=[[value or None for value in row] for row in mask],
        rows=rows,
        columns=TOKENS,
        row_title="token → the token it predicts",
        column_title="attends to",
        shades=shades,
        note="Dark rows have a loss: the separator and the target tokens.",
    )


if __name__ == "__main__":
    plot_attention().save(Path(__file__).with_name("decoder.svg"))
