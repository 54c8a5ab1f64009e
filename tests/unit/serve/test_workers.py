"""Several worker processes: one address, one set of metrics, shared weights, one stop."""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch

import cloze
from cloze.serve.shared_weights import share_weights
from cloze.serve.workers import divide_threads
from helpers import tiny_model
from servers import count_requests, list_children, run_command


def test_workers_share_an_address_and_stop_together(folders):
    body = {"text": "a [MASK]"}
    with (
        run_command(folders["mlm"], "--workers", 2, "--log", "none") as (process, url),
        httpx.Client(base_url=url, timeout=60) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        send = partial(httpx.post, f"{url}/api/fill", json=body, timeout=60)
        answers = list(pool.map(lambda _: send(), range(40)))
        assert {one.status_code for one in answers} == {200}
        expected = cloze.fill(folders["mlm"], "a [MASK]").to_dict()["masks"][0]["predictions"][0]
        assert answers[0].json()["masks"][0]["predictions"][0]["word"] == expected["word"]
        assert count_requests(client.get("/metrics").text) == 40
        workers = list_children(process.pid)
        host, _, port = url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as late:
            head = f"POST /api/fill HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            late.sendall(f"{head}Content-Length: 20\r\nExpect: 100-continue\r\n\r\n".encode())
            assert b"100 Continue" in late.recv(1000)  # it was accepted
            process.send_signal(signal.SIGTERM)
            while client.get("/ready").status_code == 200:
                time.sleep(0.02)
            late.sendall(b'{"text": "a [MASK]"}')
            assert late.recv(12) == b"HTTP/1.1 200"  # so it is answered
        assert process.wait(60) == 0
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_errors_of_folders_come_from_the_parent(tmp_path):
    with run_command(tmp_path / "nothing", "--workers", 2) as (process, line):
        assert "nothing" in line
        assert process.wait(30) == 1


def test_weights_are_mapped_from_one_file_and_equal(tmp_path):
    model, other = tiny_model("mlm"), tiny_model("mlm")
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    expected = cloze.embed(model, "a b")
    for one in (model, other):
        share_weights(one, tmp_path, "mlm")
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    for name, value in model.module.state_dict().items():
        assert torch.equal(value, before[name])
    assert cloze.embed(other, "a b") == pytest.approx(expected, abs=1e-6)
    mapped = Path("/proc/self/maps").read_text()
    assert mapped.count(str(tmp_path)) >= 2


def test_cores_are_divided_among_workers(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    assert divide_threads(3)["OMP_NUM_THREADS"] == "2"
    assert divide_threads(16)["RAYON_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # --threads
    assert divide_threads(3)["OMP_NUM_THREADS"] == "5"
