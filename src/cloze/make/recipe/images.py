"""The recipes of models of images: CLIP and diffusion."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cloze.config import Config, Flag, Help, Range, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.data import Files
from cloze.make.recipe.model import ModelChoice
from cloze.make.recipe.run import SelectingRun
from cloze.models.configs.base import Probability
from cloze.train.config import DTYPE_NAMES, OptimizerConfig
from cloze.train.schedule import Schedule

if TYPE_CHECKING:
    from cloze.data.images.augment import Augmentation


@dataclass(frozen=True, kw_only=True)
class ImageData(Config):
    """Images with captions."""

    sources: Annotated[Files, Help("Folders, tar files, globs and tables of images")] = ()
    captions: Annotated[
        str | None,
        Help("Table of captions by file name (default: beside the images, or their names)"),
        Flag("--captions", "FILE"),
    ] = None
    image_column: Annotated[
        str | None, Help("Column of the image in tables (default: auto-detected)")
    ] = None
    caption_column: Annotated[
        str | None, Help("Column of the caption in tables (default: auto-detected)")
    ] = None
    group_column: Annotated[
        str | None,
        Help("Column whose equal values must not be split into training and dev data"),
    ] = None
    hold_out: Annotated[
        float, Range(0, 0.9), Help("Fraction of the images held out for evaluation")
    ] = 0.05
    keyword_prob: Annotated[
        Probability, Help("Probability that keywords of the table are added to a caption")
    ] = 0.3
    flip_prob: Annotated[Probability, Help("Probability that an image is mirrored")] = 0.0
    shift: Annotated[
        float, Range(0, 0.5), Help("Greatest random shift of an image, as a fraction of its width")
    ] = 0.0
    zoom: Annotated[
        float, Range(0, 1), Help("Greatest random change of the size of an image, as a fraction")
    ] = 0.0
    color_jitter: Annotated[
        float, Range(0, 1), Help("Greatest random change of brightness, contrast and saturation")
    ] = 0.0
    skip_broken: Annotated[bool, Help("Skip images that cannot be read, and count them")] = True

    @property
    def augmentation(self) -> "Augmentation":
        """The random changes of images."""
        from cloze.data.images.augment import Augmentation

        return Augmentation(
            flip_prob=self.flip_prob,
            shift=self.shift,
            zoom=self.zoom,
            color_jitter=self.color_jitter,
        )


@dataclass(frozen=True, kw_only=True)
class TextEncoderChoice(Config):
    """The model that reads captions."""

    init_from: Annotated[
        str,
        Help("Encoder of captions: a folder or a built-in model; empty: no text"),
        Flag("--text-encoder", "MODEL"),
    ] = "cloze-en"


@dataclass(frozen=True, kw_only=True)
class ClipTextEncoder(TextEncoderChoice):
    """The model that reads captions, which is trained, too."""

    init_from: Annotated[
        str,
        Help("Encoder of captions and its tokenizer: a folder or a built-in model"),
        Flag("--text-encoder", "MODEL"),
    ] = "cloze-en"
    architecture: Annotated[
        Literal["same", "clip-text"],
        Help("same: that of init_from; clip-text: CLIP's own, from scratch, with its tokenizer"),
    ] = "same"
    preset: Annotated[str, Help("Size of the architecture clip-text")] = "mini"
    from_scratch: Annotated[
        bool, Help("Draw the weights of the text encoder at random"), Flag("--text-from-scratch")
    ] = False
    lr_factor: Annotated[
        float, Range(0, 100), Help("Factor of the learning rate of a trained text encoder; 0: none")
    ] = 0.1

    @property
    def is_fresh(self) -> bool:
        """Whether the text encoder has random weights."""
        return self.from_scratch or self.architecture != "same"


@dataclass(frozen=True, kw_only=True)
class ImageRun(SelectingRun):
    """A run on images."""

    batch_size: Annotated[
        int, Range(1, 1 << 20), Help("Number of images in a step"), Flag("--batch-size", "N")
    ] = 64
    ema_decay: Annotated[
        float, Range(0, below=1), Help("Decay of the average of the weights that is saved (EMA)")
    ] = 0.999
    eval_batches: Annotated[
        int, Range(1, 1 << 20), Help("Maximum number of batches in an evaluation")
    ] = 8
    fast: Annotated[
        bool | None,
        Help("Compile the model (default: on one GPU in bfloat16)"),
    ] = None

    def is_fast(self, device_type: str, num_processes: int = 1) -> bool:
        """Whether the networks are compiled on such a device."""
        if self.fast is not None:
            return self.fast
        is_default = num_processes == 1 and device_type == "cuda"
        return is_default and DTYPE_NAMES[self.dtype] == "bfloat16"


@dataclass(frozen=True, kw_only=True)
class DiffusionRun(ImageRun):
    """A run that trains a diffusion model."""

    fast: Annotated[
        bool | None, Help("Compile the networks, which takes minutes (default: no)")
    ] = False
    caption_dropout: Annotated[
        Probability,
        Help("Probability that a caption is left out (classifier-free guidance needs it)"),
    ] = 0.1
    autoencoder_fraction: Annotated[
        float, Range(0, below=1), Help("Fraction of the budget that trains the autoencoder first")
    ] = 0.3
    penalty_weight: Annotated[
        float, Range(0, 1e3), Help("Weight of the penalty of the autoencoder's latents")
    ] = 1e-3
    store_texts: Annotated[
        bool,
        Help(
            "Encode each different caption once, before the network is trained, if no keywords are "
            "added and all fit into memory"
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class DiffusionRecipe(Config):
    """One diffusion model."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="diffusion"))
    text_encoder: TextEncoderChoice = field(default_factory=TextEncoderChoice)
    data: ImageData = field(default_factory=ImageData)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: DiffusionRun = field(default_factory=DiffusionRun)

    def is_fast(self, device_type: str, num_processes: int = 1) -> bool:
        """Whether the networks are compiled on such a device."""
        return self.run.is_fast(device_type, num_processes)

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it."""
        return to_mapping(self, from_data=False)


@dataclass(frozen=True, kw_only=True)
class ClipRun(ImageRun):
    """A run that trains a CLIP."""

    ema_decay: Annotated[
        float,
        Range(0, below=1),
        Help("Decay of the average of the weights that is saved (EMA); 0: the weights themselves"),
    ] = 0.0
    part_size: Annotated[
        int | None,
        Range(1, 1 << 20),
        Help("Images in memory at a time; the loss compares those of the batch (default: all)"),
    ] = None
    eval_images: Annotated[
        int, Range(1, 1 << 20), Help("Maximum number of held-out images in an evaluation")
    ] = 2000


@dataclass(frozen=True, kw_only=True)
class ClipRecipe(Config):
    """One CLIP."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="clip"))
    text_encoder: ClipTextEncoder = field(default_factory=ClipTextEncoder)
    data: ImageData = field(default_factory=ImageData)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: ClipRun = field(default_factory=ClipRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.text_encoder.init_from:
            raise ConfigError(
                "text_encoder.init_from is empty, but a CLIP reads captions",
                fix="name a model; for random weights add --text-from-scratch",
            )

    def is_fast(self, device_type: str, num_processes: int = 1) -> bool:
        """Whether the networks are compiled on such a device."""
        return self.run.is_fast(device_type, num_processes)

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it."""
        return to_mapping(self, from_data=False)
