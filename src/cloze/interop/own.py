"""The layout of our own families: a config.json with a format version, weights under our names.

In version 2 the names are those of the configuration's fields and of the module's parameters.
Version 1 had other names, which the tables translate.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from cloze.config import from_mapping, to_mapping
from cloze.errors import ConfigError, FolderError, MissingSettingError
from cloze.interop.layout import Description, Layout, check_version
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import get_family

FORMAT_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class OwnLayout(Layout):
    """The layout of one of our own families."""

    strict: ClassVar[bool] = True

    family: str
    required: tuple[str, ...] = ("vocab_size",)  # settings that every folder must have
    # names in version 1 -> current names; nested settings are named "table.setting"
    version_1_settings: Mapping[str, str] = field(default_factory=dict)
    # regular expressions for names in version 1 and their replacements, applied in order
    version_1_weights: Sequence[tuple[str, str]] = ()

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:  # noqa: ARG002
        """Check and translate config.json; the required settings must be there."""
        version = check_version(values.get("format_version"), "config.json", FORMAT_VERSION)
        settings = self.rename_settings(values) if version == 1 else dict(values)
        for name in ("model_type", "format_version"):
            settings.pop(name, None)
        kind = get_family(self.family).config_class
        try:
            for name in self.required:
                if name not in settings:
                    raise MissingSettingError(name)
            config = from_mapping(kind, settings)
            config.check_complete()
        except ConfigError as error:
            is_missing = isinstance(error, MissingSettingError)
            raise FolderError(
                f"config.json: {error.problem}",
                fix="download the folder again, or train the model again"
                if is_missing
                else error.fix,
            ) from None
        return Description(config=config, format_version=version)

    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str] = (),  # noqa: ARG002
        *,
        dtype: str = "float32",  # noqa: ARG002
        special_ids: Mapping[str, int | None] | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """The fields of the configuration, by name."""
        described = {"model_type": self.family, "format_version": FORMAT_VERSION}
        return described | to_mapping(config)

    def find_names(
        self,
        description: Description,
        stored: Iterable[str],
        wanted: Iterable[str],  # noqa: ARG002
    ) -> dict[str, str]:
        """Translate the names of version 1."""
        renamed = self.version_1_weights if description.format_version == 1 else ()
        found = {}
        for name in stored:
            current = name
            for pattern, replacement in renamed:
                current = re.sub(pattern, replacement, current)
            found[current] = name
        return found

    def rename_settings(self, values: Mapping[str, Any], table: str = "") -> dict[str, Any]:
        """The settings of version 1, by their current names."""
        found = {}
        for key, value in values.items():
            path = f"{table}{key}"
            if isinstance(value, Mapping):
                value = self.rename_settings(value, f"{path}.")
            found[self.version_1_settings.get(path, key)] = value
        return found


@dataclass(frozen=True, kw_only=True)
class HeadLayout(OwnLayout):
    """The layout of a family of ours that has task heads, which config.json lists."""

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        """As above, with the heads."""
        settings = dict(values)
        heads = settings.pop("task_heads", [])
        known = get_family(self.family).config_class.TASK_HEADS
        if not isinstance(heads, list) or not set(map(str, heads)) <= set(known):
            raise FolderError(
                f"config.json: task_heads is {str(heads)[:80]}, but the family {self.family} has "
                f"{', '.join(known)}",
                fix="download the folder again",
            )
        return replace(super().read_config(settings, stored), task_heads=tuple(heads))

    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str] = (),
        **options: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """As above, with the heads."""
        return super().write_config(config, task_heads, **options) | {"task_heads": [*task_heads]}

    def assign_parts(self, description: Description, stored: Iterable[str]) -> dict[str, str]:
        """Without the statistics of batch norms, which are not parameters."""
        weights = (name for name in stored if not name.endswith(("running_mean", "running_var")))
        return super().assign_parts(description, weights)


_RECURRENT = {"width": "hidden_size", "embedding": "embedding_size", "layers": "num_layers"}
_LENGTH = {"longest_learned": "max_trained_length"}

NGRAM = OwnLayout(family="ngram", required=("order", "vocab_size", "counts"))
WORD2VEC = OwnLayout(
    family="word2vec",
    required=("vocab_size", "hidden_size"),
    version_1_settings={
        "grams": "char_ngrams",
        "grams.shortest": "min_n",
        "grams.longest": "max_n",
    },
    version_1_weights=((r"^grams$", "ngram_vectors"),),
)
NNLM = OwnLayout(
    family="nnlm",
    required=("vocab_size", "bos_id"),
    version_1_settings={
        "embedding": "embedding_size",
        "hidden": "hidden_size",
        "direct": "direct_connections",
    },
    version_1_weights=((r"^words\.", "embeddings."),),
)
LSTM = OwnLayout(
    family="lstm",
    required=("vocab_size", "bos_id"),
    version_1_settings={
        **_RECURRENT,
        "tied": "tie_embeddings",
        "variational": "variational_dropout",
    },
    version_1_weights=((r"^words\.", "embeddings."), (r"^stack\.", "rnn.")),
)


@dataclass(frozen=True, kw_only=True)
class ElmoLayout(OwnLayout):
    """The head `lm` is there if the configuration has an output layer."""

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        found = super().read_config(values, stored)
        has_output = getattr(found.config, "output", "none") != "none"
        return replace(found, task_heads=("lm",) if has_output else ())


ELMO = ElmoLayout(family="elmo")
ULMFIT = HeadLayout(family="ulmfit")
SEQ2SEQ = OwnLayout(
    family="seq2seq",
    required=("vocab_size", "bos_id", "eos_id"),
    version_1_settings={
        **_RECURRENT,
        **_LENGTH,
        "score": "attention_score",
        "feeding": "input_feeding",
    },
    version_1_weights=(
        (r"^(source|target)\.", r"\1_embeddings."),
        (r"^cells\.", "decoder."),
        (r"^mix\.", "combine."),
        (r"^score\.sharpness$", "score.scale"),
    ),
)
DIFFUSION = OwnLayout(family="diffusion", required=("vocab_size", "image_size"))
MUSIC_TRANSFORMER = HeadLayout(family="music-transformer")
RETRO = HeadLayout(family="retro", required=("vocab_size", "chunk_length"))
TRANSFORMER = OwnLayout(
    family="transformer",
    required=("vocab_size", "bos_id", "eos_id"),
    version_1_settings={
        **_LENGTH,
        "width": "hidden_size",
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "hidden": "intermediate_size",
        "positions": "position_encoding",
        "longest": "max_positions",
        "tied": "tie_embeddings",
    },
    version_1_weights=(
        (r"^(source|target)\.", r"\1_embeddings."),
        (r"^positions\.", "position_encoding."),
        (r"_residual\.norm\.", "_norm."),
        (r"\.cross(?=[._])", ".cross_attention"),
        (r"\.feed_forward(?=[._])", ".ffn"),
        (r"\.ffn\.inner\.", ".ffn.up."),
        (r"\.ffn\.outer\.", ".ffn.down."),
    ),
)
