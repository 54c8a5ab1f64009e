"""What runs on images with captions share: their folder, the text encoder, the decoded images.

Several processes, as `torchrun` starts them, divide the images of each batch; the first one decodes
the images and writes the files.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray
from torch import nn

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.images.image_set import CAPTIONS_FILE, ImageSet
from cloze.data.images.read import CaptionColumns, read_images
from cloze.data.sources import Source, Sources
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, write_json
from cloze.make.recipe.images import ClipRecipe, DiffusionRecipe
from cloze.make.run_folder import check_extras, prepare_folder, start_run
from cloze.make.sources import check_can_reread, name_sources, resolve_model_name, resolve_sources
from cloze.models.configs.clip import TEXT_ENCODER
from cloze.models.registry import get_family
from cloze.report.page import write_report
from cloze.tasks.image_inputs import get_resizing
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import DistributedContext, distributed_context
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS

IMAGES = "images"  # the folder of the decoded images inside of the run's
_SHOWN = 10  # errors of images that are logged

R = TypeVar("R", DiffusionRecipe, ClipRecipe)


@dataclass(frozen=True)
class ImageRun(Generic[R]):
    """A run whose folder is locked and prepared."""

    folder: Path
    recipe: R
    sources: Sequence[Source]
    text: Model | None  # the text encoder
    callbacks: CallbackList  # those of the first process; the others have none
    distributed: DistributedContext

    @property
    def is_fast(self) -> bool:
        """Whether the networks are compiled."""
        return self.recipe.is_fast(self.distributed.device.type, self.distributed.world_size)

    @cached_property
    def images(self) -> ImageSet:
        """The decoded images; those of a resumed run are not read again."""
        self.distributed.run_on_first(self._decode_images)
        return ImageSet.open(self.folder / IMAGES)

    def _decode_images(self) -> None:
        folder, data = self.folder / IMAGES, self.recipe.data
        if (folder / CAPTIONS_FILE).is_file():
            return
        skipped: list[InputError] = []
        columns = CaptionColumns(
            image=data.image_column, caption=data.caption_column, group=data.group_column
        )
        on_error: Any = skipped.append if data.skip_broken else "raise"
        examples = read_images(
            list(self.sources), captions=data.captions, columns=columns, on_error=on_error
        )
        config = self.recipe.model.new_config
        ImageSet.prepare(
            examples,
            config.image_size,
            folder,
            resize=get_resizing(config),
            on_error=on_error,
            progress=self.callbacks.on_progress,
        )
        for error in skipped[:_SHOWN]:
            self.callbacks.on_log(f"skipped: {error.problem}")
        if skipped:
            self.callbacks.on_log(f"{len(skipped):,} images were skipped")

    def finish(self, result: RunResult) -> None:
        """Write the report, and tell the callbacks."""
        if self.distributed.is_first:
            write_report(self.folder)
            self.callbacks.on_train_end(result)

    def check_batch_size(self, size: int) -> None:
        """Raise if a process would have no image of a batch."""
        processes = self.distributed.world_size

        def check() -> None:
            if size < processes:
                raise ConfigError(
                    f"{processes} processes cannot divide batches of {size} images",
                    fix="use a larger --batch-size, more images, or fewer processes",
                )

        self.distributed.run_on_first(check)

    def log_data(
        self, train: NDArray[Any], dev: NDArray[Any], module: nn.Module, name: str
    ) -> None:
        """Log and write the numbers of images, and the number of a module's parameters."""
        count = sum(weight.numel() for weight in module.parameters())
        self.callbacks.on_log(
            f"{len(train):,} images to train on, {len(dev):,} held out; "
            f"{count:,} parameters of {name}"
        )
        facts = {"images": len(self.images), "training": len(train), "held_out": len(dev)}
        if self.distributed.is_first:
            write_json(self.folder / DATA_FACTS, facts)


@contextmanager
def start_image_run(
    sources: Sources,
    out: PathLike,
    recipe: R,
    *,
    force: bool,
    callbacks: CallbackList | None,
    subfolders: Iterable[str] = (),
) -> Iterator[ImageRun[R]]:
    """Check a new run, and clear its folder; `subfolders` are those of earlier stages."""
    check_extras(recipe.run)
    images = resolve_sources(sources, recipe.data.sources)
    named = _name_paths(replace(recipe, data=replace(recipe.data, sources=name_sources(images))))
    separate = {"text encoder": named.text_encoder.init_from or None}
    with distributed_context(recipe.run.device) as distributed, ExitStack() as lock:
        distributed.run_on_first(
            lambda: lock.enter_context(start_run(out, force=force, separate_from=separate))
        )
        folder, text = Path(out), _load_text(named)

        def prepare() -> None:
            prepare_folder(folder, named.to_file(), subfolders=subfolders)
            (folder / IMAGES / CAPTIONS_FILE).unlink(missing_ok=True)

        distributed.run_on_first(prepare)
        yield _make_run(folder, named, images, text, callbacks, distributed)


@contextmanager
def resume_image_run(
    out: PathLike, recipe: R, *, sources: Sources, callbacks: CallbackList | None
) -> Iterator[ImageRun[R]]:
    """Open the folder of a run; images that were decoded are not read again."""
    check_extras(recipe.run)
    images = resolve_sources(sources, recipe.data.sources)
    folder = Path(out)
    if not (folder / IMAGES / CAPTIONS_FILE).is_file():
        check_can_reread(images)
    with distributed_context(recipe.run.device) as distributed, ExitStack() as lock:
        distributed.run_on_first(lambda: lock.enter_context(lock_folder(folder)))
        yield _make_run(folder, recipe, images, _load_text(recipe), callbacks, distributed)


def _make_run(
    folder: Path,
    recipe: R,
    sources: Sequence[Source],
    text: Model | None,
    callbacks: CallbackList | None,
    distributed: DistributedContext,
) -> ImageRun[R]:
    own = callbacks if distributed.is_first else None
    return ImageRun(folder, recipe, sources, text, own or CallbackList(), distributed)


def _name_paths(recipe: R) -> R:
    if recipe.model.init_from is not None:
        family = get_family(recipe.model.family)
        raise ConfigError(
            f"{family.description} cannot be continued (model.init_from)", fix="train a new one"
        )
    encoder = recipe.text_encoder
    name = resolve_model_name(encoder.init_from) if encoder.init_from else ""
    return replace(recipe, text_encoder=replace(encoder, init_from=name))


def _load_text(recipe: DiffusionRecipe | ClipRecipe) -> Model | None:
    name = recipe.text_encoder.init_from
    return load_text_encoder(name) if name else None


def load_text_encoder(name: str) -> Model:
    """The encoder of captions: a bidirectional encoder, CLIP's text encoder, or that of a CLIP."""
    model = load(name, device="cpu", quiet=True)
    if model.family.kind == "dual_encoder":
        return Model(
            module=model.module.text_encoder,
            config=model.config.text.config,
            tokenizer=model.tokenizer,
            folder=model.folder,
        )
    is_causal = model.is_causal and model.family.name != TEXT_ENCODER
    if model.family.kind != "encoder" or is_causal:
        raise ConfigError(
            f"{name} is {model.family.description}, which cannot encode captions",
            fix="use an encoder such as cloze-en, or a CLIP",
        )
    return model


def copy_text_encoder(module: nn.Module, text: Model) -> None:
    """Copy the weights of a text encoder; its task heads are left out."""
    found = {n: w for n, w in text.module.state_dict().items() if "task_heads" not in n}
    module.load_state_dict(found, strict=False)
