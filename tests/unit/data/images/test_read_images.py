"""Images with captions from folders, tar files, tables and objects."""

import io
import json
import tarfile

import numpy as np
import pytest

from cloze.data.images.augment import Augmentation
from cloze.data.images.decode import encode_png
from cloze.data.images.drawings import (
    COLORS,
    SHAPES,
    Drawing,
    describe_drawing,
    list_captions,
    make_drawing,
    render_drawing,
)
from cloze.data.images.image_set import CAPTIONS_FILE, ImageBatches, ImageSet
from cloze.data.images.read import CaptionColumns, read_images
from cloze.errors import InputError
from helpers import raises, tiny_tokenizer
from images import drawings

PIXELS = np.full((4, 4, 3), 9, np.uint8)
PNG = encode_png(PIXELS)


def captions_of(*sources, **options):
    return [
        (one.name.rpartition("/")[2], one.caption) for one in read_images(list(sources), **options)
    ]


def test_folders(tmp_path):
    for name in ("red-heart.png", "star.png", "cat.png"):
        (tmp_path / name).write_bytes(PNG)
    (tmp_path / "star.txt").write_text("a yellow star\n")
    (tmp_path / "metadata.jsonl").write_text(
        '{"file_name": "cat.png", "text": "a cat", "tags": "pet, fur"}\n'
    )
    assert captions_of(tmp_path) == [
        ("cat.png", "a cat"), ("red-heart.png", "red heart"), ("star.png", "a yellow star"),
    ]  # fmt: skip
    cat = next(read_images(str(tmp_path)))
    assert cat.keywords == ("pet", "fur")
    assert np.array_equal(cat.load(), PIXELS)


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.xz"])
def test_tar_files_with_captions_elsewhere(tmp_path, ending):
    path = tmp_path / f"emoji{ending}"
    with tarfile.open(path, f"w:{ending[5:]}") as archive:
        for name, content in (
            ("a/1F600.png", PNG),
            ("a/b.png", PNG),
            ("a/b.txt", b"a bee"),
            ("x.sh", b"rm"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("../../link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    table = tmp_path / "names.json"
    rows = [
        {
            "hexcode": "1F600",
            "annotation": "grinning face",
            "group": "smileys",
            "skintone_base_hexcode": "",
        }
    ]
    table.write_text(json.dumps(rows))
    assert captions_of(path, captions=table) == [("1F600.png", "grinning face"), ("b.png", "a bee")]
    found = list(read_images(path, captions=table))
    assert (found[0].group, found[0].keywords) == ("1F600", ("smileys",))


def test_images_of_a_tar_file_are_read_one_at_a_time(tmp_path, monkeypatch):
    path, read = tmp_path / "many.tar", []
    with tarfile.open(path, "w") as archive:
        for number in range(6):
            for name, content in ((f"{number}.png", PNG), (f"{number}.txt", b"number %d" % number)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    extract = tarfile.TarFile.extractfile
    monkeypatch.setattr(
        tarfile.TarFile, "extractfile", lambda *given: read.append(given[1].name) or extract(*given)
    )
    found = read_images(path)
    assert next(found).caption == "number 0"
    assert [name for name in read if name.endswith("png")] == ["0.png"]
    assert [one.caption for one in found] == [f"number {n}" for n in range(1, 6)]
    with tarfile.open(path) as archive:
        end = archive.getmember("3.png").offset_data + 5
    (tmp_path / "half.tar").write_bytes(path.read_bytes()[:end])
    errors = []
    some = list(read_images(tmp_path / "half.tar", on_error=errors.append))
    assert len(errors) == 1
    assert "half.tar" in str(errors[0])
    assert [one.caption for one in some] == ["number 0", "number 1", "number 2"]


def test_tables_and_objects(tmp_path):
    (tmp_path / "1.png").write_bytes(PNG)
    (tmp_path / "table.csv").write_text("path,caption,scene\n1.png,one,s\nmissing.png,two,s\n")
    found = list(read_images(str(tmp_path / "table.csv"), columns=CaptionColumns(group="scene")))
    assert [(one.caption, one.group) for one in found] == [("one", "s"), ("two", "s")]
    assert np.array_equal(found[0].load(), PIXELS)
    with raises(InputError, "missing.png"):
        found[1].load()
    rows = [
        {"image": PNG, "text": "bytes"},
        {"image": {"bytes": PNG, "path": None}, "text": "of datasets"},
    ]
    assert [np.array_equal(one.load(), PIXELS) for one in read_images(rows)] == [True, True]


def test_mistakes(tmp_path):
    (tmp_path / "bad.tar").write_bytes(b"no archive at all" * 100)
    with raises(InputError, "bad.tar"):
        list(read_images(str(tmp_path / "bad.tar")))
    with raises(InputError, "no column", fix="a, b"):
        list(read_images([{"a": 1, "b": 2}]))
    with raises(InputError, "no such file"):
        list(read_images(str(tmp_path / "none")))


def test_a_set_is_decoded_once_and_broken_images_are_reported(tmp_path):
    for n in range(5):
        (tmp_path / f"{n}.png").write_bytes(PNG if n != 2 else b"broken")
    errors = []
    found = ImageSet.prepare(
        read_images(str(tmp_path)), 4, tmp_path / "set", on_error=errors.append
    )
    assert (len(found), found.pixels.shape, len(errors)) == (4, (4, 4, 4, 3), 1)
    again = ImageSet.open(tmp_path / "set")
    assert again.captions == found.captions == ["0", "1", "3", "4"]
    assert again.fingerprint == found.fingerprint
    (tmp_path / "set" / CAPTIONS_FILE).unlink()
    with raises(InputError, "2.png"):
        ImageSet.prepare(read_images(str(tmp_path)), 4, tmp_path / "other")


def test_variants_are_on_one_side_of_the_split(tmp_path):
    examples = list(drawings(40, 8))
    grouped = [
        type(one)(one.name, one.content, one.caption, f"g{n // 4}")
        for n, one in enumerate(examples)
    ]
    data = ImageSet.prepare(grouped, 8, tmp_path / "set")
    train, dev = data.split(0.3)
    assert len(train) + len(dev) == 40
    assert 0 < len(dev) < 40
    assert not {data.groups[n] for n in train} & {data.groups[n] for n in dev}


def test_batches_depend_on_their_number_only(tmp_path):
    data = ImageSet.prepare(drawings(10, 8), 8, tmp_path / "set")
    shared = {"data": data, "indices": np.arange(10), "batch_size": 4, "max_length": 12}
    shared |= {"tokenizer": tiny_tokenizer(), "loss": "diffusion"}
    random = {"caption_dropout": 0.5, "augmentation": Augmentation(flip_prob=0.5, shift=0.2)}

    def make(**changes):
        return ImageBatches(**shared | random | changes)

    one, other = make().batch(7), make().batch(7)
    for name, array in one.arrays().items():
        assert np.array_equal(array, other.arrays()[name])
    assert one.input_ids.shape[1] % 8 == 0
    seen = np.concatenate([make().batch(n).sample_ids for n in range(5)])  # two epochs
    assert np.array_equal(np.bincount(seen), np.full(10, 2))
    parts = one.split(3)
    assert [part.size for part in parts] == [1, 2, 1]
    assert np.array_equal(np.concatenate([part.changes for part in parts]), one.changes)
    assert not np.array_equal(one.changes, make().batch(8).changes)
    plain = make(caption_dropout=0.0, augmentation=Augmentation()).batch(0)
    assert "changes" not in plain.arrays()
    assert np.array_equal(plain.images, data.pixels[plain.sample_ids])


def test_drawings_show_what_their_captions_say():
    assert Drawing("orange", "star", 1, "on the left").caption == "an orange star on the left"
    assert Drawing("red", "cross", 3).caption == "three red crosses"
    assert len(set(list_captions())) == len(list_captions()) == 384
    drawing, pixels = make_drawing(3, 5, 32)
    assert drawing == describe_drawing(3, 5)
    assert np.array_equal(pixels, make_drawing(3, 5, 32)[1])
    for color, shape in zip(COLORS, [*SHAPES, *SHAPES], strict=False):
        rng = np.random.default_rng(0)
        left = render_drawing(Drawing(color, shape, 1, "on the left"), rng, 32)
        is_ink = np.abs(left.astype(int) - COLORS[color]).max(-1) <= 16
        assert is_ink[:, :16].sum() > 3 * is_ink[:, 16:].sum()
        four = render_drawing(Drawing(color, shape, 4), rng, 32)
        is_ink = np.abs(four.astype(int) - COLORS[color]).max(-1) <= 16
        assert all(part.any() for half in np.split(is_ink, 2) for part in np.split(half, 2, 1))


def test_other_columns_are_metadata_and_captions_may_be_missing(tmp_path):
    (tmp_path / "a.png").write_bytes(encode_png(PIXELS))
    (tmp_path / "metadata.jsonl").write_text(
        '{"file_name": "a.png", "text": "a cat", "year": 3}', "utf-8"
    )
    (example,) = read_images(str(tmp_path))
    assert (example.caption, dict(example.metadata)) == ("a cat", {"year": 3})
    rows = [{"image": PIXELS, "year": 1}, {"image": PIXELS, "caption": None}]
    with raises(InputError, "caption"):
        list(read_images(rows))
    found = list(read_images(rows, columns=CaptionColumns(is_caption_needed=False)))
    assert [one.caption for one in found] == ["", ""]
    assert [dict(one.metadata) for one in found] == [{"year": 1}, {}]
