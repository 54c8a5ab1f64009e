"""`cloze info`: what a folder is, and what can be done with it."""

import dataclasses
from typing import TYPE_CHECKING

from cloze.cli.common import Json, ModelFolder, print_json, print_table
from cloze.plot.format import format_percent

if TYPE_CHECKING:
    from cloze.tasks.info import Info


def info(model: ModelFolder, *, as_json: Json = False) -> None:
    """Show a model's shape, parameters, vocabulary, heads and labels."""
    from cloze.tasks.info import info

    found = info(model)
    if as_json:
        print_json(dataclasses.asdict(found) | {"total": found.total_parameters})
    else:
        _show(found)


def _show(found: "Info") -> None:
    from cloze.models.registry import get_family

    is_encoder = get_family(found.family).kind == "encoder"

    shape = ", ".join(f"{name} {value}" for name, value in found.config.items())
    vocabulary = found.vocabulary
    case = "uncased" if vocabulary.lowercase else "cased"
    rows = [
        ("model", f"{found.architecture} ({found.family})"),
        ("shape", shape),
        ("longest input", "" if found.max_length is None else f"{found.max_length:,} tokens"),
        ("vocabulary", f"{vocabulary.size:,} pieces, {vocabulary.kind}, {case}"),
        ("heads", ", ".join(found.task_heads) or ("none" if is_encoder else "")),
        ("labels", _some(found.labels)),
        ("pooling", _pooling(found)),
        ("on disk", f"{found.size_bytes / 1e6:,.1f} MB, {', '.join(found.dtypes)}"),
    ]
    print_table(("", found.folder), [row for row in rows if row[1]])
    parts = [
        (part, count, format_percent(count / found.total_parameters))
        for part, count in found.parameters.items()
    ]
    print_table(("part", "parameters", "share"), [*parts, ("all", found.total_parameters, "")])
    print_table(("what it can do", ""), found.capabilities.items())


def _pooling(found: "Info") -> str:
    if found.pooling is None:
        return ""
    modes = " + ".join(found.pooling.modes)
    return f"{modes}, normalised" if found.pooling.normalize else modes


def _some(labels: tuple[str, ...], most: int = 12) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
