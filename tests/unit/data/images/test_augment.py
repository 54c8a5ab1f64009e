"""Changes of images: what each does, and that they depend on seed and step alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.images.augment import Augmentation, apply_changes

SIZE = 12
NONE = [1, 1, 0, 0, 0, 0, 0]


def random_images(count=2, seed=0):
    return torch.rand(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def change(images, **values):
    names = ("mirror", "zoom", "right", "down", "brightness", "contrast", "saturation")
    row = [values.get(name, default) for name, default in zip(names, NONE, strict=True)]
    return apply_changes(images, torch.tensor([row] * len(images), dtype=torch.float32))


@given(
    seed=st.integers(0, 2**40),
    step=st.integers(0, 2**40),
    count=st.integers(1, 9),
    shift=st.floats(0, 0.5),
    zoom=st.sampled_from([0.0, 0.1, 0.9]),
    color_jitter=st.sampled_from([0.0, 0.2]),
)
def test_changes_depend_on_seed_and_step_and_stay_in_range(
    seed, step, count, shift, zoom, color_jitter
):
    chosen = Augmentation(flip_prob=0.5, shift=shift, zoom=zoom, color_jitter=color_jitter)
    found = chosen.draw_changes(count, seed, step, SIZE)
    assert np.array_equal(found, chosen.draw_changes(count, seed, step, SIZE))
    if zoom:
        assert not np.array_equal(found, chosen.draw_changes(count, seed, step + 1, SIZE))
    assert set(found[:, 0]) <= {-1, 1}
    assert (np.abs(np.log(found[:, 1])) <= np.log1p(zoom) + 1e-6).all()
    pixels = found[:, 2:4] * SIZE
    assert np.allclose(pixels, pixels.round(), atol=1e-5)
    assert (np.abs(pixels) <= np.round(shift * SIZE) + 1e-5).all()
    images = apply_changes(random_images(count), torch.from_numpy(found))
    assert images.shape == (count, 3, SIZE, SIZE)
    assert images.abs().max() <= 1


def test_nothing_by_default():
    images = random_images()
    unchanged = Augmentation()
    assert not unchanged.is_active
    assert Augmentation(shift=0.1).is_active
    changes = torch.from_numpy(unchanged.draw_changes(2, 0, 5, SIZE))
    assert torch.allclose(apply_changes(images, changes), images, atol=1e-5)


@pytest.mark.parametrize("mirror", [1, -1])
def test_shifts_are_exact_after_mirroring(mirror):
    images = random_images()
    base = images.flip(-1) if mirror < 0 else images
    moved = change(images, mirror=mirror, right=3 / SIZE, down=-2 / SIZE)
    assert torch.allclose(moved[:, :, :-2, 3:], base[:, :, 2:, :-3], atol=1e-5)
    assert torch.allclose(moved[:, :, :-2, 0], base[:, :, 2:, 0], atol=1e-5)  # the border


def test_zoom_and_colors():
    images = torch.full((1, 3, SIZE, SIZE), -1.0)
    images[..., 4:8, 4:8] = 1.0
    assert (change(images, zoom=1.5) > 0).sum() > (images > 0).sum()
    assert (change(images, zoom=0.6) > 0).sum() < (images > 0).sum()
    colored = 0.5 * random_images(1)
    assert torch.allclose(change(colored, brightness=0.1), colored + 0.1, atol=1e-5)
    assert change(colored, contrast=0.4).std() > colored.std()
    gray = change(colored, saturation=-1)
    assert torch.allclose(gray[:, 0], gray[:, 2], atol=1e-5)
