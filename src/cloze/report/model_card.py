"""`card`: the README of a model's folder, from the files that its run left.

What a card says was read or measured: the recipe, the text and its licences, how long it learned,
what it scored, what it cannot do. The front matter is what Hugging Face's hub reads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cloze.errors import FolderError, InputError
from cloze.files import PathLike, read_json, read_text, write_text
from cloze.metrics.names import METRICS
from cloze.plot.format import format_bytes, format_number, format_percent
from cloze.report.charts import describe_extent, read_number
from cloze.tasks.info import Info, info
from cloze.train.run_files import CORPUS_FACTS, METRICS_FILE, RECIPE, read_metrics

CARD = "README.md"
_SHOWN = ("documents", "sentences", "words", "tokens")  # how many there were
Scores = Mapping[str, float | str]  # what was measured and on which data -> a share, or in words


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """Text that a model learned from."""

    what: str
    licence: str
    source: str


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What no file of a run tells."""

    summary: str  # of the model, in a sentence
    texts: Sequence[TrainingText]
    machine: str
    licence: str = "apache-2.0"  # of the weights, as the hub names it
    language: str = "en"
    limits: Sequence[str] = ()
    storage: str = ""  # what the form of the weights cost


def build_model_card(
    run: PathLike,
    model: PathLike,
    about: ModelFacts,
    scores: Scores,
    *,
    earlier: Sequence[PathLike] = (),
) -> str:
    """The card of a model, in Markdown.

    Args:
        run: the folder of the training run.
        model: the folder that the card is for; it may hold the run's model in a smaller form.
        about: what no file tells.
        scores: beside those on the documents that the run held out.
        earlier: the folders of the runs that this one went on from, the first one first.
    """
    folder, found = Path(run), info(model)
    summary = _counts(_needed(folder, CORPUS_FACTS))
    held_out = held_out_scores(_rows(folder))
    parts = [
        _front(found, about),
        f"# {Path(model).name}\n\n{about.summary}",
        _section("Use", _use(Path(model).name, found)),
        _section("What it is", _bullets(_shape(found, about))),
        _section("Text and licences", _texts(about.texts, summary)),
        _section("Training", _training([*map(Path, earlier), folder], about.machine)),
        _section("Scores", _table(("measured", "score"), {**held_out, **scores}.items())),
        _section("Limits", _bullets(_limits(found, about))),
    ]
    return "\n\n".join(parts) + "\n"


def write_model_card(
    run: PathLike,
    model: PathLike,
    about: ModelFacts,
    scores: Scores,
    *,
    earlier: Sequence[PathLike] = (),
) -> Path:
    """Write the card into the model's folder, and say where."""
    return write_text(
        Path(model) / CARD, build_model_card(run, model, about, scores, earlier=earlier)
    )


def read_scores(path: PathLike) -> Scores:
    """Scores from a JSON object: names, and shares or words."""
    try:
        found = read_json(Path(path), fix="give a JSON object")
    except FolderError as error:
        raise InputError(f"no scores can be read: {error.problem}", fix=error.fix) from None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) or read_number(found, name) is not None
        for name, value in found.items()
    ):
        raise InputError(
            f"{path}: scores are names with numbers or words",
            fix='write {"SST-2 dev, accuracy": 0.9, …}',
        )
    return found


def _counts(path: Path) -> Mapping[str, float]:
    found = read_json(path)
    wanted = (*_SHOWN, "held_out", "unknown_rate")
    if not isinstance(found, dict) or any(read_number(found, name) is None for name in wanted):
        raise FolderError(f"{path} lacks one of {', '.join(wanted)}", fix="pre-train again")
    return found


