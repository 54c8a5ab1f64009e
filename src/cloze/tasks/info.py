"""`info`: what a folder is, and what can be done with it. Of a folder no weight is read."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from cloze.checkpoint.abilities import OWN, own_family, verbs_of
from cloze.checkpoint.ngram import FAMILY as NGRAM
from cloze.checkpoint.ngram import is_arpa, load_arpa
from cloze.checkpoint.own import rename_version_1
from cloze.checkpoint.source import find_folder
from cloze.checkpoint.vectors import FAMILY as WORD2VEC
from cloze.checkpoint.vectors import import_vectors, is_vectors
from cloze.checkpoint.weights import WEIGHT_KINDS, Stored, stored_weights
from cloze.data.input_files import split_endings
from cloze.errors import InputError
from cloze.files import expand_user, read_json
from cloze.interop.sentence_transformers import Pooling
from cloze.text.tokenizer import Tokenizer

NOT_SHAPE = (
    *("model_type", "format_version", "vocab_size", "bos_id", "eos_id"),
    *("training", "counts", "discounts", "lowercase"),
)
LOCAL = (
    "global_attention_every",
    "window_size",
)  # of families whose layers do not all look at all of a text


@dataclass(frozen=True, kw_only=True)
class VocabularyInfo:
    """A vocabulary in short."""

    kind: str
    size: int
    lowercase: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "VocabularyInfo":
        return cls(kind=tokenizer.kind, size=tokenizer.vocab_size, lowercase=tokenizer.lowercase)


@dataclass(frozen=True, kw_only=True)
class Info:
    """A model folder in numbers and names."""

    folder: str
    family: str
    architecture: str
    config: dict[str, int | str]  # by name: each family has its own
    parameters: dict[str, int]  # by part
    dtypes: dict[str, int]  # numbers by precision on disk
    size_bytes: int
    vocabulary: VocabularyInfo
    task_heads: tuple[str, ...]
    labels: tuple[str, ...]  # of the head that has labels; empty without one
    max_length: int | None  # None: it reads texts of any length
    pooling: Pooling | None
    capabilities: dict[str, str]

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())


def info(folder: str | os.PathLike[str]) -> Info:
    """Shape, parameters by part, vocabulary, heads, labels and verbs of a model folder."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(
            f"info reads folders, and was given a {type(folder).__name__}",
            fix="name the folder; a loaded model says itself what it is: print(model)",
        )
    if is_arpa(folder):
        return _arpa(expand_user(folder))
    if is_vectors(folder):
        return _vectors(expand_user(folder))
    place = find_folder(folder)
    described = read_json(place / "config.json") if (place / "config.json").is_file() else None
    if isinstance(described, dict) and own_family(described) is not None:
        return _own(place, described)
    return _encoder(place)


def _encoder(folder: Path) -> Info:
    """An encoder's parts are those of its net, which torch lays out, without memory behind it."""
    from cloze.checkpoint.load import open_folder
    from cloze.checkpoint.model import token_limit
    from cloze.interop.huggingface import architecture

    contents = open_folder(folder)
    published, tokenizer, pooling = contents.published, contents.tokenizer, contents.pooling
    config, heads = published.config, published.heads
    module = contents.module
    parts = {
        "embeddings": module.embeddings,
        f"{config.num_layers} blocks": module.blocks,
        "last norm": module.norm,
        "pooler": module.pooler,
        "transform": getattr(module, "transform", None),
        **{f"{name} head": head for name, head in module.task_heads.items()},
    }
    return Info(
        folder=str(contents.folder),
        family=config.family,
        architecture=architecture(config.family, heads),
        config={
            "num_layers": config.num_layers,
            "hidden_size": config.hidden_size,
            "num_heads": config.num_heads,
            "intermediate_size": config.intermediate_size,
            "max_positions": config.max_positions,
            "type_vocab_size": getattr(config, "type_vocab_size", 0),
            "activation": config.activation,
            **{name: getattr(config, name) for name in LOCAL if hasattr(config, name)},
            **({"sees": "left to right"} if module.is_causal else {}),
        },
        parameters={
            name: sum(weight.numel() for weight in part.parameters())
            for name, part in parts.items()
            if part is not None and next(part.parameters(), None) is not None
        },
        dtypes=_kinds(contents.stored),
        size_bytes=_bytes(contents.stored),
        vocabulary=VocabularyInfo.of(tokenizer),
        task_heads=heads,
        labels=_labels(config.labels, heads),
        max_length=token_limit(config, tokenizer, pooling),
        pooling=pooling,
        capabilities=verbs_of(heads, causal=module.is_causal),
    )


