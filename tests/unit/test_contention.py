"""While other processes compete for the cores, threads wait for each other without spinning."""

import threading
from itertools import count

import pytest
import torch

from cloze import contention
from cloze.contention import ContentionMonitor


@pytest.fixture
def clock(monkeypatch):
    """Each measurement comes a second after the last one."""
    monkeypatch.setattr(contention.time, "monotonic", count().__next__)
    for name in contention.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def measure(monitor, monkeypatch, *waits):
    """One measurement for each second, in which the threads waited so long for a core."""
    total = 0.0
    for wait in waits:
        total += wait
        monkeypatch.setattr(contention, "_read_waiting_time", lambda total=total: total)
        monitor.check()


def helpers():
    return [one for one in threading.enumerate() if "_hold_threads" in one.name]


@pytest.mark.skipif(not contention._TASKS.is_dir(), reason="only Linux measures it")
def test_helper_threads_exist_while_the_machine_is_busy(clock, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(contention.os, "sched_getaffinity", lambda _: {0, 1})
    monitor = ContentionMonitor()
    measure(monitor, monkeypatch, 0.0, 0.01, 0.01)
    assert not monitor.is_busy
    assert not helpers()
    measure(monitor, monkeypatch, 1.0, 1.0)
    assert monitor.is_busy
    (helper,) = helpers()
    measure(monitor, monkeypatch, 5.0, *[0.0] * 20)
    assert not monitor.is_busy
    helper.join(5)
    assert not helper.is_alive()


@pytest.mark.parametrize("name", contention.VARIABLES)
def test_the_usual_variables_decide(clock, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monitor = ContentionMonitor()
    measure(monitor, monkeypatch, 0.0, 5.0, 5.0)
    assert not monitor.is_busy


@pytest.mark.skipif(not contention._TASKS.is_dir(), reason="only Linux measures it")
def test_waiting_is_measured():
    assert contention._read_waiting_time() >= 0.0
