"""Load any model: a folder, or a file of another program."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze.checkpoint.contents import FolderContents, read_folder
from cloze.checkpoint.model import Model, check_table_dtype, not_a_model_error
from cloze.checkpoint.source import find_folder
from cloze.checkpoint.weights import CONFIG_FILE, LoadReport
from cloze.config import one_of
from cloze.data.input_files import split_endings
from cloze.errors import MAX_MESSAGE, InputError
from cloze.files import expand_user
from cloze.models.registry import Family, Kind, list_families, resolve
from cloze.terminal import escape_control_characters, shorten_message

if TYPE_CHECKING:
    import torch

    from cloze.nn.feature_heads import FeatureHead

MAX_NAMES = 200  # of tensors or settings that are listed


def load(
    source: str | os.PathLike[str],
    *,
    device: "str | torch.device | None" = None,
    dtype: "str | torch.dtype" = "float32",
    allow_missing: bool = False,
    quiet: bool = False,
    kind: Kind | None = None,
) -> Model:
    """Load a model: a folder, a built-in name, or "org/name" (Hugging Face's cache or hub).

    A file .arpa is an n-gram model; .txt, .vec and .bin are word vectors of word2vec, GloVe or
    fastText. Both may be compressed. A file .hdf5, or a folder with one, is a published ELMo.

    Args:
        source: the folder, name or file.
        device: the device of the weights; None selects the GPU if there is one.
        dtype: the dtype of the weights: float32, bfloat16 or float16; int8 (encoders on a CPU:
            weights and activations of the blocks are quantized); auto (the fastest of these on this
            machine whose vectors have a mean cosine of 0.999 to float32, measured once).
        allow_missing: initialize weights that the folder lacks at random, instead of raising.
        quiet: do not print missing, unexpected and ignored names, which are also in `.report`.
        kind: raise unless the model is of this kind.
    """
    if not isinstance(source, str | os.PathLike):
        raise _not_a_source_error(source)
    family, file = find_file_family(source), find_model_file(source)
    if family is not None and file is not None:
        if family.open is not None:
            _check_dtype(family, dtype)
        found: Model = resolve(family.files[split_endings(file)[0]])(file)
        if family.open is None:
            from cloze.device import resolve_device

            found.to(resolve_device(device), dtype)
        return replace(found, folder=expand_user(source))
    contents = read_folder(source, kind=kind)
    if contents.family.open is not None:
        _check_dtype(contents.family, dtype)
        tables = resolve(contents.family.open)(contents)
        return Model(
            module=tables,
            config=contents.config,
            tokenizer=_open_tokenizer(contents, tables),
            task=contents.task,
            feature_head=_load_feature_head(contents, device),
            folder=contents.folder,
        )
    from cloze.checkpoint.modules import load_module
    from cloze.device import INFERENCE_DTYPES, resolve_device, resolve_dtype

    is_quantized = isinstance(dtype, str) and dtype in ("int8", "auto")
    if isinstance(dtype, str):
        one_of("dtype", dtype, INFERENCE_DTYPES)
    module, feature_head, report = load_module(
        contents,
        resolve_device("cpu" if dtype == "int8" and device is None else device),
        resolve_dtype("float32" if is_quantized else dtype),
        allow_missing=allow_missing,
    )
    if report and not quiet:
        print_report(report, contents.folder)
    model = Model(
        module=module,
        config=contents.config,
        tokenizer=contents.tokenizer,  # type: ignore[arg-type]
        pooling=contents.pooling,
        task=contents.task,
        feature_head=feature_head,
        report=report,
        folder=contents.folder,
    )
    return model.to(dtype=dtype) if is_quantized else model


def _open_tokenizer(contents: FolderContents, tables: object) -> Any:  # noqa: ANN401
    """The tokenizer of a folder, or the one that the family makes for its tables."""
    if contents.family.tokenizer is None:
        return contents.tokenizer
    return resolve(contents.family.tokenizer)(tables, contents)


def _load_feature_head(
    contents: FolderContents, device: "str | torch.device | None"
) -> "FeatureHead | None":
    """The network on the features of a model that is not one itself."""
    if contents.task is None or contents.task.features is None:
        return None
    from cloze.checkpoint.modules import load_feature_head
    from cloze.device import resolve_device

    found = load_feature_head(contents)
    return found and found.to(resolve_device(device))


def find_file_family(source: str | os.PathLike[str]) -> Family | None:
    """The family of a file in the format of another program, by its suffix; None for others."""
    file = find_model_file(source)
    if file is None:
        return None
    suffix = split_endings(file)[0]
    return next((one for one in list_families().values() if suffix in one.files), None)


def detect_weights_file(source: str | os.PathLike[str]) -> Family | None:
    """The family of a network in the format of another program: a published ELMo; else None."""
    family = find_file_family(source)
    return family if family is not None and family.open is None else None


def find_source(source: str | os.PathLike[str]) -> Path:
    """The folder of a model, or the file of a published one; raises if there is none."""
    return find_folder(source) if detect_weights_file(source) is None else expand_user(source)


def find_model_file(source: str | os.PathLike[str]) -> Path | None:
    """The file itself, or the only HDF5 file of a folder without config.json (a published ELMo)."""
    path = expand_user(source)
    if os.path.isdir(path) and not os.path.exists(path / CONFIG_FILE):  # noqa: PTH110, PTH112
        found = list(path.glob("*.hdf5"))
        return found[0] if len(found) == 1 else None
    return path if os.path.isfile(path) else None  # noqa: PTH113 - never raises


def print_report(report: LoadReport, folder: Path) -> None:
    """Print the report as a table on standard error."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(text: str) -> Text:  # others named the tensors and the folder
        return Text(escape_control_characters(shorten_message(text, MAX_MESSAGE)))

    table = Table("kind", "names", title=plain(f"{folder}: differences"), title_justify="left")
    for kind in ("missing", "unexpected", "ignored"):
        if names := getattr(report, kind):
            more = [Text(f"and {len(names) - MAX_NAMES:,} more")] * (len(names) > MAX_NAMES)
            table.add_row(kind, Text("\n").join([*map(plain, names[:MAX_NAMES]), *more]))
    Console(stderr=True).print(table)


def _check_dtype(family: Family, dtype: "str | torch.dtype") -> None:
    if dtype != "float32":
        from cloze.device import resolve_dtype

        check_table_dtype(family, resolve_dtype(dtype))


def _not_a_source_error(given: object) -> InputError:
    if isinstance(given, Model):
        return InputError("the model is loaded already", fix="use it as it is")
    return not_a_model_error(given, fix="pass the path of a model folder, or the name of a model")


__all__ = [
    "FolderContents",
    "detect_weights_file",
    "find_file_family",
    "find_source",
    "load",
    "print_report",
    "read_folder",
]
