"""Training steps of diffusion models on a GPU: as CUDA graphs, and in bfloat16."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cloze.data.images.image_set import ImageBatches
from cloze.make.stored_images import store_latents, store_pixels, store_texts
from cloze.objectives.core import Learner
from cloze.objectives.diffusion import (
    AUTOENCODER_LOSS,
    DIFFUSION_LOSS,
    diffusion_objective,
    make_autoencoder_objective,
)
from cloze.train.config import LoopConfig, OptimizerConfig
from cloze.train.cuda_graphs import CUDAGraphCache
from cloze.train.distributed import DistributedContext
from cloze.train.gradients import apply_gradients
from cloze.train.loop import training_steps
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import TrainState
from images import diffusion_model, drawings, image_set

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda", 0)
IMAGES = image_set(drawings(24))


def make_batches(model, loss, *, has_stored_texts):
    """Batches of latents for the denoiser, of pixels for the autoencoder."""
    is_second = loss == DIFFUSION_LOSS
    stored = (
        store_latents(IMAGES, model.module, GPU, batch_size=8)
        if is_second
        else store_pixels(IMAGES, GPU)
    )
    found = ImageBatches(
        data=IMAGES,
        indices=np.arange(len(IMAGES)),
        tokenizer=model.tokenizer if is_second else None,
        batch_size=8,
        max_length=24,
        loss=loss,
        caption_dropout=0.2,
        stored=stored,
        text_width=24,
    )
    if not (is_second and has_stored_texts):
        return found
    texts = store_texts(
        found.distinct_captions, model, max_length=24, batch_size=8, dtype="float32"
    )
    return replace(found, texts=texts)


def train(loss, *, recording, has_stored_texts=True, dtype="float32"):
    """The number of graphs, and losses and gradient norms of the steps."""
    model = diffusion_model()
    module = model.module.to(GPU).requires_grad_(False)
    is_second = loss == DIFFUSION_LOSS
    (module.denoiser if is_second else module.autoencoder).requires_grad_(True)
    module.autoencoder.scale.requires_grad_(False)
    batches = make_batches(model, loss, has_stored_texts=has_stored_texts)
    objective = diffusion_objective if is_second else make_autoencoder_objective(1e-3)
    state = TrainState(
        Learner(module, objective),
        module,
        build_optimizer(module, OptimizerConfig(lr=1e-3)),
        config=LoopConfig(dtype=dtype),
        distributed=DistributedContext(device=GPU),
    )
    graphs = CUDAGraphCache(apply_gradients)
    if not recording:
        graphs.run_step = lambda *_: None
    source = ([batches.batch(number)] for number in range(10))
    steps = training_steps(
        state, lambda _: source, budget=Budget(steps=10), schedule=Schedule(), graphs=graphs
    )
    found = [{**step.means, "norm": step.grad_norm} for step in steps]
    return len(graphs), found  # counted after the steps, which run when they are read


@pytest.mark.parametrize("has_stored_texts", [True, False])
@pytest.mark.parametrize("loss", [DIFFUSION_LOSS, AUTOENCODER_LOSS])
def test_recorded_steps_are_the_steps(loss, has_stored_texts):
    options = {"has_stored_texts": has_stored_texts}
    _, expected = train(loss, recording=False, **options)
    captured, found = train(loss, recording=True, **options)
    assert captured == 1
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=2e-2, abs=1e-4)


def test_stored_texts_change_nothing():
    (_, first), (_, second) = (
        train(DIFFUSION_LOSS, recording=True, has_stored_texts=one) for one in (True, False)
    )
    for a, b in zip(first, second, strict=True):
        assert a == pytest.approx(b, rel=2e-2, abs=1e-4)


@pytest.mark.parametrize("loss", [DIFFUSION_LOSS, AUTOENCODER_LOSS])
def test_steps_in_bfloat16_are_close(loss):
    _, exact = train(loss, recording=False)
    captured, found = train(loss, recording=True, dtype="bfloat16")
    assert captured == 1
    for a, b in zip(found, exact, strict=True):
        assert a[loss] == pytest.approx(b[loss], rel=0.05, abs=1e-2)
