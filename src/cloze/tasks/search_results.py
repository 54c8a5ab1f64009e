"""The results of `search`: documents with their best chunk, as JSON, tables and pages."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cloze.files import PathLike, expand_user
from cloze.plot.page import Grid, Page, Paragraph, Quote, Section
from cloze.plot.picture import Picture
from cloze.results import Result

Mode = Literal["hybrid", "dense", "bm25"]


@dataclass(frozen=True, kw_only=True)
class SearchHit:
    """A document that was found, with its best chunk."""

    id: str
    title: str | None
    score: float
    text: str  # of the chunk
    start: int  # its characters in the document
    end: int
    chunk: int  # its number in the document, from 0
    snippet: str  # the part of the text around the best sentence
    highlight: tuple[int, int]  # the characters of the best sentence in the snippet
    metadata: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float | None] = field(default_factory=dict)  # cosine, bm25, rerank
    thumbnail: bytes | None = field(default=None, repr=False)  # of an image, as PNG, if asked for

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the document."""
        found = {**asdict(self), "highlight": list(self.highlight)}
        if self.thumbnail is None:
            del found["thumbnail"]
        else:
            found["thumbnail"] = base64.b64encode(self.thumbnail).decode()
        return found


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult(Result):
    """The documents that fit a query, best first."""

    query: str  # of an image its name
    mode: Mode
    hits: tuple[SearchHit, ...]

    record_columns = ("query", "rank", "id", "title", "score", "text")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the query."""
        hits = [one.to_dict() for one in self.hits]
        return {"query": self.query, "mode": self.mode, "hits": hits}

    def to_records(self) -> list[dict[str, Any]]:
        """A row per document."""
        columns = ("id", "title", "score", "text")
        return [
            {"query": self.query, "rank": rank, **{name: getattr(one, name) for name in columns}}
            for rank, one in enumerate(self.hits, 1)
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.marked_text import Mark
        from cloze.plot.notebook import (
            render_heading,
            render_image,
            render_note,
            render_result,
            render_text,
        )

        parts = [render_heading(self.query)]
        for one in self.hits:
            start, end = one.highlight
            parts.append(render_note(f"{one.score:.4f} · {one.title or one.id}"))
            if one.thumbnail is not None:
                parts.append(render_image(one.thumbnail, one.text))
            marks = [Mark(start=start, end=end)] if end > start else []
            parts.append(render_text(one.snippet, marks))
        return render_result(*parts, note="" if self.hits else "nothing was found")


def save_search_page(results: Sequence[SearchResult], path: PathLike) -> Path:
    """Write results to a self-contained HTML page, with small images if there are any."""
    sections = [
        Section(
            title=one.query,
            parts=[Grid(parts=[_make_part(rank, hit) for rank, hit in enumerate(one.hits, 1)])]
            if one.hits
            else [Paragraph(text="nothing was found")],
        )
        for one in results
    ]
    return Page(title="Search", sections=sections).save(expand_user(path))


def _make_part(rank: int, hit: SearchHit) -> Picture | Quote:
    name = f"{rank}. {hit.title or hit.id} · {hit.score:.4f}"
    if hit.thumbnail is not None:
        return Picture(png=hit.thumbnail, title=name, note=hit.text)
    start, end = hit.highlight
    best = hit.snippet[start:end]
    return Quote(text=hit.snippet, highlighted=[best] if best else [], note=name)
