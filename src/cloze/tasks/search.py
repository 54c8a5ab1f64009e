"""`search`: find the documents of an index that fit a query."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from typing import TypedDict, Unpack, overload

import numpy as np

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.data.images.read import ImageExample
from cloze.errors import FolderError, InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Results
from cloze.retrieval.bm25 import find_terms
from cloze.retrieval.filters import Condition, Filter, parse_filter
from cloze.retrieval.folder import DocumentIndex
from cloze.retrieval.fusion import fuse_rankings
from cloze.retrieval.store import Chunk, Hit, Vectors
from cloze.tasks.chunk_embedder import embed_chunks, make_chunk_text, normalize_vectors
from cloze.tasks.embed_images import embed_images
from cloze.tasks.image_inputs import ImageInputs, open_image_model, open_images, raise_errors
from cloze.tasks.index import check_fingerprint
from cloze.tasks.inputs import check_texts, open_model
from cloze.tasks.rerank import rerank as rerank_documents
from cloze.tasks.search_results import Mode, SearchHit, SearchResult
from cloze.tasks.snippets import Snippet, make_snippets

MODES = ("hybrid", "dense", "bm25")
_MIN_CANDIDATES = 100  # chunks of each ranking that are merged
_RERANKED = 50  # chunks that a second model orders
_MAX_K = 10_000
_ATTEMPTS = 5  # while another process writes


class SearchIndex:
    """An index that stays open, with its model: for many queries. See `open_index`."""

    def __init__(
        self,
        folder: PathLike,
        *,
        model: Model | PathLike | None = None,
        device: str | None = None,
        dtype: str = "float32",
    ) -> None:
        self.documents = DocumentIndex(folder)
        self._given, self._device, self._dtype = model, device, dtype
        self._lock = RLock()  # stores and models are used by one thread at a time

    @cached_property
    def model(self) -> Model:
        """The model whose vectors are in the index, loaded when it is first used."""
        manifest = self.documents.manifest
        if isinstance(self._given, Model):
            found = open_model(self._given, "embed")
        else:
            source = manifest.model if self._given is None else self._given
            found = load(source, device=self._device, dtype=self._dtype, quiet=True)
            found = open_model(found, "embed")
        check_fingerprint(found, manifest, self.documents.folder)
        return found

    def search(
        self, query: str | Iterable[str] | None = None, **options: Unpack["SearchOptions"]
    ) -> "SearchResult | Results[SearchResult]":
        """`cloze.search` with this index."""
        return search(self, query, **options)

    def refresh(self) -> None:
        """Read the index again if it has changed."""
        with self._lock:
            if self.documents.refresh() and "model" in self.__dict__:
                check_fingerprint(self.model, self.documents.manifest, self.documents.folder)

    def close(self) -> None:
        """Close the index."""
        self.documents.close()

    def __enter__(self) -> "SearchIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(
    folder: PathLike,
    *,
    model: Model | PathLike | None = None,
    device: str | None = None,
    dtype: str = "float32",
) -> SearchIndex:
    """Open an index for many queries: it and its model are loaded once.

    Args:
        folder: the folder of the index.
        model: the model of the index if it is loaded already, or its folder if it was moved.
        device: cpu, cuda, cuda:1 or mps (default: auto-detected).
        dtype: data type to compute with.
    """
    return SearchIndex(folder, model=model, device=device, dtype=dtype)


class SearchOptions(TypedDict, total=False):
    """The options of `search`."""

    k: int
    mode: str
    filter: Filter | Iterable[str] | None
    rerank: Model | PathLike | None
    chunks: bool
    images: ImageInputs | None
    thumbnails: bool
    progress: ProgressOption


@overload
def search(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    index: SearchIndex | PathLike, query: str, **options: Unpack[SearchOptions]
) -> SearchResult: ...
@overload
def search(
    index: SearchIndex | PathLike, query: Iterable[str], **options: Unpack[SearchOptions]
) -> Results[SearchResult]: ...
@overload
def search(
    index: SearchIndex | PathLike, query: None = None, **options: Unpack[SearchOptions]
) -> SearchResult | Results[SearchResult]: ...
@with_progress
def search(
    index: SearchIndex | PathLike,
    query: str | Iterable[str] | None = None,
    *,
    images: ImageInputs | None = None,
    k: int = 10,
    mode: str = "hybrid",
    filter: Filter | Iterable[str] | None = None,
    rerank: Model | PathLike | None = None,
    chunks: bool = False,
    thumbnails: bool = False,
    progress: ProgressCallback | None = None,
) -> SearchResult | Results[SearchResult]:
    """Find the documents of an index that fit a query, best first.

    `dense` compares vectors of the index's model (the score is a cosine), `bm25` compares words,
    and `hybrid` merges both rankings (the score is a sum of reciprocal ranks). An index of images
    is searched by a text, or by an image; its words are those of the captions.

    Args:
        index: the folder of an index (`cloze index`), or an index opened with `open_index`.
        query: the query, or several.
        images: in place of texts, an image or several, as in `embed`: similar images are found.
        k: number of documents to return.
        mode: hybrid, dense or bm25.
        filter: conditions on metadata, which must all be fulfilled: {"lang": "en", "year": {">=":
            1990}, "kind": ["a", "b"]}, or texts such as "year>=1990". `id` and `title` are columns,
            too.
        rerank: a model that orders the best 50 chunks again, as in `rerank`, or its folder.
        chunks: whether several chunks of one document are returned, each as a hit.
        thumbnails: whether hits of an index of images have a small copy of the image.
        progress: show a progress bar, or not; a function is called with stage, done and total.
    """
    chosen: Mode = one_of("mode", mode, MODES)  # type: ignore[assignment]
    in_range("k", k, 1, _MAX_K)
    conditions = parse_filter(filter)
    given = _open_queries(query, images)
    second = None if rerank is None else open_model(rerank, "rerank")
    opened = index if isinstance(index, SearchIndex) else SearchIndex(index)
    try:
        with opened._lock:
            opened.refresh()
            request = _Request(
                index=opened,
                mode=given.choose_mode(chosen, is_reranked=rerank is not None),
                k=k,
                conditions=conditions,
                by_chunk=chunks,
                second=second,
                thumbnails=thumbnails,
                progress=progress,
            )
            pairs = zip(given.names, request.embed_queries(given), strict=True)
            found = [request.answer(one, vector) for one, vector in pairs]
    finally:
        if opened is not index:
            opened.close()
    return found[0] if given.is_single else Results(found)


@dataclass(frozen=True, kw_only=True)
class _Queries:
    """Texts, or images with their names."""

    names: list[str]
    images: list[ImageExample] | None
    is_single: bool

    def choose_mode(self, mode: Mode, *, is_reranked: bool) -> Mode:
        """Images have no words, so that only vectors are compared."""
        if self.images is None:
            return mode
        if mode == "bm25" or is_reranked:
            raise InputError(
                f"an image has no words that {'a second model' if is_reranked else mode} could "
                "compare",
                fix="leave out rerank" if is_reranked else "use the mode dense",
            )
        return "dense"


def _open_queries(query: str | Iterable[str] | None, images: ImageInputs | None) -> _Queries:
    if (query is None) == (images is None):
        raise InputError(
            "there is a query and an image" if images is not None else "there is no query",
            fix="give either a query or an image",
        )
    if images is None:
        names = check_texts(query, "query")
        return _Queries(names=names, images=None, is_single=isinstance(query, str))
    opened, is_single = open_images(images)
    examples = raise_errors(opened)
    return _Queries(names=[one.name for one in examples], images=examples, is_single=is_single)


@dataclass(kw_only=True)
class _Candidate:
    """A chunk that may be returned."""

    chunk: Chunk
    score: float
    scores: dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The options of a search."""

    index: SearchIndex
    mode: Mode
    k: int
    conditions: tuple[Condition, ...]
    by_chunk: bool
    second: Model | None
    thumbnails: bool
    progress: ProgressCallback | None

    def embed_queries(self, queries: _Queries) -> Sequence[Vectors | None]:
        if queries.images is not None:
            model = open_image_model(self.index.model, "search")
            return list(normalize_vectors(embed_images(model, queries.images)))
        if self.mode == "bm25":
            return [None] * len(queries.names)
        return list(embed_chunks(self.index.model, queries.names))

    def answer(self, query: str, vector: Vectors | None) -> SearchResult:
        """The result of one query; if the index changes meanwhile, the query is repeated."""
        for _ in range(_ATTEMPTS):
            try:
                return self._answer(query, vector)
            except (KeyError, FolderError):  # a document, or a file, that is no longer there
                if not self.index.documents.refresh():
                    raise
        return self._answer(query, vector)

    def _answer(self, query: str, vector: Vectors | None) -> SearchResult:
        if not query.strip():
            return SearchResult(query=query, mode=self.mode, hits=())
        terms = find_terms(query)
        candidates = self._find_candidates(terms, vector)
        if self.second is not None:
            candidates = self._rerank(query, candidates)
        best = self._select(candidates)
        snippets = self._make_snippets(terms, vector, [one.chunk.text for one in best])
        pairs = zip(best, snippets, strict=True)
        hits = tuple(self._make_hit(one, snippet) for one, snippet in pairs)
        return SearchResult(query=query, mode=self.mode, hits=hits)

    def _find_candidates(self, terms: Sequence[str], vector: Vectors | None) -> list[_Candidate]:
        """Chunks, best first: of enough documents, unless the index has no more."""
        most = max(1, self.index.documents.num_chunks)
        depth = self.k if self.by_chunk else 2 * self.k + 10
        if self.mode == "hybrid":
            depth = max(_MIN_CANDIDATES, depth)
        if self.second is not None:
            depth = max(_RERANKED, depth)
        while True:
            depth = min(depth, most)
            found = self._search(terms, vector, depth)
            documents = {one.chunk.document for one in found}
            if self.by_chunk or len(documents) >= self.k or depth == most or len(found) < depth:
                return found
            depth *= 4

    def _search(self, terms: Sequence[str], vector: Vectors | None, depth: int) -> list[_Candidate]:
        documents = self.index.documents
        lists: dict[str, list[Hit]] = {}
        if vector is not None:
            lists["cosine"] = documents.search_vectors(vector, depth, self.conditions)
        if self.mode != "dense":
            lists["bm25"] = documents.search_terms(terms, depth, self.conditions)
        found = {_key(hit): hit for hits in lists.values() for hit in hits}
        scores = {name: {_key(hit): hit.score for hit in hits} for name, hits in lists.items()}
        if self.mode == "hybrid":
            merged = fuse_rankings([[_key(hit) for hit in hits] for hits in lists.values()])
        else:
            merged = next(iter(scores.values()))
        return [
            _Candidate(
                chunk=found[key].chunk,
                score=score,
                scores={name: of_list.get(key) for name, of_list in scores.items()},
            )
            for key, score in merged.items()
        ]

    def _rerank(self, query: str, candidates: list[_Candidate]) -> list[_Candidate]:
        assert self.second is not None
        first = candidates[: max(_RERANKED, self.k)]
        if not first:
            return first
        titles = self.index.documents.documents
        texts = [make_chunk_text(titles[one.chunk.document].title, one.chunk.text) for one in first]
        ranking = rerank_documents(
            self.second, query, texts, truncation="head", progress=self.progress or False
        )
        return [
            replace(
                first[one.index],
                score=one.score,
                scores={**first[one.index].scores, "rerank": one.score},
            )
            for one in ranking.documents
        ]

    def _select(self, candidates: Iterable[_Candidate]) -> list[_Candidate]:
        """The best chunk of each document, or every chunk."""
        best: dict[object, _Candidate] = {}
        for one in candidates:
            key = (one.chunk.document, one.chunk.number) if self.by_chunk else one.chunk.document
            best.setdefault(key, one)
        return list(best.values())[: self.k]

    def _make_snippets(
        self, terms: Sequence[str], vector: Vectors | None, texts: Sequence[str]
    ) -> list[Snippet]:
        def score(sentences: list[str]) -> Sequence[float]:
            vectors = embed_chunks(self.index.model, sentences)
            return (vectors @ np.asarray(vector)).tolist()

        if self.index.documents.manifest.content == "images":  # a caption is one sentence
            return [Snippet(text, (0, 0)) for text in texts]
        return make_snippets(texts, terms, None if vector is None else score)

    def _make_hit(self, candidate: _Candidate, snippet: Snippet) -> SearchHit:
        chunk = candidate.chunk
        document = self.index.documents.documents[chunk.document]
        return SearchHit(
            id=document.id,
            title=document.title,
            score=candidate.score,
            scores=candidate.scores,
            text=chunk.text,
            start=chunk.start,
            end=chunk.end,
            chunk=chunk.number,
            snippet=snippet.text,
            highlight=snippet.highlight,
            metadata=document.metadata,
            thumbnail=self.index.documents.read_thumbnail(document) if self.thumbnails else None,
        )


def _key(hit: Hit) -> tuple[int, int]:
    return hit.chunk.document, hit.chunk.number
