"""Train a CLIP on images with captions.

The run's folder is the model's folder. It contains the best model so far by the recall of held-out
images and captions:

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json report.html state/
    images/         decoded images
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.images.image_set import ImageSet
from cloze.data.images.image_text_batch import CLIP_LOSS, ImageTextBatch, ImageTextBatches
from cloze.data.sources import Sources
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike
from cloze.make.best_model import fit_best, new_state
from cloze.make.image_run import ImageRun, copy_text_encoder, resume_image_run, start_image_run
from cloze.make.recipe.images import ClipRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.stored_images import store_pixels
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.clip import TEXT_ENCODER, ClipConfig
from cloze.models.configs.clip_text import ClipTextConfig
from cloze.models.configs.nested import NestedConfig
from cloze.nn.fuse import move_to_device
from cloze.objectives.clip import ClipObjective
from cloze.objectives.core import Learner
from cloze.tasks.evaluate_image_text import compute_retrieval_scores
from cloze.train.averaging import WeightEMA
from cloze.train.callbacks import CallbackList
from cloze.train.fit import Steps
from cloze.train.forward_context import autocast, run_eagerly
from cloze.train.result import RunResult
from cloze.train.state import TrainState

_MIN_IMAGES = 2  # of a batch: a caption needs another image to be compared with


def pretrain_clip(
    sources: Sources,
    out: PathLike,
    recipe: ClipRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train a CLIP on images with captions.

    Start it with `torchrun` for several processes: the loss compares the images of all of them.

    Args:
        sources: what `cloze.data.images.read.read_images` reads; if empty, the recipe's.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    with start_image_run(sources, out, recipe, force=force, callbacks=callbacks) as run:
        return _train(run)


def resume_clip(
    out: PathLike,
    recipe: ClipRecipe,
    *,
    sources: Sources = (),
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe; images that were decoded are not read again."""
    with resume_image_run(out, recipe, sources=sources, callbacks=callbacks) as run:
        return _train(run)


def _train(run: ImageRun[ClipRecipe]) -> RunResult:
    recipe, distributed, is_fast = run.recipe, run.distributed, run.is_fast
    model = _build_model(run)
    move_to_device(model.module, distributed.device)
    train, dev = run.images.split(recipe.data.hold_out)
    if len(train) < _MIN_IMAGES:
        raise InputError(
            f"{len(train)} images are too few to compare", fix="give more images with captions"
        )
    run.log_data(train, dev, model.module, "the model")
    batches = _make_batches(run, model, train)
    if is_fast:
        from cloze.train.compiled import compile_clip

        compile_clip(model.module)
    learner = Learner(model.module, ClipObjective())
    state = new_state(learner, recipe, _make_lr_factor(recipe), distributed=distributed)
    average = WeightEMA(state, recipe.run.ema_decay) if recipe.run.ema_decay else None
    evaluation = _Evaluation.from_images(run.images, dev[: recipe.run.eval_images])

    def compute_scores() -> dict[str, float]:
        with (
            average.swap_in() if average else nullcontext(),
            # these batches may have other shapes than those that the model is compiled for
            run_eagerly() if is_fast else nullcontext(),
            autocast(recipe.run.dtype, distributed.device),
        ):
            return evaluation.compute_scores(model)

    def evaluate() -> Mapping[str, float]:
        found = compute_scores() if distributed.is_first else {}
        return distributed.gather_objects(found)[0]  # the same in all processes

    def save_model() -> None:
        if distributed.is_first:
            with average.swap_in() if average else nullcontext():
                model.save_into(run.folder)

    def wrap_steps(steps: Steps, _: object) -> Steps:
        clamped = _clamp_scale(steps, state)
        return average.average_steps(clamped) if average else clamped

    result = fit_best(
        state,
        recipe,
        out=run.folder,
        batches=lambda first: _list_parts(batches, run, first),
        steps_per_epoch=batches.per_epoch,
        fingerprint={
            "recipe": run_fingerprint(recipe, "data.sources", "data.captions"),
            "images": run.images.fingerprint,
        },
        evaluate=evaluate if len(evaluation) else None,
        save_model=save_model,
        callbacks=run.callbacks,
        wrap_steps=wrap_steps,
        unit="images",
    )
    run.finish(result)
    return result


