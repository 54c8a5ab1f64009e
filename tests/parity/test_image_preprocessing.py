"""Images are resized, cropped, normalized and embedded as transformers does."""

import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import cloze
from cloze.data.images.decode import convert_image, decode_image
from generated_examples import examples
from images import clip_model

SIZE = 16
PROCESSOR = CLIPImageProcessorPil(
    size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
)


def make_image(seed, width, height):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(noise)


@examples(40)
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


SQUARE = {"height": SIZE, "width": SIZE}
PROCESSORS = {
    "ViT": ViTImageProcessorPil(size=SQUARE),
    "ViT, bicubic": ViTImageProcessorPil(size=SQUARE, resample=3, image_std=[0.2, 0.3, 0.4]),
    "SigLIP": SiglipImageProcessorPil(size=SQUARE),
    "SigLIP, not normalized": SiglipImageProcessorPil(size=SQUARE, do_normalize=False),
    "CLIP": PROCESSOR,
    "CLIP, bilinear": CLIPImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size=SQUARE, resample=2
    ),
    "CLIP, Lanczos, squashed": CLIPImageProcessorPil(size=SQUARE, do_center_crop=False, resample=1),
    "CLIP, squashed, then cropped": CLIPImageProcessorPil(size=SQUARE, crop_size=SQUARE),
}
SHAPES = [(40, 17), (16, 16), (9, 30), (1, 50), (7, 7)]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The folder of a CLIP as transformers writes it."""
    folder = tmp_path_factory.mktemp("published")
    made = clip_model("clip-text", resize="crop").save(folder / "cloze")
    CLIPModel.from_pretrained(made).save_pretrained(folder)
    for path in made.glob("tokenizer*"):
        path.rename(folder / path.name)
    config = json.loads((folder / "config.json").read_text())
    config.pop("max_text_length", None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("has_defaults", [False, True], ids=["all settings", "some settings"])
@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_the_processor(published, name, has_defaults):
    processor = PROCESSORS[name]
    processor.save_pretrained(published)
    if has_defaults:
        remove_defaults(published / "preprocessor_config.json", type(processor)())
    model = cloze.load(published, device="cpu")
    seen = []
    model.module.embed_images = lambda pixels: seen.append(pixels) or torch.ones(len(pixels), 12)
    images = [make_image(n, *shape) for n, shape in enumerate(SHAPES)]
    cloze.embed(model, images=images)
    expected = processor(images, return_tensors="pt")["pixel_values"]
    level = 1.01 / 255 / np.array(model.config.image_std)[:, None, None]  # one of 255, normalized
    difference = (torch.cat(seen) - expected).abs().numpy()
    assert (difference <= level).all()
    assert difference.mean() < 0.2 * level.mean()


def remove_defaults(file, default):
    """Leave out of the file what the processor does anyway."""
    values = json.loads(file.read_text())
    same = {name: value for name, value in default.to_dict().items() if values.get(name) == value}
    kept = {"image_processor_type", "size", "crop_size"}
    left = {k: v for k, v in values.items() if k not in same or k in kept}
    file.write_text(json.dumps(left))


@pytest.mark.parametrize("resize", ["pad", "squash", "crop"])
def test_folders_keep_how_images_are_resized(tmp_path, resize):
    model = clip_model("clip-text", resize=resize, resampling="bilinear")
    folder = model.save(tmp_path / "model")
    found = cloze.load(folder).config
    assert (found.resize, found.resampling) == (resize, "bilinear")
    file = folder / "preprocessor_config.json"  # as earlier versions of cloze wrote it
    values = json.loads(file.read_text())
    del values["cloze_resize"]
    file.write_text(json.dumps(values))
    assert cloze.load(folder).config.resize == ("crop" if resize == "crop" else "pad")


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
