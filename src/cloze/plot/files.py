"""The style and the script that come with this package."""

from functools import cache
from importlib import resources


@cache
def asset(name: str) -> str:
    """A file of this room: chart.css, page.css, page.js."""
    return (resources.files("cloze.plot") / name).read_text(encoding="utf-8")
