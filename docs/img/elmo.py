"""Draw elmo.svg of docs/elmo.md: python docs/img/elmo.py."""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from cloze.plot.svg import MARGIN, Element, Figure

WORDS = ("the", "cat", "sat")
NEXT = {1: ("cat", "sat", "</s>"), -1: ("<s>", "the", "cat")}  # by direction
STEP, BOX, HEIGHT = 116, 92, 30  # pixels: between columns, width and height of a box
ROWS = {"softmax": 60, "LSTM 2": 120, "LSTM 1": 190, "CNN": 262, "characters": 314}
PANEL = STEP * len(WORDS) + 40


class Architecture(Figure):
    """The forward and the backward language model, side by side."""

    width = 2 * PANEL

    def svg(self, *children: Element) -> Element:
        """Boxes and arrows."""
        parts = [*self._draw_panel(0, 1), *self._draw_panel(PANEL, -1)]
        height = ROWS["characters"] + 26
        return Element(
            "svg",
            *children,
            *parts,
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN} {height + 2 * MARGIN}",
            role="img",
            aria_label="ELMo: words from characters, two LSTMs of two layers, a shared softmax",
        )

    def _draw_panel(self, left: int, direction: int) -> Iterator[Element]:
        name, color = ("forward", "c0") if direction > 0 else ("backward", "c1")
        yield _text(left, 16, f"{name} language model", class_="title")
        for column, word in enumerate(WORDS):
            x = left + column * STEP
            yield _text(x + BOX / 2, 50, NEXT[direction][column], class_="middle")
            yield from _box(x, ROWS["softmax"], "softmax", "c2")
            for row in ("LSTM 2", "LSTM 1"):
                yield from _box(x, ROWS[row], row, color)
            yield from _box(x, ROWS["CNN"], "CNN, highway", "c2")
            yield _text(x + BOX / 2, ROWS["characters"] + 14, " ".join(word), class_="middle")
            rows = list(ROWS.values())
            for upper, lower in itertools.pairwise(rows):
                yield _arrow(x + BOX / 2, lower, x + BOX / 2, upper + HEIGHT)
            # the residual of the second layer goes past it
            middle, side = ROWS["LSTM 1"] - 14, x + BOX + 9
            yield _path(
                f"M{x + BOX / 2} {middle} H{side} V{ROWS['LSTM 2'] - 14} H{x + BOX / 2}", "faint c5"
            )
            yield _text(x + BOX / 2 + 4, ROWS["LSTM 2"] - 17, "+")
            if column + 1 < len(WORDS):
                for row in ("LSTM 2", "LSTM 1"):
                    y = ROWS[row] + HEIGHT / 2
                    ends = (x + BOX, x + STEP) if direction > 0 else (x + STEP, x + BOX)
                    yield _arrow(ends[0], y, ends[1], y, color)


def _text(x: float, y: float, content: str, **attributes: str) -> Element:
    return Element("text", content, x=x, y=y, **attributes)


def _path(line: str, color: str) -> Element:
    return Element("path", d=line, class_=color)


def _box(x: float, y: float, label: str, color: str) -> Iterator[Element]:
    yield _path(f"M{x} {y} h{BOX} v{HEIGHT} h{-BOX} z", color)
    yield _text(x + BOX / 2, y + HEIGHT / 2 + 4, label, class_="middle")


def _arrow(x1: float, y1: float, x2: float, y2: float, color: str = "c5") -> Element:
    back = 5 if (x2, y2) > (x1, y1) else -5
    head = (
        f"M{x2 - back} {y2 - 4} L{x2} {y2} L{x2 - back} {y2 + 4}"
        if y1 == y2
        else f"M{x2 - 4} {y2 - back} L{x2} {y2} L{x2 + 4} {y2 - back}"
    )
    return _path(f"M{x1} {y1} L{x2} {y2} {head}", color)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    Architecture().save(parser.parse_args().out / "elmo.svg")
