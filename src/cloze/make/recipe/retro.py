"""The recipe of RETRO: that of a GPT-2, and a table `retrieval`."""

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from cloze.config import Flag, Help
from cloze.errors import ConfigError
from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.retro import RetrievalSettings, RetroConfig

# The families whose models RETROfit can start from: decoders with the blocks of RETRO.
DECODERS = ("gpt2",)


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig(RetrievalSettings):
    """The database, and how the decoder reads it.

    The settings of the base class are those of the model's configuration. A RETRO that is continued
    has its own.
    """

    encoder: Annotated[
        str,
        Help(
            "Model that computes the keys of the database, the mean of its token vectors: a "
            'folder, a built-in model or "org/name"'
        ),
        Flag("--key-encoder", "MODEL"),
    ] = "cloze-en"
    database: Annotated[
        str | None,
        Help(
            "Folder of a database that exists, such as that of another run with the same "
            "vocabulary (default: one of the training text, in the run's folder)"
        ),
        Flag("--database", "FOLDER"),
    ] = None
    enabled: Annotated[
        bool, Help("Retrieve neighbors; without them the model is trained as a plain decoder")
    ] = True
    freeze_decoder: Annotated[
        bool | None,
        Help(
            "Train only chunked cross-attention and neighbor encoder (default: if a GPT-2 is "
            "continued, RETROfit)"
        ),
    ] = None

    @property
    def model_settings(self) -> dict[str, Any]:
        """The settings of the model's configuration."""
        return {one.name: getattr(self, one.name) for one in fields(RetrievalSettings)}


def check_retro_base(recipe: "RetroRecipe", config: ModelConfig) -> None:
    """Raise unless a run can start from a model: a RETRO with these settings, or a GPT-2."""
    if isinstance(config, RetroConfig):
        for name, value in recipe.retrieval.model_settings.items():
            if (own := getattr(config, name)) != value:
                raise ConfigError(
                    f"retrieval.{name} is {value}, but the model to continue has {own}",
                    fix=f"leave it out, or set retrieval.{name}={own}",
                )
    elif config.family not in DECODERS:
        raise ConfigError(
            f"model.init_from is of the family {config.family}, whose blocks differ from RETRO's",
            fix="start from a GPT-2 (cloze pretrain --recipe gpt trains one), or leave it out",
        )


@dataclass(frozen=True, kw_only=True)
class RetroRecipe(PretrainRecipe):
    """One training run of a RETRO: a new one, one to continue, or RETROfit of a GPT-2."""

    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)

    def __post_init__(self) -> None:
        chunk_length = self.retrieval.chunk_length
        sampling = replace(self.sampling, chunk_length=chunk_length)
        object.__setattr__(self, "sampling", sampling)
        if self.model.config is not None:
            config = replace(self.model.config, **self.retrieval.model_settings)
            object.__setattr__(self, "model", replace(self.model, config=config))
        super().__post_init__()
        if self.sampling.max_length < chunk_length + 2:
            raise ConfigError(
                f"sampling.max_length is {self.sampling.max_length}, which has no room for a chunk "
                f"of {chunk_length} tokens between the tokens that begin and end a sample",
                fix=f"use --max-length {2 * chunk_length + 2} or more",
            )
        if not self.objective.is_causal:
            raise ConfigError(
                f"objective.kind is {self.objective.kind!r}, but a RETRO is causal",
                fix='set objective.kind to "causal"',
            )
