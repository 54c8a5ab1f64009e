"""Small copies of the images of an index, each in a file that is named by a hash of its document.

A file never changes, so that readers of an older version of the index find theirs. Files that no
document names are removed after the next change.
"""

import re
from collections.abc import Collection
from pathlib import Path

from cloze.files import remove_path

FOLDER = "thumbnails"
_DIGEST = re.compile(r"[0-9a-f]{8,64}")  # it comes from a file, and becomes a path
_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_BYTES = 1 << 17


def write_thumbnail(folder: Path, digest: str, png: bytes) -> None:
    """Store the image of a document."""
    path = _find_path(folder, digest)
    if path is None or len(png) > _MAX_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png)  # if the process is killed, the document is not in the index, either


def read_thumbnail(folder: Path, digest: str) -> bytes | None:
    """The image of a document as a PNG file; None if there is none."""
    path = _find_path(folder, digest)
    if path is None:
        return None
    try:
        with path.open("rb") as stream:
            found = stream.read(_MAX_BYTES + 1)
    except OSError:
        return None
    return found if found.startswith(_PNG) and len(found) <= _MAX_BYTES else None


def remove_thumbnails(folder: Path, used: Collection[str]) -> None:
    """Remove the images of documents that are no longer there."""
    known = {f"{digest}.png" for digest in used}
    for path in (folder / FOLDER).glob("*/*.png"):
        if path.name not in known:
            remove_path(path)


def _find_path(folder: Path, digest: str) -> Path | None:
    if not _DIGEST.fullmatch(digest):
        return None
    return folder / FOLDER / digest[:2] / f"{digest}.png"