def _labels(labels: tuple[str, ...], heads: tuple[str, ...]) -> tuple[str, ...]:
    if {"sequence", "token"} & set(heads):
        return labels
    from cloze.tasks.inference import NSP_LABELS

    return NSP_LABELS if "nsp" in heads else ()


def _own(folder: Path, values: Mapping[str, Any]) -> Info:
    """The same of our own families: config.json and the names of the weights say it all."""
    values = rename_version_1(dict(values))
    family, stored = values["model_type"], stored_weights(folder)
    parts: Counter[str] = Counter()
    for name, tensor in stored.items():
        if family != "ngram":
            parts[name.partition(".")[0]] += prod(tensor.shape)
        elif name.startswith("log_p."):  # an n-gram has a key and a weight beside it
            parts[f"{name[-1]}-grams"] += prod(tensor.shape)
    return Info(
        folder=str(folder),
        family=family,
        architecture=OWN[family].name,
        config={
            name: value if isinstance(value, int | str) else str(value)
            for name, value in values.items()
            if name not in NOT_SHAPE and value not in (None, [], {})
        },
        parameters=dict(parts),
        dtypes=_kinds(stored),
        size_bytes=_bytes(stored),
        vocabulary=_vocabulary(folder, values),
        task_heads=(),
        labels=(),
        max_length=values.get("max_positions")
        if values.get("position_encoding") == "learned"
        else None,
        pooling=None,
        capabilities=dict(OWN[family].verbs),
    )


def _arpa(path: Path) -> Info:
    """The same of an ARPA file, which is read to its end for it."""
    model = load_arpa(path)
    levels = model.module.levels
    return Info(
        folder=str(path),
        family=NGRAM,
        architecture=OWN[NGRAM].name,
        config={"order": len(levels)},
        parameters={f"{n}-grams": len(level.keys) for n, level in enumerate(levels, 1)},
        dtypes={"ARPA": sum(len(level.keys) for level in levels)},
        size_bytes=path.stat().st_size,
        vocabulary=VocabularyInfo.of(model.tokenizer),
        task_heads=(),
        labels=(),
        max_length=None,
        pooling=None,
        # its words are found by the file itself, and there is no tokenizer to open beside it
        capabilities={verb: what for verb, what in OWN[NGRAM].verbs.items() if verb != "tokenize"},
    )


def _vectors(path: Path) -> Info:
    """The same of a file of word vectors, which is read to its end for it, too."""
    model = import_vectors(path)
    return Info(
        folder=str(path),
        family=WORD2VEC,
        architecture=OWN[WORD2VEC].name,
        config={"hidden_size": model.width},
        parameters={"vectors": model.vectors.size},
        dtypes={"binary" if split_endings(path)[0] == ".bin" else "text": model.vectors.size},
        size_bytes=path.stat().st_size,
        vocabulary=VocabularyInfo(kind="word", size=len(model), lowercase=False),
        task_heads=(),
        labels=(),
        max_length=None,
        pooling=None,
        capabilities=dict(OWN[WORD2VEC].verbs),
    )


def _vocabulary(folder: Path, values: Mapping[str, Any]) -> VocabularyInfo:
    if values["model_type"] == WORD2VEC:  # words stand in a list of their own
        lowercase = values.get("lowercase") is True
        return VocabularyInfo(kind="word", size=values.get("vocab_size", 0), lowercase=lowercase)
    return VocabularyInfo.of(Tokenizer.load(folder))


def _kinds(stored: Mapping[str, Stored]) -> dict[str, int]:
    """Numbers by precision."""
    found: Counter[str] = Counter()
    for tensor in stored.values():
        if tensor.kind in WEIGHT_KINDS:
            found[tensor.kind] += prod(tensor.shape)
    return dict(found)


def _bytes(stored: Mapping[str, Stored]) -> int:
    return sum(file.stat().st_size for file in {one.file for one in stored.values()})
