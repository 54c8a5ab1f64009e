"""`lineage`: train n-grams, word2vec, an LSTM, ELMo, GPT and BERT on the same text, and compare.

OUT/text/            training text and held-out text
OUT/models/SYSTEM    the models
OUT/tasks/…          the models of the tasks
OUT/lineage.json     the settings and every finished step: an interrupted run continues there
OUT/lineage.html     the page
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.load import load
from cloze.config import number, one_of, suggest
from cloze.data.input_files import find_files
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.formats import detect_content
from cloze.data.readers import UnknownTextColumnError
from cloze.data.sources import (
    Row,
    Source,
    Sources,
    collect_sources,
    fingerprint_files,
    read_rows,
)
from cloze.decode.language import language_model
from cloze.device import resolve_device
from cloze.errors import FolderError, InputError
from cloze.files import PathLike, atomic_file, check_output_path, read_json, write_json
from cloze.make.finetune.dispatch import finetune
from cloze.make.finetune.labelled import Labelled, read_labelled_data
from cloze.make.lineage_systems import PRESETS, SYSTEMS, TASKS, System
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.metrics.bootstrap import Interval, bootstrap_interval
from cloze.metrics.scorer import make_scorer
from cloze.report.display import open_callbacks
from cloze.report.lineage import Lineage, SystemRow, TaskData
from cloze.tasks.compare import count_parameters
from cloze.tasks.evaluate import evaluate
from cloze.tasks.evaluate_labelled import evaluate_labelled
from cloze.tasks.scored_predictions import gold_label
from cloze.text.sentences import split_sentences
from cloze.train.callbacks import Callback, CallbackList
from cloze.train.result import RunResult

STATE, PAGE = "lineage.json", "lineage.html"
HELD_OUT = 0.02  # of the documents
TEST_SHARE = 0.2  # of the labelled data: half to select models, half to score them


def lineage(
    text: Sources,
    data: PathLike | Iterable[PathLike],
    out: PathLike,
    *,
    minutes: float = 5.0,
    preset: str = "mini",
    systems: str | Iterable[str] = (),
    seed: int = 0,
    device: str | None = None,
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
) -> Lineage:
    """Train the systems from n-grams to BERT on one text, and score each on the same tasks.

    Each neural model is trained for the same time; n-grams and word2vec read the text a fixed
    number of times. Language models are scored by the bits per byte of held-out text. For each file
    of labelled data, a classifier (or tagger) is trained on the vectors of the frozen model, and
    the model is fine-tuned; a tenth of the examples, chosen by a hash, selects the best, and
    another tenth is the test. Run it again to continue a run that was interrupted.

    Args:
        text: running text, as in `pretrain`.
        data: labelled files: texts with labels (classify) or words with tags (tag).
        out: the folder of the text, the models, the page and the results.
        minutes: time of pre-training of each neural model.
        preset: size of the models: tiny, mini, small or medium.
        systems: only these: ngram, word2vec, lstm, elmo, gpt, bert (default: all).
        seed: seed of all models.
        device: cpu, cuda, … (default: auto-detected).
        force: overwrite what is in `out`.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while each model is trained.
    """
    number("minutes", minutes, 1e-3, 1e6)
    one_of("preset", preset, PRESETS)
    names = [systems] if isinstance(systems, str) else list(systems)
    for name in names:
        if name not in SYSTEMS:
            raise InputError(f"there is no system {name!r}", fix=suggest(name, SYSTEMS))
    files = [data] if isinstance(data, str | os.PathLike) else list(data)
    if not files:
        raise InputError("there are no labelled data", fix="name a file of texts with labels")
    tasks = _read_tasks([str(file) for file in files])
    sources = collect_sources(text)
    settings = {
        "text": _fingerprint_text(sources),
        "data": {name: labelled.fingerprint for name, (_, labelled) in tasks.items()},
        "minutes": minutes,
        "preset": preset,
        "seed": seed,
    }
    state = _State.open(Path(out), settings, force=force)
    with open_callbacks(progress, callbacks) as opened:
        run = _Run(
            state=state,
            tasks=tasks,
            minutes=minutes,
            preset=preset,
            seed=seed,
            device=device,
            callbacks=opened,
        )
        run.split_text(sources)
        chosen = [system for name, system in SYSTEMS.items() if not names or name in names]
        stopped = next(filter(None, map(run.train_and_score, chosen)), None)
    result = run.make_result([system.name for system in chosen], minutes, stopped)
    result.save(Path(out) / PAGE)
    return result


class _State:
    """The finished steps of a run, in its folder."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self.folder, self._content = folder, content

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any], *, force: bool) -> "_State":
        path = folder / STATE
        if path.is_file() and not force:
            content = read_json(path, max_bytes=1 << 28)
            if not isinstance(content, dict):
                content = {}
            if content.get("settings") == settings:
                return cls(folder, content)
            if content.get("steps") != {}:  # a run that has not read its text has no results
                raise FolderError(
                    f"{folder} contains a run with other data or settings",
                    fix="choose another --out, or overwrite it with --force (force=True in Python)",
                )
        else:
            check_output_path(folder, force)
        folder.mkdir(parents=True, exist_ok=True)
        content = {"settings": dict(settings), "steps": {}}
        write_json(path, content)
        return cls(folder, content)

    def get(self, *key: str) -> Any:  # noqa: ANN401 (a JSON value)
        """The result of a step, or None if it is not finished."""
        return self._content["steps"].get("/".join(key))

    def set(self, value: object, *key: str) -> None:
        """Store the result of a step."""
        self._content["steps"]["/".join(key)] = value
        write_json(self.folder / STATE, self._content)


