"""Model cards: the README.md of a model folder, from the files of its training run.

A card lists the recipe, the training text and its licences, the length of training, scores and
limitations. The front matter is in the format of the Hugging Face Hub. `bench/builtin.py` writes
the card of the built-in model.
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
from cloze.report.image_card import (
    count_images,
    describe_image_model,
    find_image_example,
    list_image_limitations,
    read_image_scores,
)
from cloze.tasks.info import Info, info
from cloze.train.run_files import CORPUS_FACTS, DATA_FACTS, METRICS_FILE, RECIPE, read_metrics

CARD = "README.md"
_COUNTS = ("documents", "sentences", "words", "tokens")
# function -> pipeline tag of the hub, and a call; the first that a model supports is shown
_EXAMPLES = {
    "classify": ("text-classification", 'classify("A text.")'),
    "tag": ("token-classification", 'tag("A text.")'),
    "answer": ("question-answering", 'answer("A question?", "A text with the answer.")'),
    "choose": ("multiple-choice", 'choose("A text.", ["one option", "another option"])'),
    "translate": ("translation", 'translate("A sentence.")'),
    "summarize": ("summarization", 'summarize("A long text.")'),
    "generate": ("text-generation", 'generate("The start of a text")'),
    "fill": ("fill-mask", 'fill("In winter the lake is covered with [MASK].")'),
    "similar": ("feature-extraction", 'similar("word")'),
    "embed": ("feature-extraction", 'embed(["A text."])'),
}
Scores = Mapping[str, float | str]  # metric and data -> a fraction or a text


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """A source of training text, or of images."""

    name: str
    licence: str
    source: str


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about a model that are not in the files of its run."""

    summary: str  # one sentence
    texts: Sequence[TrainingText]
    machine: str
    licence: str = "apache-2.0"  # of the weights, as named by the hub
    language: str = "en"
    limitations: Sequence[str] = ()
    storage: str = ""  # effect of the storage dtypes on the scores


def build_model_card(
    run: PathLike,
    model: PathLike,
    facts: ModelFacts,
    scores: Scores,
    *,
    earlier: Sequence[PathLike] = (),
) -> str:
    """The model card in Markdown.

    Args:
        run: folder of the training run.
        model: folder of the model; it may contain the run's model in a smaller format.
        facts: facts that are not in the files.
        scores: scores in addition to those on the held-out documents of the run.
        earlier: folders of the runs that this one was initialized from, the first one first.
    """
    folder, found = Path(run), info(model)
    if find_image_example(found) is None:
        data, counts = "text", _describe_text([*map(Path, earlier), folder])
        held_out = held_out_scores(_read_rows(folder))
    else:
        data, counts = "images", count_images(folder)
        held_out = read_image_scores(_read_rows(folder))
    parts = [
        _front_matter(found, facts),
        f"# {Path(model).name}\n\n{facts.summary}",
        _section("Use", _usage_example(Path(model).name, found)),
        _section("Model", _bullets(_describe_model(found, facts))),
        _section(f"Training {data} and licences", _describe_sources(facts.texts, data, counts)),
        _section("Training", _describe_training([*map(Path, earlier), folder], facts.machine)),
        _section("Scores", _table(("metric", "score"), {**held_out, **scores}.items())),
        _section("Limitations", _bullets(_limitations(found, facts))),
    ]
    return "\n\n".join(parts) + "\n"


def write_model_card(
    run: PathLike,
    model: PathLike,
    facts: ModelFacts,
    scores: Scores,
    *,
    earlier: Sequence[PathLike] = (),
) -> Path:
    """Write the card into the folder of the model, and return its path."""
    return write_text(
        Path(model) / CARD, build_model_card(run, model, facts, scores, earlier=earlier)
    )


