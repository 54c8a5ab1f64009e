"""Draw retro.svg of docs/retro.md: python docs/img/retro.py."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from cloze.plot.svg import MARGIN, Element, Figure

CHUNK, CHUNKS = 4, 3  # tokens of a chunk, chunks
STEP, BOX, HEIGHT = 56, 50, 28  # pixels: between tokens, width and height of a box
TOKENS, READERS, ENCODER, NEIGHBORS, DATABASE = 330, 262, 150, 60, 22  # y
COLORS = ("c0", "c1", "c2")  # of the chunks


class ChunkedCrossAttention(Figure):
    """Which positions read the neighbors of which chunk."""

    width = STEP * (CHUNK * CHUNKS + 1) + 20

    def svg(self, *children: Element) -> Element:
        """Tokens below, neighbors above, and arrows between them."""
        height = TOKENS + HEIGHT + 40
        return Element(
            "svg",
            *children,
            *self._draw_tokens(),
            *(part for number in (1, 2) for part in self._draw_neighbors(number)),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN} {height + 2 * MARGIN}",
            role="img",
            aria_label="RETRO: each chunk reads the neighbors of the chunk before it",
        )

    def _draw_tokens(self) -> Iterator[Element]:
        yield from _box(0, TOKENS, BOX, HEIGHT, "start", "c5")
        for position in range(1, CHUNK * CHUNKS + 1):
            color = COLORS[(position - 1) // CHUNK]
            yield from _box(position * STEP, TOKENS, BOX, HEIGHT, f"x{position}", color)
        for number in range(CHUNKS):
            middle = ((number + 0.5) * CHUNK + 0.5) * STEP + BOX / 2
            yield _text(middle, TOKENS + HEIGHT + 20, f"chunk {number + 1}")
        last = CHUNK * STEP - (STEP - BOX)
        yield _path(f"M0 {READERS} H{last} M0 {READERS - 5} v10 M{last} {READERS - 5} v10", "c5")
        yield _text(last / 2, READERS - 10, "read nothing")

    def _draw_neighbors(self, number: int) -> Iterator[Element]:
        """The neighbors of a chunk, their encoder, and the positions that read them."""
        color, first = COLORS[number - 1], number * CHUNK * STEP
        last = first + CHUNK * STEP - (STEP - BOX)
        left, middle = first, (first + last) / 2
        width = last - left
        yield _text(middle, DATABASE, f"2 neighbors of chunk {number}")
        for row in range(2):
            top = NEIGHBORS - 24 + row * 40
            yield from _box(left, top, width / 2, HEIGHT, "neighbor", color)
            yield from _box(left + width / 2, top, width / 2, HEIGHT, "continuation", color)
        yield from _box(left, ENCODER, width, HEIGHT + 6, "neighbor encoder", color)
        yield _arrow(middle, NEIGHBORS + 44, middle, ENCODER, color)
        yield _arrow(middle, ENCODER + HEIGHT + 6, middle, READERS - 4, color)
        yield _path(
            f"M{first} {READERS} H{last} M{first} {READERS - 5} v10 M{last} {READERS - 5} v10",
            color,
        )
        yield _text(middle + 8, READERS - 12, "cross-attention", anchor="start")
        for position in range(number * CHUNK, (number + 1) * CHUNK):
            x = position * STEP + BOX / 2
            yield _arrow(x, READERS + 4, x, TOKENS, color)
        # the encoder attends to the states of the chunk that retrieved the neighbors
        side, level = ((number - 1) * CHUNK + 3) * STEP - (STEP - BOX) / 2, READERS - 36
        yield _path(f"M{side} {TOKENS} V{level} H{left + 16}", f"faint {color}")
        yield _arrow(left + 16, level, left + 16, ENCODER + HEIGHT + 6, color)


def _text(x: float, y: float, content: str, anchor: str = "middle") -> Element:
    return Element("text", content, x=x, y=y, class_="middle" if anchor == "middle" else "muted")


def _path(line: str, color: str) -> Element:
    return Element("path", d=line, class_=color)


def _box(
    x: float, y: float, width: float, height: float, label: str, color: str
) -> Iterator[Element]:
    yield _path(f"M{x} {y} h{width} v{height} h{-width} z", color)
    yield _text(x + width / 2, y + height / 2 + 4, label)


def _arrow(x1: float, y1: float, x2: float, y2: float, color: str) -> Element:
    back = 5 if y2 > y1 else -5
    head = f"M{x2 - 4} {y2 - back} L{x2} {y2} L{x2 + 4} {y2 - back}"
    return _path(f"M{x1} {y1} L{x2} {y2} {head}", color)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    ChunkedCrossAttention().save(parser.parse_args().out / "retro.svg")
