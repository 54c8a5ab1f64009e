"""Indexes of images: searched by a text and by an image, and changed."""

import io
import json
import tarfile

import numpy as np
import pytest

import cloze
from cloze.data.images.decode import decode_image, encode_png
from cloze.errors import InputError
from helpers import raises, tiny_model
from images import clip_model, drawings


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return cloze.load(clip_model().save(tmp_path_factory.mktemp("models") / "clip"))


@pytest.fixture
def pictures(tmp_path):
    place = tmp_path / "pictures"
    place.mkdir()
    for number, one in enumerate(drawings(6, size=24)):
        (place / f"{number}.png").write_bytes(encode_png(one.content))
        (place / f"{number}.txt").write_text(f"{one.caption} number{number}")
    return place


@pytest.mark.parametrize("store", ["exact", "lancedb"])
def test_search_by_text_and_by_image(model, pictures, tmp_path, store):
    made = cloze.index(model, pictures, tmp_path / "i", store=store)
    assert (made.num_documents, made.num_chunks, made.added) == (6, 6, 6)
    vectors = cloze.embed(model, images=pictures, normalize=True)
    with cloze.open_index(tmp_path / "i") as index:
        by_text = index.search("the cat", mode="dense", k=6)
        expected = vectors @ cloze.embed(model, "the cat", normalize=True)
        order = np.argsort(-expected)
        assert [hit.id for hit in by_text.hits] == [str(pictures / f"{n}.png") for n in order]
        assert [hit.score for hit in by_text.hits] == pytest.approx(expected[order], abs=1e-5)
        by_image = index.search(images=pictures / "3.png", k=2)
        assert by_image.hits[0].id == str(pictures / "3.png")
        assert by_image.hits[0].score == pytest.approx(1, abs=1e-5)
        assert (by_image.mode, by_image.query) == ("dense", str(pictures / "3.png"))
        several = index.search(images=[pictures / "1.png", (pictures / "2.png").read_bytes()], k=1)
        assert [one.hits[0].id[-5:] for one in several] == ["1.png", "2.png"]
        assert [one.query for one in several] == [str(pictures / "1.png"), "image 2"]
        (hit,) = index.search("number4", mode="bm25").hits
        assert hit.text.endswith("number4")
        assert index.search("number4", k=1).hits[0].id == hit.id
        assert "thumbnail" not in by_image.to_dict()["hits"][0]


def test_images_are_added_replaced_and_deleted(model, pictures, tmp_path):
    out = tmp_path / "i"
    cloze.index(model, pictures, out, store="exact")
    again = cloze.index(None, pictures, out, update=True)
    assert (again.unchanged, again.model_seconds) == (6, 0)
    (pictures / "0.png").write_bytes((pictures / "1.png").read_bytes())  # another image
    (pictures / "2.txt").write_text("another caption")
    (pictures / "new.png").write_bytes((pictures / "3.png").read_bytes())
    changed = cloze.index(None, pictures, out, update=True, delete=[str(pictures / "5.png")])
    assert (changed.updated, changed.added, changed.unchanged, changed.deleted) == (2, 2, 3, 1)
    (pictures / "5.png").unlink()
    assert cloze.index(None, None, out, delete=[str(pictures / "5.png")]).num_documents == 6
    found = cloze.search(out, images=pictures / "1.png", k=2, thumbnails=True)
    assert {hit.id[-5:] for hit in found.hits} == {"0.png", "1.png"}
    assert [hit.id[-5:] for hit in cloze.search(out, "another", mode="bm25").hits] == ["2.png"]
    assert decode_image(found.hits[0].thumbnail, "x").shape == (96, 96, 3)
    assert len(list((out / "thumbnails").iterdir())) == 2
    assert "data:image/png" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["hits"][0]["thumbnail"]


def test_archives_and_tables(model, pictures, tmp_path):
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for path in sorted(pictures.iterdir()):
            archive.add(path, path.name)
    cloze.index(model, tmp_path / "all.tar", tmp_path / "t", store="exact")
    (hit,) = cloze.search(tmp_path / "t", "number2", mode="bm25").hits
    assert hit.id == f"{tmp_path / 'all.tar'}/2.png"
    rows = [
        {"key": f"k{n}", "file": f"pictures/{n}.png", "text": f"word{n}", "year": n, "title": "T"}
        for n in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    options = {"id_column": "key", "store": "exact"}
    cloze.index(model, tmp_path / "rows.jsonl", tmp_path / "r", **options)
    found = cloze.search(tmp_path / "r", "a", filter={"year": {">=": 1}})
    assert {hit.id for hit in found.hits} == {"k1", "k2"}
    assert found.hits[0].metadata["file"].endswith(".png")
    stream = io.BytesIO((pictures / "0.png").read_bytes())
    bare = [{"image": stream.getvalue()}]  # without a caption
    assert cloze.index(model, bare, tmp_path / "b", store="exact").num_documents == 1
    assert cloze.search(tmp_path / "b", "a").hits[0].text == ""


def test_images_that_cannot_be_read(model, pictures, tmp_path):
    (pictures / "1.png").write_bytes(b"no image")
    with raises(InputError, "1.png"):
        cloze.index(model, pictures, tmp_path / "i", store="exact")
    assert not (tmp_path / "i").exists()
    errors = []
    made = cloze.index(model, pictures, tmp_path / "i", store="exact", on_error=errors.append)
    assert (made.num_documents, len(errors)) == (5, 1)
    assert "1.png" in str(errors[0])


def test_mistakes(model, pictures, tmp_path):
    cloze.index(model, pictures, tmp_path / "i", store="exact")
    texts = cloze.load(tiny_model("mlm").save(tmp_path / "bert"))
    cloze.index(texts, [{"id": "a", "text": "the cat"}], tmp_path / "t", store="exact")
    image = pictures / "0.png"
    for folder, options, problem in (
        (tmp_path / "t", {"images": image}, "a BERT"),
        (tmp_path / "i", {"images": image, "mode": "bm25"}, "bm25"),
        (tmp_path / "i", {"images": image, "rerank": texts}, "second model"),
        (tmp_path / "i", {"images": image, "query": "a"}, "a query and an image"),
        (tmp_path / "i", {}, "no query"),
        (tmp_path / "i", {"images": "none.png"}, "none.png"),
    ):
        with raises(InputError, problem):
            cloze.search(folder, **options)
    manifest = json.loads((tmp_path / "i" / "index.json").read_text())
    assert manifest["content"] == "images"
    found = cloze.search(tmp_path / "i", images=image, k=1, thumbnails=True)
    (tmp_path / "i" / "thumbnails" / "x.idx").mkdir()
    for path in (tmp_path / "i" / "thumbnails").glob("*.bin"):
        path.write_bytes(b"<script>" * 10_000)
    assert found.hits[0].thumbnail
    again = cloze.search(tmp_path / "i", images=image, k=1, thumbnails=True)
    assert again.hits[0].thumbnail is None
