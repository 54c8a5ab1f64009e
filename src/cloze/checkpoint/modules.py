"""The weights of torch modules: from a folder into a module, and back.

Names and shapes are checked against the configuration before a weight is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cloze.checkpoint.contents import FolderContents
from cloze.checkpoint.task import READER_FILE, Features
from cloze.checkpoint.weights import SINGLE, LoadReport, Stored, check, file_weights, read_weights
from cloze.errors import FolderError
from cloze.interop.layout import Layout, Rule
from cloze.models.build import build, build_on_meta
from cloze.models.configs.base import ModelConfig
from cloze.nn.heads import READERS
from cloze.nn.utils import skip_allocation

RANDOM_SEED = 0  # of weights that a folder lacks


def load_module(
    contents: FolderContents,
    device: torch.device,
    dtype: torch.dtype,
    *,
    allow_missing: bool = False,
) -> tuple[Any, nn.Module | None, LoadReport]:
    """The module with its weights, the reader if there is one, and what did not match."""
    module = build_on_meta(contents.config, contents.task_heads, **contents.parts)
    rules, names, report = _match(contents, module)
    if report.missing and not allow_missing:
        raise FolderError(
            f"{contents.folder} lacks {len(report.missing)} weights that its config.json implies: "
            + _shorten(report.missing),
            fix="fetch the folder again, or load it with allow_missing=True to draw them at random",
        )
    if report.missing:
        rng = torch.Generator().manual_seed(RANDOM_SEED)
        module = build(contents.config, contents.task_heads, rng=rng, **contents.parts)
    weights = _read(rules, names, contents.stored)
    module.load_state_dict(weights, strict=False, assign=True)
    reader = _load_reader(contents)
    if reader is not None:
        reader = reader.to(device)
    module = module.to(device=device, dtype=dtype).eval()
    if device.type == "cuda":
        from cloze.nn.fuse import fuse

        module = fuse(module)
    return module, reader, report


def write_module(
    module: nn.Module,
    config: ModelConfig,
    layout: Layout,
    folder: Path,
    *,
    task_heads: tuple[str, ...] = (),
    reader: nn.Module | None = None,
) -> None:
    """The weights under their stored names, and the reader's in a file of their own."""
    ours = module.state_dict()
    tensors = _split(layout.map_weights(config, ours), ours)
    for copy, name in layout.find_copies(tensors).items():
        tensors[copy] = tensors[name].clone()
    tensors = {layout.finish_name(name, task_heads): one for name, one in tensors.items()}
    save_file(tensors, folder / SINGLE, metadata={"format": "pt"})
    if reader is not None:
        weights = {name: one.cpu().contiguous() for name, one in reader.state_dict().items()}
        save_file(weights, folder / READER_FILE, metadata={"format": "pt"})


def new_reader(features: Features, outputs: int) -> nn.Module:
    """A reader with weights still to be learned or loaded."""
    deep = features.kind == "bilstm"
    shape = {"hidden": features.hidden, "depth": features.depth} if deep else {}
    return READERS[features.kind](features.width, outputs, **shape)


def _match(
    contents: FolderContents, module: nn.Module
) -> tuple[dict[str, Rule], dict[str, str], LoadReport]:
    """The rules of the weights that are all there, stored names, and what is left over."""
    layout, stored, ours = contents.layout, contents.stored, module.state_dict()
    rules = layout.map_weights(contents.config, ours)
    wanted = {name for rule in rules.values() for name in rule.names}
    names = layout.find_names(contents.description, stored, wanted)
    for name, rule in rules.items():
        for part in rule.names:
            if part in names:
                shape = rule.stored_shape(tuple(ours[name].shape))
                check(names[part], stored[names[part]], shape)
    unexpected = sorted(names[name] for name in set(names) - wanted - layout.harmless)
    missing = sorted(wanted - set(names))
    if layout.strict and unexpected:
        raise FolderError(
            f"{SINGLE} has weights that config.json does not imply: {_shorten(unexpected)}",
            fix="config.json and the weights are not of one model; take both from one folder",
        )
    report = LoadReport(
        missing=tuple(missing), unexpected=tuple(unexpected), ignored=contents.description.ignored
    )
    complete = {
        name: rule for name, rule in rules.items() if all(part in names for part in rule.names)
    }
    return complete, names, report


def _read(
    rules: Mapping[str, Rule], names: Mapping[str, str], stored: Mapping[str, Stored]
) -> dict[str, Tensor]:
    """Our weights, joined, split and transposed by the rules."""
    wanted = {names[part] for rule in rules.values() for part in rule.names}
    tensors = read_weights({name: stored[name] for name in stored if name in wanted})
    found = {}
    for name, rule in rules.items():
        parts = [tensors[names[part]] for part in rule.names]
        if rule.transpose:
            parts = [part.T if part.dim() > 1 else part for part in parts]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        index, count = rule.part
        if count > 1:
            tensor = tensor.chunk(count)[index]
        found[name] = tensor.contiguous() if rule.transpose or count > 1 else tensor
    return found


def _split(rules: Mapping[str, Rule], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse: tensors by the names they are stored under."""
    tensors: dict[str, Tensor] = {}
    partial: dict[str, dict[int, Tensor]] = {}
    for name, rule in rules.items():
        tensor = ours[name].cpu()
        index, count = rule.part
        if count > 1:  # until the last part of a stored tensor has come
            found = partial.setdefault(rule.names[0], {})
            found[index] = tensor
            if len(found) < count:
                continue
            tensor = torch.cat([found[index] for index in range(count)])
        parts = tensor.chunk(len(rule.names)) if len(rule.names) > 1 else [tensor]
        for stored, part in zip(rule.names, parts, strict=True):
            turned = part.T if rule.transpose and part.dim() > 1 else part
            tensors[stored] = turned.contiguous()
    return tensors


def _load_reader(contents: FolderContents) -> nn.Module | None:
    """The reader of a folder whose task has one, its shapes checked against the task's."""
    task, folder = contents.task, contents.folder
    if task is None or task.features is None:
        return None
    if not (folder / READER_FILE).is_file():
        raise FolderError(f"{folder} lacks {READER_FILE}", fix="fetch the folder again")
    with skip_allocation():
        reader = new_reader(task.features, len(contents.config.labels))
    stored, ours = file_weights(folder / READER_FILE), reader.state_dict()
    if stored.keys() != ours.keys():
        raise FolderError(
            f"{READER_FILE} holds {', '.join(sorted(stored)) or 'nothing'}",
            fix=f"a {task.features.kind} reader has {', '.join(sorted(ours))}; fine-tune again",
        )
    for name, weight in ours.items():
        check(name, stored[name], weight.shape)
    reader.load_state_dict(read_weights(stored), assign=True)
    return reader.eval()


def _shorten(names: "tuple[str, ...] | list[str]", most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
