"""Load the weights of torch modules from a folder, and save them.

Names and shapes are compared with the configuration before any weight is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cloze.checkpoint.contents import FolderContents, read_folder
from cloze.checkpoint.source import builtin
from cloze.checkpoint.task import FEATURE_HEAD_FILE, FEATURE_WORDS_FILE, FeatureSettings
from cloze.checkpoint.weights import (
    WEIGHTS_FILE,
    LoadReport,
    StoredTensor,
    check_tensor,
    read_header,
    read_weights,
)
from cloze.errors import FolderError
from cloze.files import compute_sha256, read_json, write_json
from cloze.interop.layout import Layout, Rule
from cloze.models.build import build, build_on_meta
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.nested import NestedConfig
from cloze.nn.feature_heads import FEATURE_HEADS, FeatureHead, FeatureInputs
from cloze.nn.utils import skip_allocation

RANDOM_SEED = 0  # for weights that a folder lacks
_SHARED = "text_encoder."  # weights that may be those of a built-in model


def load_module(
    contents: FolderContents,
    device: torch.device,
    dtype: torch.dtype,
    *,
    allow_missing: bool = False,
) -> tuple[Any, FeatureHead | None, LoadReport]:
    """The module with its weights, the feature head if there is one, and what did not match."""
    module = build_on_meta(contents.config, contents.task_heads, **contents.parts)
    shared = _load_shared_weights(contents.config)
    rules, names, report = _match_weights(contents, module, shared)
    if report.missing and not allow_missing:
        raise FolderError(
            f"{contents.folder} lacks weights of the model in config.json ({len(report.missing)}): "
            + _shorten(report.missing),
            fix="download the folder again, or initialize them at random (allow_missing=True)",
        )
    if report.missing:
        rng = torch.Generator().manual_seed(RANDOM_SEED)
        module = build(contents.config, contents.task_heads, rng=rng, **contents.parts)
    weights = _read_weights(rules, names, contents.stored) | shared
    module.load_state_dict(weights, strict=False, assign=True)
    feature_head = load_feature_head(contents)
    if feature_head is not None:
        feature_head = feature_head.to(device)
    module = module.to(device=device, dtype=dtype).eval()
    if device.type == "cuda":
        from cloze.nn.fuse import fuse

        module = fuse(module)
    return module, feature_head, report


def write_module(
    module: nn.Module,
    config: ModelConfig,
    layout: Layout,
    folder: Path,
    *,
    task_heads: tuple[str, ...] = (),
    feature_head: FeatureHead | None = None,
) -> None:
    """Write the weights under their stored names; those of the feature head to its own file."""
    weights = module.state_dict()
    if _find_reference(config) is not None:
        weights = {name: one for name, one in weights.items() if not name.startswith(_SHARED)}
    tensors = _make_stored_tensors(layout.map_weights(config, weights), weights)
    for copy, name in layout.find_copies(tensors).items():
        tensors[copy] = tensors[name].clone()
    tensors = {layout.finish_name(name, task_heads): one for name, one in tensors.items()}
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    if feature_head is not None:
        write_feature_head(feature_head, folder)


def write_feature_head(feature_head: FeatureHead, folder: Path) -> None:
    """Write the weights of a feature head."""
    tensors = {name: one.cpu().contiguous() for name, one in feature_head.state_dict().items()}
    save_file(tensors, folder / FEATURE_HEAD_FILE, metadata={"format": "pt"})
    if feature_head.vocabulary:
        write_json(folder / FEATURE_WORDS_FILE, list(feature_head.vocabulary))


def build_feature_head(features: FeatureSettings, outputs: int) -> FeatureHead:
    """A feature head whose weights are yet to be trained or loaded."""
    inputs = FeatureInputs(
        mixed_layers=features.mixed_layers,
        learns_weights=features.learns_weights,
        learns_scale=features.learns_scale,
        dropout=features.dropout,
        contextual=features.contextual,
        vocab_size=features.vocab_size,
        embedding_size=features.embedding_size,
        pooling=features.pooling if features.reads_words else None,
        compares_pairs=features.compares_pairs,
    )
    sizes: dict[str, int] = {}
    if features.kind != "linear":
        sizes |= {"hidden_size": features.hidden_size, "num_layers": features.num_layers}
    if features.kind == "cnn":
        sizes["kernel_size"] = features.kernel_size
    return FEATURE_HEADS[features.kind](features.input_size, outputs, inputs=inputs, **sizes)


def _find_reference(config: object) -> NestedConfig | None:
    """The text encoder of a model, if its weights are those of a built-in model."""
    nested = getattr(config, "text", None)
    return nested if isinstance(nested, NestedConfig) and nested.builtin else None


def _load_shared_weights(config: object) -> dict[str, Tensor]:
    """The weights that a folder shares with a built-in model, whose checksum must be the same."""
    nested = _find_reference(config)
    if nested is None:
        return {}
    folder = builtin().get(nested.builtin)
    if folder is None:
        raise FolderError(
            f"config.json: the text encoder is {nested.builtin!r}, which is no built-in model",
            fix=f"use one of {', '.join(builtin())}",
        )
    if compute_sha256(folder / WEIGHTS_FILE) != nested.sha256:
        raise FolderError(
            f"config.json: the text encoder is another version of {nested.builtin}",
            fix="use the version of cloze that the model was made with",
        )
    contents = read_folder(folder, kind="encoder")
    if contents.config != nested.config:
        raise FolderError(
            f"config.json: the settings of the text encoder are not those of {nested.builtin}",
            fix="download the folder again",
        )
    encoder, _, _ = load_module(contents, torch.device("cpu"), torch.float32)
    weights = encoder.state_dict()
    return {_SHARED + name: one for name, one in weights.items() if "task_heads" not in name}


def _match_weights(
    contents: FolderContents, module: nn.Module, shared: Mapping[str, Tensor]
) -> tuple[dict[str, Rule], dict[str, str], LoadReport]:
    """The rules of the weights that are complete, their stored names, and what did not match."""
    layout, stored, weights = contents.layout, contents.stored, module.state_dict()
    rules = layout.map_weights(
        contents.config, {name: one for name, one in weights.items() if name not in shared}
    )
    wanted = {name for rule in rules.values() for name in rule.names}
    names = layout.find_names(contents.description, stored, wanted)
    for name, rule in rules.items():
        for part in rule.names:
            if part in names:
                shape = rule.stored_shape(tuple(weights[name].shape))
                check_tensor(names[part], stored[names[part]], shape)
    unexpected = sorted(names[name] for name in set(names) - wanted - layout.harmless)
    missing = sorted(wanted - set(names))
    if layout.strict and unexpected:
        raise FolderError(
            f"{WEIGHTS_FILE} has weights that config.json does not imply: {_shorten(unexpected)}",
            fix="use config.json and weights of the same model",
        )
    report = LoadReport(
        missing=tuple(missing), unexpected=tuple(unexpected), ignored=contents.description.ignored
    )
    complete = {
        name: rule for name, rule in rules.items() if all(part in names for part in rule.names)
    }
    return complete, names, report


def _read_weights(
    rules: Mapping[str, Rule], names: Mapping[str, str], stored: Mapping[str, StoredTensor]
) -> dict[str, Tensor]:
    """Read the weights of the module: stored tensors, joined, split and transposed by the rules."""
    wanted = {names[part] for rule in rules.values() for part in rule.names}
    tensors = read_weights({name: stored[name] for name in stored if name in wanted})
    return convert_weights(rules, names, tensors)


def convert_weights(
    rules: Mapping[str, Rule], names: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The weights of the module from stored tensors; those that need no change share memory."""
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


