"""`draw`: images that depend on text, seed and options alone."""

import base64
import json

import numpy as np
import pytest
import torch

import cloze
from cloze.data.images.decode import decode_image
from cloze.decode.image_generation import MixedNoise, NoiseSource
from cloze.errors import ConfigError, InputError
from helpers import raises, tiny_model
from images import diffusion_model


@pytest.fixture(scope="module", params=["latents", "pixels", "flow"])
def model(request):
    changes = {
        "latents": {},
        "pixels": {"latent_channels": 0, "prediction": "noise"},
        "flow": {"prediction": "flow", "backbone": "dit"},
    }
    return diffusion_model(**changes[request.param])


def test_a_batch_gives_the_same_as_one_at_a_time(model):
    texts = ["a b", "c", ""]
    together = cloze.draw(model, texts, steps=3, samples=2, seed=5)
    for text, found in zip(texts, together, strict=True):
        assert [one.seed for one in found.pictures] == [5, 6]
        alone = cloze.draw(model, text, steps=3, seed=6).pixels
        assert np.abs(found.pictures[1].pixels.astype(int) - alone).max() <= 1
    first, second = (one.pixels for one in together[0].pictures)
    assert not np.array_equal(first, second)
    again = cloze.draw(model, texts, steps=3, samples=2, seed=5)
    assert np.array_equal(again[2].pixels, together[2].pixels)


def test_guidance_follows_the_text(model):
    plain, guided, other = (
        cloze.draw(model, text, steps=3, guidance=guidance).pixels.astype(int)
        for text, guidance in (("a b", 1.0), ("a b", 4.0), ("c d", 1.0))
    )
    assert np.abs(plain - guided).max() > 0
    assert np.abs(plain - other).max() > 0


def test_an_image_to_start_from_and_parts_to_keep(model):
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    near, far = (
        np.abs(
            cloze.draw(model, "a", steps=10, image=image, strength=strength).pixels - start
        ).mean()
        for start in (
            cloze.draw(model, "a", steps=10, image=image, strength=0.1).pixels.astype(int),
        )
        for strength in (0.2, 1.0)
    )
    assert near < far
    mask = np.zeros((16, 16, 3), np.uint8)
    mask[:, 8:] = 255
    kept = cloze.draw(model, "a", steps=4, image=image, mask=mask, strength=1.0).pixels
    if model.module.autoencoder is None:
        assert np.abs(kept[:, :8].astype(int) - image[:, :8]).max() <= 1
        assert np.abs(kept[:, 8:].astype(int) - image[:, 8:]).max() > 1


def test_images_on_the_way_to_another_text_and_seed(model):
    found = cloze.interpolate_images(model, "a b", "c", count=3, steps=3, seed=2, other_seed=9)
    assert found.text == "a b → c"
    ends = (cloze.draw(model, text, steps=3, seed=seed) for text, seed in (("a b", 2), ("c", 9)))
    for picture, end in zip(found.pictures[::2], ends, strict=True):
        assert np.abs(picture.pixels.astype(int) - end.pixels).max() <= 1
    middle = found.pictures[1].pixels.astype(int)
    assert all(np.abs(middle - one.pixels).max() > 1 for one in found.pictures[::2])
    same = cloze.interpolate_images(model, "a b", count=2, steps=2)
    assert np.array_equal(same.pictures[0].pixels, same.pictures[1].pixels)


def test_mixed_noise_is_as_long_as_noise():
    module = diffusion_model(image_size=64).module
    sources = [NoiseSource([seed] * 3, module) for seed in (0, 1)]
    weights = torch.tensor([0.0, 0.5, 1.0])
    found, first, second = (
        MixedNoise(*sources, weights)(),
        *(NoiseSource([seed] * 3, module)() for seed in (0, 1)),
    )
    assert torch.allclose(found[0], first[0], atol=1e-6)
    assert torch.allclose(found[2], second[2], atol=1e-6)
    assert found[1].std() == pytest.approx(1, abs=0.1)


def test_results(tmp_path):
    model = diffusion_model()
    steps = []
    found = cloze.draw(
        model, "<b>a</b>", steps=10, keep_steps=True,
        on_step=lambda number, total, images: steps.append((number, total, len(images))),
    )  # fmt: skip
    assert steps == [(n, 10, 1) for n in range(1, 11)]
    steps.clear()
    cloze.draw(
        model, ["a"] * 17, steps=10, preview_every=4, image=np.zeros((4, 4, 3), np.uint8),
        strength=0.5, on_step=lambda step, total, images: steps.append((step, total, len(images))),
    )  # fmt: skip
    assert steps == [(4, 10, 16), (5, 10, 16), (9, 10, 1), (10, 10, 1)]  # five steps of two batches
    assert len(found.pictures[0].steps) == 10
    written = found.save(tmp_path / "x.png").read_bytes()
    assert np.array_equal(decode_image(written, "x"), found.pixels)
    assert decode_image(found.save_steps(tmp_path / "s.png").read_bytes(), "s").shape == (
        16,
        160,
        3,
    )
    told = json.loads(json.dumps(found.to_dict()))
    assert np.array_equal(
        decode_image(base64.b64decode(told["pictures"][0]["png"]), "x"), found.pixels
    )
    assert "<b>" not in found._repr_html_()
    assert found.to_records() == [{"text": "<b>a</b>", "seed": 0, "width": 16, "height": 16}]
    assert "pixels" not in repr(found)


def test_mistakes(tmp_path):
    model = diffusion_model()
    with raises(ConfigError, "sampler", fix="euler"):
        cloze.draw(model, "a", sampler="magic")
    with raises(ConfigError, "euler", fix="ddim"):
        cloze.draw(model, "a", sampler="euler")
    with raises(ConfigError, "steps"):
        cloze.draw(model, "a", steps=0)
    with raises(ConfigError, "count"):
        cloze.interpolate_images(model, "a", "b", count=1)
    with raises(InputError, "mask", fix="image"):
        cloze.draw(model, "a", mask=np.zeros((16, 16, 3), np.uint8))
    with raises(InputError, "none.png"):
        cloze.draw(model, "a", image=tmp_path / "none.png")
    with raises(InputError, ".jpg", fix="PNG"):
        cloze.draw(model, "a", steps=1).save(tmp_path / "x.jpg")
    with raises(InputError, "draw", fix="fill"):
        cloze.draw(tiny_model("mlm"), "a")


def test_without_text_encoder():
    model = diffusion_model(with_text=False)
    assert cloze.draw(model, "", steps=2).pixels.shape == (16, 16, 3)
