"""The tokens of a text as boxes in lines, for figures that color them."""

from collections.abc import Sequence

from cloze.plot.axes import text_width
from cloze.plot.svg import WIDE

BOX_HEIGHT = 34.0
LINE_HEIGHT = 40.0  # of a line of boxes
MAX_OPACITY = 0.36  # of the strongest color: the token keeps a contrast of 4.5 : 1
_PADDING = 5.0  # left and right of a token
_GAP = 3.0  # between two boxes
_NARROWEST = 12.0
_LONGEST = 24  # characters of a token

Box = tuple[float, float, float]  # x, y, width


def place_boxes(
    tokens: Sequence[str], top: float, *, width: float = WIDE, narrowest: float = _NARROWEST
) -> list[Box]:
    """The box of each token, in lines from `top` down, which are at most `width` wide."""
    boxes: list[Box] = []
    x, y = 0.0, top
    for token in tokens:
        size = max(text_width(shorten_token(token)), narrowest) + 2 * _PADDING
        if x + size > width and x:
            x, y = 0.0, y + LINE_HEIGHT
        boxes.append((x, y, size))
        x += size + _GAP
    return boxes


def shorten_token(token: str) -> str:
    """A token that is not too long for a box."""
    return token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…"
