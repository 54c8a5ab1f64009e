"""SVG and HTML as nested elements: text is escaped where it is written, so none becomes markup."""

import html
import json
import math
import re
from typing import TypeAlias

from cloze.errors import InputError

Child: TypeAlias = "Element | str"
Value: TypeAlias = str | int | float | None

_VOID = frozenset({"br", "col", "hr", "meta"})  # HTML's elements that have no end
_VERBATIM = frozenset({"script", "style"})  # HTML does not read entities in these
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*")
# Neither XML nor UTF-8 has a place for these; a text may hold them all the same.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Element:
    """`Element("text", "5 < 6", class_="tick")` writes `<text class="tick">5 &lt; 6</text>`.

    In the names of attributes `_` stands for `-`, and one at the end is dropped; an attribute that
    is None is left out. What could run or load something is refused, whoever asks for it.
    """

    __slots__ = ("_children", "_start", "_tag")

    def __init__(self, tag: str, *children: Child, **attributes: Value) -> None:
        self._tag = _named("element", tag)
        self._start = "".join(
            _attribute(name, value) for name, value in attributes.items() if value is not None
        )
        self._children = children

    def __str__(self) -> str:
        start = f"<{self._tag}{self._start}>"
        if self._tag in _VOID:
            return start
        write = _verbatim if self._tag in _VERBATIM else _written
        return f"{start}{''.join(map(write, self._children))}</{self._tag}>"


def data_block(data: object) -> Element:
    """Plain data for a script to read; it is no script itself."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Element("script", text.replace("<", "\\u003c"), type="application/json")


def number(value: float) -> str:
    """As short as a tenth of a pixel allows: 12, 0.5."""
    if not math.isfinite(value):
        raise InputError(f"{value} has no place in a drawing", fix="leave the point out")
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _attribute(name: str, value: str | int | float) -> str:
    name = _named("attribute", name.removesuffix("_").replace("_", "-"))
    text = value if isinstance(value, str) else number(value)
    runs = name.lower().startswith("on")
    loads = name.lower().endswith(("href", "src")) and not text.startswith("#")
    if runs or loads:
        raise InputError(
            f"an attribute {name}={text[:40]!r} could run or load something",
            fix="link within the page (#…), and leave what happens to the page's own script",
        )
    return f' {name}="{html.escape(_fit(text))}"'


def _named(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name of an {what}", fix="use letters, digits and dashes")
    return name


def _written(child: Child) -> str:
    return str(child) if isinstance(child, Element) else html.escape(_fit(child), quote=False)


def _verbatim(child: Child) -> str:
    text = str(child)
    if "</" in text or "<!--" in text:
        raise InputError(
            f"{text[:40]!r} would end the script or style it is part of", fix="write < as \\u003c"
        )
    return _fit(text)


def _fit(text: str) -> str:
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)
