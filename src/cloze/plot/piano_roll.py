"""Piano rolls: notes as bars, time from left to right, pitch from low to high."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cloze.errors import InputError
from cloze.plot.axes import draw_heading, draw_text
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

_TOP, _BOTTOM, _LEFT = 34.0, 24.0, 34.0
_ROW = 6.0  # height of a pitch
_OCTAVE = 12
_TICKS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)  # seconds
_MAX_TICKS = 12


class Note(Protocol):
    """A note; times in seconds, pitch and velocity as in MIDI files."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def pitch(self) -> int: ...
    @property
    def velocity(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class PianoRoll(Figure):
    """The notes of a composition; louder notes are darker, and each C has a line."""

    title: str
    notes: Sequence[Note]
    prompt_seconds: float = 0.0  # notes that begin earlier have another color
    detail: str = ""

    def __post_init__(self) -> None:
        if not self.notes:
            raise InputError("there are no notes to draw", fix="generate more events")

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        """All notes."""
        notes = [[note.start, note.end, note.pitch, note.velocity] for note in self.notes]
        return {"kind": "piano_roll", "title": self.title, "notes": notes}

    def element(self) -> Element:
        """The figure as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        low = min(note.pitch for note in self.notes) - 1
        high = max(note.pitch for note in self.notes) + 1
        height = _TOP + (high - low + 1) * _ROW + _BOTTOM
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            *self._draw_axes(low, high),
            Element("g", *self._draw_notes(high), class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {len(self.notes)} notes in {self._seconds:.1f} seconds",
        )

    @property
    def _seconds(self) -> float:
        return max(note.end for note in self.notes)

    def _x(self, seconds: float) -> float:
        return _LEFT + (WIDE - _LEFT) * seconds / self._seconds

    def _draw_axes(self, low: int, high: int) -> Iterator[Element]:
        for pitch in range(-(-low // _OCTAVE) * _OCTAVE, high + 1, _OCTAVE):
            y = _TOP + (high - pitch + 0.5) * _ROW
            yield Element("line", x1=_LEFT, x2=WIDE, y1=y, y2=y, class_="grid")
            yield draw_text(f"C{pitch // _OCTAVE - 1}", _LEFT - 6, y + 4, class_="muted end")
        bottom = _TOP + (high - low + 1) * _ROW
        step = next((one for one in _TICKS if self._seconds / one <= _MAX_TICKS), 1200)
        for number in range(int(self._seconds / step) + 1):
            x, label = self._x(number * step), f"{number * step:g} s"
            at = "end" if x > WIDE - _LEFT else "middle"
            yield Element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid")
            yield draw_text(label, x, bottom + 16, class_=f"muted {at}")

    def _draw_notes(self, high: int) -> Iterator[Element]:
        for note in self.notes:
            x, end = self._x(note.start), self._x(note.end)
            tooltip = f"pitch {note.pitch}, {note.start:.2f}–{note.end:.2f} s"
            yield Element(
                "rect",
                Element("title", f"{tooltip}, velocity {note.velocity}"),
                x=x,
                y=_TOP + (high - note.pitch) * _ROW + 0.5,
                width=max(end - x - 0.5, 1.0),
                height=_ROW - 1,
                rx=1.5,
                opacity=f"{0.35 + 0.65 * note.velocity / 127:.2f}",
                class_=f"mark c{1 if note.start < self.prompt_seconds else 0}",
            )
