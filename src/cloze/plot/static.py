"""Parts of a page as one SVG, and an SVG as PNG.

Parts that are no drawings, such as tables, are left out.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cloze.errors import ClozeError, MissingExtraError
from cloze.plot.axes import draw_text
from cloze.plot.page import Grid, PagePart, list_scripts
from cloze.plot.svg import MARGIN, Element, Figure, load_asset, load_style

_GAP = 24.0  # pixels between two figures
_HEADING = 26.0  # height of the heading of several figures
_VIEW_BOX = re.compile(r'viewBox="(\S+) (\S+) (\S+) (\S+)"')
_MEDIA = re.compile(r"@media([^{]*)\{((?:[^{}]*\{[^{}]*\})*[^{}]*)\}")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_VARIABLE = re.compile(r"(--[\w-]+)\s*:\s*([^;}]+)")
_REFERENCE = re.compile(r"var\(\s*(--[\w-]+)\s*(?:,([^()]*))?\)")
_ANY_OF = re.compile(r":is\(([^()]*)\)")
_NEGATION = re.compile(r":not\([^()]*\)")
# resvg knows no font for system-ui or sans-serif: without one of these it draws no text at all
_FAMILIES = (
    '"Segoe UI", Roboto, "DejaVu Sans", "Liberation Sans", "Noto Sans", "Helvetica Neue", '
    "Helvetica, Arial, Verdana, FreeSans, sans-serif"
)
_FONTS = re.compile(r"system-ui,[^;{}]*sans-serif")
_MAX_PIXELS = 16_384  # of one side of a PNG


@dataclass(frozen=True)
class _Box:
    """A drawing with its size."""

    width: float
    height: float
    place: Callable[[float, float], Iterable[Element]]  # the elements at x, y


def draw_parts(parts: Sequence[PagePart]) -> Element | None:
    """One SVG of all drawings: below each other, those of a grid beside each other.

    None if no part is a drawing.
    """
    box = _stack([_draw(part) for part in parts])
    if box is None:
        return None
    styles = [load_asset("chart.css"), *map(load_style, list_scripts(parts))]
    width, height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    return Element(
        "svg",
        Element("style", "".join(styles)),
        Element("rect", width="100%", height="100%", class_="ground"),
        *box.place(MARGIN, MARGIN),
        class_="lines",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
    )


def render_png(svg: str, *, scale: float = 2.0, dark: bool = False) -> bytes:
    """The pixels of an SVG as a PNG file, `scale` pixels for each unit."""
    try:
        import resvg_py
    except ImportError as error:
        raise MissingExtraError("saving a PNG file", extra="explain") from error
    if not has_font():
        raise ClozeError(
            "no font was found for the text of a PNG file",
            fix="install one, such as DejaVu Sans (on Debian: apt install fonts-dejavu-core), or "
            "save the view as .svg or .html",
        )
    found = _VIEW_BOX.search(svg)
    assert found is not None
    width, height = float(found[3]), float(found[4])
    zoom = min(scale, _MAX_PIXELS / max(width, height))
    resolved = re.sub(
        r"(?s)(<style>)(.*?)(</style>)",
        lambda part: part[1] + resolve_style(part[2], dark=dark) + part[3],
        svg,
    )
    # fonts have a bold face, and few of them one for 650
    resolved = re.sub(r'(font-weight(?:: |="))650', r"\g<1>700", resolved)
    sized = resolved.replace("<svg ", f'<svg width="{width:.0f}" height="{height:.0f}" ', 1)
    return bytes(resvg_py.svg_to_bytes(svg_string=sized, zoom=zoom))


@cache
def has_font() -> bool:
    """Whether there is a font for the text of a PNG file."""
    import resvg_py

    pictures = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
        f"<text y='15' font-family='{_FAMILIES}'>{letter}</text></svg>"
        for letter in ("", "M")
    ]
    without, drawn = (bytes(resvg_py.svg_to_bytes(svg_string=one)) for one in pictures)
    return without != drawn


def resolve_style(style: str, *, dark: bool = False) -> str:
    """A style sheet without variables, media queries, :is and :not, which few programs can read."""
    style = _FONTS.sub(_FAMILIES, re.sub(r"/\*.*?\*/", "", style, flags=re.S))
    medias = [
        (query, body) for query, body in _MEDIA.findall(style) if "color-scheme: dark" in query
    ]
    rules = _MEDIA.sub("", style) + ("".join(body for _, body in medias) if dark else "")
    values = dict(_VARIABLE.findall(rules))
    resolved = []
    for selectors, body in _RULE.findall(rules):
        names = [one for one in _expand_selectors(selectors) if not re.search(r":\w", one)]
        settings = [one.strip() for one in body.split(";")]
        settings = [
            one for one in settings if one and not one.startswith(("--", "width", "height"))
        ]
        if names and settings:
            text = "; ".join(_substitute(one, values) for one in settings)
            resolved.append(f"{', '.join(names)} {{ {text} }}")
    return "\n".join(resolved)


def _substitute(text: str, values: dict[str, str]) -> str:
    while found := _REFERENCE.search(text):
        value = values.get(found[1], found[2] or "none").strip()
        text = text[: found.start()] + value + text[found.end() :]
    return text


def _expand_selectors(selectors: str) -> list[str]:
    """Each selector alone, with one alternative of each :is(…)."""
    found = [_NEGATION.sub("", selectors.strip())]
    while any(_ANY_OF.search(one) for one in found):
        found = [
            one[: match.start()] + choice.strip() + one[match.end() :]
            for one in found
            if (match := _ANY_OF.search(one))
            for choice in match[1].split(",")
        ]
    return [one.strip() for each in found for one in each.split(",")]


def _draw(part: PagePart) -> _Box | None:
    if isinstance(part, Figure):
        return _draw_figure(part)
    inside: Any = getattr(part, "parts", ())
    boxes = [_draw(one) for one in inside]
    box = _put_side_by_side(boxes) if isinstance(part, Grid) else _stack(boxes)
    title = str(getattr(part, "title", ""))
    return _add_heading(title, box) if box is not None and title else box


def _draw_figure(figure: Figure) -> _Box:
    svg = figure.svg()
    found = _VIEW_BOX.search(str(svg))
    assert found is not None
    width, height = float(found[3]), float(found[4])

    def place(x: float, y: float) -> list[Element]:
        return [Element("svg", svg, x=x, y=y, width=width, height=height)]

    return _Box(width, height, place)


def _add_heading(title: str, box: _Box) -> _Box:
    def place(x: float, y: float) -> list[Element]:
        heading = draw_text(title, x, y + 15, class_="title")
        return [heading, *box.place(x, y + _HEADING)]

    return _Box(box.width, box.height + _HEADING, place)


def _stack(boxes: Sequence[_Box | None]) -> _Box | None:
    known = [box for box in boxes if box is not None]
    if not known:
        return None

    def place(x: float, y: float) -> Iterable[Element]:
        for box in known:
            yield from box.place(x, y)
            y += box.height + _GAP

    height = sum(box.height for box in known) + _GAP * (len(known) - 1)
    return _Box(max(box.width for box in known), height, place)


def _put_side_by_side(boxes: Sequence[_Box | None]) -> _Box | None:
    known = [box for box in boxes if box is not None]
    if not known:
        return None

    def place(x: float, y: float) -> Iterable[Element]:
        for box in known:
            yield from box.place(x, y)
            x += box.width + _GAP

    width = sum(box.width for box in known) + _GAP * (len(known) - 1)
    return _Box(width, max(box.height for box in known), place)
