"""`rerank`: order documents by how well they fit a query."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, Unpack, overload

from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.checkpoint.task import Task, override_truncation
from cloze.config import in_range, one_of
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.classify import Classification, predict
from cloze.tasks.embed import embed
from cloze.tasks.inference import resolve_task
from cloze.tasks.inputs import Texts, check_texts, open_model, warn_truncated
from cloze.tasks.similarity import normalize_rows

METHODS = ("pairs", "embeddings")
# labels of classifiers of pairs that mean that a document fits
_POSITIVE = {
    *("1", "true", "yes", "positive", "relevant", "match", "similar", "equivalent", "entailment"),
    *("duplicate", "paraphrase", "is_duplicate", "label_1"),
}


@dataclass(frozen=True, kw_only=True)
class RankedDocument:
    """A document with its score."""

    index: int  # in the list of documents
    text: str
    score: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Ranking(Result):
    """Documents in the order in which they fit a query, best first."""

    query: str
    documents: tuple[RankedDocument, ...]
    # what the scores are: probability (of a classifier), number (of a regression model) or cosine
    kind: Literal["probability", "number", "cosine"]
    truncated_chars: int = 0  # characters left out by truncation, of the query and all documents

    record_columns = ("query", "index", "text", "score")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the query."""
        return {
            "query": self.query,
            "kind": self.kind,
            "documents": [asdict(one) for one in self.documents],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per document."""
        return [{"query": self.query, **asdict(one)} for one in self.documents]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_bars, render_result, render_text

        bars = render_bars([(one.text, one.score) for one in self.documents], bold=set())
        return render_result(render_text(self.query), bars, truncated_chars=self.truncated_chars)


class RerankOptions(TypedDict, total=False):
    """The options of `rerank`."""

    top: int | None
    by: str | None
    label: str | None
    pooling: str | None
    truncation: str | None
    overlap: int | None
    progress: ProgressOption


@overload
def rerank(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, query: str, documents: Texts, **options: Unpack[RerankOptions]
) -> Ranking: ...
@overload
def rerank(
    model: Model | PathLike,
    query: Iterable[str],
    documents: Texts | Iterable[Sequence[str]],
    **options: Unpack[RerankOptions],
) -> Results[Ranking]: ...
@with_progress
def rerank(
    model: Model | PathLike,
    query: str | Iterable[str],
    documents: Texts | Iterable[Sequence[str]],
    *,
    top: int | None = None,
    by: str | None = None,
    label: str | None = None,
    pooling: str | None = None,
    truncation: str | None = None,
    overlap: int | None = None,
    progress: ProgressCallback | None = None,
) -> Ranking | Results[Ranking]:
    """Order documents by how well they fit a query.

    A model that was fine-tuned on pairs (`cloze finetune classify`) reads the query together with
    each document, which is slower and more accurate; the score is the probability of `label`, or
    the predicted number. Other models compare embeddings; the score is their cosine.

    Args:
        model: a classifier or regression model of pairs, or a model with embeddings; or its folder.
        query: the query, or several.
        documents: the documents; with several queries one list for all, or a list for each.
        top: number of documents to return, best first. Default: all.
        by: pairs or embeddings. Default: pairs if the model is a classifier or regression model.
        label: the label of a pair that fits. Default: auto-detected, such as 1, yes or relevant.
        pooling: how a text becomes a vector, as in `embed`; only with embeddings.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            the setting of the folder, else head; then a warning says how much was not read.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    model = open_model(model, "rerank")
    queries = check_texts(query, "query")
    groups = _check_documents(query, documents, len(queries))
    if top is not None:
        in_range("top", top, 1, 1 << 30)
    has_classifier = "sequence" in model.task_heads or (
        model.feature_head is not None and model.task is not None and model.task.name == "classify"
    )
    method = one_of("by", by, METHODS) if by else METHODS[not has_classifier]
    _check_options(method, label, pooling)
    options: dict[str, Any] = {"truncation": truncation, "overlap": overlap, "progress": progress}
    if method == "pairs":
        kind, scores, lost = _score_pairs(model, queries, groups, label=label, **options)
    else:
        kind, scores, lost = _compare_embeddings(model, queries, groups, pooling=pooling, **options)
    if truncation is None:
        warn_truncated(lost, model.max_length, name="queries", fix="choose a truncation")
    found = [
        Ranking(
            query=one,
            documents=_rank(some, values, top),
            kind=kind,
            truncated_chars=chars,
        )
        for one, some, values, chars in zip(queries, groups, scores, lost, strict=True)
    ]
    return found[0] if isinstance(query, str) else Results(found)


_Scored = tuple[Literal["probability", "number", "cosine"], list[list[float]], list[int]]


def _check_documents(query: object, documents: Any, count: int) -> list[list[str]]:  # noqa: ANN401
    """The documents of each query."""
    if isinstance(documents, str):
        raise InputError("documents is a single text", fix="pass a list of texts")
    several = list(documents) if isinstance(documents, Iterable) else documents
    if isinstance(query, str) or not several or not isinstance(several[0], list | tuple):
        shared = check_texts(documents if documents is several else several, "document")
        return [shared] * count
    if len(several) != count:
        raise InputError(
            f"there are {count:,} queries, but {len(several):,} lists of documents",
            fix="pass one list for each query, or one list of texts for all",
        )
    return [check_texts(some, "document") for some in several]


def _check_options(method: str, label: str | None, pooling: str | None) -> None:
    unused = {"pairs": ("pooling", pooling), "embeddings": ("label", label)}[method]
    if unused[1] is not None:
        raise ConfigError(
            f"{unused[0]} is {unused[1]}, but it has no effect when documents are ranked by "
            f"{method}",
            fix=f"leave out {unused[0]}",
        )


def _rank(
    documents: Sequence[str], scores: Sequence[float], top: int | None
) -> tuple[RankedDocument, ...]:
    order = sorted(range(len(documents)), key=lambda n: -scores[n])  # stable: ties stay in order
    return tuple(
        RankedDocument(index=n, text=documents[n], score=scores[n]) for n in order[: top or None]
    )


def _score_pairs(
    model: Model,
    queries: Sequence[str],
    groups: Sequence[Sequence[str]],
    *,
    label: str | None,
    truncation: str | None,
    overlap: int | None,
    progress: ProgressCallback | None,
) -> _Scored:
    task: Task = override_truncation(resolve_task("classify", model), truncation, overlap)
    is_number = model.problem_type == "regression"
    wanted = None if is_number else _find_label(model, label)
    pairs = [(one, other) for one, some in zip(queries, groups, strict=True) for other in some]
    examples = [
        TextExample(text=one, pair=other, origin=Origin(line=number))
        for number, (one, other) in enumerate(pairs, 1)
    ]
    found = iter(predict(model, examples, task=task, progress=progress))

    def score(one: Classification) -> float:
        return one.score if wanted is None else one.scores[wanted]

    scores: list[list[float]] = []
    lost: list[int] = []
    for some in groups:
        results = [next(found) for _ in some]
        scores.append([score(one) for one in results])
        lost.append(sum(one.truncated_chars for one in results))
    return "number" if is_number else "probability", scores, lost


def _find_label(model: Model, label: str | None) -> str:
    """The label of a pair that fits."""
    labels = model.labels
    if label is not None:
        return one_of("label", label, labels)
    if not labels:
        raise unsupported_function_error(model, "rerank", "it has no labels")
    positive = [one for one in labels if one.lower() in _POSITIVE]
    if len(labels) == 1 or len(positive) == 1:
        return (positive or labels)[0]
    raise InputError(
        f"the labels of this model are {', '.join(labels)}, and none of them clearly means that a "
        "document fits",
        fix="name the label: label=… (command line: --label)",
    )


def _compare_embeddings(
    model: Model,
    queries: Sequence[str],
    groups: Sequence[Sequence[str]],
    *,
    pooling: str | None,
    truncation: str | None,
    overlap: int | None,
    progress: ProgressCallback | None,
) -> _Scored:
    texts = dict.fromkeys([*queries, *(text for some in groups for text in some)])
    numbers = {text: number for number, text in enumerate(texts)}
    truncated: dict[int, int] = {}
    vectors = normalize_rows(
        embed(
            model,
            list(numbers),
            pooling=pooling,
            truncation=truncation,
            overlap=overlap,
            progress=progress,
            on_truncated=truncated.__setitem__,
        )
    )
    scores, lost = [], []
    for one, some in zip(queries, groups, strict=True):
        cosines = vectors[[numbers[text] for text in some]] @ vectors[numbers[one]]
        scores.append(cosines.clip(-1, 1).tolist())
        lost.append(sum(truncated.get(numbers[text], 0) for text in (one, *some)))
    return "cosine", scores, lost
