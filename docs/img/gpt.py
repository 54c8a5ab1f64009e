"""Draw input-transformations.svg for docs/gpt.md: python docs/img/gpt.py."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

START, DELIMITER, EXTRACT = "start", "delimiter", "extract"
SPECIAL = (START, DELIMITER, EXTRACT)
# name, the sequences of an example, what happens after the model
ROWS = [
    ("classification", [[START, "text", EXTRACT]], ["linear"]),
    ("entailment", [[START, "premise", DELIMITER, "hypothesis", EXTRACT]], ["linear"]),
    (
        "similarity",
        [
            [START, "first text", DELIMITER, "second text", EXTRACT],
            [START, "second text", DELIMITER, "first text", EXTRACT],
        ],
        ["add", "linear"],
    ),
    (
        "multiple choice",
        [[START, "context", DELIMITER, f"option {n}", EXTRACT] for n in (1, 2, 3)],
        ["linear", "softmax"],
    ),
]
HEIGHT, GAP, STEP = 24.0, 6.0, 32.0  # of a box, between boxes, between sequences
LEFT, MODEL, AFTER = 130.0, 560.0, 740.0  # of the first box, of the model, of what follows


@dataclass(frozen=True)
class InputTransformations(Figure):
    """How the texts of an example become sequences.  Radford et al. 2018, figure 1."""

    @property
    def width(self) -> float:
        return WIDE

    def svg(self, *children: Element) -> Element:
        parts, y = [], 44.0
        for name, sequences, after in ROWS:
            parts += list(_draw_row(name, sequences, after, y))
            y += STEP * len(sequences) + 18
        return Element(
            "svg",
            *children,
            draw_heading("Input transformations", "the boxes in color are special tokens"),
            Element("g", *parts, class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN:.0f} {y + 2 * MARGIN:.0f}",
            role="img",
            aria_label="The input transformations of GPT",
        )


def _draw_row(
    name: str, sequences: list[list[str]], after: list[str], y: float
) -> Iterator[Element]:
    middle = y + STEP * (len(sequences) - 1) / 2
    yield draw_text(name, 0, middle + HEIGHT / 2 + 4)
    joined = len(sequences) > 1 and after[0] == "add"
    for number, sequence in enumerate(sequences):
        top = y + STEP * number
        x = LEFT
        for part in sequence:
            width = text_width(part) + 16
            yield from _draw_box(part, x, top, width, is_special=part in SPECIAL)
            x += width + GAP
        yield _draw_line(x, top, MODEL, top)
        yield from _draw_box("Transformer", MODEL, top, 100, is_special=False)
        x, level = AFTER, top
        first = MODEL + 100
        if joined:
            yield _draw_line(first, top, AFTER, middle)
            continue
        yield _draw_line(first, top, x, level)
        yield from _draw_box(after[0], x, level, 70, is_special=False)
        if len(after) > 1:
            yield _draw_line(x + 70, level, x + 110, middle)
    following = after if joined else after[1:]
    x = AFTER if joined else AFTER + 110
    for number, part in enumerate(following):
        yield from _draw_box(part, x, middle, 70, is_special=False)
        if number + 1 < len(following):
            yield _draw_line(x + 70, middle, x + 110, middle)
        x += 110


def _draw_box(
    text: str, x: float, y: float, width: float, *, is_special: bool
) -> Iterator[Element]:
    fill = {"fill": "#3b7dd8", "fill_opacity": "0.28"} if is_special else {"fill": "none"}
    yield Element(
        "rect", x=x, y=y, width=width, height=HEIGHT, rx=4, stroke="#888888", class_="", **fill
    )
    yield draw_text(text, x + width / 2, y + HEIGHT / 2 + 4, class_="middle")


def _draw_line(x: float, y: float, to_x: float, to_y: float) -> Element:
    half = HEIGHT / 2
    d = f"M{x:.1f} {y + half:.1f}L{to_x:.1f} {to_y + half:.1f}"
    return Element("path", d=d, stroke="#888888", fill="none")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    InputTransformations().save(parser.parse_args().out / "input-transformations.svg")
