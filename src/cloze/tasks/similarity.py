"""`similarity`: the cosine of the embeddings of texts.  b texts, c other texts, d size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result
from cloze.tasks.embed import embed
from cloze.tasks.embed_images import check_unsupported, embed_captions, embed_images
from cloze.tasks.features import LayerChoice
from cloze.tasks.image_inputs import ImageInputs, open_image_model, open_images, raise_errors
from cloze.tasks.inputs import Texts, check_texts, open_model, warn_truncated

Floats = NDArray[np.float64]
_SMALLEST = 1e-12  # length of a vector; a text without known words has 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Similarity(Result):
    """Two texts and the cosine of their embeddings."""

    text: str
    pair: str
    score: float  # from −1 to 1
    truncated_chars: int = 0  # characters of both that were left out by truncation

    record_columns = ("text", "pair", "score")

    def to_records(self) -> list[dict[str, Any]]:
        """One row."""
        return [{name: getattr(self, name) for name in self.record_columns}]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SimilarityMatrix(Result):
    """Texts, other texts, and the cosine of each with each."""

    texts: tuple[str, ...]
    pairs: tuple[str, ...]
    scores: Floats  # b c
    truncated_chars: int = 0

    record_columns = ("text", "pair", "score")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: a list of scores for each text."""
        return {
            "texts": list(self.texts),
            "pairs": list(self.pairs),
            "scores": self.scores.tolist(),
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each pair."""
        return [
            {"text": text, "pair": pair, "score": float(self.scores[row, column])}
            for row, text in enumerate(self.texts)
            for column, pair in enumerate(self.pairs)
        ]


class SimilarityOptions(TypedDict, total=False):
    """The options of `similarity`."""

    pooling: str | None
    layers: LayerChoice
    truncation: str | None
    overlap: int | None
    progress: ProgressOption


@overload
def similarity(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, text: str, pair: str, **options: Unpack[SimilarityOptions]
) -> Similarity: ...
@overload
def similarity(
    model: Model | PathLike,
    text: str | Texts,
    pair: str | Texts | None = None,
    **options: Unpack[SimilarityOptions],
) -> SimilarityMatrix: ...
@overload
def similarity(
    model: Model | PathLike,
    text: str | Texts,
    *,
    images: ImageInputs,
    **options: Unpack[SimilarityOptions],
) -> Similarity | SimilarityMatrix: ...
@with_progress
def similarity(
    model: Model | PathLike,
    text: str | Texts,
    pair: str | Texts | None = None,
    *,
    images: ImageInputs | None = None,
    pooling: str | None = None,
    layers: LayerChoice = "last",
    truncation: str | None = None,
    overlap: int | None = None,
    progress: ProgressCallback | None = None,
) -> Similarity | SimilarityMatrix:
    """Compute the cosine of the embeddings of two texts, or of each of several with each other.

    Args:
        model: a model with embeddings, or its folder.
        text: a text, or several.
        pair: the text, or the texts, to compare with. Default: the texts are compared with each
            other. If any of the two is a list, the result is a matrix.
        images: in place of `pair`, an image or several to compare with, as in `embed`.
        pooling: how a text becomes a vector, as in `embed`.
        layers: the layers of the vectors, as in `embed`.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            head; then a warning says how much was not read.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    if images is not None:
        if pair is not None:
            raise InputError("there are texts and images to compare with", fix="give one of them")
        check_unsupported({"pooling": pooling, "layers": layers != "last", "overlap": overlap})
        return _compare_images(model, text, images, truncation, progress)
    model = open_model(model, "similarity")
    texts = check_texts(text)
    pairs = texts if pair is None else check_texts(pair, "pair")
    numbers = {one: number for number, one in enumerate(dict.fromkeys([*texts, *pairs]))}
    truncated: dict[int, int] = {}
    vectors = normalize_rows(
        embed(
            model,
            list(numbers),
            pooling=pooling,
            layers=layers,
            truncation=truncation,
            overlap=overlap,
            progress=progress,
            on_truncated=truncated.__setitem__,
        )
    )
    if truncation is None:
        warn_truncated([truncated.get(n, 0) for n in range(len(numbers))], model.max_length)
    rows, columns = ([numbers[one] for one in some] for some in (texts, pairs))
    scores = (vectors[rows] @ vectors[columns].T).clip(-1, 1)  # b c
    lost = sum(truncated.values())
    if isinstance(text, str) and isinstance(pair, str):
        return Similarity(text=text, pair=pair, score=float(scores[0, 0]), truncated_chars=lost)
    return SimilarityMatrix(
        texts=tuple(texts), pairs=tuple(pairs), scores=scores, truncated_chars=lost
    )


def _compare_images(
    model: Model | PathLike,
    text: str | Texts,
    images: ImageInputs,
    truncation: str | None,
    progress: ProgressCallback | None,
) -> Similarity | SimilarityMatrix:
    """The cosines of texts and images."""
    opened = open_image_model(model, "similarity")
    found, is_single = open_images(images)
    examples, texts = raise_errors(found), check_texts(text)
    truncated: dict[int, int] = {}
    rows = embed_captions(opened, texts, truncation=truncation, on_truncated=truncated.__setitem__)
    if truncation is None:
        warn_truncated([truncated.get(n, 0) for n in range(len(texts))], opened.max_length)
    columns = embed_images(opened, examples, progress=progress)
    scores = (normalize_rows(rows) @ normalize_rows(columns).T).clip(-1, 1)  # b c
    names, lost = tuple(one.name for one in examples), sum(truncated.values())
    if isinstance(text, str) and is_single:
        return Similarity(text=text, pair=names[0], score=float(scores[0, 0]), truncated_chars=lost)
    return SimilarityMatrix(texts=tuple(texts), pairs=names, scores=scores, truncated_chars=lost)


def normalize_rows(vectors: NDArray[np.float32] | Sequence[Any]) -> Floats:
    """Vectors of length 1 in float64 (b d); a zero vector stays zero."""
    wide = np.asarray(vectors, dtype=np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), _SMALLEST)
