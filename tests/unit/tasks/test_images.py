"""`embed`, `classify` and `similarity` of images."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import cloze
from cloze.data.images.decode import encode_png
from cloze.errors import ClozeError, InputError, TruncationWarning
from cloze.tasks.classify_images import TEMPLATE
from helpers import raises, tiny_model
from images import clip_model, drawings

LABELS = ["a", "b c", "the cat"]


@pytest.fixture(scope="module")
def model():
    return clip_model()


@pytest.fixture(scope="module")
def arrays():
    return [one.content for one in drawings(5, size=24)]


@pytest.fixture(scope="module")
def folder(arrays, tmp_path_factory):
    place = tmp_path_factory.mktemp("pictures")
    for number, pixels in enumerate(arrays):
        (place / f"{number}.png").write_bytes(encode_png(pixels))
    return place


def test_every_form_of_an_image_has_the_same_vector(model, arrays, folder):
    expected = cloze.embed(model, images=arrays)
    assert expected.shape == (5, model.config.projection_size)
    assert expected.dtype == np.float32
    gray = np.full((9, 7), 100, np.uint8)
    path = folder / "0.png"
    for one in (
        path,
        str(path),
        path.read_bytes(),
        bytearray(path.read_bytes()),
        Image.open(io.BytesIO(path.read_bytes())),
        arrays[0],
        np.concatenate([arrays[0], np.full((24, 24, 1), 255, np.uint8)], axis=2),
    ):
        found = cloze.embed(model, images=one)
        np.testing.assert_allclose(found, expected[0], atol=1e-6)
        np.testing.assert_allclose(cloze.embed(model, images=[one, gray])[0], found, atol=1e-6)
    for several in (folder, str(folder / "*.png"), sorted(folder.iterdir()), np.stack(arrays)):
        np.testing.assert_allclose(cloze.embed(model, images=several), expected, atol=1e-6)
    rows = [{"image": one} for one in arrays]
    np.testing.assert_allclose(cloze.embed(model, images=rows), expected, atol=1e-6)
    assert cloze.embed(model, images=[]).shape == (0, model.config.projection_size)


@pytest.mark.parametrize("changes", [{}, {"vision": "resnet"}, {"resize": "crop"}])
def test_a_batch_gives_the_same_as_one_at_a_time(changes, monkeypatch):
    monkeypatch.setattr("cloze.tasks.embed_images._BATCH", 4)
    model = clip_model(**changes)
    random = np.random.default_rng(0)
    images = [
        random.integers(0, 256, (*random.integers(5, 40, 2), 3)).astype(np.uint8) for _ in range(11)
    ]
    together = cloze.embed(model, images=images)
    alone = np.stack([cloze.embed(model, images=one) for one in images])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    texts = ["a", "the cat sat on the mat", "b c", "c"] * 3
    together = cloze.embed(model, texts)
    alone = np.stack([cloze.embed(model, one) for one in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_vectors_are_those_of_the_module(model, arrays):
    small = [np.asarray(Image.fromarray(one).resize((16, 16))) for one in arrays]
    pixels = torch.from_numpy(np.stack(small))
    with torch.inference_mode():
        expected = model.module.embed_images(model.module.normalize_pixels(pixels)).numpy()
    np.testing.assert_allclose(cloze.embed(model, images=small), expected, atol=1e-6)
    unit = cloze.embed(model, images=small, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    ids = torch.tensor([model.tokenizer.encode("the cat").ids])
    with torch.inference_mode():
        expected = model.module.embed_texts(ids).numpy()
    np.testing.assert_allclose(cloze.embed(model, ["the cat"]), expected, atol=1e-6)


def test_one_image_that_fails_does_not_stop_the_others(model, arrays, folder, monkeypatch):
    monkeypatch.setattr("cloze.tasks.embed_images._BATCH", 2)
    broken = folder / "0.png"
    images = [arrays[0], b"no image", broken.read_bytes()[:40], "none.png", arrays[1], 0.5, None]
    errors = {}
    found = cloze.embed(model, images=images, on_error=errors.__setitem__)
    assert sorted(errors) == [1, 2, 3, 5, 6]
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, True, False, True, True]
    np.testing.assert_allclose(found[[0, 4]], cloze.embed(model, images=arrays[:2]), atol=1e-6)
    assert "image 2" in str(errors[1])
    with raises(InputError, "none.png"):
        cloze.embed(model, images=images[3:])
    results = cloze.classify(model, images=images, labels=LABELS, on_error=errors.__setitem__)
    assert [hasattr(one, "error") for one in results] == np.isnan(found).all(axis=1).tolist()
    assert results.to_dict()[1] == {"image": "image 2", "error": errors[1].problem}
    assert len(results.to_pandas()) == 7


def test_probabilities_are_a_softmax_of_scaled_cosines(model, arrays):
    results = cloze.classify(model, images=arrays, labels=LABELS)
    images = cloze.embed(model, images=arrays, normalize=True)
    texts = cloze.embed(model, [TEMPLATE.replace("{}", one) for one in LABELS], normalize=True)
    logits = model.module.logit_scale.exp().item() * images @ texts.T
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for one, row in zip(results, expected, strict=True):
        assert [one.scores[name] for name in LABELS] == pytest.approx(row.tolist(), abs=1e-5)
        assert list(one.scores.values()) == sorted(one.scores.values(), reverse=True)
        assert one.label == LABELS[row.argmax()] == next(iter(one.scores))
        assert sum(one.scores.values()) == pytest.approx(1)
    with torch.inference_mode():  # the logits of the model itself
        ids = [model.tokenizer.encode(TEMPLATE.replace("{}", one)).ids for one in LABELS[:2]]
        assert len(ids[0]) != len(ids[1])
        pixels = model.module.normalize_pixels(torch.from_numpy(_square(arrays[0])[None]))
        direct = [model.module(torch.tensor([one]), pixels).item() for one in ids]
    assert logits[0, :2].tolist() == pytest.approx(direct, abs=1e-4)


def _square(pixels):
    from cloze.data.images.decode import convert_image

    return convert_image(pixels, size=16)


def test_templates_are_averaged(model, arrays):
    templates = ["{} a", "the {}"]
    found = cloze.classify(model, images=arrays[0], labels=LABELS, template=templates)
    texts = [
        cloze.embed(model, [one.replace("{}", label) for one in templates], normalize=True).mean(0)
        for label in LABELS
    ]
    unit = np.stack([one / np.linalg.norm(one) for one in texts])
    image = cloze.embed(model, images=arrays[0], normalize=True)
    weights = np.exp(model.module.logit_scale.exp().item() * unit @ image)
    expected = dict(zip(LABELS, (weights / weights.sum()).tolist(), strict=True))
    assert found.scores == pytest.approx(expected, abs=1e-5)


def test_results(model, folder):
    found = cloze.classify(model, images=folder, labels=["<b>a</b>", "c"])
    assert [one.image for one in found] == [str(folder / f"{n}.png") for n in range(5)]
    json.loads(json.dumps(found.to_dict()))
    shown = found[0]._repr_html_()
    assert "<b>" not in shown
    assert "data:image/png;base64," in shown
    table = found.to_pandas()
    assert list(table.columns)[:3] == ["image", "label", "score"]
    assert table["c"].tolist() == [one.scores["c"] for one in found]
    assert list(found[0].keep_top(1).scores) == [found[0].label]
    assert "source" not in repr(found[0])


def test_similarity_of_texts_and_images(model, folder):
    one = cloze.similarity(model, "the cat", images=folder / "0.png")
    both = cloze.similarity(model, ["the cat", "a"], images=folder)
    image, text = (
        cloze.embed(model, images=folder / "0.png", normalize=True),
        cloze.embed(model, "the cat", normalize=True),
    )
    assert one.score == pytest.approx(float(image @ text), abs=1e-6)
    assert one.pair == str(folder / "0.png")
    assert both.scores.shape == (2, 5)
    assert both.scores[0, 0] == pytest.approx(one.score, abs=1e-6)
    texts = cloze.similarity(model, "the cat", "a").score
    assert -1 <= texts <= 1


def test_long_texts(model, arrays):
    long = "the cat sat " * 20
    with pytest.warns(TruncationWarning, match="1 of 2"):
        vectors = cloze.embed(model, [long, "a"])
    head = cloze.embed(model, long, truncation="head")
    np.testing.assert_allclose(vectors[0], head, atol=1e-6)
    assert not np.allclose(head, cloze.embed(model, "a " + long, truncation="tail"))
    with raises(InputError, "text 1", fix="truncation"):
        cloze.embed(model, [long, "a"], truncation="error")
    with raises(InputError, "window", fix="head"):
        cloze.embed(model, long, truncation="window")
    with pytest.warns(TruncationWarning):
        found = cloze.classify(model, images=arrays[0], labels=["a", long])
    assert found.truncated_chars > 0


@pytest.mark.parametrize(
    ("options", "problem", "fix"),
    [
        ({}, "no inputs", "images"),
        ({"texts": "a", "images": "x.png"}, "texts and images", "either"),
        ({"texts": "a", "pooling": "cls"}, "pooling", "leave out"),
        ({"texts": "a", "layers": 1}, "layers", "leave out"),
        ({"images": "none.png"}, "none.png", "path"),
        ({"images": "none/"}, "none", "path"),
        ({"images": 5}, "int", "path"),
        ({"images": np.zeros((4, 4, 3))}, "float64", "uint8"),
        ({"images": np.zeros((3, 5, 5), np.uint8)}, "shape", "height"),
    ],
)
def test_mistakes_with_embed(model, options, problem, fix):
    with raises(InputError, problem, fix=fix):
        cloze.embed(model, **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"labels": None}, "labels"),
        ({"labels": "a,b"}, "list"),
        ({"labels": []}, "labels"),
        ({"labels": ["a", ""]}, "empty"),
        ({"labels": ["a", "b", "a"]}, "'a'"),
        ({"labels": ["a"], "template": "no label"}, "template"),
        ({"labels": ["a"], "template": []}, "template"),
        ({"labels": ["a"], "text": "b"}, "texts and images"),
    ],
)
def test_mistakes_with_classify(model, arrays, options, problem):
    with raises(ClozeError, problem):
        cloze.classify(model, images=arrays[0], **options)


def test_models_without_images_and_texts_for_one_with_images(model, arrays):
    bert = tiny_model("sequence", labels=("no", "yes"))
    for call in (
        lambda: cloze.embed(bert, images=arrays[0]),
        lambda: cloze.classify(bert, images=arrays[0], labels=LABELS),
        lambda: cloze.similarity(bert, "a", images=arrays[0]),
    ):
        with raises(InputError, "a BERT", "images", fix="clip"):
            call()
    with raises(InputError, "labels", fix="leave out"):
        cloze.classify(bert, "a", labels=LABELS)
    with raises(InputError, "of texts", "images", fix="labels"):
        cloze.classify(model, "a")
    for call in (cloze.fill, cloze.tag, cloze.rerank):
        with raises(InputError, "a CLIP", fix="embed, classify"):
            call(model, *["a", "b"][: 2 if call is cloze.rerank else 1])