def _build_model(run: ImageRun[ClipRecipe]) -> Model:
    """A model with random weights, but for those of a trained text encoder."""
    recipe, text = run.recipe, run.text
    assert text is not None
    choice = recipe.text_encoder
    text_config = _choose_text_config(recipe, text)
    is_own = text_config.family == TEXT_ENCODER
    config: ClipConfig = recipe.model.new_config
    config = replace(
        config,
        text_pooling="eos" if is_own else config.text_pooling,
        max_text_length=min(config.max_text_length, text_config.max_positions),  # type: ignore[attr-defined]
        vocab_size=text_config.vocab_size,
        text=NestedConfig(text_config),
    )
    rng = torch.Generator().manual_seed(recipe.run.seed)
    model = Model.from_config(config, text.tokenizer, rng=rng)
    if not choice.is_fresh:
        copy_text_encoder(model.module.text_encoder, text)
    is_frozen = not choice.is_fresh and choice.lr_factor == 0
    model.module.text_encoder.requires_grad_(not is_frozen)
    if getattr(model.module.text_encoder, "pooler", None) is not None:
        pooled = config.text_pooling == "pooler"
        model.module.text_encoder.pooler.requires_grad_(pooled and not is_frozen)
    return model


def _choose_text_config(recipe: ClipRecipe, text: Model) -> ModelConfig:
    """That of the text encoder itself, or of a new one with its tokenizer."""
    choice, config = recipe.text_encoder, text.config
    if choice.architecture == "same":
        return config
    end = text.tokenizer.sep_id if text.tokenizer.sep_id is not None else text.tokenizer.eos_id
    if end is None or end == ClipTextConfig.LEGACY_END_ID:
        raise ConfigError(
            f"the tokenizer of {choice.init_from} has the end-of-text token {end}, which "
            f"{TEXT_ENCODER} cannot use",
            fix="use another text encoder, such as cloze-en",
        )
    return ClipTextConfig.preset(
        choice.preset,
        vocab_size=config.vocab_size,
        pad_id=text.tokenizer.pad_id,
        end_of_text_id=end,
        max_positions=recipe.model.new_config.max_text_length,
    )


def _make_lr_factor(recipe: ClipRecipe) -> Any:  # noqa: ANN401 (a function)
    choice = recipe.text_encoder
    factor = 1.0 if choice.is_fresh else choice.lr_factor
    return lambda name: factor if name.startswith("text_encoder.") else 1.0


def _make_batches(
    run: ImageRun[ClipRecipe], model: Model, indices: NDArray[np.int64]
) -> ImageTextBatches:
    recipe, size = run.recipe, min(run.recipe.run.batch_size, len(indices))
    run.check_batch_size(size)
    batches = ImageTextBatches(
        data=run.images,
        indices=indices,
        tokenizer=model.tokenizer,
        batch_size=size,
        max_length=model.max_length,
        loss=CLIP_LOSS,
        seed=recipe.run.seed,
        keyword_prob=recipe.data.keyword_prob,
        augmentation=recipe.data.augmentation,
        stored=store_pixels(run.images, model.device),
    )
    return replace(batches, text_width=batches.find_text_width()) if run.is_fast else batches


def _list_parts(
    batches: ImageTextBatches, run: ImageRun[ClipRecipe], first: int
) -> Iterator[list[ImageTextBatch]]:
    """The parts of this process, from a step on."""
    size = run.recipe.run.part_size or batches.batch_size
    place = {"rank": run.distributed.rank, "world_size": run.distributed.world_size}
    return (batches.make_parts(number, size, **place) for number in count(first))


def _clamp_scale(steps: Steps, state: TrainState) -> Steps:
    for step in steps:
        state.model.clamp_logit_scale()  # type: ignore[operator]
        yield step


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """The recall of held-out images and captions."""

    images: ImageSet
    indices: NDArray[np.int64]

    @classmethod
    def from_images(cls, images: ImageSet, indices: NDArray[np.int64]) -> "_Evaluation":
        return cls(images, np.sort(indices))

    def __len__(self) -> int:
        return len(self.indices)

    def compute_scores(self, model: Model) -> dict[str, float]:
        captions: Sequence[str] = [self.images.captions[n] for n in self.indices]
        scores = compute_retrieval_scores(model, self.images.pixels[self.indices], captions)
        return {**scores, "score": scores["recall_at_1"]}
