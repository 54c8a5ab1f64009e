"""Zero-shot classification of images: the label whose text is most similar.  b images, c labels.

Radford et al. 2021, §3.1: each label is written as a text ("a picture of a red heart"), and the
probabilities are softmax(e^s · cos(image, text)), where s is the learned scale of the model. With
several templates, the vectors of a label's texts are averaged (§3.1.4).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.data.images.read import ImageExample
from cloze.errors import InputError
from cloze.progress import ProgressCallback
from cloze.results import Result, Results
from cloze.tasks.embed_images import embed_captions, embed_images, name_image
from cloze.tasks.image_inputs import (
    ImageInputs,
    ImageOrError,
    make_thumbnail,
    open_image_model,
    open_images,
)
from cloze.tasks.inputs import Failure, OnError, warn_truncated

TEMPLATE = "a picture of {}"
_MAX_LABELS = 100_000
_SMALLEST = 1e-12  # length of a vector


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageClassification(Result):
    """The label of an image among those that were asked for."""

    image: str  # its name: the path, or its number
    label: str  # the most probable one
    score: float  # its probability
    scores: Mapping[str, float]  # of every label, best first
    truncated_chars: int = 0  # characters of the labels' texts that were left out
    source: ImageExample | None = field(default=None, repr=False, compare=False)

    record_columns = ("image", "label", "score")

    def keep_top(self, count: int) -> "ImageClassification":
        """A copy with the scores of the best `count` labels only."""
        return replace(self, scores=dict(islice(self.scores.items(), count)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the image."""
        return {
            "image": self.image,
            "labels": [{"label": label, "score": score} for label, score in self.scores.items()],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """One row, with the probability of every label in a column of its own."""
        row: dict[str, Any] = {name: getattr(self, name) for name in self.record_columns}
        for label in sorted(self.scores):
            row[f"score: {label}" if label in row else label] = self.scores[label]
        return [row]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_bars, render_heading, render_image, render_result

        bars = render_bars(self.scores.items(), bold={self.label})
        shown = [] if self.source is None else [render_image(make_thumbnail(self.source))]
        return render_result(
            render_heading(self.image), *shown, bars, truncated_chars=self.truncated_chars
        )


def classify_given_images(
    model: object,
    images: ImageInputs,
    labels: Sequence[str] | None,
    *,
    template: str | Sequence[str] = TEMPLATE,
    truncation: str | None = None,
    on_error: OnError | None = None,
    progress: ProgressCallback | None = None,
) -> ImageClassification | Results[Any]:
    """`classify` of an image, or of several; see there."""
    names, templates = check_labels(labels), check_templates(template)
    opened = open_image_model(model, "classify")
    examples, is_single = open_images(images)
    found = classify_images(
        opened, examples, names, template=templates, truncation=truncation, progress=progress
    )
    for number, one in enumerate(found):
        if isinstance(one, Failure):
            if on_error is None or is_single:
                raise one.error
            on_error(number, one.error)
    return found[0] if is_single and isinstance(found[0], ImageClassification) else Results(found)


def classify_images(
    model: Model,
    images: Sequence[ImageOrError],
    labels: Sequence[str],
    *,
    template: str | Sequence[str] = TEMPLATE,
    truncation: str | None = None,
    progress: ProgressCallback | None = None,
) -> list[ImageClassification | Failure]:
    """The probability of each label for each image, or the error of one that fails.

    Args:
        model: a model of texts and images.
        images: what `cloze.tasks.image_inputs.open_images` gives.
        labels: the labels to choose from.
        template: the text of a label, with {} in place of it; several are averaged.
        truncation: for texts of labels that are too long; see `embed`.
        progress: called with stage, done and total.
    """
    names = check_labels(labels)
    texts, unread = _embed_labels(model, names, check_templates(template), truncation)
    errors: dict[int, InputError] = {}
    vectors = embed_images(
        model, images, normalize=True, on_error=errors.__setitem__, progress=progress
    )
    scale = float(model.module.logit_scale.detach().double().exp())
    logits = scale * vectors.astype(np.float64) @ texts.T  # b c
    return [
        Failure(inputs={"image": name_image(one, n)}, error=errors[n])
        if n in errors
        else _make_result(one, names, row, unread)
        for n, (one, row) in enumerate(zip(images, logits, strict=True))
    ]


def _make_result(
    image: ImageOrError,
    labels: Sequence[str],
    logits: NDArray[np.float64],
    unread: int,
) -> ImageClassification:
    assert isinstance(image, ImageExample)
    weights = np.exp(logits - logits.max())
    values = (weights / weights.sum()).tolist()
    order = sorted(range(len(labels)), key=lambda n: -values[n])  # stable: ties stay in order
    scores = {labels[n]: values[n] for n in order}
    best = labels[order[0]]
    return ImageClassification(
        image=image.name,
        label=best,
        score=scores[best],
        scores=scores,
        truncated_chars=unread,
        source=image,
    )


def check_labels(labels: object) -> list[str]:
    """Several different labels."""
    if labels is None or isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InputError(
            "the labels are missing" if labels is None else "labels is not a list",
            fix='give the labels to choose from: labels=["a cat", "a dog"] '
            '(command line: --labels "a cat,a dog")',
        )
    if not all(isinstance(one, str) and one.strip() for one in labels):
        raise InputError("a label is empty, or no text", fix="give each label a text")
    repeated, count = Counter(labels).most_common(1)[0] if labels else ("", 0)
    if count > 1:
        raise InputError(f"the label {repeated!r} is there {count} times", fix="name it once")
    in_range("number of labels", len(labels), 1, _MAX_LABELS)
    return list(labels)


def check_templates(template: str | Sequence[str]) -> list[str]:
    """One or several texts with {} in place of a label."""
    found: list[Any] = [template] if isinstance(template, str) else list(template)
    for one in found:
        if not isinstance(one, str) or one.count("{}") != 1:
            raise InputError(
                f"the template {one!r} has no {{}}, or several, in place of the label",
                fix=f"write it as in {TEMPLATE!r}",
            )
    if not found:
        raise InputError("there is no template", fix=f"use one such as {TEMPLATE!r}")
    return found


def _embed_labels(
    model: Model, labels: Sequence[str], templates: Sequence[str], truncation: str | None
) -> tuple[NDArray[np.float64], int]:
    """A vector of length 1 for each label (c d), and the characters that were left out."""
    texts = [one.replace("{}", label) for label in labels for one in templates]
    truncated: dict[int, int] = {}
    vectors = embed_captions(
        model, texts, normalize=True, truncation=truncation, on_truncated=truncated.__setitem__
    )
    if truncation is None:
        warn_truncated([truncated.get(n, 0) for n in range(len(texts))], model.max_length)
    means = vectors.astype(np.float64).reshape(len(labels), len(templates), -1).mean(1)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _SMALLEST)
    return means, sum(truncated.values())
