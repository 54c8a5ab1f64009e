"""Train a diffusion model on images with captions.

In latents, an autoencoder is trained first, with a part of the budget; then the network that
predicts noise is trained in its latents. The run's folder is the model's folder:

    config.json model.safetensors tokenizer.json …     the model, with the average of its weights
    recipe.toml metrics.jsonl data.json report.html state/
    images/         decoded images
    autoencoder/    the first stage: its state and metrics
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.images.augment import Augmentation
from cloze.data.images.image_set import CAPTIONS_FILE, ImageBatch, ImageBatches, ImageSet
from cloze.data.images.read import CaptionColumns, read_images
from cloze.data.sources import Source, Sources
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, write_json
from cloze.make.best_model import fit_best, new_state
from cloze.make.recipe.images import DiffusionRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, prepare_folder, start_run
from cloze.make.sources import check_can_reread, name_sources, resolve_model_name, resolve_sources
from cloze.make.stored_images import store_latents, store_pixels
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
from cloze.report.page import write_report
from cloze.train.averaging import WeightEMA
from cloze.train.callbacks import CallbackList
from cloze.train.fit import one_batch_each
from cloze.train.forward_context import run_eagerly
from cloze.train.loop import evaluate_objective
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, FINISHED

IMAGES, AUTOENCODER = "images", "autoencoder"  # folders inside of the run's
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

    Args:
        sources: what `cloze.data.images.read.read_images` reads; if empty, the recipe's.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    check_extras(recipe.run)
    images = resolve_sources(sources, recipe.data.sources)
    named = _name_paths(replace(recipe, data=replace(recipe.data, sources=name_sources(images))))
    resolve_device(recipe.run.device)
    with start_run(out, force=force) as folder:
        text = _load_text_encoder(named)
        prepare_folder(folder, named.to_file(), subfolders=(AUTOENCODER,))
        for left in (folder / IMAGES / CAPTIONS_FILE, folder / AUTOENCODER / FINISHED):
            left.unlink(missing_ok=True)
        return _Run(folder, named, images, text, callbacks or CallbackList()).train()


def resume_diffusion(
    out: PathLike,
    recipe: DiffusionRecipe,
    *,
    sources: Sources = (),
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe; images that were decoded are not read again."""
    check_extras(recipe.run)
    images = resolve_sources(sources, recipe.data.sources)
    folder = Path(out)
    if not (folder / IMAGES / CAPTIONS_FILE).is_file():
        check_can_reread(images)
    with lock_folder(folder):
        text = _load_text_encoder(recipe)
        return _Run(folder, recipe, images, text, callbacks or CallbackList()).train()


def _name_paths(recipe: DiffusionRecipe) -> DiffusionRecipe:
    if recipe.model.init_from is not None:
        raise ConfigError(
            "a diffusion model cannot be continued (model.init_from)", fix="train a new one"
        )
    encoder = recipe.text_encoder
    name = resolve_model_name(encoder.init_from) if encoder.init_from else ""
    return replace(recipe, text_encoder=replace(encoder, init_from=name))


def _load_text_encoder(recipe: DiffusionRecipe) -> Model | None:
    name = recipe.text_encoder.init_from
    if not name:
        return None
    model = load(name, device="cpu", quiet=True)
    if model.family.kind != "encoder" or model.is_causal:
        raise ConfigError(
            f"{name} is {model.family.description}, which cannot encode captions",
            fix="use an encoder such as cloze-en",
        )
    return model


