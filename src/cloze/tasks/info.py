"""`info`: what a folder is, and what can be done with it. No weight is read."""

import os
from collections import Counter
from dataclasses import dataclass
from math import prod

from cloze.checkpoint.load import open_folder
from cloze.checkpoint.model import token_limit
from cloze.checkpoint.weights import WEIGHT_KINDS
from cloze.interop.huggingface import architecture

VERBS = {
    "mlm": {"fill": "words for [MASK]"},
    "sequence": {"classify": "the label of a text or a pair"},
    "token": {"tag": "tags of words, and spans"},
    "span": {"answer": "the stretch of a context that answers a question"},
    "choice": {"choose": "the option that goes best with a text"},
    None: {"embed": "vectors of texts or tokens", "tokenize": "ids and character offsets"},
}
LOCAL = ("global_every", "window")  # of families whose layers do not all look at all of a text


@dataclass(frozen=True, kw_only=True)
class Info:
    """A model folder in numbers and names."""

    folder: str
    family: str
    architecture: str
    shape: dict[str, int | str]
    parameters: dict[str, int]  # by part
    stored_as: dict[str, int]  # numbers by precision on disk
    bytes: int
    vocabulary: dict[str, int | str | bool]
    heads: tuple[str, ...]
    labels: tuple[str, ...]  # of the head that has labels; empty without one
    limit: int
    pooling: dict[str, object] | None
    verbs: dict[str, str]

    @property
    def total(self) -> int:
        return sum(self.parameters.values())


def info(folder: str | os.PathLike[str]) -> Info:
    """Shape, parameters by part, vocabulary, heads, labels and verbs of a model folder."""
    contents = open_folder(folder)
    published, tokenizer, pooling = contents.published, contents.tokenizer, contents.pooling
    config, heads = published.config, published.heads
    module = contents.module
    parts = {
        "embeddings": module.embeddings,
        f"{config.layers} blocks": module.blocks,
        "last norm": module.norm,
        "pooler": module.pooler,
        "transform": getattr(module, "transform", None),
        **{f"{name} head": head for name, head in module.heads.items()},
    }
    stored: Counter[str] = Counter()
    for tensor in contents.stored.values():
        if tensor.kind in WEIGHT_KINDS:
            stored[tensor.kind] += prod(tensor.shape)
    verbs = {verb: what for head in (*heads, None) for verb, what in VERBS.get(head, {}).items()}
    return Info(
        folder=str(contents.folder),
        family=config.family,
        architecture=architecture(config.family, heads),
        shape={
            "layers": config.layers,
            "width": config.width,
            "heads": config.heads,
            "hidden": config.hidden,
            "positions": config.positions,
            "segments": getattr(config, "segments", 0),
            "activation": config.activation,
            **{name: getattr(config, name) for name in LOCAL if hasattr(config, name)},
        },
        parameters={
            name: sum(weight.numel() for weight in part.parameters())
            for name, part in parts.items()
            if part is not None
        },
        stored_as=dict(stored),
        bytes=sum(file.stat().st_size for file in {one.file for one in contents.stored.values()}),
        vocabulary={
            "kind": tokenizer.kind,
            "pieces": tokenizer.size,
            "lowercase": tokenizer.lowercase,
        },
        heads=heads,
        labels=config.labels if {"sequence", "token"} & set(heads) else (),
        limit=token_limit(config, tokenizer, pooling),
        pooling=None
        if pooling is None
        else {"modes": pooling.modes, "normalize": pooling.normalize, "limit": pooling.limit},
        verbs=verbs,
    )
