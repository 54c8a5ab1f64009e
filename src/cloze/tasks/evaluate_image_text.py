"""`evaluate` for CLIP: how often images and captions find each other."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.images.read import CaptionColumns, read_images
from cloze.data.sources import as_list
from cloze.errors import InputError
from cloze.metrics.image_text import compute_chance_recalls, compute_recalls
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation
from cloze.tasks.image_inputs import get_resizing
from cloze.tasks.image_text import compute_image_vectors, compute_text_vectors

_MIN_CAPTIONS = 2  # different ones, to find one among them


def evaluate_image_text(
    model: Model,
    data: Any,  # noqa: ANN401 (whatever `read_images` reads)
    *,
    text_column: str | int | None = None,
    skip_bad: bool = False,
    progress: ProgressCallback | None = None,
) -> CorpusEvaluation:
    """Compute the recall of captions for images, and of images for captions.

    A caption of several images has found one of them if any of them is among the first.
    """
    since = time.perf_counter()
    skipped: list[InputError] = []
    columns = CaptionColumns(caption=None if text_column is None else str(text_column))
    on_error: Any = skipped.append if skip_bad else "raise"
    pixels, captions = [], []
    config = model.config
    for example in read_images(as_list(data), columns=columns, on_error=on_error):
        try:
            pixels.append(example.load(config.image_size, resize=get_resizing(config)))
            captions.append(example.caption)
        except InputError as error:
            if not skip_bad:
                raise
            skipped.append(error)
        if progress:
            progress("images", len(captions), None)
    different = len(set(captions))
    if different < _MIN_CAPTIONS:
        raise InputError(
            f"the data have {different} different captions, and two are needed to compare",
            fix="give a folder of images with captions",
        )
    return CorpusEvaluation(
        kind="image_text",
        scores=compute_retrieval_scores(model, np.stack(pixels), captions),
        counts={"images": len(captions), "captions": different},
        notes={},
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )


def compute_retrieval_scores(
    model: Model, pixels: NDArray[np.uint8], captions: Sequence[str]
) -> dict[str, float]:
    """Recall@1 and @5 in both directions, beside recall@1 by chance."""
    different, numbers = np.unique(captions, return_inverse=True)
    images = compute_image_vectors(model, pixels)
    texts = compute_text_vectors(model, different.tolist())
    similarities = (images @ texts.T).float().cpu().numpy()
    chance = compute_chance_recalls(numbers)["recall_at_1"]
    return {**compute_recalls(similarities, numbers), "chance_recall_at_1": chance}
