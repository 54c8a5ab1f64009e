"""Train a diffusion model on images with captions.

In latents, an autoencoder is trained first, with a part of the budget; then the network that
predicts noise is trained in its latents. The run's folder is the model's folder:

    config.json model.safetensors tokenizer.json …     the model, with the average of its weights
    recipe.toml metrics.jsonl data.json report.html state/
    images/         decoded images
    autoencoder/    the first stage: its state and metrics
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.images.augment import Augmentation
from cloze.data.images.image_set import ImageBatch, ImageBatches, ImageSet, StoredTexts
from cloze.data.sources import Sources
from cloze.files import PathLike, write_json
from cloze.make.best_model import fit_best, new_state
from cloze.make.image_run import (
    ImageRun,
    copy_text_encoder,
    resume_image_run,
    start_image_run,
)
from cloze.make.recipe.images import DiffusionRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.stored_images import store_latents, store_pixels, store_texts
from cloze.models.configs.nested import NestedConfig
from cloze.models.diffusion import Diffusion
from cloze.objectives.core import Learner, Objective
from cloze.objectives.diffusion import (
    AUTOENCODER_LOSS,
    DIFFUSION_LOSS,
    diffusion_objective,
    make_autoencoder_objective,
    scale_pixels,
)
from cloze.train.averaging import WeightEMA
from cloze.train.callbacks import CallbackList
from cloze.train.fit import one_batch_each
from cloze.train.forward_context import derive_seed, run_eagerly
from cloze.train.loop import evaluate_objective
from cloze.train.result import RunResult
from cloze.train.run_files import FINISHED

AUTOENCODER = "autoencoder"  # the folder of the first stage inside of the run's
_SCALE_IMAGES = 256  # from which the scale of latents is measured


def pretrain_diffusion(
    sources: Sources,
    out: PathLike,
    recipe: DiffusionRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train a diffusion model on images with captions.

    Start it with `torchrun` for several processes, which divide the images of each batch. The
    arguments are those of `cloze.make.clip.pretrain_clip`.
    """
    with start_image_run(
        sources, out, recipe, force=force, callbacks=callbacks, subfolders=(AUTOENCODER,)
    ) as run:
        if run.distributed.is_first:
            (run.folder / AUTOENCODER / FINISHED).unlink(missing_ok=True)
        run.distributed.wait_for_all()
        return _Run(run).train()


