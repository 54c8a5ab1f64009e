"""The report page of a training run, from the files in its folder.

| file | contents |
|---|---|
| metrics.jsonl | one row per line: `kind` (train, eval or kept), `step`, `loss`, `mlm_accuracy` … |
| examples.json | confusion matrix, errors and correct examples of labelled dev data |
| fills.json | [{"text": …, "truth": …, "before": [[word, probability], …], "after": …, …}, …] |
| neighbours.json | [{"text": …, "neighbours": [[text, cosine], …]}, …] |
| samples.json | [{"source": …, "reference": …, "translation": …}, …] |
| corpus.json | counts of the corpus, or an object with these as its `summary` |
| data.json | counts of labelled data |
| recipe.toml | the complete configuration |

Files may be missing. Files that cannot be read are listed at the end of the page: a report never
makes a successful run fail.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloze.config import read_toml
from cloze.errors import ClozeError, FolderError
from cloze.files import read_json
from cloze.plot.format import format_bytes, format_number, format_percent
from cloze.plot.page import (
    Bars,
    Card,
    Cell,
    Fact,
    Facts,
    Grid,
    Page,
    Paragraph,
    Quote,
    Section,
    Table,
)
from cloze.report.charts import Row, build_sections, describe_extent, read_number
from cloze.train.run_files import (
    CORPUS_FACTS,
    DATA_FACTS,
    EXAMPLES,
    FILLS,
    METRICS_FILE,
    NEIGHBOURS,
    RECIPE,
    REPORT,
    SAMPLES,
    read_metrics,
)

MASKS = ("[MASK]", "<mask>")
_LONG = 10_000_000  # larger numbers are abbreviated
# labels of counts in corpus.json and data.json, if they are not clear from the key
_LABELS = {
    "held_out": "held-out documents",
    "unknown": "unknown tokens",
    "unknown_rate": "unknown token rate",
    "bytes": "size on disk",
    "skipped": "skipped rows",
    "training": "training examples",
    "dev": "dev examples",
    "truncated": "truncated examples",
}


def build_report(run: str | os.PathLike[str], *, title: str | None = None) -> Page:
    """Build the report page of a run.

    Args:
        run: the run's folder.
        title: title of the page (default: the name of the folder).
    """
    folder = Path(run)
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a folder", fix="pass the folder of a training run")
    problems: list[str] = []
    rows = _read_rows(folder / METRICS_FILE, problems)
    found = list(build_sections(rows))
    for name in _MAKERS:
        found += _read_section(folder / name, problems)
    if problems:
        found.append(
            Section(
                title="Files that cannot be read", parts=[Paragraph(text=text) for text in problems]
            )
        )
    if not found:
        raise FolderError(
            f"{folder} contains no files of a training run",
            fix=f"pass the folder of a training run, with {', '.join([METRICS_FILE, *_MAKERS])}",
        )
    note = " · ".join(filter(None, (_describe_run(folder / RECIPE), describe_extent(rows))))
    return Page(title=title or folder.resolve().name, note=note, sections=found)


def _describe_run(recipe: Path) -> str:
    """What a run did, from its recipe; "" if that is missing or cannot be read."""
    try:
        values = read_toml(recipe)
        model = values.get("model", {})
        base = model.get("init_from")
        if task := values.get("task"):
            what = f"Fine-tuned for {task}"
        elif "distill" in values:
            what = f"Distilled from {Path(str(values['distill'].get('teacher', ''))).name}"
        else:
            what = f"Trained {model['family']}"
    except (OSError, ClozeError, KeyError, TypeError, AttributeError):
        return ""
    return f"{what} from {Path(str(base)).name}" if base else what


def write_report(run: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the report into the folder of the run, and return its path."""
    return build_report(run, title=title).save(Path(run) / REPORT)


def _read_section(path: Path, problems: list[str]) -> list[Section]:
    """The sections of a file; none if it is missing or an empty list."""
    if not path.exists():
        return []
    try:
        content = _read_file(path)
        if content == []:
            return []
        made = _MAKERS[path.name](content)
        return made if isinstance(made, list) else [made]
    except ClozeError as error:
        problems.append(f"{path.name} cannot be read ({error.problem})")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        problems.append(f"{path.name} cannot be read ({type(error).__name__}: {error})")
    return []


def _read_rows(path: Path, problems: list[str]) -> list[Row]:
    """The rows in the order of their steps; the last line of a killed run may be incomplete."""
    if not path.exists():
        return []
    try:
        lines = list(read_metrics(path))
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error})")
        return []
    rows = [row for _, row in lines if read_number(row, "step") is not None]
    if len(rows) < len(lines):
        problems.append(f"{path.name}: {len(lines) - len(rows):,} lines are not rows of metrics")
    return sorted(rows, key=lambda row: row["step"])


