"""SVG and HTML elements, which escape all text, and the base class of figures."""

import html
import json
import math
import os
import re
from abc import ABC, abstractmethod
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar, TypeAlias

from cloze.errors import InputError
from cloze.files import write_text

Child: TypeAlias = "Element | str"
Value: TypeAlias = str | int | float | None

NARROW, WIDE = 510, 1040  # pixels: half the width of a page, and all of it
MARGIN = 4  # pixels around every figure, so that round line ends and wide letters are not clipped

_VOID = frozenset({"br", "col", "hr", "img", "meta"})  # HTML elements without an end tag
_VERBATIM = frozenset({"script", "style"})  # HTML does not decode entities in these
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*")
_PNG = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]*={0,2}")  # an image inside of the page
# Characters that are not allowed in XML or UTF-8, but may occur in texts.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Element:
    """`Element("text", "5 < 6", class_="tick")` writes `<text class="tick">5 &lt; 6</text>`.

    In attribute names, `_` means `-`, and a trailing one is dropped; attributes that are None are
    omitted. Attributes that could run or load something raise an error.
    """

    __slots__ = ("_children", "_start", "_tag")

    def __init__(self, tag: str, *children: Child, **attributes: Value) -> None:
        self._tag = _check_name("element", tag)
        self._start = "".join(
            _render_attribute(name, value)
            for name, value in attributes.items()
            if value is not None
        )
        self._children = children

    def __str__(self) -> str:
        start = f"<{self._tag}{self._start}>"
        if self._tag in _VOID:
            return start
        write = _render_raw if self._tag in _VERBATIM else _render
        return f"{start}{''.join(map(write, self._children))}</{self._tag}>"


def json_script(data: object) -> Element:
    """JSON data for a script to read; it is not executable."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Element("script", text.replace("<", "\\u003c"), type="application/json")


def format_coordinate(value: float) -> str:
    """Rounded to a tenth of a pixel: 12, 0.5."""
    if not math.isfinite(value):
        raise InputError(f"{value} cannot be drawn", fix="leave the point out")
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _render_attribute(name: str, value: str | int | float) -> str:
    name = _check_name("attribute", name.removesuffix("_").replace("_", "-"))
    text = value if isinstance(value, str) else format_coordinate(value)
    runs = name.lower().startswith("on")
    is_inside = text.startswith("#") or (name == "src" and _PNG.fullmatch(text))
    loads = name.lower().endswith(("href", "src")) and not is_inside
    if runs or loads:
        raise InputError(
            f"an attribute {name}={text[:40]!r} could run or load something",
            fix="link within the page (#…) and use the page's own script",
        )
    return f' {name}="{html.escape(_replace_invalid(text))}"'


def _check_name(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a valid {what} name", fix="use letters, digits and dashes"
        )
    return name


def _render(child: Child) -> str:
    return (
        str(child)
        if isinstance(child, Element)
        else html.escape(_replace_invalid(child), quote=False)
    )


def _render_raw(child: Child) -> str:
    text = str(child)
    if "</" in text or "<!--" in text:
        raise InputError(
            f"{text[:40]!r} would end the script or style element", fix="write < as \\u003c"
        )
    return _replace_invalid(text)


def _replace_invalid(text: str) -> str:
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


@cache
def load_asset(name: str) -> str:
    """The text of a file of this package: chart.css, page.css, page.js, scripts/NAME.js."""
    return (resources.files("cloze.plot") / name).read_text(encoding="utf-8")


@cache
def load_style(script: str) -> str:
    """The style sheet beside a script, scripts/NAME.css; empty if there is none."""
    path = resources.files("cloze.plot") / f"scripts/{script}.css"
    return path.read_text(encoding="utf-8") if script and path.is_file() else ""


class Figure(ABC):
    """A figure that is one SVG, with light and dark colors.

    An interactive figure names its script: a page contains plot/scripts/NAME.js and, if there is
    one, NAME.css once for all figures with that script. Several names are separated by spaces.
    """

    script: ClassVar[str] = ""

    @property
    @abstractmethod
    def width(self) -> float:
        """In pixels, without the margin."""

    @abstractmethod
    def svg(self, *children: Element) -> Element:
        """The SVG element; its colors are defined in chart.css."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .svg file."""
        svg = str(self.standalone_svg())
        return write_text(path, svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))

    def _repr_html_(self) -> str:
        """HTML for notebooks, at most as wide as the figure."""
        return str(
            Element(
                "div", self.standalone_svg(), style=f"max-width: {self.width + 2 * MARGIN:.0f}px"
            )
        )

    def standalone_svg(self) -> Element:
        """The SVG with its style and a background."""
        styles = [load_asset("chart.css"), *map(load_style, self.script.split())]
        style = Element("style", "".join(styles))
        background = Element(
            "rect", x=-MARGIN, y=-MARGIN, width="100%", height="100%", class_="ground"
        )
        return self.svg(style, background)
