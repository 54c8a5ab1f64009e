import lzma
from pathlib import Path

import pytest

from cloze.metrics.glue import GLUE, compute_mean_score, find_glue_files
from cloze.metrics.scorer import METRICS


def test_every_metric_exists():
    for task in GLUE.values():
        assert set(task.metrics) <= set(METRICS[task.kind]), task.name


def test_scores_are_means():
    assert GLUE["MRPC"].score([{"f1": 0.9, "accuracy": 0.8, "f1_macro": 0}]) == pytest.approx(0.85)
    assert GLUE["MNLI"].score([{"accuracy": 0.8}, {"accuracy": 0.6}]) == pytest.approx(0.7)
    assert compute_mean_score({"RTE": 0.5, "CoLA": 0.25}) == 0.375


def test_files_are_found_in_any_case_and_compression(tmp_path: Path):
    for name in ("rte/train.tsv.gz", "rte/dev.tsv", "MNLI/dev_mismatched.tsv", "CoLA/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "WNLI").touch()  # no folder
    found = find_glue_files(tmp_path)
    assert list(found) == ["MNLI", "RTE"]
    assert found["RTE"].train == tmp_path / "rte" / "train.tsv.gz"
    assert found["RTE"].dev == (tmp_path / "rte" / "dev.tsv",)
    assert (found["MNLI"].train, len(found["MNLI"].dev)) == (None, 1)
    assert found["MNLI"].task is GLUE["MNLI"]


@pytest.mark.data
def test_the_columns_are_those_of_the_real_files(data_dir: Path):
    found = find_glue_files(data_dir / "glue")
    assert list(found) == ["CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE"]
    for name, files in found.items():
        for path in filter(None, (files.train, *files.dev)):
            opened = lzma.open if path.suffix == ".xz" else open
            with opened(path, "rt", encoding="utf-8-sig") as file:
                header = file.readline().rstrip("\n").split("\t")
            for column in (files.task.text, files.task.pair, files.task.label):
                if isinstance(column, str):
                    assert column in header, (name, header)
                elif column is not None:
                    assert 1 <= column <= len(header) == 4