def resume_diffusion(
    out: PathLike,
    recipe: DiffusionRecipe,
    *,
    sources: Sources = (),
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe; images that were decoded are not read again."""
    with resume_image_run(out, recipe, sources=sources, callbacks=callbacks) as run:
        return _Run(run).train()


@dataclass(frozen=True)
class _Run:
    """The two stages of a run."""

    run: ImageRun[DiffusionRecipe]

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def recipe(self) -> DiffusionRecipe:
        return self.run.recipe

    @property
    def images(self) -> ImageSet:
        return self.run.images

    @property
    def callbacks(self) -> CallbackList:
        return self.run.callbacks

    def train(self) -> RunResult:
        model = self._build_model()
        model.module.to(self.run.distributed.device)
        train, dev = self.images.split(self.recipe.data.hold_out)
        self.run.log_data(train, dev, model.module.denoiser, "the network")
        if model.module.autoencoder is not None:
            stopped = self._train_autoencoder(model, train, dev)
            if stopped is not None:
                return stopped
        parts = [model.module.denoiser]
        result = self._fit(
            model, parts, diffusion_objective, DIFFUSION_LOSS, out=self.folder, stage=(train, dev)
        )
        self.run.finish(result)
        return result

    def _build_model(self) -> Model:
        config, text = self.recipe.model.new_config, self.run.text
        rng = torch.Generator().manual_seed(self.recipe.run.seed)
        vocab_size = 1 if text is None else text.config.vocab_size
        nested = None if text is None else NestedConfig(text.config)
        config = replace(config, vocab_size=vocab_size, text=nested)
        tokenizer: Any = None if text is None else text.tokenizer
        model = Model.from_config(config, tokenizer, rng=rng)
        module = model.module
        module.requires_grad_(False)
        if text is not None:
            copy_text_encoder(module.text_encoder, text)
        return model

    def _train_autoencoder(self, model: Model, train: Any, dev: Any) -> RunResult | None:  # noqa: ANN401
        """The first stage; its result if it was stopped by a signal."""
        module, out = model.module, self.folder / AUTOENCODER
        if (out / FINISHED).is_file():
            _restore_autoencoder(out, module)
            return None
        self.callbacks.on_log("stage 1 of 2: train the autoencoder")
        objective = make_autoencoder_objective(self.recipe.run.penalty_weight)
        result = self._fit(
            model, [module.autoencoder], objective, AUTOENCODER_LOSS, out=out, stage=(train, dev)
        )
        if result.stopped:
            return result
        self.run.distributed.wait_for_all()  # the first process has saved them
        _restore_autoencoder(out, module)  # the best weights
        chosen = np.sort(train[:: max(1, len(train) // _SCALE_IMAGES)][:_SCALE_IMAGES])
        pixels = torch.from_numpy(self.images.pixels[chosen].copy()).to(model.device)
        with self._run_eagerly():
            module.autoencoder.set_scale(scale_pixels(pixels))
        self.run.distributed.wait_for_all()  # all have read the weights
        if self.run.distributed.is_first:
            model.save_into(out)
            write_json(out / FINISHED, {"scores": dict(result.scores)})
        self.callbacks.on_log("stage 2 of 2: train the network that predicts noise")
        return None

    def _fit(
        self,
        model: Model,
        parts: Sequence[nn.Module],
        objective: Objective[Any],
        loss: str,
        *,
        out: Path,
        stage: tuple[Any, Any],
    ) -> RunResult:
        """Train some parts of the model, and keep the best average of their weights."""
        recipe = self._take_budget(loss, has_stages=model.module.autoencoder is not None)
        model.module.requires_grad_(False)
        for part in parts:
            part.requires_grad_(True)
        if model.module.autoencoder is not None:
            model.module.autoencoder.scale.requires_grad_(False)
        train, dev = stage
        with self._run_eagerly():
            batches = self._make_batches(train, model, loss)
        if self.run.is_fast:
            from cloze.train.compiled import compile_diffusion

            compile_diffusion(model.module, parts)
        learner = Learner(model.module, objective)
        state = new_state(learner, recipe, distributed=self.run.distributed)
        average = WeightEMA(state, recipe.run.ema_decay)
        held_out = self._make_held_out(dev, batches)

        def evaluate() -> Mapping[str, float]:
            with average.swap_in(), self._run_eagerly():
                scores = evaluate_objective(state, held_out)
            return {**scores, "score": -scores[loss]}

        def save_model() -> None:
            if self.run.distributed.is_first:
                out.mkdir(parents=True, exist_ok=True)
                with average.swap_in():
                    model.save_into(out)

        return fit_best(
            state,
            recipe,
            out=out,
            batches=one_batch_each(partial(self._make_batch, batches)),
            steps_per_epoch=batches.per_epoch,
            fingerprint={
                "recipe": run_fingerprint(recipe, "data.sources", "data.captions"),
                "images": self.images.fingerprint,
                "stage": loss,
            },
            evaluate=evaluate if held_out else None,
            save_model=save_model,
            callbacks=self.callbacks,
            wrap_steps=lambda steps, _: average.average_steps(steps),
            unit="images",
        )

    def _make_batch(self, batches: ImageBatches, number: int) -> ImageBatch:
        """The images of a step that this process computes, with the noise of one process."""
        rank, processes = self.run.distributed.rank, self.run.distributed.world_size
        if processes == 1:
            return batches.batch(number)
        seed = derive_seed(self.recipe.run.seed, number, 0, 0)
        return batches.batch(number).divide(rank, processes, seed)

    def _run_eagerly(self) -> AbstractContextManager[object]:
        """For batches of other shapes than those that the model is compiled for."""
        return run_eagerly() if self.run.is_fast else nullcontext()

    def _take_budget(self, loss: str, *, has_stages: bool) -> DiffusionRecipe:
        """The recipe with the part of the budget that a stage may spend."""
        run = self.recipe.run
        if not has_stages:
            return self.recipe
        first = run.autoencoder_fraction
        fraction = first if loss == AUTOENCODER_LOSS else 1 - first
        changed: dict[str, Any] = {
            unit: max(1, round(value * fraction))
            if unit in ("steps", "tokens")
            else value * fraction
            for unit in ("steps", "tokens", "minutes", "epochs")
            if (value := getattr(run, unit)) is not None
        }
        return replace(self.recipe, run=replace(run, **changed))

    def _make_batches(
        self,
        indices: Any,  # noqa: ANN401
        model: Model,
        loss: str,
    ) -> ImageBatches:
        run, data = self.recipe.run, self.recipe.data
        size = min(run.batch_size, len(indices))
        self.run.check_batch_size(size)
        batches = ImageBatches(
            data=self.images,
            indices=indices,
            tokenizer=model.tokenizer if loss == DIFFUSION_LOSS else None,
            batch_size=size,
            max_length=model.config.longest_text,
            loss=loss,
            seed=run.seed,
            caption_dropout=run.caption_dropout,
            keyword_prob=data.keyword_prob,
            augmentation=data.augmentation,
            stored=self._store_images(model, loss),
        )
        if loss == DIFFUSION_LOSS and model.tokenizer is not None:
            batches = replace(batches, texts=self._store_texts(batches, model))
        if not self.run.is_fast or batches.texts is not None:
            return batches
        return replace(batches, text_width=batches.find_text_width())

    def _store_texts(self, batches: ImageBatches, model: Model) -> StoredTexts | None:
        """The encoded captions, unless they vary or there are too many."""
        captions, run = batches.distinct_captions, self.recipe.run
        if captions is None or not run.store_texts:
            return None
        return store_texts(
            captions,
            model,
            max_length=batches.max_length,
            batch_size=batches.batch_size,
            dtype=run.dtype,
        )

    def _store_images(self, model: Model, loss: str) -> Tensor | None:
        """Latents for the second stage, unless images are changed at random; else pixels."""
        found, size = None, self.recipe.run.batch_size
        if loss == DIFFUSION_LOSS and not self.recipe.data.augmentation.is_active:
            found = store_latents(self.images, model.module, model.device, batch_size=size)
        return store_pixels(self.images, model.device) if found is None else found

    def _make_held_out(self, indices: Any, batches: ImageBatches) -> list[ImageBatch]:  # noqa: ANN401
        if not len(indices):
            return []
        fixed = replace(
            batches,
            indices=indices,
            batch_size=min(batches.batch_size, len(indices)),
            caption_dropout=0.0,
            keyword_prob=0.0,
            augmentation=Augmentation(),
        )
        return [fixed.batch(n) for n in range(min(self.recipe.run.eval_batches, fixed.per_epoch))]


def _restore_autoencoder(folder: Path, module: Diffusion) -> None:
    """Copy the weights of the autoencoder in a model folder."""
    found = load(folder, device="cpu", quiet=True).module.autoencoder
    assert module.autoencoder is not None
    module.autoencoder.load_state_dict(found.state_dict())
