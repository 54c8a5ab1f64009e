"""`info`: describe a model folder, without reading its weights."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from cloze.checkpoint.contents import FolderContents, read_folder
from cloze.checkpoint.load import find_file_family, load
from cloze.checkpoint.model import compute_max_length
from cloze.checkpoint.task import NSP_LABELS
from cloze.checkpoint.weights import WEIGHT_DTYPES, StoredTensor
from cloze.config import to_mapping
from cloze.data.input_files import split_endings
from cloze.errors import InputError
from cloze.files import expand_user
from cloze.interop.sentence_transformers import Pooling
from cloze.models.registry import Family
from cloze.text.tokenizer import Tokenizer

NOT_SHOWN = ("lowercase",)  # shown with the vocabulary
PARTS = ("embeddings", "blocks", "norm", "pooler", "transform")  # of encoders, in this order
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


@dataclass(frozen=True, kw_only=True)
class Info:
    """A summary of a model folder."""

    folder: str
    family: str
    architecture: str
    config: dict[str, int | str]  # settings of the family, by name
    parameters: dict[str, int]  # by part
    dtypes: dict[str, int]  # number of stored values by dtype
    size_bytes: int
    vocabulary: VocabularyInfo
    task_heads: tuple[str, ...]
    labels: tuple[str, ...]  # of the classification head, if there is one
    max_length: int | None  # in tokens; None: no limit
    pooling: Pooling | None
    capabilities: dict[str, str]  # functions that work with the model, and what they return

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the folder."""
        return {**asdict(self), "total_parameters": self.total_parameters}


def info(folder: str | os.PathLike[str]) -> Info:
    """Describe a model folder: configuration, parameters, vocabulary, heads, labels, functions."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(
            f"info needs a folder, but was given an object of type {type(folder).__name__}",
            fix="pass the path of the folder; for a loaded model use print(model)",
        )
    family = find_file_family(folder)
    if family is not None:
        return _describe_file(expand_user(folder), family)
    contents = read_folder(folder)
    encoder = contents.family.kind == "encoder"
    config, tokenizer = contents.config, contents.tokenizer
    max_length = None
    if encoder and tokenizer is not None:
        max_length = compute_max_length(config, tokenizer, contents.pooling)
    elif getattr(config, "position_encoding", "") == "learned":
        max_length = config.max_positions
    architecture = contents.layout.describe_architecture(contents.task_heads)
    return Info(
        folder=str(contents.folder),
        family=contents.family.name,
        architecture=architecture or contents.family.description,
        config=_describe_encoder(config) if encoder else _describe_config(config),
        parameters=_count_parameters(contents),
        dtypes=_count_dtypes(contents.stored),
        size_bytes=_file_sizes(contents.stored),
        vocabulary=_describe_vocabulary(config, tokenizer),
        task_heads=contents.task_heads,
        labels=_head_labels(config.labels, contents.task_heads) if encoder else (),
        max_length=max_length,
        pooling=contents.pooling,
        capabilities=contents.capabilities,
    )


def _describe_encoder(config: Any) -> dict[str, int | str]:  # noqa: ANN401
    return {
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_positions": config.max_positions,
        "type_vocab_size": getattr(config, "type_vocab_size", 0),
        "activation": config.activation,
        **{name: getattr(config, name) for name in WINDOW_SETTINGS if hasattr(config, name)},
        **({"attention": "causal"} if getattr(config, "is_causal", False) else {}),
    }


def _describe_config(config: Any) -> dict[str, int | str]:  # noqa: ANN401
    return {
        name: value if isinstance(value, int | str) else str(value)
        for name, value in to_mapping(config, from_data=False).items()
        if name not in NOT_SHOWN
    }


def _count_parameters(contents: FolderContents) -> dict[str, int]:
    """Parameters by part, from the shapes of the stored weights."""
    if contents.family.name == "ngram":  # an n-gram also has a key and a back-off weight
        counts = {name: prod(one.shape) for name, one in contents.stored.items()}
        return {
            f"{name[-1]}-grams": count
            for name, count in counts.items()
            if name.startswith("log_p.")
        }
    parts: Counter[str] = Counter()
    assigned = contents.layout.assign_parts(contents.description, contents.stored)
    for name, part in assigned.items():
        parts[part] += prod(contents.stored[name].shape)
    order = sorted(parts, key=lambda part: (*PARTS, part).index(part))
    return {_describe_part(part, contents.config): parts[part] for part in order}


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
    model = load(path)
    text = family.name == "ngram"
    parameters = {"vectors": model.num_parameters}
    if text:
        levels = enumerate(model.module.levels, 1)
        parameters = {f"{n}-grams": len(level.keys) for n, level in levels}
    stored_as = "ARPA" if text else "binary" if split_endings(path)[0] == ".bin" else "text"
    return Info(
        folder=str(path),
        family=family.name,
        architecture=family.description,
        config=_describe_config(model.config),
        parameters=parameters,
        dtypes={stored_as: model.num_parameters},
        size_bytes=path.stat().st_size,
        vocabulary=_describe_vocabulary(model.config, model.tokenizer),
        task_heads=(),
        labels=(),
        max_length=None,
        pooling=None,
        # a file has no tokenizer
        capabilities={
            name: what for name, what in model.capabilities.items() if name != "tokenize"
        },
    )


def _describe_vocabulary(config: Any, tokenizer: Tokenizer | None) -> VocabularyInfo:  # noqa: ANN401
    if tokenizer is None:
        return VocabularyInfo(kind="word", size=config.vocab_size, lowercase=config.lowercase)
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
