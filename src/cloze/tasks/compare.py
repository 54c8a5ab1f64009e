"""`compare`: several models on the same labelled data, in one table that says how sure it is."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from cloze.checkpoint.abilities import can
from cloze.checkpoint.families import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.translator import Translator
from cloze.data.files import PathLike
from cloze.data.labelled.schemes import scheme_of
from cloze.data.streams import listed
from cloze.draw.measures import called
from cloze.draw.page import Page, Section
from cloze.draw.parts import Cell, Table
from cloze.errors import InputError
from cloze.evaluate.bootstrap import RESAMPLES, Difference, Interval, Metric, difference, interval
from cloze.models.word2vec import WordVectors
from cloze.tasks.compare_language import LanguageComparison, compare_language, is_language
from cloze.tasks.compare_words import Worded, worded
from cloze.tasks.door import loaded
from cloze.tasks.evaluate import Columns, Data, evaluate_labelled, read_labelled
from cloze.tasks.evaluate_own import BLEU, Translated, only, parallel_of, translated
from cloze.tasks.evaluate_pretrained import (
    evaluate_similarity,
    is_pretrained,
    kind_of,
    read_scored,
)
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.judge import kind_of as measured_as
from cloze.tasks.judge import task_of
from cloze.tasks.left_to_right import as_language
from cloze.text.counting import Told

Judged = Evaluation | Translated | Worded


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model among several."""

    name: str
    parameters: int
    evaluation: Judged
    intervals: Mapping[str, Interval]  # of every measure
    against: (
        Difference | None
    )  # its score less the first model's, on the same draws; None: it is it

    @property
    def too_long(self) -> int:
        """Sentences that a translator could not read."""
        return self.evaluation.too_long if isinstance(self.evaluation, Translated) else 0

    @property
    def data(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "parameters": self.parameters,
            "scores": {name: asdict(one) for name, one in self.intervals.items()},
            "against_first": self.against and asdict(self.against),
            **({"too_long": self.too_long} if self.too_long else {}),
            "seconds": self.evaluation.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Models beside each other, in the order they were given."""

    entries: tuple[Entry, ...]
    resamples: int
    skipped: tuple[InputError, ...] = field(default=(), repr=False)
    unknown: int = 0  # questions with a word that not all models know

    @property
    def measure(self) -> str:
        """The name of *the* score, by which models are held against the first."""
        return self.entries[0].evaluation.measure

    @property
    def count(self) -> int:
        """Examples."""
        return self.entries[0].evaluation.count

    @property
    def columns(self) -> tuple[str, ...]:
        measures = self.entries[0].intervals
        return ("model", "parameters", *measures, "against the first", "p, two-sided", "seconds")

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """The table, a row to a model; None where the first would be held against itself."""
        for one in self.entries:
            gap = one.against
            yield (
                one.name,
                one.parameters,
                *map(str, one.intervals.values()),
                None if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]",
                None if gap is None else float(f"{gap.p:.2g}"),  # 0.0 would say too much
                round(one.evaluation.seconds, 1),
            )

    @property
    def note(self) -> str:
        """How to read it."""
        left = f", {len(self.skipped):,} rows passed over" if self.skipped else ""
        if self.unknown:
            left += f", {self.unknown:,} with words that not every model knows left out"
        for one in self.entries:
            if one.too_long:
                left += f", {one.too_long:,} too long for {one.name} and counted as blank"
        return (
            f"{self.count:,} examples{left}. In brackets: where 95 % of the scores lie in "
            f"{self.resamples:,} draws of as many examples. Against the first: "
            f"{called(self.measure)} less that of the first model on the same draws; p, two-sided: "
            "twice the share of draws on the rarer side of no difference, the data themselves "
            "being one draw more."
        )

    @property
    def data(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "measure": self.measure,
            "examples": self.count,
            "skipped": [error.problem for error in self.skipped],
            **({"unknown": self.unknown} if self.unknown else {}),
            "resamples": self.resamples,
            "models": [one.data for one in self.entries],
        }

    def page(self, title: str = "Comparison") -> Page:
        """The table as a page."""
        scores = self.entries[0].intervals
        table = Table(
            columns=[called(name) if name in scores else name for name in self.columns],
            rows=[[name, *map(_stacked, cells)] for name, *cells in self.rows()],
        )
        return Page(title=title, note=self.note, sections=[Section(title="Models", parts=[table])])

    def save(self, path: str | os.PathLike[str], title: str = "Comparison") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def compare(
    models: Mapping[str, Any] | Sequence[PathLike] | PathLike,
    data: Data,
    *,
    policy: str | None = None,
    stride: int | None = None,
    chinese: bool | None = None,
    bleu: str | None = None,
    skip_bad: bool = False,
    resamples: int | None = None,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float32",
    progress: Told | None = None,
    **columns: Unpack[Columns],
) -> Comparison | LanguageComparison:
    """Judge models by the same examples, with intervals by the bootstrap (`evaluate.bootstrap`).

    All must do the same task and know every label of the data. Each is held against the first.
    Language models are compared by text, a sentence to a line (`tasks.compare_language`),
    translators by BLEU on two files, source and target, word vectors by files of analogies and of
    judged pairs (`tasks.compare_words`), encoders without a task by scored pairs
    (`tasks.evaluate_pretrained`). What changes nothing for the kind at hand is refused.

    Args:
        models: folders, or names with a model or a folder each.
        data: files, folders, globs or `-` (standard input); a `datasets` object or a list of
            mappings with the same columns; or examples of `cloze.data.labelled`.
        policy: for texts longer than a model reads: head, tail, head+tail or window.
        stride: tokens that windows share.
        chinese: score answers by CMRC's rules; left out, if most of the contexts is Chinese.
        bleu: how BLEU finds words: 13a (unsaid), zh where the target is Chinese, none.
        skip_bad: pass over rows that cannot be read, for all models alike.
        resamples: draws of the bootstrap; unsaid, 1000.
        seed: of the draws.
        device: where folders are loaded to.
        dtype: of the weights of folders.
        progress: is told model, sequences done and of how many.
        **columns: text, pair and label of tables, column and scheme of tags; see `Columns`.
    """
    opened = _opened(models, device, dtype)
    kinds = {
        name: kind_of(model, pair=columns.get("pair"), label=columns.get("label"))
        for name, model in opened.items()
        if is_pretrained(model)
    }
    leader = next(iter(opened))
    if is_language(opened[leader]) or kinds.get(leader) == "language":
        opened |= {n: as_language(opened[n]) for n, kind in kinds.items() if kind == "language"}
    first = opened[leader]
    options: dict[str, Any] = {
        "policy": policy,
        "stride": stride,
        "chinese": chinese,
        "bleu": bleu,
        "skip_bad": skip_bad,
        "resamples": resamples,
        **columns,
    }
    can(first, "compare")
    if is_language(first):
        only(options, "skip_bad", of=first)
        return compare_language(opened, data, skip_bad=skip_bad, progress=progress)
    draws = RESAMPLES if resamples is None else resamples
    if isinstance(first, Translator):
        only(options, "policy", "bleu", "resamples", of=first)
        found = _translated(opened, data, policy, bleu or BLEU, progress)
        entries = tuple(
            _entry(name, model, found, [Translated.measure], resamples=draws, seed=seed)
            for name, model in opened.items()
        )
        return Comparison(entries=entries, resamples=draws)
    if isinstance(first, WordVectors):
        only(options, "resamples", of=first)
        asked, unknown = worded(opened, listed(data), progress)
        entries = tuple(
            _entry(name, model, asked, [*asked[name].sets], resamples=draws, seed=seed)
            for name, model in opened.items()
        )
        return Comparison(entries=entries, resamples=draws, unknown=unknown)
    only({"bleu": bleu}, of=first)
    skipped: list[InputError] = []
    examples, ask = _asked(opened, kinds, data, options, skipped.append if skip_bad else None)
    judged: dict[str, Evaluation] = {}
    for name, model in opened.items():
        try:
            told = _told(progress, name)
            judged[name] = ask(model, examples, policy=policy, stride=stride, progress=told)
        except InputError as error:
            raise InputError(f"{name}: {error.problem}", fix=error.fix) from None
    measures = _common_measures(list(judged.values()))
    entries = tuple(
        _entry(name, opened[name], judged, measures, resamples=draws, seed=seed) for name in opened
    )
    return Comparison(entries=entries, resamples=draws, skipped=tuple(skipped))


def _opened(
    models: Mapping[str, Any] | Sequence[PathLike] | PathLike, device: str | None, dtype: str
) -> dict[str, Any]:
    if not isinstance(models, Mapping):
        if isinstance(models, str) or not isinstance(models, Sequence):
            models = [models]
        for one in models:
            if not isinstance(one, str | os.PathLike):
                raise InputError(
                    f"a {type(one).__name__} brings no name for the table",
                    fix='give each model or folder one: {"mine": model, "other": "runs/other"}',
                )
    named = models if isinstance(models, Mapping) else {str(one): one for one in models}
    if not named:
        raise InputError("there is no model to compare", fix="name one or more")
    if len(named) < len(models):
        raise InputError("a model is named twice", fix="name each once")
    return {
        name: load(one, device=device, dtype=dtype, quiet=True)
        if isinstance(one, str | os.PathLike)
        else loaded(one)
        for name, one in named.items()
    }


def _asked(
    models: Mapping[str, Any],
    kinds: Mapping[str, str],
    data: Data,
    options: Mapping[str, Any],
    report: Callable[[InputError], object] | None,
) -> tuple[list[Any], Callable[..., Evaluation]]:
    """The examples that encoders are judged by, and how each is."""
    if kinds and _by_vectors(models, kinds):
        where = ("text", "pair", "label")
        known = ("policy", "stride", "skip_bad", "resamples", *where)
        only(options, *known, of="models of vectors")
        scored = read_scored(data, report, **{name: options.get(name) for name in where})
        return scored, evaluate_similarity
    _check_alike(models)
    columns: Any = {name: options[name] for name in Columns.__annotations__ if name in options}
    examples = read_labelled(next(iter(models.values())), data, report, **columns)
    return examples, partial(evaluate_labelled, chinese=options["chinese"])


def _by_vectors(models: Mapping[str, Any], kinds: Mapping[str, str]) -> bool:
    """Whether all are encoders without a task, one of which at least has vectors alone.

    Masks are of a model's own pieces, so that two vocabularies have no examples in common.
    """
    if len(kinds) < len(models):
        return False
    if "similarity" not in kinds.values():
        raise InputError(
            "hidden words are those of a model's own vocabulary, and not compared",
            fix="judge each by itself (evaluate); or name the columns of scored pairs: pair, label",
        )
    return True


def _check_alike(models: Mapping[str, Model]) -> None:
    """Scores can be compared where the same is asked and what is said is counted the same way."""
    first, *others = models
    tasks = {}
    for name, model in models.items():
        try:
            kind = measured_as(task_of(model).name, model.config.problem)
        except InputError as error:
            raise InputError(f"{name}: {error.problem}", fix=error.fix) from None
        plain = kind == "tag" and scheme_of(model.labels) == "plain"
        tasks[name] = "tag words" if plain else "tell numbers" if kind == "number" else kind
    for name in others:
        if tasks[name] != tasks[first]:
            raise InputError(
                f"{first} can {tasks[first]} and {name} can {tasks[name]}",
                fix="compare models for the same task",
            )


def _told(progress: Told | None, name: str) -> Told | None:
    """The same, told of a model instead of what is counted."""
    return progress and (lambda _, done, total: progress(name, done, total))


def _common_measures(judged: Sequence[Evaluation]) -> list[str]:
    """Those that mean the same for all: F1 of two classes is that of a model's second label."""
    first, *others = judged
    common = [name for name in first.scores if all(name in one.scores for one in others)]
    if first.kind == "classify" and any(one.labels != first.labels for one in others):
        common = [name for name in common if name != "f1"]
    return common


def _translated(
    models: Mapping[str, Any],
    data: Data,
    policy: str | None,
    bleu: str,
    progress: Told | None,
) -> dict[str, Translated]:
    pairs = parallel_of(data)
    for name, model in models.items():
        if not isinstance(model, Translator):
            raise InputError(
                f"{name} is no translator, and {next(iter(models))} is one",
                fix="compare models for the same task",
            )
    return {
        name: translated(model, pairs, policy=policy, bleu=bleu, progress=_told(progress, name))
        for name, model in models.items()
    }


def _entry(
    name: str,
    model: Model | Translator | WordVectors,
    judged: Mapping[str, Judged],
    measures: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> Entry:
    one, first = judged[name], next(iter(judged.values()))

    def draws() -> np.random.Generator:
        return np.random.default_rng(seed)  # the same for every model and measure

    against = None
    if one is not first:
        (ours, count), (theirs, _) = _drawn(one), _drawn(first)
        against = difference(ours, theirs, count, rng=draws(), resamples=resamples)
    return Entry(
        name=name,
        parameters=_size(model),
        evaluation=one,
        intervals={
            measure: interval(*_drawn(one, measure), rng=draws(), resamples=resamples)
            for measure in measures
        },
        against=against,
    )


def _size(model: Model | Translator | WordVectors) -> int:
    if isinstance(model, WordVectors):
        grams = 0 if model.gram_vectors is None else model.gram_vectors.size
        return model.vectors.size + grams
    reader = model.reader if isinstance(model, Model) else None
    modules = [model.module] if reader is None else [model.module, reader]
    return sum(weight.numel() for part in modules for weight in part.parameters())


def _drawn(one: Judged, measure: str | None = None) -> tuple[Metric, int]:
    """What the bootstrap draws from, and how many examples it has."""
    if isinstance(one, Worded):
        return one.sets[measure or one.measure]
    if isinstance(one, Translated):
        return one.metric, one.count
    return one.judged.judge.metric(measure), one.count


def _stacked(cell: Cell) -> Cell:
    """A number over its interval, so that many columns have room on a page."""
    return cell.replace(" [", "\n[") if isinstance(cell, str) and cell.endswith("]") else cell
