"""Worker processes that encode documents and write them as shards.

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
    """Up to `count` processes with the same settings; each is started when there is work for it."""

    def __init__(self, count: int, settings: EncoderSettings) -> None:
        self._settings = settings_to_json(settings)
        self._threads = ThreadPoolExecutor(count)  # each thread waits for one process
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

    def write_shard(
        self, path: Path, documents: list[Document], *, continues: bool
    ) -> "Future[None]":
        """Encode documents and write them as a shard, in a worker process."""
        return self._threads.submit(self._run, path, documents, continues=continues)

    def _run(self, path: Path, documents: list[Document], *, continues: bool) -> None:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _WorkerProcess(self._settings)
        try:
            worker.write_shard(path, documents, continues=continues)
        except BaseException:
            worker.close()
            raise
        self._idle.put(worker)


class _WorkerProcess:
    """The parent's side of a worker process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = Popen(
            [sys.executable, "-m", "cloze.data.encoder_workers"],
            stdin=PIPE,
            stdout=PIPE,
            # one core for each process; the same import path as in the parent
            env={
                **os.environ,
                "TOKENIZERS_PARALLELISM": "false",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        with suppress(BrokenPipeError):  # reported when there is no answer
            send_message(self._input, settings)

    def write_shard(self, path: Path, documents: list[Document], *, continues: bool) -> None:
        sizes = [[len(paragraph) for paragraph in document] for document in documents]
        with suppress(BrokenPipeError):
            send_message(
                self._input,
                {"path": os.fspath(path.absolute()), "sizes": sizes, "continues": continues},
                b"".join(paragraph for document in documents for paragraph in document),
            )
        answer = self._output.readline()
        if not answer:
            raise ClozeError(
                f"a worker process died ({self._wait_for_exit()})",
                fix="run the same command again with fewer workers if memory ran out; finished "
                "shards are kept",
            )
        error = json.loads(answer)
        if "errno" in error:
            raise OSError(error["errno"], error["strerror"], error["filename"])
        if "problem" in error:
            raise InputError(error["problem"], fix=error["fix"])

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        self._process.wait()

    def _wait_for_exit(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def settings_to_json(settings: EncoderSettings) -> Mapping[str, Any]:
    """The first message to a worker; the segmenter is sent as its import path."""
    segmenter = settings.segmenter
    name = segmenter and f"{segmenter.__module__}:{getattr(segmenter, '__qualname__', '')}"
    if name and _import_segmenter(name) is not segmenter:
        raise ConfigError(
            f"worker processes cannot import the segmenter {segmenter!r}",
            fix="define it as a function of an importable module, not in a script, or use one "
            "worker",
        )
    return {
        "backend": settings.backend,
        "vocab_size": settings.vocab_size,
        "unk_id": settings.unk_id,
        "sentences": settings.sentences,
        "segmenter": name,
    }


def _import_segmenter(name: str) -> Segmenter | None:
    module, _, attribute = name.partition(":")
    return None if module == "__main__" else getattr(import_module(module), attribute, None)


def send_message(stream: IO[bytes], header: Mapping[str, Any], payload: bytes = b"") -> None:
    """Send a message: the length of the header, the header, and the payload."""
    encoded = json.dumps(header).encode()
    stream.write(len(encoded).to_bytes(8, "little") + encoded)
    stream.write(payload)
    stream.flush()


def _read_header(stream: IO[bytes]) -> dict[str, Any]:
    size = int.from_bytes(_read_exactly(stream, 8), "little")
    header: dict[str, Any] = json.loads(_read_exactly(stream, size))
    return header


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Read `size` bytes; there are fewer if the parent died while it was sending."""
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _process_messages(source: IO[bytes], answers: IO[bytes]) -> None:
    settings = _read_header(source)
    name = settings.pop("segmenter")
    segmenter = _import_segmenter(name) if name else None
    encode = DocumentEncoder(EncoderSettings(**settings, segmenter=segmenter))
    while True:
        header = _read_header(source)
        documents = [[_read_exactly(source, size) for size in sizes] for sizes in header["sizes"]]
        answer: dict[str, Any] = {}
        try:
            encoded = encode(documents, continues=header["continues"])
            write_shard(Path(header["path"]), encoded)
        except OSError as error:
            answer = {name: getattr(error, name) for name in ("errno", "strerror", "filename")}
        except ClozeError as error:
            answer = {"problem": error.problem, "fix": error.fix}
        answers.write(json.dumps(answer, default=str).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Process messages until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep other output apart from the answers
    with suppress(BrokenPipeError, EOFError):  # the parent has ended; finished shards are on disk
        _process_messages(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
