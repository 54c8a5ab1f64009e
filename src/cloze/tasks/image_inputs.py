"""Images as inputs of functions: files, folders, archives, tables, bytes, Pillow images, arrays.

b images of a batch, y x positions.
"""

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.images.decode import Resize, Resizing, encode_png
from cloze.data.images.read import FORMATS, CaptionColumns, ImageExample, read_images
from cloze.data.input_files import split_endings
from cloze.data.objects import is_table
from cloze.errors import InputError
from cloze.files import PathLike, expand_user
from cloze.tasks.inputs import OnError, resolve_model

Pixels = NDArray[np.uint8]
ImageInput: TypeAlias = PathLike | bytes | NDArray[Any] | ImageExample | Any  # Any: of Pillow
ImageInputs: TypeAlias = ImageInput | Iterable[ImageInput]
ImageOrError: TypeAlias = ImageExample | InputError
_NEEDED = "a model of texts and images (`cloze pretrain --recipe clip` trains one)"
THUMBNAIL_SIZE = 96  # pixels
_GRAY_DIMENSIONS, _COLOR_DIMENSIONS, _SEVERAL_DIMENSIONS = 2, 3, 4
_CHANNELS = (1, 3, 4)
_MAX_AHEAD = 2  # batches that are decoded before they are needed


def reads_images(model: object) -> bool:
    """Whether a model has vectors of images, in the same space as those of texts."""
    return isinstance(model, Model) and model.family.kind == "dual_encoder"


def open_image_model(model: object, function: str) -> Model:
    """Load a model of texts and images; another one is an error."""
    found = resolve_model(model)
    if not reads_images(found):
        described = found.family.description if isinstance(found, Model) else type(found).__name__
        raise InputError(
            f"this model ({described}) cannot be used with `{function}` of images: it reads texts",
            fix=f"use {_NEEDED}",
        )
    assert isinstance(found, Model)
    return found


def open_images(
    images: ImageInputs, *, columns: CaptionColumns | None = None
) -> tuple[list[ImageOrError], bool]:
    """The images in order, and whether a single one is given; one that cannot be read is an error.

    A path is that of an image, a folder, a glob, a tar file or a table with a column of images.
    Pixels are decoded later (`load_batches`).
    """
    if _is_image(images):
        return [_make_example(images, 1)], True
    if isinstance(images, str | os.PathLike) or is_table(images):
        return list(_read_source(images, columns)), False
    if not isinstance(images, Iterable) or isinstance(images, Mapping):
        raise _not_an_image_error(images, "images")
    several = list(images)
    if several and isinstance(several[0], Mapping):
        return list(_read_source(several, columns)), False
    found: list[ImageOrError] = []
    for one in several:
        if isinstance(one, str | os.PathLike) and not _is_image(one):
            found += _read_source(one, columns)
        else:
            found.append(_make_example(one, len(found) + 1))
    return found, False


def raise_errors(images: Iterable[ImageOrError]) -> list[ImageExample]:
    """The images; the first error among them is raised."""
    found = []
    for one in images:
        if isinstance(one, InputError):
            raise one
        found.append(one)
    return found


def _is_image(given: object) -> bool:
    """Whether an object is one image, not several."""
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        path = expand_user(name)
        try:
            if path.exists():
                return not path.is_dir() and FORMATS.get(split_endings(name)[0]) not in (
                    "tar",
                    "table",
                )
        except OSError:  # a name that is too long: the error of the file says so
            return True
        return not glob.has_magic(name) and FORMATS.get(split_endings(name)[0]) != "tar"
    if isinstance(given, np.ndarray):
        return given.ndim < _SEVERAL_DIMENSIONS
    return isinstance(given, bytes | bytearray | ImageExample) or _is_pillow(given)


def _is_pillow(given: object) -> bool:
    return all(hasattr(given, name) for name in ("convert", "mode", "getbbox", "size"))


def _read_source(
    source: Any,  # noqa: ANN401
    columns: CaptionColumns | None,
) -> Iterator[ImageOrError]:
    """The images of a folder, an archive or a table, with the errors of others between them."""
    errors: list[InputError] = []
    chosen = columns or CaptionColumns(is_caption_needed=False)
    for example in read_images([source], columns=chosen, on_error=errors.append):
        yield from errors
        errors.clear()
        yield example
    yield from errors


