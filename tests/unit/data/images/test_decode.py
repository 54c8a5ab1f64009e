"""Image files of every kind are read correctly or refused in words."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from cloze.data.images import decode
from cloze.data.images.decode import check_image_size, convert_image, decode_image, encode_png
from cloze.errors import InputError, MissingExtraError
from helpers import raises

RED = (200, 30, 30)


def save(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "PPM", "WEBP", "JPEG"])
def test_formats(kind):
    found = decode_image(save(Image.new("RGB", (6, 4), RED), kind), "x")
    assert found.shape == (4, 6, 3)
    assert np.abs(found.astype(int) - RED).max() <= 4  # JPEG and WEBP are lossy


def test_transparency_becomes_white():
    assert decode_image(save(Image.new("RGBA", (2, 2), (0, 0, 0, 0))), "x").min() == 255
    palette = Image.new("P", (2, 2))
    palette.info["transparency"] = 0
    assert decode_image(save(palette, transparency=0), "x").min() == 255


def test_sixteen_bits_and_other_color_spaces():
    deep = Image.fromarray(np.full((3, 3), 32768, np.uint16))
    assert np.unique(decode_image(save(deep), "x")).tolist() == [127]
    cmyk = Image.new("CMYK", (3, 3), (0, 255, 255, 0))  # red
    assert np.abs(decode_image(save(cmyk, "JPEG"), "x")[0, 0].astype(int) - (254, 0, 0)).max() <= 4
    assert np.unique(decode_image(save(Image.new("1", (3, 3), 1)), "x")).tolist() == [255]


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (2, 2), color) for color in (RED, (0, 0, 255))]
    found = decode_image(save(frames[0], "GIF", save_all=True, append_images=frames[1:]), "x")
    assert np.abs(found[0, 0].astype(int) - RED).max() <= 4


def test_images_are_fitted_into_a_square():
    found = decode_image(save(Image.new("RGB", (40, 10), RED)), "x", size=8)
    assert found.shape == (8, 8, 3)
    assert found[0].min() == 255  # above the image
    assert tuple(found[4, 4]) == RED
    array = np.full((8, 8, 3), 7, np.uint8)
    assert convert_image(array, size=8) is array or np.array_equal(
        convert_image(array, size=8), array
    )


def make_chunk(name, content):
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def make_header(width, height):
    """The beginning of a PNG file that claims to be of this size."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", size) + make_chunk(b"IDAT", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image",
        b"GIF89a",
        save(Image.new("RGB", (40, 40), RED))[:-40],  # cut off
        make_header(10, 10),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0",  # would start another program
    ],
)
def test_broken_files_are_refused(content):
    with raises(InputError, "heart.png", fix="PNG"):
        decode_image(content, "heart.png")


def test_bombs_are_refused_before_they_are_decoded(monkeypatch):
    with raises(InputError, "bomb.png", "12,000", fix="smaller"):
        decode_image(make_header(12_000, 12_000), "bomb.png")
    with raises(InputError, "bomb.png", "3600000000"):  # Pillow refuses it before
        decode_image(make_header(60_000, 60_000), "bomb.png")
    monkeypatch.setattr(decode, "MAX_BYTES", 100)
    with raises(InputError, "large.png", fix="smaller"):
        decode_image(bytes(101), "large.png")


def test_a_png_file_has_the_same_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    assert np.array_equal(decode_image(encode_png(pixels), "x"), pixels)


def test_the_center_is_kept_or_refused_if_it_would_be_enormous():
    image = Image.new("RGB", (40, 10), (255, 255, 255))
    image.paste(RED, (15, 0, 25, 10))
    found = decode_image(save(image), "x", size=8, resize="crop")
    assert found.shape == (8, 8, 3)
    assert tuple(found[4, 4]) == RED
    with raises(InputError, "60,000", fix="cut"):
        decode_image(save(Image.new("1", (60_000, 1))), "x", size=224, resize="crop")
    with raises(InputError, "40 × 10", fix="smaller"):
        check_image_size(save(image), "x", 399)
    check_image_size(save(image), "x", 400)


def test_png_files_are_written_without_pillow(monkeypatch):
    def fail():
        raise MissingExtraError("images", extra="images")

    rng = np.random.default_rng(0)
    for shape in ((5, 7, 3), (1, 1, 3), (64, 16, 3)):
        pixels = rng.integers(0, 256, shape, np.uint8)
        with monkeypatch.context() as patch:
            patch.setattr(decode, "_import_pillow", fail)
            file = encode_png(pixels)
        assert np.array_equal(decode_image(file, "x"), pixels)
