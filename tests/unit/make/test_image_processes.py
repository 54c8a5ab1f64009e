"""CLIP and diffusion models in two processes: what one process computes, resumed by either."""

import json

import pytest
import torch

import cloze
from helpers import Watch, check_mentions, tiny_model
from images import drawings
from parallel_jobs import IMAGE_VARIANTS, image_runs, image_variants, train_images
from training import in_processes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of the runs of one process and of two."""
    folder = tmp_path_factory.mktemp("runs")
    text = tiny_model("mlm", dropout=0.0, attention_dropout=0.0).save(folder / "text")
    for family in ("clip", "diffusion"):
        train_images(family, folder / f"{family}-1", text)
    train_images("clip", folder / "clip-resumed", text, callbacks=Watch(stop_at=3))
    in_processes(2, image_runs, folder, text)
    cloze.resume(folder / "diffusion-resumed", sources=drawings(24), progress=False)
    return folder


def read_losses(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if row["kind"] == "train"]


@pytest.mark.parametrize("family", ["clip", "diffusion"])
def test_two_processes_learn_what_one_does(runs, family):
    expected = runs / f"{family}-1"
    for name in (f"{family}-2", f"{family}-resumed"):
        found = runs / name
        assert read_losses(found) == pytest.approx(read_losses(expected), abs=1e-5), name
        weights = [cloze.load(one, device="cpu").module.state_dict() for one in (expected, found)]
        for weight, one in weights[0].items():
            assert torch.allclose(one, weights[1][weight], atol=1e-5), (name, weight)
        assert (found / "report.html").is_file()


def test_the_autoencoder_is_that_of_one_process(runs):
    losses = [read_losses(runs / f"diffusion-{count}" / "autoencoder") for count in (1, 2)]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


@pytest.mark.stress
def test_every_variant_in_two_processes(tmp_path):
    text = tiny_model("mlm", dropout=0.0, attention_dropout=0.0).save(tmp_path / "text")
    in_processes(1, image_variants, tmp_path, text)
    in_processes(2, image_variants, tmp_path, text)
    for number, variant in enumerate(IMAGE_VARIANTS):
        one, two = (read_losses(tmp_path / f"{number}-{count}") for count in (1, 2))
        assert two == pytest.approx(one, rel=1e-3, abs=1e-5), variant


def test_batches_with_fewer_images_than_processes(runs):
    first, second = ((runs / f"few-{rank}.txt").read_text() for rank in range(2))
    check_mentions(first, "2 processes", "1 images", "--batch-size")
    assert second == "SystemExit: 1"
