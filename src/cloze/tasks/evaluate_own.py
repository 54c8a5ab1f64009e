"""`evaluate` for our own families: language models, translators, word vectors."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from cloze.checkpoint.abilities import OWN, family_of
from cloze.checkpoint.translator import Translator
from cloze.data.parallel import Parallel, parallel
from cloze.data.streams import Source, rows
from cloze.draw.chart import LineChart, Series
from cloze.draw.page import Page, Section
from cloze.draw.parts import Part, Table
from cloze.errors import InputError
from cloze.evaluate.bleu import bleu_by_length, bleu_counts, bleu_of
from cloze.evaluate.language import score_language
from cloze.evaluate.words import analogies, read_pairs, read_questions, similarities
from cloze.models.language import LanguageModel
from cloze.models.word2vec import WordVectors
from cloze.tasks.translate import translate

EDGES = (1, 6, 9, 12, 15, 18, 21, 26, 31, 41, 61, 1 << 30)  # words of a source sentence
_PAIR = 2

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How a model did."""

    kind: str  # language, translate or words
    scores: Mapping[str, float]  # *the* score first
    counts: Mapping[str, int]  # what they are means over, and what was left out
    notes: Mapping[str, str]  # such as BLEU's signature
    pictures: tuple[LineChart, ...] = ()
    seconds: float = 0.0

    @property
    def data(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "kind": self.kind,
            "scores": dict(self.scores),
            "counts": dict(self.counts),
            **self.notes,
            "seconds": self.seconds,
        }

    def rows(self) -> list[tuple[str, str | int]]:
        """The table: every score, count and note."""
        return [
            *((name, f"{value:.4f}") for name, value in self.scores.items()),
            *self.counts.items(),
            *self.notes.items(),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def page(self, title: str = "Evaluation") -> Page:
        """The table and the pictures as a page."""
        parts: list[Part] = [Table(columns=("score", ""), rows=self.rows()), *self.pictures]
        return Page(title=title, sections=[Section(title="Scores", parts=parts)])

    def save(self, path: str | os.PathLike[str], title: str = "Evaluation") -> Path:
        """The page as one file."""
        return self.page(title).save(path)


def evaluate_own(
    model: LanguageModel | Translator | WordVectors,
    data: Source | list[Source],
    *,
    beam: int = 4,
    bleu: str = "13a",
    progress: Progress | None = None,
) -> Scored:
    """Score a model of our own families.

    Args:
        model: a language model (perplexity, bits per byte), a translator (BLEU), or word vectors
            (accuracy of analogies, correlation with judged similarities).
        data: text, a sentence to a line; or two files, source and target; or files of questions
            (`a b c d`, `: section`) and of judged pairs (`word, word, number`).
        beam: of translators.
        bleu: how BLEU finds words: 13a, zh where the target is Chinese, none.
        progress: is told how many sentences of a translator are done, of how many.
    """
    since = time.perf_counter()
    listed = list(data) if isinstance(data, list | tuple) else [data]
    if isinstance(model, Translator):
        return _translator(model, listed, beam, bleu, progress, since)
    if isinstance(model, WordVectors):
        return _words(model, listed, since)
    family = family_of(model)
    if family is None or "suggest" not in OWN[family].verbs:
        raise InputError(
            f"a {type(model).__name__} is not scored so", fix="give a language model's folder"
        )
    return _language(model, listed, since)


def _language(model: LanguageModel, data: list[Source], since: float) -> Scored:
    found = score_language(model, (row.text for row in rows(data)))
    names = ("perplexity", "word_perplexity", "bits_per_byte")
    return Scored(
        kind="language",
        scores={name: getattr(found, name) for name in names},
        counts={name: getattr(found, name) for name in ("texts", "tokens", "words", "unknown")},
        notes={},
        seconds=time.perf_counter() - since,
    )


def parallel_of(data: Source | Sequence[Any]) -> Parallel:
    """The sentences that translators are judged by."""
    listed: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    if len(listed) != _PAIR:
        raise InputError(
            f"a translator is judged by two files, and {len(listed)} were named",
            fix="name the source, then its translation",
        )
    return parallel(*listed)


def _translator(
    model: Translator,
    data: Sequence[Any],
    beam: int,
    how: str,
    progress: Progress | None,
    since: float,
) -> Scored:
    pairs = parallel_of(data)
    failed: list[InputError] = []
    told = translate(
        model,
        list(pairs.source),
        beam=beam,
        on_error=lambda _, error: failed.append(error),
        progress=progress,
    )
    counts = bleu_counts([one.text for one in told], pairs.target, tokenize=how)
    found = bleu_of(counts, tokenize=how)
    lengths = [len(source.split()) for source in pairs.source]
    by_length = bleu_by_length(counts, lengths, EDGES, tokenize=how)
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
        counts={"sentences": len(pairs), "blank": pairs.blank, "too_long": len(failed)},
        notes={"signature": found.signature, "beam": str(beam)},
        pictures=(picture,),
        seconds=time.perf_counter() - since,
    )


def _words(model: WordVectors, data: Sequence[Any], since: float) -> Scored:
    scores: dict[str, float] = {}
    counts: dict[str, int] = {}
    for path in data:
        if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
            raise InputError(f"{path}: there is no such file", fix="name files, not folders")
        name = Path(path).stem
        if _is_questions(Path(path)):
            answers = analogies(model, read_questions(path))
            scores[f"{name} accuracy"] = answers.accuracy
            asked, unknown = len(answers.asked), answers.unknown
        else:
            pairs = similarities(model, read_pairs(path))
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


def _is_questions(path: Path) -> bool:
    """Analogies have sections, or four words in a line without commas."""
    with path.open(encoding="utf-8-sig") as lines:
        first = next((line for line in lines if line.strip()), "")
    return first.startswith(":") or ("," not in first and "\t" not in first)
