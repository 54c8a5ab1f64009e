"""CLIP's loss against plain autograd and transformers, however a batch is divided."""

import json
import math
from itertools import count

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers.models.clip.modeling_clip import image_text_contrastive_loss

from cloze.data.pair_batch import PairLayout
from cloze.objectives.clip import ClipObjective
from cloze.objectives.diffusion import place_images, read_images
from cloze.train.distributed import SINGLE_PROCESS
from images import clip_model, image_text_batches
from parallel_jobs import compute_clip_gradients, image_text
from training import in_processes, new_state, steps_of


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def compute_by_autograd():
    """Logits of one graph; other images with the same caption are no negatives."""
    made = clip_model("distilbert", dropout=0.0)
    model = made.module.double().train()
    model.requires_grad_(True)
    batch = image_text_batches(made.tokenizer).batch(3)
    placed = place_images(model, batch)
    images = F.normalize(model.embed_images(model.standardize(read_images(placed))))
    texts = F.normalize(
        model.embed_texts(placed.tensors["input_ids"], placed.tensors["attention_mask"])
    )
    logits = model.logit_scale.exp() * texts @ images.T
    captions = batch.layout.texts[: len(batch.layout)]
    is_equal = torch.from_numpy(captions[:, None] == captions).fill_diagonal_(False)
    assert is_equal.any()
    logits = logits.masked_fill(is_equal, -torch.inf)
    loss = image_text_contrastive_loss(logits)
    loss.backward()
    return loss.item(), {n: w.grad for n, w in model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize("part_size", [2, 5, 12])
def test_cached_gradients_are_those_of_one_graph(in_float64, part_size):
    loss, expected = compute_by_autograd()
    means, found = compute_clip_gradients(SINGLE_PROCESS, part_size)
    assert means["clip"] == pytest.approx(loss, abs=1e-10)
    assert found.keys() == expected.keys()
    assert expected["logit_scale"].abs() > 1e-6
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() <= 1e-10, name


def test_two_processes_compute_the_gradients_of_one(in_float64, tmp_path):
    in_processes(2, image_text, tmp_path)
    loss, expected = compute_by_autograd()
    shares = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sum(one["clip"] for one in shares) == pytest.approx(loss, abs=1e-10)
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        for name, gradient in expected.items():
            assert (found[name] - gradient).abs().max() <= 1e-10, name


def test_the_loss_is_that_of_transformers():
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(10, 6, generator=rng)
    rows = np.arange(10).reshape(2, 5).T

    class Batch:
        layout = PairLayout.from_rows(rows)

    scale = torch.tensor(1.7)
    found = ClipObjective().compute_loss(vectors, Batch, (scale,))
    texts, images = F.normalize(vectors).chunk(2)
    wanted = image_text_contrastive_loss(scale.exp() * texts @ images.T)
    torch.testing.assert_close(found["clip"] / 5, wanted)


def test_the_temperature_is_limited():
    module = clip_model().module
    with torch.no_grad():
        module.logit_scale.fill_(9.0)
    module.clamp_logit_scale()
    assert module.logit_scale.exp().item() == pytest.approx(100, rel=1e-5)


def test_the_loss_falls_and_the_temperature_is_learned():
    made = clip_model("distilbert")
    batches = image_text_batches(made.tokenizer, count=6, batch_size=6)
    batches.data.captions[:] = list("abcdef")
    state = new_state(made.module.train(), objective=ClipObjective(), rate=0.01, seed=3)
    scale = made.module.logit_scale.item()
    steps = steps_of(state, 40, source=lambda first: ([batches.batch(n)] for n in count(first)))
    assert steps[0].means["clip"] == pytest.approx(math.log(6), abs=0.5)
    assert np.mean([one.means["clip"] for one in steps[-3:]]) < 0.8 * steps[0].means["clip"]
    assert made.module.logit_scale.item() != scale
