"""Training of CLIP: images to a folder, resumed exactly, with any text encoder."""

import numpy as np
import pytest
import torch

import cloze
from cloze.data.images.decode import encode_png
from cloze.errors import ClozeError, ConfigError, InputError
from helpers import Watch, raises, tiny_model
from images import CLIP_SHAPE, RESNET_SHAPE, clip_model, drawings

SETTINGS = {
    **{f"model.{name}": value for name, value in {**CLIP_SHAPE, **RESNET_SHAPE}.items()},
    "run.batch_size": 8,
    "run.eval_every": 2,
    "run.save_every": 2,
    "data.hold_out": 0.3,
}


def train(out, text_encoder, steps=4, count=24, **options):
    settings = {
        **SETTINGS,
        "text_encoder.init_from": str(text_encoder),
        **options.pop("settings", {}),
    }
    return cloze.pretrain(
        drawings(count), out, "clip", settings=settings, steps=steps, device="cpu", **options
    )


@pytest.fixture(scope="module")
def text_encoder(tmp_path_factory):
    return tiny_model("mlm").save(tmp_path_factory.mktemp("text") / "encoder")


def weights_of(folder):
    return cloze.load(folder, device="cpu").module.state_dict()


def test_a_run_is_resumed_exactly(tmp_path, text_encoder):
    options = {"settings": {"run.ema_decay": 0.9, "run.part_size": 3}}
    whole = train(tmp_path / "whole", text_encoder, steps=6, **options)
    assert 0 <= whole.scores["recall_at_1"] <= whole.scores["recall_at_5"] <= 1
    train(tmp_path / "cut", text_encoder, steps=6, callbacks=Watch(stop_at=3), **options)
    cloze.resume(tmp_path / "cut", sources=drawings(24), progress=False)
    expected, found = weights_of(tmp_path / "whole"), weights_of(tmp_path / "cut")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        ({}, "cloze-clip"),
        ({"model.vision": "resnet", "model.image_pooling": "mean"}, "cloze-clip"),
        ({"text_encoder.architecture": "clip-text", "text_encoder.preset": "tiny"}, "clip"),
        ({"model.text_pooling": "pooler", "text_encoder.from_scratch": True},
         "vision-text-dual-encoder"),
    ],
    ids=["vit", "resnet", "CLIP's text encoder", "dual encoder"],
)  # fmt: skip
def test_every_variant_is_trained_and_evaluated(tmp_path, text_encoder, settings, layout):
    from cloze.files import read_json

    result = train(tmp_path / "run", text_encoder, steps=2, settings=settings)
    assert result.steps == 2
    assert read_json(tmp_path / "run" / "config.json")["model_type"] == layout
    found = cloze.evaluate(tmp_path / "run", drawings(12, seed=3))
    assert found.kind == "image_text"
    assert found.counts["images"] == 12
    assert 0 < found.scores["chance_recall_at_1"] < 1


def test_the_text_encoder_learns_slowly_or_not_at_all(tmp_path, text_encoder):
    name = "embeddings.word.weight"
    before = cloze.load(text_encoder, device="cpu").module.state_dict()[name]
    changes = {}
    for factor in (0.0, 0.1, 1.0):
        out = tmp_path / str(factor)
        settings = {"text_encoder.lr_factor": factor, "optimizer.weight_decay": 0.0}
        train(out, text_encoder, steps=2, settings=settings)
        found = weights_of(out)
        changes[factor] = (found[f"text_encoder.{name}"] - before).abs().max()
    assert changes[0.0] == 0
    assert 0 < changes[0.1] < 0.5 * changes[1.0]


@pytest.mark.parametrize("text", ["clip-text", "bert"])
def test_a_diffusion_model_reads_the_text_with_a_clip(tmp_path, text):
    from images import SHAPE

    clip = clip_model(text).save(tmp_path / "clip")
    settings = {
        **{f"model.{name}": value for name, value in SHAPE.items()},
        "model.latent_channels": 0,
        "run.batch_size": 4,
        "text_encoder.init_from": str(clip),
    }
    cloze.pretrain(
        drawings(8), tmp_path / "run", "diffusion", settings=settings, steps=1, device="cpu"
    )
    model = cloze.load(tmp_path / "run", device="cpu")
    assert model.config.text.config.family == text
    expected = cloze.load(clip, device="cpu").module.text_encoder.state_dict()
    found = model.module.text_encoder.state_dict()
    assert all(torch.equal(found[name], one) for name, one in expected.items())
    assert cloze.draw(model, "a red star", steps=1).pixels.shape == (16, 16, 3)


def test_images_are_cropped_if_the_model_says_so(tmp_path):
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, 8:24] = 200
    for number in range(2):
        (tmp_path / f"image {number}.png").write_bytes(encode_png(wide + number))
    model = clip_model("clip-text", resize="crop")
    seen = []
    embed = model.module.embed_images
    model.module.embed_images = lambda pixels: seen.append(pixels) or embed(pixels)
    cloze.evaluate(model, str(tmp_path))
    assert len(seen[0][0].unique()) <= 3  # of the three channels, no border


def test_mistakes(tmp_path, text_encoder):
    with raises(ConfigError, "init_from", fix="new"):
        other = clip_model().save(tmp_path / "other")
        cloze.pretrain(drawings(4), tmp_path / "a", "clip", init_from=str(other), steps=1)
    with raises(ConfigError, "divisible", fix="multiple"):
        train(tmp_path / "b", text_encoder, settings={"model.image_size": 18})
    with raises(ConfigError, "text_encoder.init_from", fix="--text-from-scratch"):
        train(tmp_path / "c", "")
    with raises(ConfigError, "GPT-2", fix="cloze-en"):
        train(tmp_path / "d", tiny_model("lm", family="gpt2").save(tmp_path / "gpt"))
    with raises(InputError, "1", fix="more images"):
        train(tmp_path / "e", text_encoder, count=1, settings={"data.hold_out": 0.0})
    with raises(ConfigError, "text_pooling", fix="mean"):
        train(tmp_path / "f", text_encoder, settings={"model.text_pooling": "eos"})
    with raises(InputError, "captions"):
        cloze.evaluate(clip_model(), drawings(1))
    with raises(ClozeError, "beam", fix="text_column"):
        cloze.evaluate(clip_model(), drawings(2), beam=2)
    with raises(ClozeError, "overwrite", fix="--out"):
        train(text_encoder, text_encoder, force=True)
