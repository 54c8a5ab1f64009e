"""Fine-tuning jobs: a folder for each, and a `cloze finetune` process that trains.

The status of a job is read from its folder, so that all worker processes of a server see the same,
and a server that was restarted knows what the last one left. While its process lives, a job has a
lock, which the operating system removes when the process ends, however it ends.

    FOLDER/lock             held while jobs are created, started or removed
    FOLDER/files/ID.jsonl   rows that were uploaded
    FOLDER/jobs/ID/         job.json, lock, result.json (standard output), log.txt (standard error)
    FOLDER/jobs/ID/run/     what `cloze finetune --out` writes: the model, metrics.jsonl
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cloze.errors import FolderError
from cloze.files import read_json, write_json
from cloze.serve.failures import RequestError, refuse

FORMATS = {"jsonl": ".jsonl", "csv": ".csv", "tsv": ".tsv", "conll": ".conll", "json": ".json"}
MAX_WAITING, MAX_KEPT = 16, 1000  # jobs in the queue; jobs, and files, in the folder
STOP_SECONDS = 30.0  # in which a process saves its state and ends
_PRIORITY = 10  # of the processes, so that requests are answered first
_MAX_LOG = 1 << 16
_ENDED = ("succeeded", "failed", "cancelled", "interrupted")


@dataclass(frozen=True, kw_only=True)
class FinetuneJob:
    """What was asked for, and what was done so far."""

    id: str
    name: str  # of the new model
    task: str
    model: str
    source: str  # the folder of the model, or the name of a built-in one
    train: str  # ids of files
    dev: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0  # seconds since 1970
    started_at: float | None = None
    is_cancelled: bool = False
    pid: int | None = None


class JobStore:
    """The jobs in a folder, of which a few run at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        max_running: int = 1,
        device: str | None = None,
        command: Sequence[str] = (sys.executable, "-m", "cloze", "finetune"),
    ) -> None:
        self._folder, self._max_running, self._device = folder.absolute(), max_running, device
        self._command = command
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # of this worker
        self._is_closing = False
        for part in ("files", "jobs"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)

    # files

    def list_files(self) -> dict[str, Path]:
        """The uploaded files by id."""
        found = (self._folder / "files").iterdir()
        return {path.stem: path for path in found if not path.name.startswith(".")}

    def new_file(self, format_: str) -> tuple[str, Path]:
        """The id and the path of a file to be written."""
        self._check_count("files", len(self.list_files()))
        name = uuid.uuid4().hex[:16]
        return name, self._folder / "files" / (name + FORMATS[format_])

    def find_file(self, name: str) -> Path:
        """The path of an uploaded file."""
        found = self.list_files().get(name)
        if found is None:
            raise refuse(404, "file_not_found", f"there is no file {name!r}", fix="upload it")
        return found

    def _check_count(self, what: str, count: int) -> None:
        if count >= MAX_KEPT:
            raise refuse(
                429, "too_many", f"there are already {count:,} {what}",
                fix=f"delete {what} that are not needed", retry_after=60.0,
            )  # fmt: skip

    # jobs

    def list_jobs(self) -> list[FinetuneJob]:
        """All jobs, the oldest first."""
        folders = [path.name for path in (self._folder / "jobs").iterdir()]
        found = [job for name in folders if (job := self._read(name)) is not None]
        return sorted(found, key=lambda job: (job.created_at, job.id))

    def find_job(self, name: str) -> FinetuneJob:
        """The job with an id."""
        job = self._read(name) if name.isalnum() else None
        if job is None:
            raise refuse(
                404, "job_not_found", f"there is no fine-tuning job {name!r}",
                fix="GET /api/finetune lists the jobs",
            )  # fmt: skip
        return job

    def _read(self, name: str) -> FinetuneJob | None:
        try:
            return FinetuneJob(**read_json(self._path(name) / "job.json"))
        except (FolderError, TypeError):
            return None  # it is being created or removed

    def _write(self, job: FinetuneJob) -> FinetuneJob:
        write_json(self._path(job.id) / "job.json", asdict(job))
        return job

    def _path(self, name: str) -> Path:
        return self._folder / "jobs" / name

    def create(self, job: FinetuneJob, taken: Sequence[str]) -> FinetuneJob:
        """Add a job to the queue, and start it if none is running."""
        with self._lock():
            jobs = self.list_jobs()
            self._check_count("jobs", len(jobs))
            if len([one for one in jobs if self.find_status(one) == "queued"]) >= MAX_WAITING:
                raise refuse(
                    429, "queue_full", f"{MAX_WAITING} fine-tuning jobs are waiting",
                    fix="try again later", retry_after=60.0,
                )  # fmt: skip
            if job.name in taken or job.name in {one.name for one in jobs}:
                raise refuse(
                    409, "name_taken", f"there is already a model or a job named {job.name}",
                    fix="choose another name, or delete the job",
                )  # fmt: skip
            self._path(job.id).mkdir()
            self._write(job)
        self.start_waiting()
        return self.find_job(job.id)

    def start_waiting(self) -> None:
        """Start jobs in the order of their creation, as many as may run at a time."""
        if self._is_closing:
            return
        with self._lock():
            statuses = [(job, self.find_status(job)) for job in self.list_jobs()]
            running = sum(status in ("running", "cancelling") for _, status in statuses)
            waiting = [job for job, status in statuses if status == "queued"]
            for job in waiting[: max(0, self._max_running - running)]:
                self._start(job)

    def resume(self, name: str) -> FinetuneJob:
        """Put a job that was interrupted, cancelled or failed into the queue again."""
        with self._lock():
            job = self.find_job(name)
            status = self.find_status(job)
            if status not in ("interrupted", "cancelled", "failed"):
                raise refuse(
                    409, "not_resumable", f"the job is {status}",
                    fix="resume jobs that were interrupted or cancelled, or that failed",
                )  # fmt: skip
            for file in ("result.json", "log.txt"):
                (self._path(job.id) / file).unlink(missing_ok=True)
            self._write(replace(job, started_at=None, is_cancelled=False, pid=None))
        self.start_waiting()
        return self.find_job(job.id)

    def cancel(self, name: str) -> FinetuneJob | None:
        """Cancel a job; one that has ended is removed with its model, and None is returned."""
        with self._lock():
            job = self.find_job(name)
            if self.find_status(job) in _ENDED:
                shutil.rmtree(self._path(job.id))
                return None
            job = self._write(replace(job, is_cancelled=True))
            if self._is_alive(job):
                self._stop(job)
        return job

    def remove_file(self, name: str) -> None:
        """Delete an uploaded file, unless a job may still read it."""
        with self._lock():
            path = self.find_file(name)
            users = [job for job in self.list_jobs() if name in (job.train, job.dev)]
            busy = [job.id for job in users if self.find_status(job) != "succeeded"]
            if busy:
                raise refuse(
                    409, "file_in_use", f"the file is used by the job {busy[0]}",
                    fix="delete the job first",
                )  # fmt: skip
            path.unlink()

    def find_status(self, job: FinetuneJob) -> str:
        """What the files of a job say."""
        if self._is_alive(job):
            return "cancelling" if job.is_cancelled else "running"
        if job.started_at is None:
            return "cancelled" if job.is_cancelled else "queued"
        if self.read_result(job) is not None:
            return "succeeded"
        if job.is_cancelled:
            return "cancelled"
        return "failed" if self.read_error(job) else "interrupted"

    def read_result(self, job: FinetuneJob) -> dict[str, Any] | None:
        """The JSON that the process printed at its end."""
        try:
            found = json.loads((self._path(job.id) / "result.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def read_error(self, job: FinetuneJob) -> dict[str, str] | None:
        """The error that the process printed; paths of the server are left out."""
        try:
            log = (self._path(job.id) / "log.txt").read_bytes()[-_MAX_LOG:].decode(errors="replace")
        except OSError:
            return None
        log = log.replace(f"{self._folder}/", "")
        lines = log.splitlines()
        found = {
            label: line.removeprefix(f"{label}:").strip()
            for line in lines
            for label in ("error", "fix")
            if line.startswith(f"{label}:")
        }
        if "error" in found:
            return {"message": found["error"], "fix": found.get("fix", "")}
        if any(line.startswith(("Traceback", "Usage:")) for line in lines):
            text = " ".join(line.strip(" │") for line in lines if line.strip(" │╭╮╰╯─"))
            return {"message": text[-500:], "fix": "check the options of the job"}
        return None

    def read_metrics(self, job: FinetuneJob) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        try:
            lines = (self._path(job.id) / "run" / "metrics.jsonl").read_bytes().splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            with suppress(ValueError):  # a last line that is not complete
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict)]

    def list_models(self) -> dict[str, str]:
        """The folders of the models of jobs that succeeded, by name."""
        return {
            job.name: str(self._path(job.id) / "run")
            for job in self.list_jobs()
            if self.find_status(job) == "succeeded"
        }

    # processes

    def _start(self, job: FinetuneJob) -> None:
        path = self._path(job.id)
        with (
            (path / "lock").open("wb") as lock,
            (path / "result.json").open("wb") as out,
            (path / "log.txt").open("wb") as log,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)  # before it counts as started
            job = self._write(replace(job, started_at=time.time()))
            try:
                command = self._make_command(job)
            except RequestError as error:
                log.write(f"error: {error}\nfix: {error.failure.fix}\n".encode())
                return
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=path,
                env=os.environ | {"NO_COLOR": "1"},
                process_group=0,  # Ctrl-C in the terminal of the server is not for it
                pass_fds=(lock.fileno(),),  # it holds the lock as long as it lives
            )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _PRIORITY)
        self._write(replace(job, pid=process.pid))
        self._processes[job.id] = process
        threading.Thread(target=self._wait, args=(job.id, process), daemon=True).start()

    def _make_command(self, job: FinetuneJob) -> list[str]:
        """The command line; values follow an equals sign, so that none is read as an option."""
        run = self._path(job.id) / "run"
        general = [f"--out={run}", "--json", "--quiet"]
        if any((run / "state").glob("*")):
            return [*self._command, "--resume", *general]
        options = dict(job.options)
        if self._device is not None:
            options["device"] = self._device
        flags = [f"--train={self.find_file(job.train)}"]
        if job.dev is not None:
            flags.append(f"--dev={self.find_file(job.dev)}")
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if value is not False:
                flags.append(flag if value is True else f"{flag}={value}")
        return [*self._command, job.task, job.source, *flags, *general, "--force"]

    def _wait(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        self._processes.pop(name, None)
        self.start_waiting()

    def _stop(self, job: FinetuneJob) -> None:
        """Ask a process to save its state and end; kill it if it does not."""

        def signal_group(number: int) -> None:
            if job.pid is not None and self._is_alive(job):
                with suppress(ProcessLookupError):
                    os.killpg(job.pid, number)

        signal_group(signal.SIGTERM)
        timer = threading.Timer(STOP_SECONDS, signal_group, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def stop_all(self) -> None:
        """Ask the processes of this worker to save their state and end, and start no others."""
        self._is_closing = True
        for process in list(self._processes.values()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def close(self) -> None:
        """Wait until the processes of this worker have ended; their jobs are interrupted."""
        self.stop_all()
        deadline = time.monotonic() + STOP_SECONDS
        for process in list(self._processes.values()):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_alive(self, job: FinetuneJob) -> bool:
        """Whether the process of a job holds its lock."""
        try:
            with (self._path(job.id) / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One worker and thread at a time."""
        with (self._folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