@dataclass(frozen=True)
class _Run:
    """The two stages of a run."""

    folder: Path
    recipe: DiffusionRecipe
    sources: Sequence[Source]
    text: Model | None
    callbacks: CallbackList

    def train(self) -> RunResult:
        model = self._build_model()
        device = resolve_device(self.recipe.run.device)
        model.module.to(device)
        train, dev = self.images.split(self.recipe.data.hold_out)
        self._log_data(model, train, dev)
        if model.module.autoencoder is not None:
            stopped = self._train_autoencoder(model, train, dev)
            if stopped is not None:
                return stopped
        parts = [model.module.denoiser]
        result = self._fit(
            model, parts, diffusion_objective, DIFFUSION_LOSS, out=self.folder, stage=(train, dev)
        )
        write_report(self.folder)
        self.callbacks.on_train_end(result)
        return result

    @cached_property
    def images(self) -> ImageSet:
        folder, data = self.folder / IMAGES, self.recipe.data
        if (folder / CAPTIONS_FILE).is_file():
            return ImageSet.open(folder)
        skipped: list[InputError] = []
        columns = CaptionColumns(
            image=data.image_column, caption=data.caption_column, group=data.group_column
        )
        on_error: Any = skipped.append if data.skip_broken else "raise"
        examples = read_images(
            list(self.sources), captions=data.captions, columns=columns, on_error=on_error
        )
        found = ImageSet.prepare(
            examples,
            self.recipe.model.new_config.image_size,
            folder,
            on_error=on_error,
            progress=self.callbacks.on_progress,
        )
        for error in skipped[:10]:
            self.callbacks.on_log(f"skipped: {error.problem}")
        if skipped:
            self.callbacks.on_log(f"{len(skipped):,} images were skipped")
        return found

    def _build_model(self) -> Model:
        config, text = self.recipe.model.new_config, self.text
        rng = torch.Generator().manual_seed(self.recipe.run.seed)
        vocab_size = 1 if text is None else text.config.vocab_size
        nested = None if text is None else NestedConfig(text.config)
        config = replace(config, vocab_size=vocab_size, text=nested)
        tokenizer: Any = None if text is None else text.tokenizer
        model = Model.from_config(config, tokenizer, rng=rng)
        module = model.module
        module.requires_grad_(False)
        if text is not None:
            found = {n: w for n, w in text.module.state_dict().items() if "task_heads" not in n}
            module.text_encoder.load_state_dict(found, strict=False)
        return model

    def _log_data(self, model: Model, train: Any, dev: Any) -> None:  # noqa: ANN401
        count = sum(weight.numel() for weight in model.module.denoiser.parameters())
        self.callbacks.on_log(
            f"{len(train):,} images to train on, {len(dev):,} held out; "
            f"{count:,} parameters of the network"
        )
        facts = {"images": len(self.images), "training": len(train), "held_out": len(dev)}
        write_json(self.folder / DATA_FACTS, facts)

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
        _restore_autoencoder(out, module)  # the best weights
        chosen = np.sort(train[:: max(1, len(train) // _SCALE_IMAGES)][:_SCALE_IMAGES])
        pixels = torch.from_numpy(self.images.pixels[chosen].copy()).to(model.device)
        module.autoencoder.set_scale(scale_pixels(pixels))
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
        is_fast = self.recipe.is_fast(model.device.type)
        batches = self._make_batches(train, model, loss, is_fast=is_fast)
        if is_fast:
            from cloze.train.compiled import compile_diffusion

            compile_diffusion(model.module, parts)
        state = new_state(Learner(model.module, objective), recipe)
        average = WeightEMA(state, recipe.run.ema_decay)
        held_out = self._make_held_out(dev, batches)

        def evaluate() -> Mapping[str, float]:
            # these batches may have other shapes than those that the model is compiled for
            with average.swap_in(), run_eagerly() if is_fast else nullcontext():
                scores = evaluate_objective(state, held_out)
            return {**scores, "score": -scores[loss]}

        def save_model() -> None:
            out.mkdir(parents=True, exist_ok=True)
            with average.swap_in():
                model.save_into(out)

        return fit_best(
            state,
            recipe,
            out=out,
            batches=one_batch_each(batches.batch),
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
        *,
        is_fast: bool,
    ) -> ImageBatches:
        run, data = self.recipe.run, self.recipe.data
        batches = ImageBatches(
            data=self.images,
            indices=indices,
            tokenizer=model.tokenizer if loss == DIFFUSION_LOSS else None,
            batch_size=min(run.batch_size, len(indices)),
            max_length=model.config.max_text_length,
            loss=loss,
            seed=run.seed,
            caption_dropout=run.caption_dropout,
            keyword_prob=data.keyword_prob,
            augmentation=data.augmentation,
            stored=self._store_images(model, loss),
        )
        return replace(batches, text_width=batches.find_text_width()) if is_fast else batches

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
