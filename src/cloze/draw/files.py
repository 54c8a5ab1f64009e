"""The style and the script that come with this package, and whole files written at once."""

import os
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path


@cache
def asset(name: str) -> str:
    """A file of this room: chart.css, page.css, page.js."""
    return (resources.files("cloze.draw") / name).read_text(encoding="utf-8")


def write(path: str | os.PathLike[str], text: str) -> Path:
    """The whole text under its name, or what was there before."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    work = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        work.chmod(0o644)  # mkstemp is for secrets; a page is shown to others
        work.replace(place)
    finally:
        work.unlink(missing_ok=True)
    return place
