"""What saved models share, and the folders of our own families: a config.json with a version."""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cloze.checkpoint.abilities import own_family, refuse
from cloze.checkpoint.atomic import model_told, whole_files, whole_folder
from cloze.checkpoint.weights import SINGLE, check, read_weights, stored_weights
from cloze.config import from_mapping, to_mapping
from cloze.errors import ConfigError, FolderError
from cloze.files import read_json, write_json
from cloze.interop.own_layouts import rename_version_1_weight
from cloze.models.configs.base import ModelConfig
from cloze.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import nn  # word vectors are no net, and start without torch

C = TypeVar("C", bound=ModelConfig)

CONFIG = "config.json"
FORMAT_VERSION = 2  # of config.json
# The names of settings that version 1 wrote otherwise, by family.
_RECURRENT = {"width": "hidden_size", "embedding": "embedding_size", "layers": "num_layers"}
VERSION_1 = {
    "nnlm": {
        "embedding": "embedding_size",
        "hidden": "hidden_size",
        "direct": "direct_connections",
    },
    "lstm": {**_RECURRENT, "tied": "tie_embeddings", "variational": "variational_dropout"},
    "seq2seq": {**_RECURRENT, "score": "attention_score", "feeding": "input_feeding"},
    "transformer": {
        "width": "hidden_size",
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "hidden": "intermediate_size",
        "positions": "position_encoding",
        "longest": "max_positions",
        "tied": "tie_embeddings",
    },
}
_SHAPE = (
    "order",
    "num_layers",
    "hidden_size",
    "intermediate_size",
)  # of any family, as far as it has them


class Saved:
    """A record of a model that can be written to a folder."""

    _optional: ClassVar[tuple[str, ...]] = ()  # files that not every such model has

    def __repr__(self) -> str:
        """One line, whatever the size."""
        model: Any = self
        shape = {name: getattr(model.config, name, None) for name in _SHAPE}
        told = {"family": model.config.family, **shape, "task_heads": getattr(self, "heads", None)}
        told["pieces"] = model.tokenizer.vocab_size
        parts = (f"{name}={value!r}" for name, value in told.items() if value is not None)
        return f"{type(self).__name__}({', '.join(parts)})"

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the folder, whole or not at all."""
        target = Path(folder)
        with model_told(target), whole_folder(target, overwrite=overwrite) as work:
            self._write(work)
        return target

    def save_into(self, folder: Path) -> None:
        """Put the model into a folder that holds other things too, whole or not at all."""
        with model_told(folder), whole_files(folder, self._optional) as work:
            self._write(work)

    def _write(self, work: Path) -> None:
        raise NotImplementedError


def write_own(
    work: Path,
    module: "nn.Module",
    config: Any,  # noqa: ANN401 (of any family of ours)
    tokenizer: Tokenizer,
    **facts: int,
) -> None:
    """The three files; `facts` stand in config.json beside the configuration."""
    from safetensors.torch import save_file

    tensors = {name: one.cpu().contiguous() for name, one in module.state_dict().items()}
    save_file(tensors, work / SINGLE, metadata={"format": "pt"})
    write_settings(work, config.family, {**facts, **to_mapping(config)})
    tokenizer.save(work)


def write_settings(work: Path, family: str, values: Mapping[str, Any]) -> None:
    """The config.json of a family of ours."""
    described = {"model_type": family, "format_version": FORMAT_VERSION, **values}
    write_json(work / CONFIG, described, indent=2)


def read_settings(
    folder: Path, families: Collection[str], wanted: str
) -> tuple[str, dict[str, Any]]:
    """The family of a folder, which must be one of these, and what else its config.json says."""
    values: Any = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else None
    family = own_family(values)
    if family is None:
        raise FolderError(f"{folder} does not hold {wanted}", fix="name a folder that does")
    if family not in families:
        raise refuse(folder, family, wanted=wanted)
    check_version(values.get("format_version"), CONFIG, FORMAT_VERSION)
    values = rename_version_1(values)
    del values["format_version"], values["model_type"]
    return family, values


def rename_version_1(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a config.json of ours by their present names."""
    names = VERSION_1.get(values["model_type"], {}) if values.get("format_version") == 1 else {}
    return {names.get(key, key): value for key, value in values.items()}


def complete_config(kind: type[C], values: Mapping[str, Any]) -> C:
    """The configuration of a folder, which must have what a recipe leaves to the data."""
    for name in kind.FROM_DATA:
        if name not in values:
            raise ConfigError(f"{name} is missing", fix="add it, with its value")
    config = from_mapping(kind, values)
    config.check_complete()
    return config


def check_version(version: object, file: str, newest: int) -> None:
    """Refuse a file that a newer version of cloze wrote."""
    if not isinstance(version, int) or not 1 <= version <= newest:
        raise FolderError(
            f"{file} has format_version {version!r}, this version reads 1 to {newest}",
            fix="update cloze, or make the folder again",
        )


def put_weights(module: "nn.Module", folder: Path) -> None:
    """A folder's weights into a net without memory; names and shapes are checked before."""
    stored, ours = stored_weights(folder), module.state_dict()
    names = _present_names(folder, stored)
    if names.keys() != ours.keys():
        odd = sorted(names.keys() ^ ours.keys())
        raise FolderError(
            f"{SINGLE} lacks or has more than config.json implies: {', '.join(odd[:4])}",
            fix="config.json and the weights are not of one model; take both from one folder",
        )
    for name, weight in ours.items():
        check(name, stored[names[name]], weight.shape)
    weights = read_weights(stored)
    module.load_state_dict({name: weights[old] for name, old in names.items()}, assign=True)


def _present_names(folder: Path, stored: Iterable[str]) -> dict[str, str]:
    """The stored name of each weight, by its present name."""
    values = read_json(folder / CONFIG)
    if values["format_version"] != 1:
        return {name: name for name in stored}
    return {rename_version_1_weight(values["model_type"], name): name for name in stored}
