"""Open a model folder, ours or a published one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from cloze.checkpoint.abilities import own_family, refuse
from cloze.checkpoint.body import body_folder, optional_json
from cloze.checkpoint.model import LoadReport, Model
from cloze.checkpoint.reader import read_reader
from cloze.checkpoint.source import find_folder
from cloze.checkpoint.task import TASK_FILE, Task, read_task, task_of_head
from cloze.checkpoint.weights import Stored, check, read_weights, stored_weights
from cloze.device import resolve_device, resolve_dtype
from cloze.errors import FolderError
from cloze.files import read_json
from cloze.interop.huggingface import Published, harmless, read_config, stored_names, weight_names
from cloze.interop.sentence_transformers import Pooling, read_pooling
from cloze.models.build import build, build_on_meta
from cloze.nn.encoder import Encoder
from cloze.nn.fuse import move_to_device
from cloze.text.tokenizer import Tokenizer

FRESH_SEED = 0


def load(
    source: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: str = "float32",
    allow_missing: bool = False,
    quiet: bool = False,
) -> Model:
    """The model in a folder, or of a name "org/name" in the local Hugging Face cache or the hub.

    `device=None` takes the GPU where there is one. Weights that the folder should hold and does
    not are an error, or with `allow_missing` are drawn anew. What was missing, unexpected or
    ignored is in `.report`, and shown unless `quiet`.
    """
    place, precision = resolve_device(device), resolve_dtype(dtype)
    contents = open_folder(source)
    places, report = _match(contents)
    if report.missing and not allow_missing:
        raise FolderError(
            f"{contents.folder} lacks {len(report.missing)} weights its config.json promises: "
            + _some(report.missing),
            fix="fetch the folder again, or load with allow_missing=True to draw them at random",
        )
    module = contents.module
    if report.missing:
        published, rng = contents.published, torch.Generator().manual_seed(FRESH_SEED)
        module = build(published.config, published.heads, rng=rng, **contents.parts)
    module.load_state_dict(_read(places, contents.stored), strict=False, assign=True)
    config, task = contents.published.config, contents.task
    reader = read_reader(contents.folder, task, len(config.labels))
    if report and not quiet:
        show(report, contents.folder)
    return Model(
        module=move_to_device(module, place, precision).eval(),
        tokenizer=contents.tokenizer,
        config=config,
        pooling=contents.pooling,
        task=task,
        reader=None if reader is None else reader.to(place),
        report=report,
    )


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a folder says it holds, before any weight is read."""

    folder: Path
    published: Published
    stored: Mapping[str, Stored]
    tokenizer: Tokenizer
    pooling: Pooling | None
    task: Task | None

    @property
    def parts(self) -> dict[str, bool]:
        """A bare BERT is published with and without its pooler."""
        if self.published.config.family != "bert" or self.published.heads:
            return {}
        return {"pooler": any(name.endswith("pooler.dense.weight") for name in self.stored)}

    @property
    def module(self) -> Encoder:
        """The net without memory behind it."""
        return build_on_meta(self.published.config, self.published.heads, **self.parts)


def open_folder(source: str | os.PathLike[str]) -> Contents:
    """Read and check all of a folder but its weights."""
    folder = find_folder(source)
    body = body_folder(folder)
    values = optional_json(body, "config.json")
    if not isinstance(values, dict):
        raise FolderError(
            f"{folder} has no config.json with a model's settings",
            fix="name the folder of a model, ours or in the Hugging Face layout",
        )
    if (family := own_family(values)) is not None:
        raise refuse(folder, family)
    stored = stored_weights(body)
    published = read_config(values, stored)
    tokenizer = Tokenizer.load(body)
    rows = published.config.vocab_size
    if tokenizer.vocab_size > rows:
        raise FolderError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens, the model only {rows:,}",
            fix="use the tokenizer and the weights of the same model",
        )
    pooling = read_pooling(lambda name: optional_json(folder, name))
    if pooling and pooling.lowercase and not tokenizer.lowercase:
        tokenizer = tokenizer.to_lowercase()
    if (folder / TASK_FILE).is_file():
        task: Task | None = read_task(read_json(folder / TASK_FILE))
    else:
        task = task_of_head(next(iter(published.heads), None))
    return Contents(
        folder=folder,
        published=published,
        stored=stored,
        tokenizer=tokenizer,
        pooling=pooling,
        task=task,
    )


def show(report: LoadReport, folder: Path) -> None:
    """The report as a table on standard error."""
    table = Table("what", "names", title=f"{folder}: not all matched", title_justify="left")
    for what in ("missing", "unexpected", "ignored"):
        if names := getattr(report, what):
            table.add_row(what, "\n".join(names))
    Console(stderr=True).print(table)


def _match(contents: Contents) -> tuple[dict[str, tuple[str, ...]], LoadReport]:
    """For each of our weights the stored names that make it, shapes checked; and what is left."""
    published, stored = contents.published, contents.stored
    ours = contents.module.state_dict()
    theirs = weight_names(published.config, ours)
    wanted = {name for names in theirs.values() for name in names}
    found = stored_names(published.config, stored, wanted)
    for name, names in theirs.items():
        rows, *rest = ours[name].shape
        for part in names:
            if part in found:
                check(found[part], stored[found[part]], (rows // len(names), *rest))
    known = wanted | harmless(published.config)
    report = LoadReport(
        missing=tuple(sorted(wanted - set(found))),
        unexpected=tuple(sorted(found[name] for name in set(found) - known)),
        ignored=published.ignored,
    )
    complete = {
        name: tuple(found[part] for part in names)
        for name, names in theirs.items()
        if all(part in found for part in names)
    }
    return complete, report


def _read(places: Mapping[str, tuple[str, ...]], stored: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Our weights, query, key and value joined."""
    tensors = read_weights({name: stored[name] for names in places.values() for name in names})
    return {
        ours: tensors[names[0]] if len(names) == 1 else torch.cat([tensors[n] for n in names])
        for ours, names in places.items()
    }


def _some(names: tuple[str, ...], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
