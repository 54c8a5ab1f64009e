"""Processes that turn documents into shards.

They are programs of their own (`python -m cloze.data.workers`) that talk over pipes, so a script
that prepares a corpus needs no `if __name__ == "__main__":`, and so does a notebook. A frame is its
length, a JSON header of that length, and the bytes the header announces. The first frame holds the
recipe, each further one a chunk; each is answered by a line of JSON once the shard is on disk. A
worker whose parent is gone reads the end of its input, and ends too.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from subprocess import PIPE, Popen
from types import TracebackType
from typing import IO, Any, Self

from cloze.data.config import Segmenter
from cloze.data.encode import Document, Encoder, Recipe
from cloze.data.shards import write
from cloze.errors import ClozeError, ConfigError, InputError


class Workers:
    """Some processes with one recipe; each starts when there is work for it."""

    def __init__(self, count: int, recipe: Recipe) -> None:
        self._recipe = recipe_to_json(recipe)
        self._threads = ThreadPoolExecutor(count)  # one waits for each process
        self._idle: SimpleQueue[_Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def write(self, path: Path, documents: list[Document]) -> "Future[None]":
        """Have the documents written as a shard."""
        return self._threads.submit(self._write, path, documents)

    def _write(self, path: Path, documents: list[Document]) -> None:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _Worker(self._recipe)
        try:
            worker.write(path, documents)
        except BaseException:
            worker.close()
            raise
        self._idle.put(worker)


class _Worker:
    """One process, seen from outside."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        self._process = Popen(
            [sys.executable, "-m", "cloze.data.workers"],
            stdin=PIPE,
            stdout=PIPE,
            # The cores are shared out already, and what is imported here is imported there.
            env={
                **os.environ,
                "TOKENIZERS_PARALLELISM": "false",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        with suppress(BrokenPipeError):  # told when there is no answer
            send(self._input, recipe)

    def write(self, path: Path, documents: list[Document]) -> None:
        sizes = [[len(paragraph) for paragraph in document] for document in documents]
        with suppress(BrokenPipeError):
            send(
                self._input,
                {"path": os.fspath(path.absolute()), "sizes": sizes},
                b"".join(paragraph for document in documents for paragraph in document),
            )
        answer = self._output.readline()
        if not answer:
            raise ClozeError(
                f"a worker process died ({self._fate()})",
                fix="use fewer workers if memory is short; finished shards are kept",
            )
        failed = json.loads(answer)
        if "errno" in failed:
            raise OSError(failed["errno"], failed["strerror"], failed["filename"])
        if "problem" in failed:
            raise InputError(failed["problem"], fix=failed["fix"])

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        self._process.wait()

    def _fate(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def recipe_to_json(recipe: Recipe) -> Mapping[str, Any]:
    """What a worker is told at first; a segmenter goes by its name."""
    words = recipe.segmenter
    name = words and f"{words.__module__}:{getattr(words, '__qualname__', '')}"
    if name and _imported(name) is not words:
        raise ConfigError(
            f"worker processes cannot import the segmenter {words!r}",
            fix="define it by name in a module, not in a script, or use one worker",
        )
    return {
        "backend": recipe.backend,
        "vocabulary": recipe.vocabulary,
        "unknown": recipe.unknown,
        "sentences": recipe.sentences,
        "segmenter": name,
    }


def _imported(name: str) -> Segmenter | None:
    module, _, attribute = name.partition(":")
    return None if module == "__main__" else getattr(import_module(module), attribute, None)


def send(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """One message: how long its header is, the header, then the payload that it describes."""
    head = json.dumps(header).encode()
    stream.write(len(head).to_bytes(8, "little") + head)
    stream.write(payload)
    stream.flush()


def _header(stream: IO[bytes]) -> dict[str, Any]:
    size = int.from_bytes(_exactly(stream, 8), "little")
    header: dict[str, Any] = json.loads(_exactly(stream, size))
    return header


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes. A parent that died while sending leaves fewer: no shard is made of those."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _work(source: IO[bytes], answers: IO[bytes]) -> None:
    recipe = _header(source)
    words = recipe.pop("segmenter")
    encoder = Encoder(Recipe(**recipe, segmenter=_imported(words) if words else None))
    while True:
        job = _header(source)
        documents = [[_exactly(source, size) for size in sizes] for sizes in job["sizes"]]
        answer: dict[str, Any] = {}
        try:
            write(Path(job["path"]), encoder(documents))
        except OSError as error:
            answer = {name: getattr(error, name) for name in ("errno", "strerror", "filename")}
        except ClozeError as error:
            answer = {"problem": error.problem, "fix": error.fix}
        answers.write(json.dumps(answer, default=str).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Work until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints does not garble them
    with suppress(BrokenPipeError, EOFError):  # the parent is gone, and its work is on disk
        _work(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