def _needed(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FolderError(
            f"{folder} has no {name}", fix="name the folder of a finished pre-training run"
        )
    return folder / name


def held_out_scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """What the last evaluation of a run says, by the names of the card."""
    nothing: Mapping[str, Any] = {}
    last = next((row for row in reversed(rows) if row.get("kind") == "eval"), nothing)
    left = read_number(last, "lm_accuracy") is not None
    kind, key = ("next", "lm_accuracy") if left else ("masked", "mlm_accuracy")
    right, unigram = read_number(last, key), read_number(last, "unigram_accuracy")
    perplexity = read_number(last, "perplexity")
    found: dict[str, float | str] = {}
    if right is not None:
        found[f"{METRICS[key].result}, documents held out"] = right
    if unigram is not None:
        found[f"the same {METRICS['unigram_accuracy'].result}"] = unigram
    if perplexity is not None:
        found[f"perplexity of {kind} words, documents held out"] = format_number(perplexity)
    return found


def _front(found: Info, about: ModelFacts) -> str:
    tags = [found.family, "cloze"]
    kind = (
        ["pipeline_tag: fill-mask", 'mask_token: "[MASK]"'] if "fill" in found.capabilities else []
    )
    lines = [
        f"language: {about.language}",
        f"license: {about.licence}",
        "library_name: transformers",
        *kind,
        "tags:",
        *(f"- {tag}" for tag in tags),
    ]
    return "\n".join(["---", *lines, "---"])


def _use(name: str, found: Info) -> str:
    fills = "fill" in found.capabilities
    sentence = "The capital of France is [MASK]."
    command = f'cloze fill {name} "{sentence}"' if fills else f'cloze embed {name} "A text."'
    call = f'cloze.fill(model, "{sentence}")' if fills else 'cloze.embed(model, ["A text."])'
    kind = "AutoModelForMaskedLM" if fills else "AutoModel"
    return (
        f"```\n{command}\n```\n\n"
        f'```python\nimport cloze\n\nmodel = cloze.load("{name}")\n{call}\n```\n\n'
        "The folder opens in `transformers` (5.0 or newer) as it is:\n\n"
        f"```python\nfrom transformers import AutoTokenizer, {kind}\n\n"
        f'folder = "{name}"  # where it lies; of a built-in model: cloze.builtin()["{name}"]\n'
        f"model = {kind}.from_pretrained(folder)\n"
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n```"
    )


def _shape(found: Info, about: ModelFacts) -> Iterator[str]:
    shape, vocabulary = found.config, found.vocabulary
    yield (
        f"{found.architecture}: {shape['num_layers']} layers, hidden size {shape['hidden_size']}, "
        f"{shape['num_heads']} heads; {format_number(found.total_parameters)} parameters"
    )
    case = "uncased" if vocabulary.lowercase else "cased"
    yield f"{vocabulary.size:,} pieces ({vocabulary.kind}, {case})"
    kinds = ", ".join(
        f"{format_number(count)} numbers as {kind}" for kind, count in found.dtypes.items()
    )
    yield f"weights: {format_bytes(found.size_bytes)} ({kinds})" + (
        f"; {about.storage}" if about.storage else ""
    )
    yield f"licence of the weights: {about.licence}"


def _texts(texts: Sequence[TrainingText], summary: Mapping[str, Any]) -> str:
    told = ((text.what, text.licence, text.source) for text in texts)
    counts = ", ".join(f"{summary[key]:,} {key}" for key in _SHOWN)
    return (
        _table(("text", "licence", "from"), told)
        + f"\n\n{counts}; {summary['held_out']:,} of the documents were held out to judge by. "
        f"{format_percent(summary['unknown_rate'], 3)} of the tokens are unknown to the vocabulary."
    )


def _training(runs: Sequence[Path], machine: str) -> str:
    parts = [f"On {machine}, with cloze {version('cloze')}:"]
    for number, run in enumerate(runs):
        recipe = read_text(_needed(run, RECIPE))
        # folders are those of the machine that it ran on, and mean nothing elsewhere
        plain = re.sub(r'"[/~.][^"]*/([^"/]*)"', r'"\1"', recipe).strip()
        begun = "then, from those weights: " if number else ""
        parts += [f"{begun}{describe_extent(_rows(run))}", f"```toml\n{plain}\n```"]
    return "\n\n".join(parts)


def _rows(run: Path) -> list[Mapping[str, Any]]:
    return [row for _, row in read_metrics(_needed(run, METRICS_FILE)) if row]


def _limits(found: Info, about: ModelFacts) -> Iterator[str]:
    yield f"It reads at most {found.max_length:,} tokens at once."
    yield from about.limits
    yield "Words it finds likely are not facts, and it repeats the prejudices of its text."


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[float | str]]) -> str:
    listed = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in listed)


def _cell(value: float | str) -> str:
    told = value if isinstance(value, str) else format_percent(value)
    return told.replace("|", "\\|").replace("\n", " ")
