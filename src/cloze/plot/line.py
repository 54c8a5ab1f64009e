"""One line of a chart: how it is told from others, and what of it is drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from cloze.plot.scale import Scale
from cloze.plot.svg import Element, number

Point: TypeAlias = tuple[float, float | None]  # None is a gap

# Around (0, 0). The first colour has none: where there is one line, its points are no news.
MARKS = (
    "",
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "M-3 -3h6v6h-6z",
    "M0 -4L4 3H-4z",
    "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    "M0 4L-4 -3H4z",
)
_STRETCHES = 400  # of a long line, about one to each pixel or two
_MARKED = 30  # points that can all be marked


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a line looks like, in the chart and in its legend."""

    style: str
    colour: int | None = None  # None is grey

    @property
    def css(self) -> str:
        if self.colour is None:
            return self.style
        again = " again" if self.colour >= len(MARKS) else ""
        return f"{self.style} c{self.colour % len(MARKS)}{again}"

    @property
    def mark(self) -> str:
        """The outline of its mark, or nothing."""
        marked = self.style == "line" and self.colour is not None
        return MARKS[(self.colour or 0) % len(MARKS)] if marked else ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points with a look."""

    name: str
    look: Look
    points: Sequence[Point]

    def elements(self, x: Scale, y: Scale) -> Iterator[Element]:
        """The line, then its marks."""
        runs = [list(run) for real, run in groupby(thinned(self.points), _is_real) if real]
        path = "".join(_stretch(run, x, y) for run in runs if len(run) > 1)
        # A line that goes nowhere still has round ends: a dot, for a point without neighbours.
        dots = "".join(f"{_stretch(run, x, y)}h0" for run in runs if len(run) == 1)
        yield Element("path", d=path, class_=self.look.css)
        if dots:
            yield Element("path", d=dots, class_=f"dot {self.look.css}")
        if self.look.mark:
            known = [(x(a), y(b)) for a, b in self.points if b is not None]
            step = -(-len(known) // _MARKED)
            for across, down in known[(len(known) - 1) % step :: step]:  # the last is always marked
                yield Element(
                    "path",
                    d=self.look.mark,
                    class_=f"mark {self.look.css}",
                    transform=f"translate({number(across)} {number(down)})",
                )

    def places(self, x: Scale, y: Scale) -> list[tuple[float, float, float, float]]:
        """Pixel and value, both across and up, of each point that is drawn."""
        return [
            (round(x(a), 1), round(y(b), 1), a, b) for a, b in thinned(self.points) if b is not None
        ]


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """What can be seen of a long line: from each short stretch both ends, the lowest, the highest.

    So no peak is lost, and neither is a gap.
    """
    size = -(-len(points) // _STRETCHES)
    if size <= 4:  # noqa: PLR2004 - as many as would be kept
        return points
    kept: list[Point] = []
    for first in range(0, len(points), size):
        last = min(first + size, len(points))
        real = [at for at in range(first, last) if points[at][1] is not None]
        chosen = {first, last - 1}
        if real:
            chosen |= {min(real, key=lambda at: points[at][1] or 0.0)}
            chosen |= {max(real, key=lambda at: points[at][1] or 0.0)}
        if len(real) < last - first:
            chosen |= {next(at for at in range(first, last) if points[at][1] is None)}
        kept += [points[at] for at in sorted(chosen)]
    return kept


def _stretch(run: Sequence[Point], x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{number(x(a))} {number(y(b))}" for a, b in run if b is not None)


def _is_real(point: Point) -> bool:
    return point[1] is not None
