"""Checks of untrusted tokenizer files and input texts: clear errors, early, in little memory.

File sizes are checked before reading, and JSON before it reaches the tokenizers library. The
library then encodes a few test texts, because a crafted file can make it panic, and a pyo3 panic is
a `BaseException` that no `except Exception` catches.
"""

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from cloze.errors import ClozeError, FolderError, InputError
from cloze.files import read_json, read_text

MAX_BYTES = 64 << 20  # the largest published tokenizers have half of this
MAX_IDS = 10_000_000
MAX_ADDED_TOKENS = 20_000  # added tokens; the library is slow at adding them
MAX_SPECIAL_TOKENS = 64  # special tokens added to one text
MAX_GROWTH = 1000  # factor by which replacements may lengthen a text

_TEST_TEXTS = ("", "a", "Two words, 3.5 more!", " \t\n\xa0", "é e\u0301 İ 中文 ไทย 👩‍🚀", "x" * 300)
_PANIC_LOCK = threading.Lock()  # standard error is redirected by one thread at a time
_REPLACE = "download the file again, or replace it"


@contextmanager
def convert_errors(error: type[ClozeError], problem: str, *, fix: str = _REPLACE) -> Iterator[None]:
    """Convert any exception of the library in this block, panics included, into `error`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ClozeError):
        raise
    except BaseException as cause:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise error(f"{problem}: {reason[:200]}", fix=fix) from cause


@contextmanager
def silence_panics() -> Iterator[None]:
    """Discard what the library prints on standard error when it panics.

    It writes to the file descriptor, past `sys.stderr`. Anything else that is written meanwhile is
    printed afterwards.
    """
    with _PANIC_LOCK, tempfile.TemporaryFile() as output:
        try:
            stderr = os.dup(2)
        except OSError:  # standard error is closed
            yield
            return
        os.dup2(output.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            output.seek(0)
            written = output.read()
            if written and b"panicked at" not in written:
                os.write(2, written)


def check_text(text: object, name: str) -> str:
    """Return the text if the library can process it; otherwise raise."""
    if not isinstance(text, str):
        raise InputError(f"{name} is of type {type(text).__name__}", fix="pass a str")
    if text.isascii():  # encoding a long text would copy it
        return text
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise InputError(
            f"{name} contains a lone surrogate at character {cause.start:,}",
            fix="decode its bytes with errors='replace'",
        ) from cause
    return text


def read_lines(path: Path) -> list[str]:
    """The lines of a vocabulary file, separated by newlines only: tokens may be separators."""
    return read_text(path, max_bytes=MAX_BYTES, fix=_REPLACE).rstrip("\n").split("\n")


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a tokenizer."""
    found = read_json(path, max_bytes=MAX_BYTES, fix=_REPLACE)
    if not isinstance(found, dict):
        raise FolderError(f"{path} does not contain a JSON object", fix=_REPLACE)
    return found


def load_backend(path: Path) -> Backend:
    """Load a `tokenizer.json` and check it; truncation and padding are switched off."""
    found = read_json_object(path)
    added = found.get("added_tokens")
    if isinstance(added, list) and len(added) > MAX_ADDED_TOKENS:
        raise FolderError(f"{path} has {len(added):,} added tokens", fix=_REPLACE)
    growth = _compute_max_growth(found.get("normalizer")) * _compute_max_growth(
        found.get("decoder")
    )
    if growth > MAX_GROWTH:
        raise FolderError(f"{path} makes texts {growth:,} times longer", fix=_REPLACE)
    with silence_panics(), convert_errors(FolderError, f"{path} is not a valid tokenizer"):
        backend = Backend.from_str(json.dumps(found))
        backend.no_truncation()
        backend.no_padding()
    check_backend(backend, str(path))
    return backend


def check_backend(backend: Backend, source: str) -> None:
    """Encode and decode a few texts, and check that the results are consistent."""
    with silence_panics():
        _check_backend(backend, source)


def _check_backend(backend: Backend, source: str) -> None:
    size = 1 + max(backend.get_vocab().values(), default=-1)
    if not 0 < size <= MAX_IDS:
        raise FolderError(
            f"{source} has ids up to {size - 1:,}", fix=f"ids must be below {MAX_IDS:,}"
        )
    around = [backend.num_special_tokens_to_add(pair) for pair in (False, True)]
    if max(around) > MAX_SPECIAL_TOKENS:
        raise FolderError(f"{source} adds {max(around):,} special tokens to a text", fix=_REPLACE)
    for text in _TEST_TEXTS:
        with convert_errors(FolderError, f"{source} fails to encode {text[:20]!r}"):
            bare = backend.encode_batch_fast([text], add_special_tokens=False)[0]
            framed = [backend.encode(text), backend.encode(text, text)]
            for encoding in framed:
                backend.decode(encoding.ids)
                backend.decode(encoding.ids, skip_special_tokens=False)
        if any(number >= size for encoding in framed for number in encoding.ids):
            raise FolderError(f"{source} returns ids that are not in its vocabulary", fix=_REPLACE)
        specials = [encoding.sequence_ids.count(None) for encoding in framed]
        texts = [len(encoding) - len(bare) * count for count, encoding in enumerate(framed, 1)]
        if specials != around or texts != around:
            raise FolderError(
                f"{source} repeats or drops text (post-processor template)", fix=_REPLACE
            )


def _compute_max_growth(part: object) -> int:
    """The factor by which consecutive replacements can lengthen a text."""
    if isinstance(part, list):
        return prod(map(_compute_max_growth, part))
    if not isinstance(part, dict):
        return 1
    content = part.get("content") if part.get("type") == "Replace" else ""
    growth = max(1, len(content)) if isinstance(content, str) else 1
    return growth * prod(map(_compute_max_growth, part.values()))


def check_texts(texts: Sequence[str]) -> list[str]:
    """Check that each of several texts is one."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got a single string", fix="put it in a list")
    if all(type(text) is str and text.isascii() for text in texts):  # the usual case, in less time
        return list(texts)
    return [check_text(text, f"text {number:,}") for number, text in enumerate(texts, 1)]
