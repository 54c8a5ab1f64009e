"""Share the cores of a CPU with other processes.

The threads of torch's OpenMP library (libgomp) spin for some milliseconds when they wait for each
other. Alone this is fast; with another process on the same cores they take the time that it needs.
The library spins briefly if a process has more OpenMP threads than cores. So while others compete
for the cores, a helper thread keeps a second, sleeping group of OpenMP threads: waiting is then
short, the number of threads that compute is unchanged, and so are all results.
"""

import os
import threading
import time
from pathlib import Path

import torch

# Whoever sets one of these has decided how threads wait.
VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "KMP_BLOCKTIME")
INTERVAL = 0.05  # seconds between two measurements
BUSY, QUIET = 0.10, 0.03  # seconds that a thread waits for a core, in each second of time
QUIET_MEASUREMENTS = 10  # in a row, before threads spin again
_TASKS = Path("/proc/self/task")


class ContentionMonitor:
    """Measures how long threads wait for a core, and how they wait for each other follows."""

    def __init__(self) -> None:
        self._is_active = _TASKS.is_dir() and not any(name in os.environ for name in VARIABLES)
        self._lock = threading.Lock()
        self._measured: tuple[float, float] | None = None  # time, waiting time of all threads
        self._quiet = 0
        self._stop: threading.Event | None = None  # of the helper threads

    @property
    def is_busy(self) -> bool:
        """Whether other processes compete for the cores."""
        return self._stop is not None

    def check(self) -> None:
        """Measure, if it is time; call it between two batches."""
        if not self._is_active:
            return
        now = time.monotonic()
        if self._measured and now - self._measured[0] < INTERVAL:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._measure(now)
        finally:
            self._lock.release()

    def _measure(self, now: float) -> None:
        before, waited = self._measured, _read_waiting_time()
        self._measured = now, waited
        if before is None:
            return
        fraction = (waited - before[1]) / (now - before[0])
        self._quiet = self._quiet + 1 if fraction < QUIET else 0
        if self._stop is None and fraction > BUSY:
            self._stop = _start_helpers()
        elif self._stop is not None and self._quiet >= QUIET_MEASUREMENTS:
            self._stop.set()
            self._stop = None


MONITOR = ContentionMonitor()


def _read_waiting_time() -> float:
    """Seconds that the threads of this process were ready to run, but had no core."""
    total = 0
    for task in _TASKS.iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):  # it has ended, or the system does not measure
            continue
    return total / 1e9


def _start_helpers() -> threading.Event:
    """Have more OpenMP threads than cores until the event is set."""
    stop = threading.Event()
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    count = -(-(cores + 1 - threads) // (threads - 1)) if threads > 1 else 0
    for _ in range(max(count, 0)):
        ready = threading.Event()
        helper = threading.Thread(target=_hold_threads, args=(ready, stop), daemon=True)
        helper.start()
        ready.wait(1)
    return stop


def _hold_threads(ready: threading.Event, stop: threading.Event) -> None:
    torch.zeros(1 << 18).exp_()  # large enough for all threads
    ready.set()
    stop.wait()
