"""Decoding of image files into arrays of pixels (extra `images`).

Files are not trusted: the size is checked before pixels are decoded, formats are limited, and every
failure of the decoder is an error that names the file.
"""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.errors import ClozeError, InputError, MissingExtraError

MAX_BYTES = 2**26  # of an image file
MAX_PIXELS = 2**26  # 8,192 × 8,192
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
ResizeMode = Literal["pad", "crop", "squash"]
"""How an image becomes a square: the whole image on white, its center, or distorted."""
_RESIZE_GAP = 3.0  # reduce by whole factors first, as far as the result stays this much larger
_16_BIT = 257  # 65,535 / 255


class Resizing(NamedTuple):
    """How an image becomes a square, and Pillow's filter; images that are padded have their own."""

    mode: ResizeMode = "pad"
    resampling: str = "bicubic"


Resize: TypeAlias = ResizeMode | Resizing


def decode_image(
    content: bytes,
    name: str,
    *,
    size: int | None = None,
    resize: Resize = "pad",
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """The pixels of an image: y x 3.

    Transparent pixels become white, 16 bits become 8, other color spaces RGB; of an animation the
    first frame is taken, and a photo is turned as its metadata say. With `size` the image becomes a
    square of that many pixels.

    Args:
        content: the bytes of the file.
        name: the name of the file in errors.
        size: width and height of the result (default: those of the image).
        resize: pad scales the whole image (Lanczos) and centers it on white. crop scales the
            shorter side and keeps the center, as `CLIPImageProcessor` of transformers; squash
            scales both sides, as its `ViTImageProcessor`. The filter is bicubic, or that of a
            `Resizing`.
        max_pixels: an image with more pixels is an error.
    """
    _, operations = _import_pillow()
    resizing = _make_resizing(resize)
    with _translate_errors(name):
        image = _open(content, name, max_pixels)
        if size is not None and resizing.mode == "pad":
            image.draft("RGB", (2 * size, 2 * size))  # JPEG files are decoded smaller
        image.load()
        return convert_image(operations.exif_transpose(image), size=size, resize=resizing)


def check_image_size(content: bytes, name: str, max_pixels: int) -> None:
    """Raise unless this is an image with at most so many pixels; none of them is decoded."""
    with _translate_errors(name):
        _open(content, name, max_pixels)


def _open(content: bytes, name: str, max_pixels: int) -> Any:  # noqa: ANN401
    """A Pillow image that is not decoded yet."""
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{name}: the image file is larger than {MAX_BYTES >> 20} MiB", fix="make it smaller"
        )
    image = _import_pillow()[0].open(io.BytesIO(content), formats=FORMATS)
    width, height = image.size
    if width * height > max_pixels:
        raise InputError(
            f"{name}: the image has {width:,} × {height:,} pixels, but the limit is "
            f"{max_pixels:,} in all",
            fix="make it smaller",
        )
    return image


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own warning of large images: they are refused
            yield
    except ClozeError:
        raise
    except Exception as error:  # decoders raise many kinds: OSError, SyntaxError, ValueError …
        reason = re.sub(r" <_io.*?>", "", str(error)) or type(error).__name__
        raise InputError(
            f"{name}: not a readable image: {reason[:200]}",
            fix=f"leave it out, or convert it to PNG or JPEG (readable: {', '.join(FORMATS)})",
        ) from None


def convert_image(
    image: Any,  # noqa: ANN401
    *,
    size: int | None = None,
    resize: Resize = "pad",
) -> NDArray[np.uint8]:
    """The pixels of a Pillow image or of an array (y x 3), as `decode_image` gives them."""
    pillow, _ = _import_pillow()
    if isinstance(image, np.ndarray | list):
        image = np.asarray(image, np.uint8)
        if image.shape == (size, size, 3):
            return image
        image = pillow.fromarray(image)
    image = _convert(image, pillow)
    if size is not None and image.size != (size, size):
        image = _resize(image, size, _make_resizing(resize), pillow)
    return np.array(image, np.uint8)


def _resize(image: Any, size: int, resizing: Resizing, pillow: Any) -> Any:  # noqa: ANN401
    resampling = pillow.Resampling[resizing.resampling.upper()]
    if resizing.mode == "pad":
        return _pad(image, size, pillow)
    if resizing.mode == "squash":
        return image.resize((size, size), resampling)
    return _crop(image, size, resampling)


def _make_resizing(resize: Resize) -> Resizing:
    return resize if isinstance(resize, Resizing) else Resizing(resize)


def _convert(image: Any, pillow: Any) -> Any:  # noqa: ANN401 (a Pillow image, its module)
    """The image in RGB, on white."""
    if image.mode.startswith("I") or image.mode == "F":  # 16 or 32 bits, one channel
        values = np.asarray(image, np.float64)
        scale = _16_BIT if values.max(initial=0) > 255 else 1  # noqa: PLR2004
        return pillow.fromarray(np.clip(values / scale, 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = pillow.new("RGBA", rgba.size, (255, 255, 255, 255))
        return pillow.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _pad(image: Any, size: int, pillow: Any) -> Any:  # noqa: ANN401
    """The whole image, centered in a white square."""
    width, height = image.size
    factor = size / max(width, height)
    scaled = (max(1, round(width * factor)), max(1, round(height * factor)))
    small = image.resize(scaled, pillow.Resampling.LANCZOS, reducing_gap=_RESIZE_GAP)
    square = pillow.new("RGB", (size, size), (255, 255, 255))
    square.paste(small, ((size - scaled[0]) // 2, (size - scaled[1]) // 2))
    return square


def _crop(image: Any, size: int, resampling: Any) -> Any:  # noqa: ANN401
    """The center of the image; the shorter side is scaled to `size`."""
    width, height = image.size
    short = min(width, height)
    scaled = (int(size * width / short), int(size * height / short))
    if scaled[0] * scaled[1] > MAX_PIXELS:
        raise InputError(
            f"the image has {width:,} × {height:,} pixels, one side many times the other",
            fix="cut it into parts",
        )
    left, top = (scaled[0] - size) // 2, (scaled[1] - size) // 2
    larger = image.resize(scaled, resampling)
    return larger.crop((left, top, left + size, top + size))


def encode_png(pixels: NDArray[np.uint8], *, optimize: bool = True) -> bytes:
    """A PNG file of pixels (y x 3); without `optimize` it is written faster and a little larger.

    Without Pillow it is a little larger, too.
    """
    try:
        pillow, _ = _import_pillow()
    except MissingExtraError:
        return _encode_plain_png(pixels)
    stream = io.BytesIO()
    pillow.fromarray(pixels).save(stream, "PNG", optimize=optimize)
    return stream.getvalue()


def _encode_plain_png(pixels: NDArray[np.uint8]) -> bytes:
    """Each byte as the difference from the pixel on its left (filter 1 of the PNG standard)."""
    height, width = pixels.shape[:2]
    differences = np.diff(pixels, axis=1, prepend=np.zeros((height, 1, 3), np.uint8))
    rows = np.insert(differences.reshape(height, 3 * width), 0, 1, axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _import_pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MissingExtraError("reading and writing images", extra="images") from error
    return Image, ImageOps
