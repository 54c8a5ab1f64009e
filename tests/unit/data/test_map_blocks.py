"""Blocks in this process; those of Ray are in tests/unit/tasks/test_process_files.py."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from block_jobs import Doubled
from cloze.data.map_blocks import ExecutorOptions, cut_blocks, map_blocks
from cloze.data.ray_workers import _plan_workers
from cloze.errors import ConfigError, InputError, MissingExtraError
from helpers import raises


@given(st.lists(st.integers(0, 9)), st.integers(1, 5), st.integers(1, 20))
def test_blocks_contain_every_row_once_and_in_order(rows, most, size):
    blocks = list(cut_blocks(rows, max_rows=most, max_size=size, measure=lambda row: row))
    assert [row for block in blocks for row in block] == rows
    assert all(0 < len(block) <= most for block in blocks)
    assert all(sum(block[:-1]) < size for block in blocks), "one that is full has ended"
    for block in blocks[:-1]:
        assert len(block) == most or sum(block) >= size


def test_blocks_are_read_when_they_are_computed(tmp_path):
    read = []

    def blocks():
        for number in range(5):
            read.append(number)
            yield [number]

    results = map_blocks(Doubled(tmp_path), blocks())
    assert next(results) == [0]
    assert read == [0]
    assert list(results) == [[2], [4], [6], [8]]


def test_an_error_of_a_block_is_raised(tmp_path):
    with raises(InputError, "block of 1", fix="mend"):
        list(map_blocks(Doubled(tmp_path, broken=(1,)), [[0], [1], [2]]))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"engine": "spark"}, ("engine", "spark", "ray")),
        ({"workers": 2}, ("workers", "ray")),
        ({"address": "head:6379"}, ("address", "ray")),
        ({"engine": "ray", "workers": 0}, ("workers", "0")),
    ],
)
def test_options_without_effect_are_rejected(options, names):
    with raises(ConfigError, *names):
        ExecutorOptions(**options)


@pytest.mark.parametrize(
    ("resources", "options", "expected"),
    [
        ({"CPU": 8.0}, {}, (8, 1, 0)),
        ({"CPU": 8.0}, {"workers": 2}, (2, 4, 0)),
        ({"CPU": 8.0, "GPU": 2.0}, {}, (2, 4, 1)),
        ({"CPU": 8.0, "GPU": 2.0}, {"use_gpu": False}, (8, 1, 0)),
    ],
)
def test_one_worker_per_gpu_or_core(resources, options, expected):
    assert _plan_workers(resources, ExecutorOptions(engine="ray", **options)) == expected


def test_workers_that_would_wait_forever_are_rejected():
    with raises(ConfigError, "9", "cores", "8", fix="--workers 8"):
        _plan_workers({"CPU": 8.0}, ExecutorOptions(engine="ray", workers=9))
    with raises(ConfigError, "GPUs", "0", fix="cpu"):
        _plan_workers({"CPU": 8.0}, ExecutorOptions(engine="ray", use_gpu=True))


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with raises(MissingExtraError, "ray", fix="cloze[ray]"):
        list(map_blocks(Doubled(tmp_path), [[0]], ExecutorOptions(engine="ray")))