def build_short_card(name: str, found: Info) -> str:
    """The card of a model whose training run is not known, with what its configuration says.

    Args:
        name: "org/name" on the hub.
        found: the description of the model.
    """
    function = next((one for one in _EXAMPLES if one in found.capabilities), None)
    tag, call = _EXAMPLES[function] if function else (None, None)
    calls = [call] if call else []
    example = find_image_example(found)
    if example is not None:
        tag, calls = example.pipeline_tag, list(example.calls)
    library = "transformers" if found.architecture.isidentifier() else "cloze"  # a class of it
    if found.pooling is not None:
        library, tag = "sentence-transformers", "sentence-similarity"
        calls = ['embed(["A text."])']
    front = [
        f"library_name: {library}",
        *([f"pipeline_tag: {tag}"] if tag else []),
        "tags:",
        f"- {found.family}",
        "- cloze",
    ]
    code = ["import cloze", "", f'model = cloze.load("{name}")']
    code += [f"model.{call}" for call in calls]
    settings = ", ".join(f"{key} {value}" for key, value in found.config.items())
    facts = [
        f"{found.architecture}: {format_number(found.total_parameters)} parameters",
        f"configuration: {settings}" if settings else "",
        f"{found.vocabulary.size:,} tokens ({found.vocabulary.kind})"
        if example is None or found.vocabulary.size > 1  # images without texts
        else "",
        f"labels: {', '.join(found.labels)}" if found.labels else "",
        f"maximum input length: {found.max_length:,} tokens" if found.max_length else "",
    ]
    parts = [
        "\n".join(["---", *front, "---"]),
        f"# {name.rpartition('/')[2]}",
        _section("Use", "```python\n" + "\n".join(code) + "\n```"),
        _section("Model", _bullets(fact for fact in facts if fact)),
    ]
    return "\n\n".join(parts) + "\n"


def read_scores(path: PathLike) -> Scores:
    """Read scores from a JSON object of names and fractions or texts."""
    try:
        found = read_json(Path(path), fix="pass a JSON object")
    except FolderError as error:
        raise InputError(f"the scores cannot be read: {error.problem}", fix=error.fix) from None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) or read_number(found, name) is not None
        for name, value in found.items()
    ):
        raise InputError(
            f"{path}: scores must be numbers or strings",
            fix='write {"SST-2 dev, accuracy": 0.9, …}',
        )
    return found


def _read_counts(path: Path) -> Mapping[str, float]:
    found = read_json(path)
    wanted = (*_COUNTS, "held_out", "unknown_rate")
    if not isinstance(found, dict) or any(read_number(found, name) is None for name in wanted):
        raise FolderError(
            f"{path} lacks one of {', '.join(wanted)}", fix="run the pre-training again"
        )
    return found


def _check_file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FolderError(
            f"{folder} has no {name}", fix="pass the folder of a finished pre-training run"
        )
    return folder / name


def held_out_scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """The scores of the last evaluation of a run, by the names of the card."""
    nothing: Mapping[str, Any] = {}
    last = next((row for row in reversed(rows) if row.get("kind") == "eval"), nothing)
    causal = read_number(last, "lm_accuracy") is not None
    kind, key = ("next", "lm_accuracy") if causal else ("masked", "mlm_accuracy")
    accuracy, unigram = read_number(last, key), read_number(last, "unigram_baseline")
    perplexity = read_number(last, "perplexity")
    found: dict[str, float | str] = {}
    if accuracy is not None:
        found[f"{METRICS[key].result}, held-out documents"] = accuracy
    if unigram is not None:
        found[METRICS["unigram_baseline"].result] = unigram
    if accuracy is not None and unigram is not None and accuracy <= unigram:
        found["note"] = "the accuracy is not above the unigram baseline"
    if perplexity is not None:
        found[f"perplexity of {kind} tokens, held-out documents"] = format_number(perplexity)
    return found


def _front_matter(found: Info, facts: ModelFacts) -> str:
    tags = [found.family, "cloze"]
    kind = (
        ["pipeline_tag: fill-mask", 'mask_token: "[MASK]"'] if "fill" in found.capabilities else []
    )
    example = find_image_example(found)
    if example is not None:
        kind = [f"pipeline_tag: {example.pipeline_tag}"]
    lines = [
        f"language: {facts.language}",
        f"license: {facts.licence}",
        f"library_name: {'transformers' if example is None else 'cloze'}",
        *kind,
        "tags:",
        *(f"- {tag}" for tag in tags),
    ]
    return "\n".join(["---", *lines, "---"])


