"""An image in a page, as a PNG file inside of it."""

import base64
from dataclasses import dataclass
from typing import Any, ClassVar

from cloze.plot.svg import Element


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image with a title and a note."""

    png: bytes
    title: str = ""
    note: str = ""
    has_images: ClassVar[bool] = True  # so that the policy of the page allows them

    @property
    def data(self) -> dict[str, Any]:
        """The exact values shown, ready for JSON."""
        return {"kind": "picture", "title": self.title, "note": self.note}

    def element(self) -> Element:
        """The HTML element."""
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        return Element(
            "div",
            Element("div", self.title, dir="auto"),
            Element("img", src=source, alt=self.note or self.title),
            Element("div", self.note, class_="muted", dir="auto"),
            class_="card picture",
        )
