"""Worker processes that are killed, and a parent that is killed."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers import tiny_model
from servers import count_requests, list_children, run_command

pytestmark = pytest.mark.stress


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model("mlm").save(tmp_path_factory.mktemp("served") / "mlm")


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_worker_that_is_killed_is_replaced_and_its_metrics_stay(folder):
    body = {"text": "a [MASK]"}
    with (
        run_command(folder, "--workers", 2, "--log", "none") as (process, url),
        ThreadPoolExecutor(4) as pool,
    ):

        def send(_):
            return httpx.post(f"{url}/api/fill", json=body, timeout=60).status_code

        assert set(pool.map(send, range(20))) == {200}
        for round_ in range(3):
            first, second = list_children(process.pid)
            os.kill(first, signal.SIGKILL)
            while len(list_children(process.pid)) < 2 or first in list_children(process.pid):
                time.sleep(0.05)
            assert second in list_children(process.pid)
            time.sleep(10)  # a worker that ends sooner counts as one that cannot start
            assert send(0) == 200
            assert count_requests(httpx.get(f"{url}/metrics", timeout=60).text) == 21 + round_


def test_workers_end_with_their_parent(folder):
    with run_command(folder, "--workers", 2, "--log", "none") as (process, _):
        while len(workers := list_children(process.pid)) < 2:
            time.sleep(0.02)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(is_running(pid) for pid in workers)