def _make_example(given: ImageInput, number: int) -> ImageOrError:
    """An image with a name for errors and results."""
    if isinstance(given, ImageExample):
        return given
    name = f"image {number:,}"
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        return ImageExample(name, Path(expand_user(name)), Path(name).stem, name)
    try:
        if isinstance(given, bytes | bytearray):
            return ImageExample(name, bytes(given), "", name)
        if _is_pillow(given):
            return ImageExample(name, given, "", name)
        return ImageExample(name, _check_array(given, name), "", name)
    except InputError as error:
        return error


def _check_array(given: Any, name: str) -> Pixels:  # noqa: ANN401
    """Pixels from 0 to 255: y x 3; gray ones y x, or with transparency y x 4."""
    if not hasattr(given, "__array__"):
        raise _not_an_image_error(given, name)
    array = np.asarray(given)
    is_gray = array.ndim == _GRAY_DIMENSIONS
    has_channels = array.ndim == _COLOR_DIMENSIONS and array.shape[-1] in _CHANNELS
    if not (is_gray or has_channels) or 0 in array.shape:
        raise InputError(
            f"{name}: an array of shape {tuple(array.shape)} is not an image",
            fix="pass height × width × 3",
        )
    if array.dtype != np.uint8:
        raise InputError(
            f"{name}: the pixels have the dtype {array.dtype}",
            fix="pass numbers from 0 to 255 as uint8: (255 * x).round().astype('uint8') if they "
            "are from 0 to 1",
        )
    return array[..., 0] if has_channels and array.shape[-1] == 1 else array


def _not_an_image_error(given: object, name: str) -> InputError:
    return InputError(
        f"{name}: an object of type {type(given).__name__} is not an image",
        fix="pass a path, bytes, a Pillow image, an array, or a list of these",
    )


def get_resizing(config: Any) -> Resizing:  # noqa: ANN401 (of a CLIP or a diffusion model)
    """How a model's images become squares: as its configuration says, else padded."""
    found = Resizing()
    mode = getattr(config, "resize", found.mode)
    return Resizing(mode, getattr(config, "resampling", found.resampling))


def load_image(image: ImageInput, size: int, *, resize: Resize = "pad") -> Pixels:
    """The pixels of one image as a square, size size 3."""
    (example,) = raise_errors([_make_example(image, 1)])
    return example.load(size, resize=resize)


def make_thumbnail(image: ImageExample, size: int = THUMBNAIL_SIZE) -> bytes:
    """The image as a small PNG file."""
    return encode_png(image.load(size), optimize=False)


def load_batches(
    images: Sequence[ImageOrError],
    size: int,
    batch: int,
    *,
    resize: Resize = "pad",
    on_error: OnError | None = None,
) -> Iterator[tuple[list[int], Pixels]]:
    """Indices of images and their pixels (b y x 3), decoded by threads while others are computed.

    Args:
        images: what `open_images` gives.
        size: width and height.
        batch: maximum number of images of a batch.
        resize: how an image becomes a square; see `decode_image`.
        on_error: called with the index and the error of an image that fails. Default: it is raised.
    """
    load = partial(_load_square, size=size, resize=resize)
    starts = range(0, len(images), batch)
    with ThreadPoolExecutor() as pool:
        waiting: deque[list[Future[Pixels | InputError]]] = deque()
        for number, start in enumerate(starts):
            for ahead in starts[number + len(waiting) : number + _MAX_AHEAD]:
                some = images[ahead : ahead + batch]
                waiting.append([pool.submit(load, one) for one in some])
            found = dict(enumerate((one.result() for one in waiting.popleft()), start))
            try:
                kept = _report_errors(found, on_error)
            except InputError:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            if kept:
                yield list(kept), np.stack(list(kept.values()))


def _load_square(image: ImageOrError, size: int, resize: Resize) -> Pixels | InputError:
    if isinstance(image, InputError):
        return image
    try:
        return image.load(size, resize=resize)
    except InputError as error:
        return error


def _report_errors(
    found: Mapping[int, Pixels | InputError], on_error: OnError | None
) -> dict[int, Pixels]:
    """The images that were read, by index."""
    kept: dict[int, Pixels] = {}
    for number, one in found.items():
        if not isinstance(one, InputError):
            kept[number] = one
        elif on_error is None:
            raise one
        else:
            on_error(number, one)
    return kept
