"""What the card of a model of images says differently: examples, data, scores, limitations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.errors import FolderError
from cloze.files import read_json
from cloze.metrics.names import METRICS
from cloze.plot.format import format_number
from cloze.report.charts import read_number
from cloze.tasks.info import Info
from cloze.train.run_files import DATA_FACTS

_COUNTS = ("images", "training", "held_out")
_RECALLS = ("recall_at_1", "recall_at_5", "chance_recall_at_1")
_ERROR = "diffusion"


@dataclass(frozen=True)
class ImageExample:
    """How a model of images is used."""

    pipeline_tag: str  # of the hub
    calls: tuple[str, ...]  # methods of the model
    command: str  # with a place for the name of the model


_DRAW = ImageExample(
    "text-to-image",
    ('draw("a red heart", seed=1).save("heart.png")',),
    'cloze draw {} "a red heart" --seed 1 --out heart.png',
)
_CLIP = ImageExample(
    "zero-shot-image-classification",
    (
        'embed(["a red heart"])',
        'embed(images=["heart.png"])  # in the same space',
        'classify(images=["heart.png"], labels=["a red heart", "a blue circle"])',
    ),
    'cloze classify {} --images heart.png --labels "a red heart,a blue circle"',
)


def find_image_example(found: Info) -> ImageExample | None:
    """The example of a model of images; None for models of texts."""
    if "image_size" not in found.config:
        return None
    return _DRAW if "draw" in found.capabilities else _CLIP


def describe_image_model(found: Info) -> Iterator[str]:
    """Size of the images, parameters and vocabulary."""
    size = found.config["image_size"]
    yield (
        f"{found.architecture}: images of {size} × {size} pixels; "
        f"{format_number(found.total_parameters)} parameters"
    )
    vocabulary = found.vocabulary
    if vocabulary.size > 1:  # else it has no text encoder
        case = "uncased" if vocabulary.lowercase else "cased"
        yield f"texts: {vocabulary.size:,} tokens ({vocabulary.kind}, {case})"


def count_images(run: Path) -> str:
    """The numbers of images of a run."""
    path = run / DATA_FACTS
    if not path.is_file():
        raise FolderError(
            f"{run} has no {DATA_FACTS}", fix="pass the folder of a finished pre-training run"
        )
    found = read_json(path)
    if not isinstance(found, dict) or any(read_number(found, name) is None for name in _COUNTS):
        raise FolderError(f"{path} lacks one of {', '.join(_COUNTS)}", fix="train again")
    return (
        f"{found['images']:,} images; {found['training']:,} of them were trained on, and "
        f"{found['held_out']:,} were held out for evaluation."
    )


def read_image_scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | str]:
    """The scores of the last evaluation of a run on held-out images."""
    nothing: Mapping[str, Any] = {}
    last = next((row for row in reversed(rows) if row.get("kind") == "eval"), nothing)
    found: dict[str, float | str] = {}
    for name in _RECALLS:
        value = read_number(last, name)
        if value is not None:
            found[f"{METRICS[name].label}, held-out images and captions"] = value
    error = read_number(last, _ERROR)
    if error is not None:
        found["mean squared error of the prediction, held-out images"] = format_number(error)
    return found


def list_image_limitations(found: Info) -> Iterator[str]:
    """What every model of images of this kind has in common."""
    size = found.config["image_size"]
    if "draw" in found.capabilities:
        yield f"Images have {size} × {size} pixels; it may copy images that it was trained on."
    else:
        yield f"Images are scaled to {size} × {size} pixels; smaller details are lost."
    yield "The model has the biases of its training images and of their captions."