def _read_file(path: Path) -> Any:  # noqa: ANN401
    return read_toml(path) if path.suffix == ".toml" else read_json(path)


def _examples_sections(content: Mapping[str, Any]) -> list[Section]:
    from cloze.tasks.example_cards import build_sections  # numpy, which other pages do not need

    return build_sections(content)


def _fills_section(listed: Sequence[Mapping[str, Any]]) -> Section:
    note = "Predictions for the masked token before and after training, with probabilities."
    return Section(
        title="Masked-token predictions",
        note=note,
        parts=[Grid(parts=[_fill_card(one) for one in listed])],
    )


def _fill_card(one: Mapping[str, Any]) -> Card:
    truth = None if one.get("truth") is None else str(one["truth"])
    note = f"original: {truth}" if truth else ""
    text = str(one["text"])
    bars = [
        Bars(
            title=when,
            rows=[(_join_subword(text, word), value) for word, value in _to_pairs(one[when])],
            highlighted=truth,
        )
        for when in ("before", "after", "teacher")
        if one.get(when)
    ]
    return Card(head=Quote(text=text, highlighted=MASKS, note=note), parts=bars)


def _join_subword(text: str, word: str) -> str:
    """A token such as ##ly with the word before the mask, which it continues; others unchanged."""
    if not word.startswith("##"):
        return word
    before = min((text.find(mask) for mask in MASKS if mask in text), default=0)
    return "".join(text[:before].split()[-1:]) + word.removeprefix("##")


def _neighbours_section(listed: Sequence[Mapping[str, Any]]) -> Section:
    cards = [
        Card(
            head=Quote(text=str(one["text"])),
            parts=[Bars(rows=_to_pairs(one["neighbours"]), as_percent=False)],
        )
        for one in listed
    ]
    note = "Nearest texts by cosine similarity of their embeddings."
    return Section(title="Nearest neighbours", note=note, parts=[Grid(parts=cards)])


def _translations_section(listed: Sequence[Mapping[str, Any]]) -> Section:
    name = "summary" if "summary" in listed[0] else "translation"
    columns = ("source", "reference", name)
    rows = [[str(one[column]) for column in columns] for one in listed]
    title, what = ("Summaries", "texts") if name == "summary" else ("Translations", "sentences")
    note = f"Held-out {what} and their {title.lower()} by the saved model."
    return Section(title=title, note=note, parts=[Table(rows=rows, columns=columns)])


def _to_pairs(listed: Sequence[tuple[Any, Any]]) -> list[tuple[str, float]]:
    return [(str(text), float(value)) for text, value in listed]


def _data_section(description: Mapping[str, Any]) -> Section:
    summary = dict(description.get("summary", description))
    if "unknown" in summary and summary.get("tokens"):
        summary.setdefault("unknown_rate", summary["unknown"] / summary["tokens"])
    facts = [
        _make_fact(key, summary[key]) for key in summary if read_number(summary, key) is not None
    ]
    return Section(title="Data", parts=[Facts(facts)])


def _make_fact(key: str, value: int | float) -> Fact:
    label = _LABELS.get(key, key.replace("_", " "))
    if key.endswith(("rate", "fraction")):
        return Fact(label=label, text=format_percent(value, 2), value=value)
    if key == "bytes":
        return Fact(label=label, text=format_bytes(value), value=value, detail=f"{value:,} bytes")
    if value < _LONG:
        unit = "tokens" if key.startswith("longest") else ""
        return Fact(label=label, text=f"{value:,}", value=value, detail=unit)
    return Fact(label=label, text=format_number(value), value=value, detail=f"{value:,}")


def _configuration_section(settings: Mapping[str, Any]) -> Section:
    """A table for each group of settings; settings without a group come first."""
    groups = {name: value for name, value in settings.items() if isinstance(value, dict) and value}
    loose = {name: value for name, value in settings.items() if name not in groups}
    tables = [
        Table(title=name, rows=list(_flatten(group)))
        for name, group in [("recipe", loose), *groups.items()]
        if group
    ]
    return Section(title="Configuration", parts=[Grid(parts=tables, packed=True)])


def _flatten(settings: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Cell]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{within}{name}.")
        elif value is None or isinstance(value, str | int | float):
            yield f"{within}{name}", value
        else:
            yield f"{within}{name}", json.dumps(value, ensure_ascii=False)


_MAKERS: Mapping[str, Callable[[Any], Section | list[Section]]] = {
    EXAMPLES: _examples_sections,
    FILLS: _fills_section,
    NEIGHBOURS: _neighbours_section,
    SAMPLES: _translations_section,
    CORPUS_FACTS: _data_section,
    DATA_FACTS: _data_section,
    RECIPE: _configuration_section,
}
