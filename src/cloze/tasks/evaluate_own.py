"""`evaluate` for our own families: language models, translators, word vectors."""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.abilities import OWN, family_of
from cloze.checkpoint.translator import Translator
from cloze.data.parallel import Parallel, parallel, rows_of
from cloze.data.streams import Source, listed, rereadable, rows
from cloze.draw.chart import LineChart, Series
from cloze.draw.measures import called
from cloze.draw.page import Page, Section
from cloze.draw.parts import Fact, Facts, Part
from cloze.errors import InputError
from cloze.evaluate.bleu import bleu_by_length, bleu_counts, bleu_of
from cloze.evaluate.language import score_language
from cloze.evaluate.pictures import score_facts
from cloze.evaluate.words import Question, analogies, read_pairs, read_questions, similarities
from cloze.models.language import LanguageModel
from cloze.models.word2vec import WordVectors
from cloze.tasks.translate import translate
from cloze.text.counting import Told

EDGES = (1, 6, 9, 12, 15, 18, 21, 26, 31, 41, 61, 1 << 30)  # words of a source sentence
_PAIR = 2
BEAM, BLEU = 4, "13a"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How a model did."""

    kind: str  # language, masked, translate or words
    scores: Mapping[str, float]  # *the* score first
    counts: Mapping[str, int]  # what they are means over, and what was left out
    notes: Mapping[str, str]  # such as BLEU's signature
    pictures: tuple[LineChart, ...] = field(default=(), repr=False)
    skipped: tuple[InputError, ...] = field(default=(), repr=False)  # rows that cannot be read
    seconds: float = 0.0

    @property
    def data(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "kind": self.kind,
            "scores": dict(self.scores),
            "counts": dict(self.counts),
            **self.notes,
            "skipped": [error.problem for error in self.skipped],
            "seconds": self.seconds,
        }

    def rows(self) -> list[tuple[str, str | int]]:
        """The table: every score, count and note."""
        return [
            *((called(name), f"{value:.4f}") for name, value in self.scores.items()),
            *((called(name), count) for name, count in self.counts.items()),
            *self.notes.items(),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def page(self, title: str = "Evaluation") -> Page:
        """The scores, the counts and the pictures as a page."""
        counts = [
            Fact(label=called(name), text=f"{count:,}", value=count)
            for name, count in self.counts.items()
        ]
        scores: list[Part] = [Facts(score_facts(self.scores)), *self.pictures]
        notes = [f"{name} {text}" for name, text in self.notes.items()]
        return Page(
            title=title,
            note=" · ".join([*notes, f"{self.seconds:.1f} s"]),
            sections=[
                Section(title="Scores", parts=scores),
                Section(title="Data", parts=[Facts(counts)]),
            ],
        )

    def save(self, path: str | os.PathLike[str], title: str = "Evaluation") -> Path:
        """The page as one file."""
        return self.page(title).save(path)


@dataclass(frozen=True, kw_only=True, eq=False)
class Translated:
    """How a translator did, line by line."""

    counts: NDArray[np.int64] = field(repr=False)  # of `bleu_counts`
    tokenize: str
    too_long: int  # sentences that were left blank
    empty: int  # other sentences of which it says nothing
    seconds: float

    measure = "bleu"

    @property
    def count(self) -> int:
        """Sentences."""
        return len(self.counts)

    def metric(self, chosen: NDArray[np.intp]) -> float:
        """BLEU of the lines with these numbers."""
        return bleu_of(self.counts[chosen], tokenize=self.tokenize).score


class OwnOptions(TypedDict, total=False):
    """The choices of `evaluate` for our own families."""

    beam: int | None  # of translators, as bleu and policy
    bleu: str | None
    policy: str | None
    skip_bad: bool  # of language models
    progress: Told | None


def evaluate_own(
    model: LanguageModel | Translator | WordVectors,
    data: Source | Sequence[Any],
    **options: Unpack[OwnOptions],
) -> Scored:
    """Score a model of our own families.

    Args:
        model: a language model (perplexity, bits per byte), a translator (BLEU), or word vectors
            (accuracy of analogies, correlation with judged similarities).
        data: text, a sentence to a line; or two files, source and target; or files of questions
            (`a b c d`, `: section`) and of judged pairs (`word, word, number`).
        **options: of a translator `beam` (4), `bleu`, how it finds words (13a, zh where the target
            is Chinese, none), and `policy`, for sentences that are too long: without one they count
            as blank; of a language model `skip_bad`, to pass over rows that cannot be read.
            `progress` is told how many sentences of a translator are done.
    """
    if isinstance(model, Translator):
        chosen = only(options, "beam", "bleu", "policy", of=model)
        return _translator(model, data, options.get("progress"), **chosen)
    if isinstance(model, WordVectors):
        only(options, of=model)
        return _words(model, listed(data))
    family = family_of(model)
    if family is None or "suggest" not in OWN[family].verbs:
        raise InputError(
            f"a {type(model).__name__} is not scored so", fix="give a language model's folder"
        )
    return evaluate_text(model, data, **only(options, "skip_bad", of=model))


def only(options: Mapping[str, Any], *taken: str, of: object) -> dict[str, Any]:
    """What was chosen (neither None nor False), if a model of this kind takes it."""
    said = {
        name: one
        for name, one in options.items()
        if one is not None and one is not False and name != "progress"
    }
    for name in said:
        if name not in taken:
            what = of if isinstance(of, str) else f"a {type(of).__name__}"
            raise InputError(
                f"there is no {name} to choose for {what}",
                fix=f"choose {', '.join(taken)}, or leave it out" if taken else "leave it out",
            )
    return said


def evaluate_text(
    model: LanguageModel,
    data: Source | Sequence[Any],
    *,
    column: str | None = None,
    skip_bad: bool = False,
) -> Scored:
    """Perplexity and bits per byte of a text, a sentence to a line; tables have a `column`."""
    since = time.perf_counter()
    skipped: list[InputError] = []
    lines = rows(listed(data), column=column, on_error=skipped.append if skip_bad else "raise")
    found = score_language(model, (row.text for row in lines))
    names = ("perplexity", "word_perplexity", "bits_per_byte")
    return Scored(
        kind="language",
        scores={name: getattr(found, name) for name in names},
        counts={name: getattr(found, name) for name in ("texts", "tokens", "words", "unknown")},
        notes={},
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )


def parallel_of(data: Source | Sequence[Any]) -> Parallel:
    """The sentences that translators are judged by."""
    sides = listed(data)
    if len(sides) != _PAIR:
        raise InputError(
            f"a translator is judged by two files, and {len(sides)} were named",
            fix="name the source, then its translation",
        )
    return parallel(*sides)


def translated(
    model: Translator,
    pairs: Parallel,
    *,
    beam: int = BEAM,
    bleu: str = BLEU,
    policy: str | None = None,
    progress: Told | None = None,
) -> Translated:
    """What a translator makes of the source, held against the target.

    A sentence that is too long counts as one that was left blank.
    """
    since, failed = time.perf_counter(), list[InputError]()
    told = translate(
        model,
        list(pairs.source),
        beam=beam,
        policy=policy,
        on_error=lambda _, error: failed.append(error),
        progress=progress,
    )
    counts = bleu_counts([one.text for one in told], pairs.target, tokenize=bleu)
    seconds = time.perf_counter() - since
    return Translated(
        counts=counts,
        tokenize=bleu,
        too_long=len(failed),
        empty=sum(not one.text.strip() for one in told) - len(failed),
        seconds=seconds,
    )


def _translator(
    model: Translator,
    data: Source | Sequence[Any],
    progress: Told | None,
    *,
    beam: int = BEAM,
    bleu: str = BLEU,
    policy: str | None = None,
) -> Scored:
    since, pairs = time.perf_counter(), parallel_of(data)
    made = translated(model, pairs, beam=beam, bleu=bleu, policy=policy, progress=progress)
    found = bleu_of(made.counts, tokenize=bleu)
    lengths = [len(source.split()) for source in pairs.source]
    by_length = bleu_by_length(made.counts, lengths, EDGES, tokenize=bleu)
    middles = [
        (sum(some) / len(some), one.score)
        for (low, high), one in zip(pairwise(EDGES), by_length, strict=True)
        if one is not None and (some := [size for size in lengths if low <= size < high])
    ]
    picture = LineChart(
        title="BLEU by length of the source",
        x_label="words",
        y_label="BLEU",
        include=(0.0,),
        series=[Series(name="BLEU", x=[x for x, _ in middles], y=[y for _, y in middles])],
    )
    return Scored(
        kind="translate",
        scores={
            "bleu": found.score,
            **{f"precision_{n}": one for n, one in enumerate(found.precisions, 1)},
            "brevity": found.brevity,
        },
        counts={
            "sentences": len(pairs),
            "blank_pairs_left_out": pairs.blank,
            "too_long": made.too_long,
            "empty_translations": made.empty,
        },
        notes={"signature": found.signature, "beam": str(beam)},
        pictures=(picture,),
        seconds=time.perf_counter() - since,
    )


def _words(model: WordVectors, sources: list[Any]) -> Scored:
    with rereadable(sources, Path(tempfile.gettempdir())) as data:
        return _judged_words(model, data)


def _judged_words(model: WordVectors, data: Sequence[Any]) -> Scored:
    since = time.perf_counter()
    scores: dict[str, float] = {}
    counts: dict[str, int] = {}
    for path in data:
        name, questions, judged = read_words(path)
        if questions is not None:
            answers = analogies(model, questions)
            scores[f"{name} accuracy"] = answers.accuracy
            sections = answers.sections()
            if len(sections) > 1:
                scores |= {f"{name}: {part}": right / of for part, (right, of) in sections.items()}
            asked, unknown = len(answers.asked), answers.unknown
        else:
            pairs = similarities(model, judged)
            scores[f"{name} spearman"], scores[f"{name} pearson"] = pairs.spearman, pairs.pearson
            asked, unknown = len(pairs.judged), pairs.unknown
        counts[f"{name} asked"], counts[f"{name} unknown"] = asked, unknown
    return Scored(
        kind="words",
        scores=scores,
        counts=counts,
        notes={},
        seconds=time.perf_counter() - since,
    )


def read_words(
    path: object,
) -> tuple[str, list[Question] | None, list[tuple[str, str, float]]]:
    """What word vectors are judged by: a file's name, and its questions, or else its pairs."""
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise InputError(f"{path}: there is no such file", fix="name files, not folders")
    place = Path(path)
    if _is_questions(place):
        return place.stem, read_questions(place), []
    return place.stem, None, read_pairs(place)


def _is_questions(path: Path) -> bool:
    """Analogies have sections, or four words in a line without commas."""
    first = next((row.text for row in rows_of(path) if row.text.strip()), "")
    return first.startswith(":") or ("," not in first and "\t" not in first)
