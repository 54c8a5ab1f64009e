"""Keep a hostile tokenizer from doing harm: a clear error, soon, and little memory.

Sizes are checked before reading and JSON before it reaches the tokenizers library. The library then
runs on a few texts at once, because a crafted file can make it panic, and pyo3's panic is a
`BaseException` that passes through every `except Exception` on its way up.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from cloze.errors import ClozeError, FolderError, InputError
from cloze.files import read_json, read_text

MAX_BYTES = 64 << 20  # the largest published tokenizers take half of this
MAX_IDS = 10_000_000
MAX_ADDED = 20_000  # tokens beside the vocabulary; the library takes its time over each
MAX_SPECIAL = 64  # special tokens around one text
MAX_GROWTH = 1000  # by which replacements may lengthen a text

_PROBES = ("", "a", "Two words, 3.5 more!", " \t\n\xa0", "é e\u0301 İ 中文 ไทย 👩‍🚀", "x" * 300)
_REPLACE = "take the file from its source again, or replace it"


@contextmanager
def library(error: type[ClozeError], problem: str, *, fix: str = _REPLACE) -> Iterator[None]:
    """Whatever the library throws in this block, panics included, becomes one of our errors."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ClozeError):
        raise
    except BaseException as cause:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise error(f"{problem}: {reason[:200]}", fix=fix) from cause


def check_text(text: object, name: str) -> str:
    """The text itself, if the library can take it."""
    if not isinstance(text, str):
        raise InputError(f"{name} is of type {type(text).__name__}", fix="give it as a str")
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InputError(
            f"{name} has half a surrogate pair at character {cause.start:,}, which is no text",
            fix="decode its bytes again, with errors='replace'",
        ) from cause
    return text


def read_lines(path: Path) -> list[str]:
    """The lines of a vocabulary; only newlines end one, as a piece may be another separator."""
    return read_text(path, cap=MAX_BYTES, fix=_REPLACE).rstrip("\n").split("\n")


def read_object(path: Path) -> dict[str, Any]:
    """A file of a tokenizer that holds one JSON object."""
    found = read_json(path, cap=MAX_BYTES, fix=_REPLACE)
    if not isinstance(found, dict):
        raise FolderError(f"{path} holds no JSON object", fix=_REPLACE)
    return found


def open_backend(path: Path) -> Backend:
    """A `tokenizer.json`, checked and tried out, without the cutting and padding it may ask for."""
    found = read_object(path)
    added = found.get("added_tokens")
    if isinstance(added, list) and len(added) > MAX_ADDED:
        raise FolderError(f"{path} adds {len(added):,} tokens to its vocabulary", fix=_REPLACE)
    growth = _growth(found.get("normalizer")) * _growth(found.get("decoder"))
    if growth > MAX_GROWTH:
        raise FolderError(f"{path} makes texts {growth:,} times as long", fix=_REPLACE)
    with library(FolderError, f"{path} is not a tokenizer"):
        backend = Backend.from_str(json.dumps(found))
        backend.no_truncation()
        backend.no_padding()
    probe(backend, str(path))
    return backend


def probe(backend: Backend, source: str) -> None:
    """Encode and decode a few texts, and see that the result can be relied on."""
    size = 1 + max(backend.get_vocab().values(), default=-1)
    if not 0 < size <= MAX_IDS:
        raise FolderError(
            f"{source} has ids up to {size - 1:,}", fix=f"ids must be below {MAX_IDS:,}"
        )
    around = [backend.num_special_tokens_to_add(pair) for pair in (False, True)]
    if max(around) > MAX_SPECIAL:
        raise FolderError(
            f"{source} puts {max(around):,} special tokens around a text", fix=_REPLACE
        )
    for text in _PROBES:
        with library(FolderError, f"{source} fails on the text {text[:20]!r}"):
            bare = backend.encode_batch_fast([text], add_special_tokens=False)[0]
            framed = [backend.encode(text), backend.encode(text, text)]
            for encoding in framed:
                backend.decode(encoding.ids)
                backend.decode(encoding.ids, skip_special_tokens=False)
        if any(number >= size for encoding in framed for number in encoding.ids):
            raise FolderError(f"{source} gives ids that are not in its vocabulary", fix=_REPLACE)
        specials = [encoding.sequence_ids.count(None) for encoding in framed]
        texts = [len(encoding) - len(bare) * count for count, encoding in enumerate(framed, 1)]
        if specials != around or texts != around:
            raise FolderError(f"{source} repeats or drops text in its template", fix=_REPLACE)


def _growth(part: object) -> int:
    """How many times longer the replacements in a part can make a text, one after the other."""
    if isinstance(part, list):
        return prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1
    content = part.get("content") if part.get("type") == "Replace" else ""
    own = max(1, len(content)) if isinstance(content, str) else 1
    return own * prod(map(_growth, part.values()))