def _usage_example(name: str, found: Info) -> str:
    example = find_image_example(found)
    if example is not None:
        examples = "\n".join(f"model.{call}" for call in example.calls)
        return (
            f"```\n{example.command.format(name)}\n```\n\n"
            f'```python\nimport cloze\n\nmodel = cloze.load("{name}")\n{examples}\n```'
        )
    fills = "fill" in found.capabilities
    sentence = "In winter the lake is covered with [MASK]."
    command = f'cloze fill {name} "{sentence}"' if fills else f'cloze embed {name} "A text."'
    calls = [f'cloze.fill(model, "{sentence}")'] if fills else ['cloze.embed(model, ["A text."])']
    if fills and found.pooling is not None:
        command += f'\ncloze similarity {name} "A king ate." "The queen had dinner."'
        calls.append('cloze.similarity(model, "A king ate.", "The queen had dinner.")')
    call = "\n".join(calls)
    library = ""
    if found.pooling is not None:
        library = (
            "\n\nIt is a folder of sentence-transformers, too: `SentenceTransformer(folder)` gives "
            "the vectors of `cloze.embed`."
        )
    kind = "AutoModelForMaskedLM" if fills else "AutoModel"
    return (
        f"```\n{command}\n```\n\n"
        f'```python\nimport cloze\n\nmodel = cloze.load("{name}")\n{call}\n```\n\n'
        "The folder can be loaded with `transformers` (5.0 or newer):\n\n"
        f"```python\nfrom transformers import AutoTokenizer, {kind}\n\n"
        f'folder = "{name}"  # its path; for a built-in model: cloze.builtin()["{name}"]\n'
        f"model = {kind}.from_pretrained(folder)\n"
        f"tokenizer = AutoTokenizer.from_pretrained(folder)\n```{library}"
    )


def _describe_model(found: Info, facts: ModelFacts) -> Iterator[str]:
    yield from (
        _describe_text_model(found)
        if find_image_example(found) is None
        else describe_image_model(found)
    )
    kinds = ", ".join(
        f"{format_number(count)} values as {kind}" for kind, count in found.dtypes.items()
    )
    yield f"weights: {format_bytes(found.size_bytes)} ({kinds})" + (
        f"; {facts.storage}" if facts.storage else ""
    )
    yield f"licence of the weights: {facts.licence}"


def _describe_text_model(found: Info) -> Iterator[str]:
    shape, vocabulary = found.config, found.vocabulary
    yield (
        f"{found.architecture}: {shape['num_layers']} layers, hidden size {shape['hidden_size']}, "
        f"{shape['num_heads']} heads; {format_number(found.total_parameters)} parameters"
    )
    case = "uncased" if vocabulary.lowercase else "cased"
    yield f"{vocabulary.size:,} tokens ({vocabulary.kind}, {case})"


def _describe_sources(sources: Sequence[TrainingText], data: str, counts: str) -> str:
    rows = ((one.name, one.licence, one.source) for one in sources)
    return _table((data, "licence", "source"), rows) + f"\n\n{counts}"


def _describe_text(runs: Sequence[Path]) -> str:
    """The text of the pre-training, and the pairs of a contrastive run after it."""
    *earlier, last = runs
    if (last / CORPUS_FACTS).is_file() or not earlier:
        return _describe_counts(_read_counts(_check_file(last, CORPUS_FACTS)))
    pairs = read_json(_check_file(last, DATA_FACTS))
    numbers = [read_number(pairs, name) for name in ("training", "texts")]
    if None in numbers:
        raise FolderError(
            f"{last / DATA_FACTS} lacks the numbers of pairs and texts", fix="run it again"
        )
    described = " pairs of ".join(f"{number:,.0f}" for number in numbers)
    return f"{_describe_text(earlier)} The last run read {described} texts made from this text."


def _describe_counts(summary: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{summary[key]:,} {key}" for key in _COUNTS)
    return (
        f"{counts}; {summary['held_out']:,} of the documents were held out for evaluation. "
        f"{format_percent(summary['unknown_rate'], 3)} of the tokens are [UNK]."
    )


def _describe_training(runs: Sequence[Path], machine: str) -> str:
    parts = [f"On {machine}, with cloze {version('cloze')}:"]
    for number, run in enumerate(runs):
        recipe = read_text(_check_file(run, RECIPE))
        # paths of the machine are replaced by file names
        plain = re.sub(r'"[/~.][^"]*/([^"/]*)"', r'"\1"', recipe).strip()
        prefix = "then, initialized from that model: " if number else ""
        parts += [f"{prefix}{describe_extent(_read_rows(run))}", f"```toml\n{plain}\n```"]
    return "\n\n".join(parts)


def _read_rows(run: Path) -> list[Mapping[str, Any]]:
    return [row for _, row in read_metrics(_check_file(run, METRICS_FILE)) if row]


def _limitations(found: Info, facts: ModelFacts) -> Iterator[str]:
    if find_image_example(found) is not None:
        yield from facts.limitations
        yield from list_image_limitations(found)
        return
    yield f"The maximum input length is {found.max_length:,} tokens."
    yield from facts.limitations
    yield "Probable words are not facts, and the model has the biases of its training text."


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[float | str]]) -> str:
    listed = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_format_cell, row))} |" for row in listed)


def _format_cell(value: float | str) -> str:
    text = value if isinstance(value, str) else format_percent(value)
    return text.replace("|", "\\|").replace("\n", " ")
