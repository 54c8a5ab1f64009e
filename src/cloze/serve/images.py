"""Images in requests: base64 in JSON, never a path; sizes are checked before pixels are decoded."""

import base64
import binascii
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cloze.data.images.decode import decode_image
from cloze.errors import InputError

MAX_IMAGE_BYTES = 4 << 20
MAX_IMAGE_PIXELS = 1 << 24  # 4,096 × 4,096
Base64Image = Annotated[str, Field(min_length=1, max_length=MAX_IMAGE_BYTES * 4 // 3 + 4)]
"""An image file (PNG, JPEG, WebP …) in base64."""


def decode_base64_image(encoded: str, name: str, size: int) -> NDArray[np.uint8]:
    """The pixels of an image in base64: size size 3.

    Args:
        encoded: the file in base64.
        name: the field of the request, for errors.
        size: width and height of the result.
    """
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{name} is not in base64", fix="encode the bytes of the file") from None
    return decode_image(content, name, size=size, max_pixels=MAX_IMAGE_PIXELS)
