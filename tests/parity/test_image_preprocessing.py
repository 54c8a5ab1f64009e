"""Images are resized, cropped and embedded as transformers' CLIP does."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import cloze
from cloze.data.images.decode import convert_image, decode_image
from images import clip_model

SIZE = 16
PROCESSOR = CLIPImageProcessorPil(
    size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
)


def make_image(seed, width, height):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(noise)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(1, 70), st.integers(1, 70))
def test_the_center_is_that_of_the_processor(seed, width, height):
    image = make_image(seed, width, height)
    expected = PROCESSOR(image, do_rescale=False, do_normalize=False, return_tensors="np")
    theirs = expected["pixel_values"][0].transpose(1, 2, 0).round().astype(int)
    found = convert_image(image, size=SIZE, resize="crop").astype(int)
    assert np.abs(found - theirs).max() <= 1  # a level of 255
    stream = io.BytesIO()
    image.save(stream, "PNG")
    same = decode_image(stream.getvalue(), "x", size=SIZE, resize="crop")
    assert np.array_equal(same, found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = clip_model("clip-text", resize="crop")
    return model.save(tmp_path_factory.mktemp("clip") / "model")


def test_features_are_those_of_transformers(folder):
    theirs = CLIPModel.from_pretrained(folder).eval()
    processor = CLIPImageProcessorPil.from_pretrained(folder)
    model = cloze.load(folder)
    images = [make_image(n, *size) for n, size in enumerate([(40, 17), (16, 16), (9, 30)])]
    with torch.inference_mode():
        prepared = processor(images, return_tensors="pt")["pixel_values"]
        found = theirs.get_image_features(pixel_values=prepared)
        expected = getattr(found, "pooler_output", found)
        ids = torch.tensor([model.tokenizer.encode("the cat sat").ids])
        texts = theirs.get_text_features(input_ids=ids)
        texts = getattr(texts, "pooler_output", texts)
    np.testing.assert_allclose(cloze.embed(model, images=images), expected, atol=2e-5)
    np.testing.assert_allclose(cloze.embed(model, ["the cat sat"]), texts, atol=1e-5)
    labels = ["a", "b c"]
    pairs = [model.tokenizer.encode(label).ids for label in labels]
    with torch.inference_mode():
        logits = [
            theirs(input_ids=torch.tensor([one]), pixel_values=prepared).logits_per_image
            for one in pairs
        ]
    expected = torch.cat(logits, dim=1).softmax(-1)
    for result, row in zip(
        cloze.classify(model, images=images, labels=labels, template="{}"), expected, strict=True
    ):
        assert [result.scores[one] for one in labels] == pytest.approx(row.tolist(), abs=1e-5)
