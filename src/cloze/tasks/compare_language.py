"""`compare` for language models: one table, whatever they are made of."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cloze.checkpoint.abilities import OWN, family_of
from cloze.data.sources import Source, as_list, read_rows
from cloze.errors import InputError
from cloze.metrics.language import LanguageScore, score_language
from cloze.models.language import LanguageModel
from cloze.plot.numbers import percent
from cloze.plot.page import Page, Section
from cloze.plot.parts import Cell, Table
from cloze.progress import ProgressCallback
from cloze.tasks.left_to_right import CausalEncoder
from cloze.tasks.sizes import count_parameters


@dataclass(frozen=True, kw_only=True)
class LanguageEntry:
    """One model among several."""

    name: str
    kind: str
    parameters: int  # n-grams of an n-gram model
    vocabulary: int
    same_tokens: bool  # the vocabulary of the first model, and how it splits the text
    score: LanguageScore
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        measures = ("perplexity", "word_perplexity", "bits_per_byte")
        return {
            "model": self.name,
            "kind": self.kind,
            "parameters": self.parameters,
            "vocabulary": self.vocabulary,
            "same_tokens": self.same_tokens,
            "scores": {name: getattr(self.score, name) for name in measures},
            "counts": asdict(self.score),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class LanguageComparison:
    """Language models beside each other, in the order they were given."""

    entries: tuple[LanguageEntry, ...]
    skipped: tuple[InputError, ...] = field(default=(), repr=False)

    columns = (
        *("model", "kind", "parameters", "vocabulary", "unknown"),
        *("perplexity", "a word", "bits a byte", "seconds"),
    )

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """The table; no perplexity of a model whose pieces are not the first one's."""
        for one in self.entries:
            yield (
                one.name,
                one.kind,
                one.parameters,
                one.vocabulary,
                percent(one.score.unknown / one.score.tokens, 2),
                f"{one.score.perplexity:.2f}" if one.same_tokens else None,
                f"{one.score.word_perplexity:.2f}",
                f"{one.score.bits_per_byte:.4f}",
                round(one.seconds, 1),
            )

    @property
    def note(self) -> str:
        """How to read it."""
        first = self.entries[0].score
        return (
            f"{first.texts:,} lines, {first.words:,} words with their ends, {first.bytes:,} bytes. "
            "Perplexity is of a model's own pieces, and told where these are the first model's: "
            "the same vocabulary, the text split into as many, as many of them unknown; a word: "
            "between white space; bits a byte compare any two models, but an unknown word costs "
            "its <unk> alone. An LSTM reads the lines as one text, the others each alone."
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "metric": "bits_per_byte",
            "skipped": [error.problem for error in self.skipped],
            "models": [one.to_dict() for one in self.entries],
        }

    def page(self, title: str = "Comparison") -> Page:
        """The table as a page."""
        table = Table(columns=self.columns, rows=list(self.rows()))
        return Page(title=title, note=self.note, sections=[Section(title="Models", parts=[table])])

    def save(self, path: str | os.PathLike[str], title: str = "Comparison") -> Path:
        """The page as one file."""
        return self.page(title).save(path)


def compare_language(
    models: Mapping[str, LanguageModel],
    data: Source | Sequence[Any],
    *,
    skip_bad: bool = False,
    progress: ProgressCallback | None = None,
) -> LanguageComparison:
    """Score language models by the same text, a sentence to a line.

    Args:
        models: by the names that the table shows.
        data: what `cloze.data.sources.rows` reads.
        skip_bad: pass over rows that cannot be read, and list them.
        progress: is told of each model that has read all lines.
    """
    for name, model in models.items():
        if not is_language(model):
            raise InputError(
                f"{name} is no language model, and {next(iter(models))} is one",
                fix="compare models for the same task",
            )
    skipped: list[InputError] = []
    texts = [
        row.text
        for row in read_rows(as_list(data), on_error=skipped.append if skip_bad else "raise")
    ]
    first = next(iter(models.values()))
    known, entries = set(first.words), list[LanguageEntry]()
    for name, model in models.items():
        since = time.perf_counter()
        score = score_language(model, texts)
        # one vocabulary may be read by two ways of splitting: an ARPA file has only white space
        alike = not entries or _pieces(score) == _pieces(entries[0].score)
        entries.append(
            LanguageEntry(
                name=name,
                kind=model.kind if isinstance(model, CausalEncoder) else family_of(model) or "",
                parameters=count_parameters(model),
                vocabulary=len(model.words),
                same_tokens=alike and set(model.words) == known,
                score=score,
                seconds=time.perf_counter() - since,
            )
        )
        if progress:
            progress(name, len(texts), len(texts))
    return LanguageComparison(entries=tuple(entries), skipped=tuple(skipped))


def is_language(model: object) -> bool:
    """Whether a loaded model says what comes next."""
    family = family_of(model)
    own = family is not None and "suggest" in OWN[family].verbs
    return own or isinstance(model, CausalEncoder)


def _pieces(score: LanguageScore) -> tuple[int, int]:
    return score.tokens, score.unknown
