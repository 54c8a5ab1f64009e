"""Vectors of images, and of texts in the same space, by a model of both (CLIP).

b images or texts of a batch, s tokens, d size of a vector.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.data.embedding_records import EmbeddingRecord
from cloze.errors import InputError
from cloze.nn.utils import HostCopy
from cloze.progress import ProgressCallback, ProgressOption, open_progress
from cloze.tasks.image_inputs import (
    ImageInputs,
    ImageOrError,
    get_resizing,
    load_batches,
    open_image_model,
    open_images,
)
from cloze.tasks.image_text import compute_image_vectors, compute_sequence_vectors
from cloze.tasks.inputs import OnError, Texts, check_texts, warn_truncated
from cloze.tasks.text_encoding import OnTruncated, encode_texts

Vectors = NDArray[np.float32]
_BATCH, _GPU_BATCH = 32, 256  # images or texts at a time
_TRUNCATIONS = ("head", "tail", "head+tail", "error")
STREAM_CHUNK = 4096  # images of a stream that are embedded together


def _choose_batch(model: Model) -> int:
    return _BATCH if model.device.type == "cpu" else _GPU_BATCH


def embed_in_shared_space(
    model: object,
    texts: str | Texts | None,
    images: ImageInputs | None,
    *,
    unsupported: Mapping[str, object],
    normalize: bool = False,
    truncation: str | None = None,
    text_column: str | int | None = None,
    on_error: OnError | None = None,
    on_truncated: OnTruncated | None = None,
    progress: ProgressCallback | None = None,
) -> Vectors:
    """`embed` of texts or images by a model of both; `unsupported` are options that it lacks."""
    if (texts is None) == (images is None):
        raise InputError(
            "there are texts and images" if images is not None else "there are no inputs",
            fix="give either texts or images",
        )
    check_unsupported(unsupported)
    opened = open_image_model(model, "embed")
    if images is not None:
        found, is_single = open_images(images)
        vectors = embed_images(
            opened,
            found,
            normalize=normalize,
            on_error=None if is_single else on_error,
            progress=progress,
        )
        return vectors[0] if is_single else vectors
    is_single = isinstance(texts, str)
    vectors = embed_captions(
        opened,
        check_texts(texts, text_column=text_column),
        normalize=normalize,
        truncation=truncation,
        on_error=None if is_single else on_error,
        on_truncated=on_truncated,
        progress=progress,
    )
    return vectors[0] if is_single else vectors


def check_unsupported(options: Mapping[str, object]) -> None:
    """Raise if an option is set that a model of texts and images does not have."""
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise InputError(
            f"{given} is given, but a model of texts and images has one vector for each input",
            fix=f"leave out {given}",
        )


@torch.inference_mode()
def embed_images(
    model: Model,
    images: Sequence[ImageOrError],
    *,
    normalize: bool = False,
    on_error: OnError | None = None,
    progress: ProgressCallback | None = None,
) -> Vectors:
    """The vectors of images (b d), in order; that of one that fails is NaN.

    Args:
        model: a model of texts and images.
        images: what `cloze.tasks.image_inputs.open_images` gives.
        normalize: whether the vectors get length 1.
        on_error: called with the index and the error of an image that fails. Default: it is raised.
        progress: called with stage, done and total.
    """
    batches = load_batches(
        images,
        model.config.image_size,
        _choose_batch(model),
        resize=get_resizing(model.config),
        on_error=on_error,
    )

    def compute() -> Iterator[tuple[list[int], Tensor]]:
        done = 0
        for numbers, pixels in batches:
            yield numbers, compute_image_vectors(model, pixels, normalize=normalize)
            done += len(numbers)
            if progress:
                progress("images", done, len(images))

    return _collect(model, compute(), len(images))


@torch.inference_mode()
def embed_captions(
    model: Model,
    texts: Sequence[str],
    *,
    normalize: bool = False,
    truncation: str | None = None,
    on_error: OnError | None = None,
    on_truncated: OnTruncated | None = None,
    progress: ProgressCallback | None = None,
) -> Vectors:
    """The vectors of texts (b d) in the space of images; the arguments are those of `embed`."""
    if truncation is not None and truncation not in _TRUNCATIONS:
        raise InputError(
            f"a model of texts and images reads a text as a whole, not with {truncation!r}",
            fix=f"use {', '.join(_TRUNCATIONS)}",
        )
    encoded = encode_texts(model, texts, truncation=truncation, on_error=on_error)
    order = sorted(encoded, key=lambda n: len(encoded[n].sequences[0]))
    size = _choose_batch(model)

    def compute() -> Iterator[tuple[list[int], Tensor]]:
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            sequences = [encoded[n].sequences[0] for n in numbers]
            yield numbers, compute_sequence_vectors(model, sequences, normalize=normalize)
            if progress:
                progress("texts", start + len(numbers), len(texts))

    found = _collect(model, compute(), len(texts))
    unread = {n: one.truncated_chars for n, one in encoded.items() if one.truncated_chars}
    for number, chars in unread.items():
        if on_truncated is not None:
            on_truncated(number, chars)
    if on_truncated is None and truncation is None:
        warn_truncated([unread.get(n, 0) for n in range(len(texts))], model.max_length)
    return found


def _collect(model: Model, parts: Iterable[tuple[list[int], Tensor]], count: int) -> Vectors:
    """Vectors in order (count d); a row without one is NaN."""
    found = torch.full((count, model.config.projection_size), torch.nan)
    for numbers, vectors in parts:
        found[numbers] = HostCopy(vectors).wait()
    return found.numpy()


def stream_images(
    model: Model,
    images: Sequence[ImageOrError],
    *,
    normalize: bool = False,
    chunk: int = STREAM_CHUNK,
    progress: ProgressOption = None,
) -> Iterator[list[EmbeddingRecord]]:
    """Embed images chunk by chunk; yields records in order, with errors in place of vectors."""
    with open_progress(progress) as show:
        for start in range(0, len(images), chunk):
            some, errors = images[start : start + chunk], dict[int, InputError]()

            def report(stage: str, done: int, _: int | None, start: int = start) -> None:
                if show:
                    show(stage, start + done, len(images))

            vectors = embed_images(
                model, some, normalize=normalize, on_error=errors.__setitem__, progress=report
            )
            yield [
                EmbeddingRecord(
                    text=None,
                    image=name_image(one, start + n),
                    vectors=None if n in errors else vectors[n],
                    error=errors.get(n),
                )
                for n, one in enumerate(some)
            ]


def name_image(image: ImageOrError, index: int) -> str:
    """The name of an image in results; one that could not be read has its number, from 1."""
    return f"image {index + 1:,}" if isinstance(image, InputError) else image.name
