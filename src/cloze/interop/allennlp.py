"""The published layout of ELMo: options.json and weights.hdf5, as AllenNLP and bilm-tf have them.

    char_embed                                                 261 d
    CNN/W_cnn_I, b_cnn_I                                       1 w d f, f
    CNN_high_I/W_transform, b_transform, W_carry, b_carry      f f, f
    CNN_proj/W_proj, b_proj                                    f p, p
    RNN_D/RNN/MultiRNNCell/CellI/LSTMCell/W_0, B, W_P_0        2p 4h, 4h, h p

D is 0 for the forward and 1 for the backward direction. The gates are in the order input, cell,
forget, output, and 1 is added to the bias of the forget gates. There is no vocabulary.
w width of a filter, d width of a character, f filters, p width of a word, h units.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.config import from_mapping
from cloze.errors import ConfigError, FolderError, MissingExtraError
from cloze.files import read_json
from cloze.models.configs.elmo import ElmoConfig
from cloze.models.configs.ngram import SYMBOLS

Array = NDArray[np.float32]
Weights = dict[str, Array]

MAX_CHARACTERS, NUM_CHARACTERS = 50, 261
_AGAIN = "download the file again"
_SETTINGS = {
    "lstm": {
        "dim": "cell_size",
        "projection_dim": "projection_size",
        "n_layers": "num_layers",
        "cell_clip": "cell_clip",
        "proj_clip": "projection_clip",
    },
    "char_cnn": {"activation": "activation", "n_highway": "num_highway_layers"},
}


@dataclass(frozen=True)
class _Rule:
    """Where one weight of our module is stored, in which shape, and how it is converted."""

    path: str
    shape: tuple[int, ...]
    read: Callable[[Array], Array] = np.transpose
    write: Callable[[Array], Array] = np.transpose


def read_options(path: Path) -> ElmoConfig:
    """The configuration in an options.json."""
    values = read_json(path)
    try:
        return _read_options(values)
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError) as error:
        is_missing = isinstance(error, KeyError)
        reason = f"it has no {error}" if is_missing else getattr(error, "problem", str(error))
        raise FolderError(
            f"{path} does not describe an ELMo that reads characters: {reason}",
            fix="use options.json and weights of a published ELMo",
        ) from None


def _read_options(values: Mapping[str, Any]) -> ElmoConfig:
    lstm, cnn = values["lstm"], values["char_cnn"]
    given: dict[str, Any] = {}
    for table, names in _SETTINGS.items():
        for theirs, ours in names.items():
            value = values[table].get(theirs)
            if value is not None:
                is_float = ours.endswith("clip") and isinstance(value, int)
                given[ours] = float(value) if is_float else value
    given["char_embedding_size"] = cnn["embedding"]["dim"]
    given["filter_widths"], given["filter_counts"] = (
        [one[n] for one in cnn["filters"]] for n in (0, 1)
    )
    for name in ("cell_size", "projection_size", "num_layers"):
        if name not in given:
            raise KeyError(name)
    if cnn.get("max_characters_per_token", MAX_CHARACTERS) != MAX_CHARACTERS:
        raise ConfigError(
            f"max_characters_per_token is not {MAX_CHARACTERS}", fix="use another model"
        )
    if not lstm.get("use_skip_connections", False):
        raise ConfigError("it has no residual between the layers", fix="use another model")
    given.setdefault("num_highway_layers", 0)
    settings = {**given, "output": "none", "vocab_size": len(SYMBOLS)}
    return from_mapping(ElmoConfig, settings)


def make_options(config: ElmoConfig) -> dict[str, Any]:
    """The contents of options.json."""
    found: dict[str, Any] = {
        table: {theirs: getattr(config, ours) for theirs, ours in names.items()}
        for table, names in _SETTINGS.items()
    }
    for name in ("cell_clip", "proj_clip"):
        found["lstm"][name] = found["lstm"][name] or None
    found["lstm"]["use_skip_connections"] = True
    found["char_cnn"] |= {
        "filters": [list(one) for one in _list_filters(config)],
        "embedding": {"dim": config.char_embedding_size},
        "n_characters": NUM_CHARACTERS + 1,  # AllenNLP also counts its padding
        "max_characters_per_token": MAX_CHARACTERS,
    }
    return found


def _list_filters(config: ElmoConfig) -> list[tuple[int, int]]:
    return list(zip(config.filter_widths, config.filter_counts, strict=True))


def _make_rules(config: ElmoConfig) -> dict[str, _Rule]:
    """Our names of the weights and where they are stored; those of LSTMs are in `_list_lstms`."""
    size, width, total = (
        config.char_embedding_size,
        config.projection_size,
        sum(config.filter_counts),
    )
    same = np.ascontiguousarray
    rules = {
        "embeddings.embeddings.weight": _Rule("char_embed", (NUM_CHARACTERS, size), same, same)
    }
    for n, (span, count) in enumerate(_list_filters(config)):
        name = f"embeddings.convolutions.{n}"
        rules[f"{name}.weight"] = _Rule(
            f"CNN/W_cnn_{n}",
            (1, span, size, count),
            lambda stored: stored[0].transpose(2, 1, 0),
            lambda ours: ours.transpose(2, 1, 0)[None],
        )
        rules[f"{name}.bias"] = _Rule(f"CNN/b_cnn_{n}", (count,))
    for n in range(config.num_highway_layers):
        for ours, theirs in (("transform", "transform"), ("gate", "carry")):
            name, group = f"embeddings.highways.{n}.{ours}", f"CNN_high_{n}"
            rules[f"{name}.weight"] = _Rule(f"{group}/W_{theirs}", (total, total))
            rules[f"{name}.bias"] = _Rule(f"{group}/b_{theirs}", (total,))
    rules["embeddings.projection.weight"] = _Rule("CNN_proj/W_proj", (total, width))
    rules["embeddings.projection.bias"] = _Rule("CNN_proj/b_proj", (width,))
    return rules


def _list_lstms(config: ElmoConfig) -> Iterator[tuple[str, str]]:
    """Our name and the stored path of each LSTM layer."""
    for number, direction in enumerate(("forward", "backward")):
        for n in range(config.num_layers):
            path = f"RNN_{number}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            yield f"{direction}_layers.{n}", path


def read_weights(path: Path, config: ElmoConfig) -> Weights:
    """The weights of the module, from a weights.hdf5 whose contents are not trusted."""
    h5py = _import_h5py()
    try:
        with h5py.File(path, "r") as file:
            reader = _Reader(h5py, file, path)
            found = {
                name: rule.read(reader.read(rule.path, rule.shape))
                for name, rule in _make_rules(config).items()
            }
            width, cells = config.projection_size, config.cell_size
            for name, group in _list_lstms(config):
                both = _swap_gates(reader.read(f"{group}/W_0", (2 * width, 4 * cells)).T)  # 4h 2p
                bias = _swap_gates(reader.read(f"{group}/B", (4 * cells,)))
                bias[cells : 2 * cells] += 1.0
                projection = reader.read(f"{group}/W_P_0", (cells, width))
                found |= {
                    f"{name}.weight_ih_l0": both[:, :width],
                    f"{name}.weight_hh_l0": both[:, width:],
                    f"{name}.bias_ih_l0": bias,
                    f"{name}.bias_hh_l0": np.zeros_like(bias),
                    f"{name}.weight_hr_l0": projection.T,
                }
    except (OSError, RuntimeError, KeyError) as error:  # of the HDF5 library
        raise FolderError(f"{path} cannot be read as HDF5: {error}", fix=_AGAIN) from None
    return {name: np.ascontiguousarray(one) for name, one in found.items()}


def write_weights(path: Path, config: ElmoConfig, weights: Mapping[str, Array]) -> None:
    """Write a weights.hdf5."""
    h5py = _import_h5py()
    with h5py.File(path, "w") as file:
        for name, rule in _make_rules(config).items():
            file.create_dataset(rule.path, data=rule.write(weights[name]))
        cells = config.cell_size
        for name, group in _list_lstms(config):
            both = [weights[f"{name}.weight_{part}_l0"] for part in ("ih", "hh")]
            bias = weights[f"{name}.bias_ih_l0"] + weights[f"{name}.bias_hh_l0"]
            bias[cells : 2 * cells] -= 1.0
            file.create_dataset(f"{group}/W_0", data=_swap_gates(np.concatenate(both, 1)).T)
            file.create_dataset(f"{group}/B", data=_swap_gates(bias))
            file.create_dataset(f"{group}/W_P_0", data=weights[f"{name}.weight_hr_l0"].T)


def _swap_gates(values: Array) -> Array:
    """Input, cell, forget, output to input, forget, cell, output, or the reverse (first axis)."""
    i, second, third, o = np.split(values, 4)
    return np.concatenate([i, third, second, o])


class _Reader:
    """Reads plain datasets of an HDF5 file; follows no link that leaves it."""

    def __init__(self, h5py: Any, file: Any, path: Path) -> None:  # noqa: ANN401
        self._h5py, self._file, self._path = h5py, file, path
        self._size = path.stat().st_size

    def read(self, name: str, shape: tuple[int, ...]) -> Array:
        """A dataset of this shape; its size is checked before anything is allocated."""
        found = self._open(name)
        if not isinstance(found, self._h5py.Dataset) or found.dtype.kind != "f":
            raise self._error(f"has no floating-point numbers at {name}")
        if found.shape != shape:
            raise self._error(
                f"has the shape {found.shape} at {name}, but options.json implies {shape}",
                "use options.json and weights of one model",
            )
        is_plain = found.id.get_create_plist().get_nfilters() == 0 and not found.is_virtual
        if not is_plain or found.external:
            raise self._error(
                f"stores {name} compressed, or in another file", "write it again uncompressed"
            )
        if not found.nbytes == found.id.get_storage_size() <= self._size:
            raise self._error(f"does not contain all values of {name}")
        values: Array = found[...].astype(np.float32)
        if not np.isfinite(values).all():
            raise self._error(f"contains NaN or infinite values in {name}")
        return values

    def _open(self, name: str) -> Any:  # noqa: ANN401
        """The object at a path, to which no link leads."""
        found = self._file
        for part in name.split("/"):
            if not isinstance(found, self._h5py.Group) or found.get(part, getlink=True) is None:
                raise self._error(f"has no {name}", "use options.json and weights of one model")
            if not isinstance(found.get(part, getlink=True), self._h5py.HardLink):
                raise self._error(f"has a link to another place at {name}")
            found = found[part]
        return found

    def _error(self, problem: str, fix: str = _AGAIN) -> FolderError:
        return FolderError(f"{self._path} {problem}", fix=fix)


def _import_h5py() -> Any:  # noqa: ANN401
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("reading and writing HDF5 files", extra="elmo") from None
    return h5py
