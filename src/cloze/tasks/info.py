"""`info`: describe a model, or a model folder without reading its weights."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.contents import FolderContents, read_folder
from cloze.checkpoint.load import find_file_family, find_model_file, load
from cloze.checkpoint.model import Model, compute_max_length, not_a_model_error
from cloze.checkpoint.precision import DtypeChoice, read_choices
from cloze.checkpoint.task import FEATURE_HEAD_FILE, NSP_LABELS, list_heads
from cloze.checkpoint.weights import (
    WEIGHT_DTYPES,
    StoredTensor,
    check_tensor,
    read_array,
    read_header,
)
from cloze.config import to_mapping
from cloze.data.input_files import split_endings
from cloze.errors import FolderError
from cloze.files import PathLike, expand_user
from cloze.interop.layout import Layout, part_of
from cloze.interop.sentence_transformers import Pooling
from cloze.models.registry import Family, resolve
from cloze.models.word2vec import WordVectors
from cloze.results import Result
from cloze.tasks.explain.views import list_views
from cloze.tasks.inputs import resolve_model
from cloze.text.tokenizer import Tokenizer

NOT_SHOWN = ("lowercase",)  # shown with the vocabulary
PARTS = ("embeddings", "blocks", "norm", "pooler", "transform")  # of encoders, in this order
# names in safetensors files
DTYPE_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
RETRIEVAL_SETTINGS = ("chunk_length", "num_neighbors", "neighbor_layers")  # of RETRO
RELATIVE_SETTINGS = ("position_encoding", "max_distance")  # of families with relative positions
WINDOW_SETTINGS = ("global_attention_every", "window_size")  # of families with sliding windows


@dataclass(frozen=True, kw_only=True)
class VocabularyInfo:
    """A summary of a vocabulary."""

    kind: str
    size: int
    lowercase: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "VocabularyInfo":
        return cls(kind=tokenizer.kind, size=tokenizer.vocab_size, lowercase=tokenizer.lowercase)


@dataclass(frozen=True, kw_only=True, repr=False)
class Info(Result):
    """A summary of a model."""

    folder: str | None  # None: the model was not loaded from one
    family: str
    architecture: str
    config: dict[str, int | str]  # settings of the family, by name
    parameters: dict[str, int]  # by part
    dtypes: dict[str, int]  # number of values by dtype
    size_bytes: int
    vocabulary: VocabularyInfo
    task_heads: tuple[str, ...]
    labels: tuple[str, ...]  # of the classification head, if there is one
    max_length: int | None  # in tokens; None: no limit
    pooling: Pooling | None
    features: dict[str, Any] | None  # of a classifier on a frozen encoder: layers, kind, …
    capabilities: dict[str, str]  # functions that work with the model, and what they return
    views: tuple[str, ...]  # of `explain` that apply to the model
    auto_dtype: tuple[DtypeChoice, ...] = ()  # that `--dtype auto` has chosen, on each machine

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the model."""
        return {**asdict(self), "total_parameters": self.total_parameters}

    def list_functions(self) -> list[tuple[str, str]]:
        """The functions that work with the model, and what they return; `explain` has views."""
        views = [("explain", f"views: {', '.join(self.views)}")] if self.views else []
        return [*self.capabilities.items(), *views]

    def to_records(self) -> list[dict[str, Any]]:
        """One row: family, sizes and configuration."""
        return [
            {
                "folder": self.folder,
                "family": self.family,
                "architecture": self.architecture,
                **self.config,
                "max_length": self.max_length,
                "vocabulary": self.vocabulary.size,
                "task_heads": ", ".join(self.task_heads),
                "total_parameters": self.total_parameters,
                "size_bytes": self.size_bytes,
            }
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_heading, render_result, render_table

        (row,) = self.to_records()
        rows = [(name, _format_value(value)) for name, value in row.items() if value]
        functions = render_table(("function", "returns"), self.list_functions())
        heading = render_heading(self.folder or self.family)
        return render_result(heading, render_table(("", "value"), rows), functions)


def _format_value(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def info(model: Model | WordVectors | PathLike) -> Info:
    """Describe a model: configuration, parameters, vocabulary, heads, labels, functions.

    Args:
        model: a model, or its folder, whose weights are not read. The dtypes and the size of a
            model are those of its weights in memory, those of a folder are of its files.
    """
    if not isinstance(model, str | os.PathLike):
        found = resolve_model(model)
        if not isinstance(found, Model):
            raise not_a_model_error(model)
        return _describe_model(found)
    family = find_file_family(model)
    if family is not None:
        return _describe_file(expand_user(model), family)
    contents = read_folder(model)
    return replace(
        _describe(contents),
        folder=str(contents.folder),
        parameters=_count_stored_parameters(contents),
        dtypes=_count_dtypes(contents.stored),
        size_bytes=_file_sizes(contents.stored),
        auto_dtype=tuple(read_choices(contents.folder).values()),
    )


def _describe(contents: FolderContents | Model) -> Info:
    """What a model and its folder have in common: all but the weights."""
    config, tokenizer, family = contents.config, contents.tokenizer, contents.family
    encoder, has_attention = family.kind == "encoder", hasattr(config, "num_heads")
    max_length = None
    if encoder and tokenizer is not None:
        max_length = compute_max_length(config, tokenizer, contents.pooling)
    elif getattr(config, "position_encoding", "") == "learned":
        max_length = config.max_positions
    layout: Layout = resolve(family.layout)
    return Info(
        folder=None,
        family=family.name,
        architecture=layout.describe_architecture(contents.task_heads) or family.description,
        config=_describe_encoder(config) if encoder and has_attention else _describe_config(config),
        parameters={},
        dtypes={},
        size_bytes=0,
        vocabulary=_describe_vocabulary(config, tokenizer),
        task_heads=contents.task_heads,
        labels=_head_labels(contents.labels, list_heads(contents.task_heads, contents.task)),
        max_length=max_length,
        pooling=contents.pooling,
        features=describe_features(contents),
        capabilities=contents.capabilities,
        views=tuple(list_views(contents)),
    )


def _describe_model(model: Model) -> Info:
    """Describe a model in memory."""
    weights = list(_list_weights(model))
    dtypes: Counter[str] = Counter()
    for _, weight in weights:
        dtypes[DTYPE_NAMES[str(weight.dtype).removeprefix("torch.")]] += prod(weight.shape)
    if model.family.name == "ngram":  # an n-gram also has a key and a back-off weight
        levels = enumerate(model.module.levels, 1)
        parameters = {f"{order}-grams": len(level.keys) for order, level in levels}
    else:
        parameters = _sum_parts(((part, prod(one.shape)) for part, one in weights), model.config)
    return replace(
        _describe(model),
        folder=None if model.folder is None else str(model.folder),
        parameters=parameters,
        dtypes=dict(dtypes),
        size_bytes=sum(weight.nbytes for _, weight in weights),
        auto_dtype=tuple(read_choices(model.folder).values()),
    )


def _list_weights(model: Model) -> Iterator[tuple[str, Any]]:
    """The tensors and arrays of a model in memory, each with the part that has it."""
    module = model.module
    if model.family.name == "ngram":
        yield from (("log_p", level.log_p) for level in module.levels)
        yield from (("backoff", level.backoff) for level in module.levels[:-1])
    elif isinstance(module, WordVectors):
        yield "vectors", module.vectors
        if module.ngram_vectors is not None:
            yield "ngram_vectors", module.ngram_vectors
    else:
        yield from ((part_of(name), weight) for name, weight in module.named_parameters())
    if model.feature_head is not None:
        yield from (("feature head", weight) for weight in model.feature_head.parameters())


def _describe_encoder(config: Any) -> dict[str, int | str]:  # noqa: ANN401
    return {
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_positions": config.max_positions,
        **{name: getattr(config, name) for name in RELATIVE_SETTINGS if hasattr(config, name)},
        "type_vocab_size": getattr(config, "type_vocab_size", 0),
        "activation": config.activation,
        **{name: getattr(config, name) for name in WINDOW_SETTINGS if hasattr(config, name)},
        **({"attention": "causal"} if getattr(config, "is_causal", False) else {}),
        **{name: getattr(config, name) for name in RETRIEVAL_SETTINGS if hasattr(config, name)},
    }


def _describe_config(config: Any) -> dict[str, int | str]:  # noqa: ANN401
    return {
        name: value if isinstance(value, int | str) else str(value)
        for name, value in to_mapping(config, from_data=False).items()
        if name not in NOT_SHOWN
    }


def _count_stored_parameters(contents: FolderContents) -> dict[str, int]:
    """Parameters by part, from the shapes of the stored weights."""
    if contents.family.name == "ngram":  # an n-gram also has a key and a back-off weight
        sizes = {name: prod(one.shape) for name, one in contents.stored.items()}
        return {
            f"{name[-1]}-grams": count for name, count in sizes.items() if name.startswith("log_p.")
        }
    assigned = contents.layout.assign_parts(contents.description, contents.stored)
    counts = [(part, prod(contents.stored[name].shape)) for name, part in assigned.items()]
    if contents.task and contents.task.features:
        stored = read_header(contents.folder / FEATURE_HEAD_FILE)
        counts += [("feature head", prod(one.shape)) for one in stored.values()]
    return _sum_parts(counts, contents.config)


def _sum_parts(counts: Iterable[tuple[str, int]], config: Any) -> dict[str, int]:  # noqa: ANN401
    """The sum of the counts of each part, in the order of `PARTS`."""
    parts: Counter[str] = Counter()
    for part, count in counts:
        parts[part] += count
    order = sorted(parts, key=lambda part: (*PARTS, part).index(part))
    return {_describe_part(part, config): parts[part] for part in order}


def _describe_part(part: str, config: Any) -> str:  # noqa: ANN401
    if part == "blocks":
        return f"{config.num_layers} blocks"
    if part.startswith("task_heads."):
        return f"{part.removeprefix('task_heads.')} head"
    return {"norm": "final norm"}.get(part, part)


def _head_labels(labels: tuple[str, ...], heads: tuple[str, ...]) -> tuple[str, ...]:
    if {"sequence", "token"} & set(heads):
        return labels
    return NSP_LABELS if "nsp" in heads else ()


def _describe_file(path: Path, family: Family) -> Info:
    """Describe a file in the format of another library; the whole file is read."""
    found = _describe_model(load(path))
    formats = {".bin": "binary", ".arpa": "ARPA", ".hdf5": "HDF5"}
    file = find_model_file(path)
    assert file is not None
    suffix, has_tokenizer = split_endings(file)[0], family.name == "elmo"
    return replace(
        found,
        folder=str(path),
        dtypes={formats.get(suffix, "text"): found.total_parameters},
        size_bytes=file.stat().st_size,
        capabilities={
            name: what
            for name, what in found.capabilities.items()
            if name != "tokenize" or has_tokenizer
        },
    )


def describe_features(contents: FolderContents | Model) -> dict[str, Any] | None:
    """The settings of a feature head, and the weights of the layers where it mixes them."""
    spec = contents.task.features if contents.task else None
    if spec is None:
        return None
    found = {name: value for name, value in to_mapping(spec).items() if value}
    prefixes = {"mix": "", "output_mix": "output_"} if spec.mixed_layers else {}
    used = {"mix": ("input", "both"), "output_mix": ("output", "both")}
    for name, prefix in prefixes.items():
        if spec.contextual in used[name]:
            scores, scale = _read_mix(contents, name)
            weights = np.exp(scores - scores.max())
            found[f"{prefix}layer_weights"] = (weights / weights.sum()).tolist()  # softmax
            found[f"{prefix}scale"] = float(scale)
    return found


def _read_mix(contents: FolderContents | Model, name: str) -> tuple[Any, Any]:
    """The scores of mixed layers and their scale, of a model in memory or of a folder."""
    if isinstance(contents, Model):
        mix: Any = getattr(contents.feature_head, name)
        return mix.scores.detach().float().cpu().numpy(), mix.scale.detach().float().cpu().numpy()
    assert contents.task is not None
    assert contents.task.features is not None
    stored = read_header(contents.folder / FEATURE_HEAD_FILE)
    shapes = {f"{name}.scores": (contents.task.features.mixed_layers,), f"{name}.scale": ()}
    for part, shape in shapes.items():
        if part not in stored:
            raise FolderError(f"{FEATURE_HEAD_FILE} has no {part}", fix="fine-tune again")
        check_tensor(part, stored[part], shape)
    scores, scale = (read_array(part, stored[part]) for part in shapes)
    return scores, scale


def _describe_vocabulary(config: Any, tokenizer: Tokenizer | None) -> VocabularyInfo:  # noqa: ANN401
    if tokenizer is None or config.family == "word2vec":
        lowercase = getattr(config, "lowercase", False)  # models of images may have no texts
        return VocabularyInfo(kind="word", size=config.vocab_size, lowercase=lowercase)
    return VocabularyInfo.of(tokenizer)


def _count_dtypes(stored: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Number of stored values by dtype."""
    found: Counter[str] = Counter()
    for tensor in stored.values():
        if tensor.dtype in WEIGHT_DTYPES:
            found[tensor.dtype] += prod(tensor.shape)
    return dict(found)


def _file_sizes(stored: Mapping[str, StoredTensor]) -> int:
    return sum(file.stat().st_size for file in {one.file for one in stored.values()})
