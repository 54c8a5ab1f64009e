"""Commands in processes of their own, forked from one that has imported what takes seconds.

A command has its own signals, standard streams, variables and memory, as one that a shell starts;
only the start of Python is shared. Tests of the start itself (imports, locale) use `subprocess`.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path

IMPORTED = (
    *("torch", "cloze.cli.app", "cloze.cli.common", "cloze.make.pretrain.job"),
    *("cloze.make.finetune.encoder", "cloze.tasks.evaluation"),
)


class ForkedCommand:
    """`cloze ARGUMENTS` that was started; streams that are not given are read when it has ended."""

    def __init__(self, *arguments, stdin="", stdout=None, stderr=None, **environment):
        self.arguments = [str(one) for one in arguments]
        with tempfile.TemporaryFile() as given:
            given.write(stdin.encode())
            given.seek(0)
            self._streams = [one or tempfile.TemporaryFile() for one in (stdout, stderr)]  # noqa: SIM115
            request = {
                "arguments": self.arguments,
                "folder": str(Path.cwd()),
                "environment": os.environ | {"COLUMNS": "100"} | environment,
            }
            streams = [given, *self._streams]
            numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
            self._server = start_server()
            socket.send_fds(self._server, [json.dumps(request).encode()], numbers)
            self.pid = int(self._server.recv(64))

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> subprocess.CompletedProcess[str]:
        try:
            self._server.send(json.dumps(self.pid).encode())
            code = int(self._server.recv(64))
        except BaseException:
            self.send_signal(signal.SIGKILL)
            start_server.cache_clear()
            raise
        return subprocess.CompletedProcess(self.arguments, code, *map(read_stream, self._streams))


def read_stream(stream) -> str | None:
    """What was written to a temporary file; None for a stream that the caller opened."""
    if isinstance(stream, int) or isinstance(getattr(stream, "name", None), str):
        return None
    with stream:
        stream.seek(0)
        return stream.read().decode()


@cache
def start_server() -> socket.socket:
    """The connection to a process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.pathsep.join(filter(None, sys.path))
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": path},
        )
    ours.settimeout(200)
    atexit.register(process.wait)
    atexit.register(ours.close)  # before it: the last is called first
    return ours


def fork_commands(connection: socket.socket) -> None:
    """Start a command for each request, and wait for the one that a number names."""
    for name in IMPORTED:
        import_module(name)
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:
            return
        request = json.loads(message)
        if isinstance(request, int):
            _, status = os.waitpid(request, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        elif child := os.fork():
            for one in streams:
                os.close(one)
            connection.send(str(child).encode())
        else:
            connection.close()
            run_command(request, streams)


def run_command(request: dict, streams: list[int]) -> None:
    from cloze.cli import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["cloze", *request["arguments"]]
    main()  # it ends the process


if __name__ == "__main__":
    fork_commands(socket.socket(fileno=int(sys.argv[1])))
