"""Processes that turn documents into shards.

Each worker is a program of its own (`python -m cloze.data.encoder_workers`) and communicates
through pipes. So neither a script that prepares a corpus nor a notebook needs `if __name__ ==
"__main__":`. A message is the length of its header, a JSON header, and the bytes that the header
announces. The first message contains the settings, each further one a chunk of documents; the
worker answers each chunk with a line of JSON when its shard is on disk. A worker whose parent has
ended reads the end of its input and ends too.
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
from cloze.data.document_encoder import Document, DocumentEncoder, EncoderSettings
from cloze.data.shards import write_shard
from cloze.errors import ClozeError, ConfigError, InputError


class EncoderWorkers:
    """Some processes with one recipe; each starts when there is work for it."""

    def __init__(self, count: int, recipe: EncoderSettings) -> None:
        self._recipe = settings_to_json(recipe)
        self._threads = ThreadPoolExecutor(count)  # one waits for each process
        self._idle: SimpleQueue[_WorkerProcess] = SimpleQueue()

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

    def write_shard(self, path: Path, documents: list[Document]) -> "Future[None]":
        """Have the documents written as a shard."""
        return self._threads.submit(self._write, path, documents)

    def _write(self, path: Path, documents: list[Document]) -> None:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _WorkerProcess(self._recipe)
        try:
            worker.write(path, documents)
        except BaseException:
            worker.close()
            raise
        self._idle.put(worker)


class _WorkerProcess:
    """One process, seen from outside."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        self._process = Popen(
            [sys.executable, "-m", "cloze.data.encoder_workers"],
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
            send_message(self._input, recipe)

    def write(self, path: Path, documents: list[Document]) -> None:
        sizes = [[len(paragraph) for paragraph in document] for document in documents]
        with suppress(BrokenPipeError):
            send_message(
                self._input,
                {"path": os.fspath(path.absolute()), "sizes": sizes},
                b"".join(paragraph for document in documents for paragraph in document),
            )
        answer = self._output.readline()
        if not answer:
            raise ClozeError(
                f"a worker process died ({self._wait_for_exit()})",
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

    def _wait_for_exit(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def settings_to_json(recipe: EncoderSettings) -> Mapping[str, Any]:
    """What a worker is told at first; a segmenter goes by its name."""
    words = recipe.segmenter
    name = words and f"{words.__module__}:{getattr(words, '__qualname__', '')}"
    if name and _import_segmenter(name) is not words:
        raise ConfigError(
            f"worker processes cannot import the segmenter {words!r}",
            fix="define it by name in a module, not in a script, or use one worker",
        )
    return {
        "backend": recipe.backend,
        "vocab_size": recipe.vocab_size,
        "unk_id": recipe.unk_id,
        "sentences": recipe.sentences,
        "segmenter": name,
    }


def _import_segmenter(name: str) -> Segmenter | None:
    module, _, attribute = name.partition(":")
    return None if module == "__main__" else getattr(import_module(module), attribute, None)


def send_message(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """One message: how long its header is, the header, then the payload that it describes."""
    head = json.dumps(header).encode()
    stream.write(len(head).to_bytes(8, "little") + head)
    stream.write(payload)
    stream.flush()


def _read_header(stream: IO[bytes]) -> dict[str, Any]:
    size = int.from_bytes(_read_exactly(stream, 8), "little")
    header: dict[str, Any] = json.loads(_read_exactly(stream, size))
    return header


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes. A parent that died while sending leaves fewer: no shard is made of those."""
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _process_messages(source: IO[bytes], answers: IO[bytes]) -> None:
    recipe = _read_header(source)
    words = recipe.pop("segmenter")
    encoder = DocumentEncoder(
        EncoderSettings(**recipe, segmenter=_import_segmenter(words) if words else None)
    )
    while True:
        job = _read_header(source)
        documents = [[_read_exactly(source, size) for size in sizes] for sizes in job["sizes"]]
        answer: dict[str, Any] = {}
        try:
            write_shard(Path(job["path"]), encoder(documents))
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
        _process_messages(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
