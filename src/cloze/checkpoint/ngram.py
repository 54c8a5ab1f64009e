"""The folder of an n-gram model: config.json, tokenizer.json, and tables that are mapped.

`model.safetensors` holds for every order n `keys.n` (but for n = 1, where they are 0, 1, 2, …),
`log_p.n` and `backoff.n` (but for the highest).
"""

import gzip
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cloze.checkpoint.own import read_settings, write_settings
from cloze.checkpoint.weights import SINGLE, file_weights, read_weights
from cloze.checkpoint.words import ReadsWords
from cloze.data.input_files import open_text, split_endings
from cloze.errors import ConfigError, FolderError
from cloze.files import atomic_file, check_output_path, expand_user, open_for_writing
from cloze.interop.arpa import read_arpa, write_arpa
from cloze.models.configs.ngram import BOS, SYMBOLS, NGramConfig
from cloze.models.language import batches
from cloze.models.ngram import Floats, Ints, Level, NGram, Step
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import build_whitespace_tokenizer

if TYPE_CHECKING:
    import torch

FAMILY = "ngram"
_KINDS = {"I64": "<i8", "F32": "<f4"}
_AGAIN = "the file is damaged: fetch the folder again, or make the model anew"
_ROWS = 1 << 20  # checked at once


@dataclass(frozen=True, kw_only=True, repr=False)
class NGramModel(ReadsWords):
    """An n-gram model with its tokenizer; a `LanguageModel`."""

    module: NGram
    tokenizer: Tokenizer

    @property
    def config(self) -> NGramConfig:
        return self.module.config

    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every word."""
        return self.module.next_log_probs(context)  # v

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every word but its <s>."""
        for batch in batches(sequences):
            flat = np.fromiter((id_ for one in batch for id_ in one), dtype=np.int64)
            found = self.module.log_probs(flat)
            for one, end in zip(batch, accumulate(map(len, batch)), strict=True):
                yield found[end - len(one) + 1 : end]

    def path(self, context: Sequence[int], word: int) -> tuple[Step, ...]:
        """The back-off weights that were multiplied, and the probability they lead to."""
        return self.module.path(context, word)

    def save_arpa(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write an ARPA file, packed if its name ends in .gz."""
        target = check_output_path(path, force, file=True)
        packed = target.suffix == ".gz"
        with (
            atomic_file(target) as file,
            gzip.GzipFile(target.name, "wb", 6, file) if packed else nullcontext(file) as stream,
        ):
            for part in write_arpa(self.words, self.module):
                stream.write(part.encode())
        return target

    def _write(self, work: Path) -> None:
        _write_arrays(work / SINGLE, _arrays(self.module))
        write_settings(work, FAMILY, _settings(self.module))
        self.tokenizer.save(work)


def is_arpa(path: str | os.PathLike[str]) -> bool:
    """Whether this is a file that its name calls ARPA, plain or packed."""
    return split_endings(path)[0] == ".arpa" and os.path.isfile(expand_user(path))  # noqa: PTH113 - never raises


def load_arpa(path: str | os.PathLike[str]) -> NGramModel:
    """The model in an ARPA file, plain or packed. Its words stand between white space."""
    with open_text(expand_user(path)) as lines:
        words, module = read_arpa(lines, os.fspath(path))
    return NGramModel(module=module, tokenizer=build_whitespace_tokenizer(words[len(SYMBOLS) :]))


def open_ngram(
    folder: Path,
    *,
    device: "str | torch.device | None" = None,  # noqa: ARG001 - its tables stay where they are
) -> NGramModel:
    """The model in a folder. The tables are looked through once, then read when asked."""
    config, counts = _read_settings(folder)
    module = NGram(config, _levels(folder, config, counts))
    model = NGramModel(module=module, tokenizer=Tokenizer.load(folder))
    if len(model.words) != config.vocab_size:
        raise FolderError(
            f"the tokenizer has {len(model.words):,} words, config.json says {config.vocab_size:,}",
            fix="the two are not of one model; take both from one folder",
        )
    return model


def _settings(module: NGram) -> dict[str, object]:
    config = module.config
    return {
        "order": config.order,
        "vocab_size": config.vocab_size,
        "counts": [len(level.keys) for level in module.levels],
        "discounts": config.discounts,
        "fallback_discounts": config.fallback_discounts,
    }


def _read_settings(folder: Path) -> tuple[NGramConfig, list[int]]:
    _, values = read_settings(folder, (FAMILY,), "an n-gram model")
    match values:
        case {
            "order": order,
            "vocab_size": vocab_size,
            "counts": [*counts],
            "discounts": [*discounts],
            "fallback_discounts": [*fallback],
        } if all(type(count) is int and count >= 0 for count in counts) and all(
            isinstance(three, list) for three in discounts
        ):
            try:
                config = NGramConfig(
                    order=order,
                    vocab_size=vocab_size,
                    discounts=tuple(map(tuple, discounts)),
                    fallback_discounts=tuple(fallback),
                )
            except ConfigError as error:
                raise FolderError(f"config.json: {error.problem}", fix=error.fix) from None
            if len(counts) == order and counts[0] == vocab_size:
                return config, counts
    raise FolderError(
        "config.json does not describe an n-gram model", fix="fetch the folder again, or mend it"
    )


def _shapes(config: NGramConfig, counts: Sequence[int]) -> dict[str, tuple[str, tuple[int]]]:
    found: dict[str, tuple[str, tuple[int]]] = {}
    for order, count in enumerate(counts, 1):
        if order > 1:
            found[f"keys.{order}"] = "I64", (count,)
        found[f"log_p.{order}"] = "F32", (count,)
        if order < config.order:
            found[f"backoff.{order}"] = "F32", (count,)
    return found


def _arrays(module: NGram) -> dict[str, tuple[str, Ints | Floats]]:
    counts = [len(level.keys) for level in module.levels]
    return {
        name: (kind, getattr(module.levels[int(name[-1]) - 1], name[:-2]))
        for name, (kind, _) in _shapes(module.config, counts).items()
    }


def _write_arrays(file: Path, arrays: Mapping[str, tuple[str, Ints | Floats]]) -> None:
    """A safetensors file, written from where the arrays lie; the library would copy all first."""
    header: dict[str, Any] = {}
    end = 0
    for name, (kind, values) in arrays.items():
        start, end = end, end + len(values) * np.dtype(_KINDS[kind]).itemsize
        header[name] = {"dtype": kind, "shape": [len(values)], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_for_writing(file) as opened:
        opened.write(struct.pack("<Q", len(text)) + text)
        for kind, values in arrays.values():
            opened.write(np.ascontiguousarray(values, dtype=_KINDS[kind]).data)


def _levels(folder: Path, config: NGramConfig, counts: Sequence[int]) -> list[Level]:
    file = folder / SINGLE
    if not file.is_file():
        raise FolderError(f"{folder} has no {SINGLE}", fix="is this the folder of a model?")
    stored, wanted = file_weights(file), _shapes(config, counts)
    for name, (kind, shape) in wanted.items():
        if name not in stored or (stored[name].kind, stored[name].shape) != (kind, shape):
            raise FolderError(
                f"{SINGLE} does not hold {name} as config.json implies",
                fix="config.json and the tables are not of one model; take both from one folder",
            )
    tables = {
        name: tensor.numpy()
        for name, tensor in read_weights(
            {name: stored[name] for name in wanted}, mapped=True
        ).items()
    }
    keys = [np.arange(config.vocab_size), *(tables[f"keys.{n}"] for n in range(2, len(counts) + 1))]
    for order, (below, level) in enumerate(zip(counts, keys[1:], strict=False), 2):
        _check_keys(f"keys.{order}", level, below, config)
    for name, table in tables.items():
        if not name.startswith("keys."):
            _check_logs(name, table)
    return [
        Level(
            keys=level,
            log_p=tables[f"log_p.{order}"],
            backoff=tables.get(f"backoff.{order}", np.zeros(0, dtype=np.float32)),
        )
        for order, level in enumerate(keys, 1)
    ]


def _check_keys(name: str, keys: Ints, below: int, config: NGramConfig) -> None:
    """Ascending, each of a context that is there and of a word; else other n-grams are found."""
    bits, last = config.bits, -1
    for start in range(0, len(keys), _ROWS):
        part = keys[start : start + _ROWS]
        if part[0] <= last or (part[1:] <= part[:-1]).any():
            raise FolderError(f"{name} is not in ascending order", fix=_AGAIN)
        last = int(part[-1])
        if last >> bits >= below or (part & ((1 << bits) - 1)).max() >= config.vocab_size:
            raise FolderError(f"{name} names contexts or words that are not there", fix=_AGAIN)


def _check_logs(name: str, logs: Floats) -> None:
    """Numbers, all but the one of <s>, which is never predicted."""
    for start in range(0, len(logs), _ROWS):
        sound = np.isfinite(logs[start : start + _ROWS])
        if name == "log_p.1" and start == 0:
            sound[BOS] |= logs[BOS] == -np.inf
        if not sound.all():
            raise FolderError(f"{name} holds numbers that are none (NaN or infinite)", fix=_AGAIN)
