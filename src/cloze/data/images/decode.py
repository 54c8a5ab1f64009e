"""Decoding of image files into arrays of pixels (extra `images`).

Files are not trusted: the size is checked before pixels are decoded, formats are limited, and every
failure of the decoder is an error that names the file.
"""

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError, MissingExtraError

MAX_BYTES = 2**26  # of an image file
MAX_PIXELS = 2**26  # 8,192 × 8,192
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_RESIZE_GAP = 3.0  # reduce by whole factors first, as far as the result stays this much larger
_16_BIT = 257  # 65,535 / 255


def decode_image(
    content: bytes, name: str, *, size: int | None = None, max_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """The pixels of an image: y x 3.

    Transparent pixels become white, 16 bits become 8, other color spaces RGB; of an animation the
    first frame is taken, and a photo is turned as its metadata say. With `size` the image is scaled
    to fit into a square of that many pixels and centered on white.

    Args:
        content: the bytes of the file.
        name: the name of the file in errors.
        size: width and height of the result (default: those of the image).
        max_pixels: an image with more pixels is an error.
    """
    pillow, operations = _import_pillow()
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{name}: the image file is larger than {MAX_BYTES >> 20} MiB", fix="make it smaller"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own warning of large images: they are refused
            image = pillow.open(io.BytesIO(content), formats=FORMATS)
            _check_pixels(image.size, name, max_pixels)
            if size is not None:
                image.draft("RGB", (2 * size, 2 * size))  # JPEG files are decoded smaller
            image.load()
            return convert_image(operations.exif_transpose(image), size=size)
    except InputError:
        raise
    except Exception as error:  # decoders raise many kinds: OSError, SyntaxError, ValueError …
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name}: not a readable image: {reason[:200]}",
            fix=f"leave it out, or convert it to PNG or JPEG (readable: {', '.join(FORMATS)})",
        ) from None


def convert_image(image: Any, *, size: int | None = None) -> NDArray[np.uint8]:  # noqa: ANN401
    """The pixels of a Pillow image or of an array (y x 3), as `decode_image` gives them."""
    pillow, _ = _import_pillow()
    if isinstance(image, np.ndarray | list):
        image = np.asarray(image, np.uint8)
        if image.shape == (size, size, 3):
            return image
        image = pillow.fromarray(image)
    image = _convert(image, pillow)
    if size is not None and image.size != (size, size):
        image = _fit(image, size, pillow)
    return np.array(image, np.uint8)


def _check_pixels(size: tuple[int, int], name: str, limit: int) -> None:
    width, height = size
    if width * height > limit:
        raise InputError(
            f"{name}: the image has {width:,} × {height:,} pixels, but the limit is "
            f"{limit:,} in all",
            fix="make it smaller",
        )


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


def _fit(image: Any, size: int, pillow: Any) -> Any:  # noqa: ANN401
    """The whole image, centered in a white square."""
    width, height = image.size
    factor = size / max(width, height)
    scaled = (max(1, round(width * factor)), max(1, round(height * factor)))
    small = image.resize(scaled, pillow.Resampling.LANCZOS, reducing_gap=_RESIZE_GAP)
    square = pillow.new("RGB", (size, size), (255, 255, 255))
    square.paste(small, ((size - scaled[0]) // 2, (size - scaled[1]) // 2))
    return square


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of pixels (y x 3)."""
    pillow, _ = _import_pillow()
    stream = io.BytesIO()
    pillow.fromarray(pixels).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _import_pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MissingExtraError("reading and writing images", extra="images") from error
    return Image, ImageOps