def _make_stored_tensors(
    rules: Mapping[str, Rule], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors to store, by stored name: the reverse of `_read_weights`."""
    tensors: dict[str, Tensor] = {}
    partial: dict[str, dict[int, Tensor]] = {}
    for name, rule in rules.items():
        tensor = weights[name].cpu()
        index, count = rule.part
        if count > 1:  # wait for the other parts of the stored tensor
            found = partial.setdefault(rule.names[0], {})
            found[index] = tensor
            if len(found) < count:
                continue
            tensor = torch.cat([found[index] for index in range(count)])
        parts = tensor.chunk(len(rule.names)) if len(rule.names) > 1 else [tensor]
        for stored, part in zip(rule.names, parts, strict=True):
            oriented = part.T if rule.transpose and part.dim() > 1 else part
            tensors[stored] = oriented.contiguous()
    return tensors


def load_feature_head(contents: FolderContents) -> FeatureHead | None:
    """The feature head of a folder, if its task has one, after checking names and shapes."""
    task, folder = contents.task, contents.folder
    if task is None or task.features is None:
        return None
    if not (folder / FEATURE_HEAD_FILE).is_file():
        raise FolderError(f"{folder} has no {FEATURE_HEAD_FILE}", fix="download the folder again")
    with skip_allocation():
        feature_head = build_feature_head(task.features, len(contents.labels))
    stored, weights = read_header(folder / FEATURE_HEAD_FILE), feature_head.state_dict()
    if stored.keys() != weights.keys():
        raise FolderError(
            f"{FEATURE_HEAD_FILE} has the weights {', '.join(sorted(stored)) or 'of no layer'}, "
            f"but a {task.features.kind} feature head has {', '.join(sorted(weights))}",
            fix="fine-tune again",
        )
    for name, weight in weights.items():
        check_tensor(name, stored[name], weight.shape)
    feature_head.load_state_dict(read_weights(stored), assign=True)
    if task.features.vocab_size:
        feature_head.vocabulary = _read_feature_words(folder, task.features.vocab_size - 1)
    return feature_head.eval()


def _read_feature_words(folder: Path, count: int) -> list[str]:
    """The words of a feature head's own embeddings."""
    file = folder / FEATURE_WORDS_FILE
    words: Any = read_json(file) if file.is_file() else None
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not is_list or len(words) != count:
        raise FolderError(
            f"{FEATURE_WORDS_FILE} does not contain the {count:,} words of the feature head",
            fix="download the folder again, or fine-tune again",
        )
    return list(words)


def _shorten(names: "tuple[str, ...] | list[str]", limit: int = 4) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