def _read_tasks(files: Sequence[str]) -> dict[str, tuple[str, Labelled]]:
    """By the name of the file: the task, and its data with a test part."""
    found: dict[str, tuple[str, Labelled]] = {}
    for file in files:
        task = detect_content(Path(file))
        if task not in TASKS:
            what = "no labelled data that is understood" if task is None else f"data for {task}"
            raise InputError(
                f"{file} contains {what}",
                fix="give texts with labels (.tsv, .csv, .jsonl), or words with tags (CoNLL)",
            )
        made = complete_finetuning(
            None, task=task, options={}, settings=[f"data.hold_out={TEST_SHARE}"]
        )
        assert isinstance(made, FinetuneRecipe)
        name = Path(file).name
        if name in found:
            raise InputError(f"two files are named {name}", fix="rename one of them")
        found[name] = task, read_labelled_data(made, [file], ())
    return found


def _split_test(labelled: Labelled) -> tuple[list[Any], list[Any]]:
    """The held-out examples as dev and test examples, by a hash of each."""
    parts: tuple[list[Any], list[Any]] = ([], [])
    for example in labelled.dev:
        words = (example.text, example.pair) if isinstance(example, TextExample) else example.words
        parts[zlib.crc32(repr(words).encode()) >> 8 & 1].append(example)
    if not all(parts):
        raise InputError(
            f"there are only {len(labelled.train) + len(labelled.dev)} labelled examples",
            fix="give at least a hundred",
        )
    return parts


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One run of `lineage`."""

    state: _State
    tasks: Mapping[str, tuple[str, Labelled]]
    minutes: float
    preset: str
    seed: int
    device: str | None
    callbacks: CallbackList

    @property
    def text(self) -> Path:
        return self.state.folder / "text"

    def split_text(self, sources: Sequence[Source]) -> None:
        """Write training text and held-out text, a sentence per line, by a hash of documents."""
        if self.state.get("text") is not None:
            return
        self.callbacks.on_log("reading the text")
        paths = [self.text / name for name in ("train.txt", "held-out.txt")]
        counts = [0, 0]
        with atomic_file(paths[0]) as train, atomic_file(paths[1]) as held_out:
            for index, document in enumerate(_read_documents(sources)):
                lines = [line for row in document for line in split_sentences(row)]
                if not lines:
                    continue
                digest = zlib.crc32("\n".join(lines).encode()) / (1 << 32)
                is_held_out = digest < HELD_OUT and index > 0
                content = "\n".join([*lines, "", ""]).encode()
                (held_out if is_held_out else train).write(content)
                counts[is_held_out] += len(content)
        if not all(counts):
            raise InputError(
                "the text has too few documents to hold some of them out",
                fix="give at least a hundred documents, separated by blank lines",
            )
        self.state.set(counts, "text")

    def train_and_score(self, system: System) -> str | None:
        """Train a system and score it on every task; returns the signal that ended it, if any."""
        folder = self.state.folder / "models" / system.name
        if self.state.get(system.name, "model") is None:
            self.callbacks.on_log(f"{system.name}: pre-training")
            ended = self._pretrain(system, folder)
            if ended.stopped:
                return ended.stopped
            parameters = count_parameters(load(folder, device="cpu", quiet=True))
            facts = {"parameters": parameters, "tokens": ended.tokens, "seconds": ended.seconds}
            self.state.set(facts, system.name, "model")
        if system.is_language_model and self.state.get(system.name, "text") is None:
            model = load(folder, device=self.device, quiet=True)
            found = evaluate(model, self.text / "held-out.txt", progress=False).to_dict()
            counts = found["counts"]
            scores = {
                "bits_per_byte": found["scores"]["bits_per_byte"],
                "unknown": counts["unknown"] / counts["tokens"],
            }
            self.state.set(scores, system.name, "text")
        for name, (task, labelled) in self.tasks.items():
            for way in self._ways(system, task, labelled):
                if self.state.get(system.name, name, way) is not None:
                    continue
                self.callbacks.on_log(f"{system.name}: {name}, {way}")
                score = self._transfer(system, folder, name, way)
                if isinstance(score, str):
                    return score
                self.state.set(asdict(score), system.name, name, way)
        return None

    def _ways(self, system: System, task: str, labelled: Labelled) -> list[str]:
        if system.features is None:
            return ["counts"] if task == "classify" and labelled.counts else []
        return ["features", *(["finetune"] if task in system.finetunes else [])]

    def _pretrain(self, system: System, folder: Path) -> RunResult:
        settings: dict[str, Any] = dict(system.settings(self.preset))
        if system.name != "ngram":
            settings["run.seed"] = self.seed
        if system.has_budget:
            settings["run.minutes"] = self.minutes
            device = resolve_device(self.device)
            settings["run.device"] = str(device)
            settings |= dict(system.gpu) if device.type == "cuda" else {}
        return pretrain(
            self.text / "train.txt",
            folder,
            system.recipe,
            settings=settings,
            force=True,
            progress=False,
            callbacks=self.callbacks,
        )

    def _transfer(self, system: System, folder: Path, name: str, way: str) -> Interval | str:
        """The score on the test examples, or the signal that ended the run."""
        task, labelled = self.tasks[name]
        dev, test = _split_test(labelled)
        if way == "counts":
            return self._score_counts(labelled, test)
        out = self.state.folder / "tasks" / f"{name}-{system.name}-{way}"
        settings: dict[str, Any] = {
            "run.seed": self.seed,
            "run.device": str(resolve_device(self.device)),
        }
        recipe = "features" if way == "features" else system.finetune_recipe
        if way == "features":
            settings["transfer.layers"] = system.features
            if task == "tag":
                settings |= {
                    "transfer.hidden_size": 256,
                    "transfer.num_layers": 1,
                    "run.epochs": 5.0,
                }
        elif recipe == "finetune":
            settings |= {"optimizer.lr": 2e-4, "run.epochs": 3.0}
        else:
            settings |= {"run.epochs": 4.0}
        ended = finetune(
            task,
            folder,
            list(labelled.train),
            out,
            recipe,
            dev=dev,
            settings=settings,
            force=True,
            progress=False,
            callbacks=self.callbacks,
        )
        if ended.stopped:
            return ended.stopped
        scored = evaluate_labelled(load(out, device=self.device, quiet=True), test)
        self.state.set(scored.baseline, "baseline", name)
        metric, count = scored.bootstrap_metrics[scored.metric]
        return bootstrap_interval(metric, count, rng=np.random.default_rng(0))

    def _score_counts(self, labelled: Labelled, test: Sequence[TextExample]) -> Interval:
        """Bayes' rule with one n-gram model per label: p(label)·p(text | label)."""
        scores = []
        for label in labelled.labels:
            texts = [_join(one) for one in labelled.train if gold_label("classify", one) == label]
            out = self.state.folder / "tasks" / "ngram" / f"{zlib.crc32(label.encode()):08x}"
            vocabulary = {"vocabulary.folder": str(self.state.folder / "models" / "ngram")}
            pretrain(iter(texts), out, "ngram", settings=vocabulary, force=True, progress=False)
            model = language_model(load(out, device="cpu", quiet=True))
            encoded = model.encode_texts([_join(one) for one in test])
            prior = np.log(len(texts) / len(labelled.train))
            scores.append([prior + float(logs.sum()) for logs in model.log_probs(encoded)])
        predicted = [labelled.labels[n] for n in np.argmax(scores, 0)]
        gold = [gold_label("classify", one) for one in test]
        scorer = make_scorer("classify", gold, predicted, labels=labelled.labels)
        return bootstrap_interval(scorer.metric(), scorer.count, rng=np.random.default_rng(0))

    def _describe_task(self, name: str) -> TaskData:
        task, labelled = self.tasks[name]
        dev, test = _split_test(labelled)
        return TaskData(
            name=name,
            task=task,
            metric=labelled.selection_metric,
            train=len(labelled.train),
            dev=len(dev),
            test=len(test),
            baseline=self.state.get("baseline", name) or {},
        )

    def make_result(self, names: Sequence[str], minutes: float, stopped: str | None) -> Lineage:
        rows = []
        for name in names:
            facts = self.state.get(name, "model")
            if facts is None:
                continue
            scores = {
                task: {
                    way: Interval(**score)
                    for way in ("counts", "features", "finetune")
                    if (score := self.state.get(name, task, way)) is not None
                }
                for task in self.tasks
            }
            row = SystemRow(
                system=name,
                idea=SYSTEMS[name].idea,
                **facts,
                scores=scores,
                **(self.state.get(name, "text") or {}),
            )
            rows.append(row)
        return Lineage(
            rows=tuple(rows),
            tasks=tuple(map(self._describe_task, self.tasks)),
            folder=str(self.state.folder),
            minutes=minutes,
            stopped=stopped,
        )


def _join(example: TextExample) -> str:
    return " ".join(filter(None, (example.text, example.pair)))


def _fingerprint_text(sources: Sequence[Source]) -> list[list[str | int]] | None:
    """The fingerprint of the files of the text, which must exist; None if it is not in files."""
    find_files(one for one in sources if isinstance(one, str | os.PathLike) and one != "-")
    return fingerprint_files(sources)


def _read_text(sources: Sequence[Source]) -> Iterator[Row]:
    try:
        yield from read_rows(sources)
    except UnknownTextColumnError as error:
        raise InputError(
            error.problem,
            fix="give running text (.txt), or a table with a header that names its column: text",
        ) from None


def _read_documents(sources: Sequence[Source]) -> Iterator[list[str]]:
    """The documents of running text: lists of paragraphs."""
    document: list[str] = []
    for row in _read_text(sources):
        if row.is_document or not row.text.strip():
            if document:
                yield document
            document = []
        if row.text.strip():
            document.append(row.text)
    if document:
        yield document
