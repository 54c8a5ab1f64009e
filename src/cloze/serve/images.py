"""Images in requests: base64 in JSON, never a path; sizes are checked before pixels are decoded."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cloze.data.images.decode import check_image_size
from cloze.data.images.read import ImageExample
from cloze.errors import InputError

MAX_IMAGES = 64  # of a request
MAX_IMAGE_BYTES = 4 << 20
MAX_IMAGE_PIXELS = 1 << 24  # 4,096 × 4,096
IMAGE_TOKENS = 256  # what an image costs, about the patches of a vision transformer
_PREFIX, _MAX_PREFIX = "data:image/", 64
Base64Image = Annotated[
    str, Field(min_length=1, max_length=MAX_IMAGE_BYTES * 4 // 3 + 4 + _MAX_PREFIX)
]
"""An image file (PNG, JPEG, WebP …) in base64."""
Images = Annotated[list[Base64Image], Field(min_length=1, max_length=MAX_IMAGES)]
Image = Base64Image | Images
IMAGE_HELP = (
    "In place of {}: an image file (PNG, JPEG, WEBP, GIF, BMP, TIFF or PPM) in base64, with or "
    f"without a prefix such as data:image/png;base64, or a list of up to {MAX_IMAGES}. An image "
    f"may have {MAX_IMAGE_PIXELS:,} pixels."
)
"""The description of a field, with a place for what it replaces."""


@dataclass(frozen=True)
class EncodedImage:
    """An image of a request, which is not decoded yet."""

    name: str  # in results and errors
    data: str

    def decode(self) -> ImageExample:
        """The image; its size is checked before anything is decoded."""
        text = self.data
        if text.startswith(_PREFIX):
            _, _, text = text.partition(",")
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise InputError(
                f"{self.name} is not in base64", fix="encode the bytes of the file"
            ) from None
        check_image_size(content, self.name, MAX_IMAGE_PIXELS)
        return ImageExample(self.name, content, "", self.name)


def decode_base64_image(encoded: str, name: str, size: int) -> NDArray[np.uint8]:
    """The pixels of an image in base64: size size 3.

    Args:
        encoded: the file in base64.
        name: the field of the request, for errors.
        size: width and height of the result.
    """
    return EncodedImage(name, encoded).decode().load(size)


def encode_images(given: str | list[str]) -> list[EncodedImage]:
    """The images of a request, named by their number."""
    listed = [given] if isinstance(given, str) else given
    return [EncodedImage(f"image {number}", one) for number, one in enumerate(listed, 1)]


def decode_images(value: Any) -> Any:  # noqa: ANN401 (a field of an input)
    """A field with its images decoded; another value is unchanged."""
    if isinstance(value, list):
        return [decode_images(one) for one in value]
    return value.decode() if isinstance(value, EncodedImage) else value


def count_images(values: Iterable[Any]) -> int:
    """The number of images among the fields of an input, which may be lists."""
    return sum(
        count_images(one) if isinstance(one, list) else isinstance(one, EncodedImage)
        for one in values
    )
