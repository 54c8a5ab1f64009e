"""Training of diffusion models: images to a folder, resumed exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.data.images.image_set import ImageBatches, ImageSet
from cloze.errors import ConfigError
from cloze.make import stored_images
from cloze.make.diffusion import AUTOENCODER
from cloze.make.stored_images import store_latents, store_texts
from cloze.objectives.diffusion import (
    diffusion_objective,
    place_images,
    read_samples,
    read_texts,
)
from cloze.train.averaging import WeightEMA
from helpers import raises, tiny_model
from images import SHAPE, diffusion_model, drawings

SETTINGS = {
    **{f"model.{name}": value for name, value in SHAPE.items()},
    "run.batch_size": 4,
    "run.eval_every": 2,
    "run.save_every": 2,
    "data.hold_out": 0.3,
    "run.autoencoder_fraction": 0.5,
}
CHANGES = {"data.shift": 0.1, "data.zoom": 0.1, "data.flip_prob": 0.5, "data.color_jitter": 0.1}


def train(out, text_encoder, steps=8, **options):
    settings = {
        **SETTINGS,
        "text_encoder.init_from": str(text_encoder),
        **options.pop("settings", {}),
    }
    return cloze.pretrain(
        drawings(24), out, "diffusion", settings=settings, steps=steps, device="cpu", **options
    )


class StopInStage(cloze.Callback):
    """Stops a run after the second step of a stage."""

    def __init__(self, stage):
        self._stage = stage

    def on_train_begin(self, run):
        self._run, self._stage = run, self._stage - 1

    def on_step(self, metrics):
        if metrics["step"] == 2 and not self._stage:
            self._run.request_stop()


@pytest.fixture(scope="module")
def text_encoder(tmp_path_factory):
    return tiny_model("mlm").save(tmp_path_factory.mktemp("text") / "encoder")


def weights_of(folder):
    return cloze.load(folder, device="cpu").module.state_dict()


@pytest.mark.parametrize(
    ("changes", "stages"), [({}, (1, 2)), (CHANGES, (2,))], ids=["stored latents", "augmentation"]
)
def test_both_stages_are_resumed_exactly(tmp_path, text_encoder, changes, stages):
    whole = train(tmp_path / "whole", text_encoder, settings=changes)
    assert whole.scores["diffusion"] > 0
    assert (whole.folder / "recipe.toml").read_text().count("objects in Python") == 1
    for stage in stages:
        out = tmp_path / f"stopped-{stage}"
        train(out, text_encoder, callbacks=StopInStage(stage), settings=changes)
        cloze.resume(out, sources=drawings(24), progress=False)
        expected, found = weights_of(tmp_path / "whole"), weights_of(out)
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    frozen = cloze.load(text_encoder, device="cpu").module.embeddings.word.weight
    assert torch.equal(expected["text_encoder.embeddings.word.weight"], frozen)
    first = weights_of(tmp_path / "whole" / AUTOENCODER)
    names = [name for name in first if name.startswith("autoencoder")]
    assert names
    assert all(torch.equal(first[name], expected[name]) for name in names)


@pytest.mark.parametrize(
    "settings",
    [
        {"model.latent_channels": 0, "model.prediction": "noise", "model.betas": "linear"},
        {"model.backbone": "dit", "model.prediction": "flow", "model.codebook_size": 16},
        {"text_encoder.init_from": ""},
    ],
    ids=["pixels", "dit, flow, codebook", "without text"],
)
def test_every_variant_is_trained_and_draws(tmp_path, text_encoder, settings):
    result = train(tmp_path / "run", text_encoder, steps=2, settings=settings)
    assert result.steps >= 1
    picture = cloze.draw(tmp_path / "run", "a red star", steps=2)
    assert picture.pixels.shape == (16, 16, 3)


def test_stored_latents_are_those_of_the_images(tmp_path):
    module = diffusion_model().module
    images = ImageSet.prepare(drawings(9), 16, tmp_path / "set")
    stored = store_latents(images, module, torch.device("cpu"), batch_size=4)
    shared = {"data": images, "indices": np.arange(9), "tokenizer": tiny_model("mlm").tokenizer}
    shared |= {"batch_size": 5, "max_length": 24, "loss": "diffusion"}
    plain, quick = ImageBatches(**shared), ImageBatches(**shared, stored=stored, text_width=24)
    samples = [read_samples(module, place_images(module, one.batch(3))) for one in (plain, quick)]
    assert torch.allclose(*samples, atol=1e-5)
    assert "images" not in quick.batch(3).arrays()
    assert quick.batch(3).input_ids.shape[1] == 24
    assert [part.size for part in quick.batch(3).split(2)] == [2, 3]
    width = plain.find_text_width()
    assert max(plain.batch(n).input_ids.shape[1] for n in range(4)) == width
    assert store_latents(images, module, torch.device("cpu"), batch_size=0) is None  # too many


def make_batches(model, images, **options):
    return ImageBatches(
        data=images,
        indices=np.arange(len(images)),
        tokenizer=model.tokenizer,
        batch_size=5,
        max_length=24,
        loss="diffusion",
        caption_dropout=0.3,
        **options,
    )


def encode(batches, model, **options):
    return store_texts(
        batches.distinct_captions,
        model,
        **{"max_length": 24, "batch_size": 5, "dtype": "float32", **options},
    )


def test_stored_texts_are_those_of_the_text_encoder(tmp_path):
    model = diffusion_model()
    images = ImageSet.prepare(drawings(30), 16, tmp_path / "set")
    plain = make_batches(model, images)
    quick = replace(plain, texts=encode(plain, model))
    assert quick.texts.rows[""] == 0
    for number in range(6):
        one, other = plain.batch(number), quick.batch(number)
        assert "text_rows" not in one.arrays()
        assert other.arrays()["input_ids"].shape == (5, 0)
        first, second = other.split(2)
        assert np.array_equal(np.concatenate([first.text_rows, second.text_rows]), other.text_rows)
        expected, mask = read_texts(model.module, place_images(model.module, one))
        found, other_mask = read_texts(model.module, place_images(model.module, other))
        width = mask.shape[1]
        assert torch.equal(mask, other_mask[:, :width])
        assert not other_mask[:, width:].any()
        assert torch.allclose(expected[mask], found[:, :width][mask], atol=1e-5)
        losses = [diffusion_objective(model.module, part)["diffusion"] for part in (one, other)]
        assert torch.allclose(*losses, rtol=1e-4)


def test_texts_that_are_not_stored(tmp_path, monkeypatch):
    model, examples = diffusion_model(), drawings(12)
    images = ImageSet.prepare(examples, 16, tmp_path / "set")
    batches = make_batches(model, images)
    assert encode(batches, model, batch_size=0) is None  # too many
    monkeypatch.setattr(stored_images, "_CPU_BYTES", 100)
    assert encode(batches, model) is None  # too large
    tagged = [replace(one, keywords=("round",)) for one in examples]
    images = ImageSet.prepare(tagged, 16, tmp_path / "tagged")
    assert make_batches(model, images, keyword_prob=0.1).distinct_captions is None
    assert make_batches(model, images).distinct_captions[0] == ""


def test_stored_texts_can_be_turned_off(tmp_path, text_encoder):
    folders = []
    for is_on in (True, False):
        folders.append(tmp_path / str(is_on))
        train(folders[-1], text_encoder, settings={"run.store_texts": is_on})
    first, second = (weights_of(one) for one in folders)
    assert all(torch.allclose(first[name], second[name], atol=1e-3) for name in first)


def test_the_loss_falls_and_the_average_follows(tmp_path, text_encoder):
    changes = {"model.latent_channels": 0, "run.ema_decay": 0.5, "optimizer.lr": 0.003}
    few, many = (
        train(tmp_path / str(steps), text_encoder, steps=steps, settings=changes)
        for steps in (1, 15)
    )
    assert many.scores["diffusion"] < 0.9 * few.scores["diffusion"]


def test_an_exponential_average():
    class State:
        model, extra = torch.nn.Linear(1, 1, bias=False), {}

    class Step:
        def __init__(self, number):
            self.number = number

    def steps():
        for number, value in enumerate((1.0, 3.0), 1):
            torch.nn.init.constant_(State.model.weight, value)
            yield Step(number)

    average = WeightEMA(State(), decay=0.9)
    assert [step.number for step in average.average_steps(steps())] == [1, 2]
    decay = 3 / 12  # of the second step
    with average.swap_in():
        assert State.model.weight.item() == pytest.approx(decay * 1 + (1 - decay) * 3)
    assert State.model.weight.item() == 3


def test_mistakes(tmp_path, text_encoder):
    other = diffusion_model().save(tmp_path / "other")
    with raises(ConfigError, "init_from", fix="new"):
        cloze.pretrain(drawings(2), tmp_path / "a", "diffusion", init_from=str(other), steps=1)
    with raises(ConfigError, "divisible", fix="multiple"):
        train(tmp_path / "b", text_encoder, settings={"model.image_size": 17})
    with raises(ConfigError, "norm_groups", fix="multiples of 3"):
        train(tmp_path / "c", text_encoder, settings={"model.norm_groups": 3})
