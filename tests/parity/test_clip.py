"""CLIP against transformers: logits, and folders that either of them wrote."""

import json

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPVisionConfig,
    RobertaConfig,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

import cloze
from cloze.errors import ClozeError
from helpers import PIECES, raises, scramble, tiny_model, tiny_tokenizer
from images import EOS_ID, clip_model

VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 8,
}
TEXT = {
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def make_clip(eos_id=EOS_ID):
    text = {**TEXT, "max_position_embeddings": 12, "eos_token_id": eos_id, "pad_token_id": 0}
    config = CLIPConfig(text_config=text, vision_config=VISION, projection_dim=6)
    return CLIPModel(config)


def make_dual(kind):
    text = {"bert": BertConfig, "roberta": RobertaConfig}[kind]
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        CLIPVisionConfig(**VISION),
        text(**TEXT, max_position_embeddings=12, type_vocab_size=1 + (kind == "bert")),
        projection_dim=6,
    )
    return VisionTextDualEncoderModel(config)


PEERS = {
    "clip": make_clip,
    "clip, early": lambda: make_clip(2),  # the token with the highest id
    "bert": lambda: make_dual("bert"),
    "roberta": lambda: make_dual("roberta"),
}


@pytest.fixture(params=PEERS)
def peer(request):
    module = scramble(PEERS[request.param](), scale=0.3)
    with torch.no_grad():
        module.logit_scale.fill_(1.5)
    return module.eval()


def some_input(size=16, rows=3, length=7):
    rng = torch.Generator().manual_seed(3)
    ids = torch.randint(5, len(PIECES), (rows, length), generator=rng)
    mask = torch.ones(rows, length, dtype=torch.long)
    for row, end in enumerate((length - 1, 2, 4)):
        ids[row, end], ids[row, end + 1 :], mask[row, end + 1 :] = EOS_ID, 0, 0
    return ids, torch.randn(4, 3, size, size, generator=rng), mask


def logits_of(peer, ids, pixels, mask):
    with torch.inference_mode():
        return peer(input_ids=ids, pixel_values=pixels, attention_mask=mask).logits_per_image


def test_logits_of_a_folder_that_transformers_wrote(peer, tmp_path):
    peer.save_pretrained(tmp_path)
    tiny_tokenizer().save(tmp_path)
    model = cloze.load(tmp_path, quiet=True)
    assert not model.report.missing
    assert not model.report.unexpected
    inputs = some_input()
    with torch.inference_mode():
        found = model.module(*inputs)
    torch.testing.assert_close(found, logits_of(peer, *inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("clip-text", {"activation": "quick_gelu"}),
        ("bert", {"text_pooling": "pooler"}),
        ("roberta", {"text_pooling": "pooler"}),
    ],
)
def test_transformers_opens_what_cloze_wrote(family, changes, tmp_path):
    model = clip_model(family, **changes)
    folder = model.save(tmp_path / "model")
    peer, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    inputs = some_input()
    with torch.inference_mode():
        found = model.module(*inputs)
    torch.testing.assert_close(logits_of(peer.eval(), *inputs), found, rtol=1e-5, atol=1e-5)
    peer.save_pretrained(tmp_path / "again")
    model.tokenizer.save(tmp_path / "again")
    again = cloze.load(tmp_path / "again", quiet=True)
    with torch.inference_mode():
        torch.testing.assert_close(again.module(*inputs), found, rtol=0, atol=0)


def test_pixels_are_normalized_as_the_image_processor_does(tmp_path):
    model = clip_model("clip-text", image_mean=(0.4, 0.5, 0.6), image_std=(0.2, 0.3, 0.4))
    processor = CLIPImageProcessor.from_pretrained(model.save(tmp_path / "model"))
    images = torch.randint(0, 256, (2, 16, 16, 3), generator=torch.Generator().manual_seed(0))
    wanted = processor(list(images.byte().permute(0, 3, 1, 2)), return_tensors="pt").pixel_values
    found = model.module.normalize_pixels(images.byte())
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    processor.save_pretrained(tmp_path / "model")  # in transformers' own words
    assert cloze.load(tmp_path / "model").config == model.config


@pytest.mark.parametrize("prefix", ["", "text_model."])
def test_the_text_encoder_alone(prefix, tmp_path):
    config = CLIPTextConfig(**TEXT, max_position_embeddings=12, eos_token_id=EOS_ID)
    peer = scramble(CLIPTextModel(config), scale=0.3).eval()
    weights = {f"{prefix}{name}": one for name, one in peer.state_dict().items()}
    peer.save_pretrained(tmp_path, state_dict=weights)
    tiny_tokenizer().save(tmp_path)
    model = cloze.load(tmp_path, quiet=True)
    assert model.family.name == "clip-text"
    ids, _, mask = some_input()
    with torch.inference_mode():
        wanted = peer(ids, mask).last_hidden_state
        torch.testing.assert_close(
            model.module(ids, mask)[mask.bool()], wanted[mask.bool()], rtol=1e-5, atol=1e-5
        )
    own = tiny_model(family="clip-text", end_of_text_id=EOS_ID)
    opened = CLIPTextModel.from_pretrained(own.save(tmp_path / "own")).eval()
    with torch.inference_mode():
        found, wanted = own.module(ids, mask), opened(ids, mask).last_hidden_state
    torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], rtol=1e-5, atol=1e-5)


HOSTILE = {
    "text_config.hidden_size": (1 << 40, "hidden_size"),
    "text_config.model_type": ("gpt2", "gpt2"),
    "text_config.eos_token_id": (10_000, "eos_token_id"),
    "text_config": ([1], "text_config"),
    "vision_config.patch_size": (5, "image_size"),
    "vision_config.image_size": ([16, 8], "image_size"),
    "vision_config.num_channels": (4, "num_channels"),
    "vision_config.num_hidden_layers": (100_000, "num_layers"),
    "vision_config.model_type": ("vit", "vit"),
    "projection_dim": ("many", "projection_size"),
    "logit_scale_init_value": (1e9, "init_logit_scale"),
    "max_text_length": (-1, "max_text_length"),
}


@pytest.mark.parametrize("path", HOSTILE)
def test_a_configuration_that_cannot_be_right_is_refused(path, tmp_path):
    folder = clip_model("clip-text").save(tmp_path / "model")
    change(folder / "config.json", path, HOSTILE[path][0])
    with raises(ClozeError, HOSTILE[path][1]):
        cloze.load(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image_mean", [1, 2]),
        ("image_std", [0, 0, 0]),
        ("image_mean", "0.5"),
        ("rescale_factor", 1.0),
        ("do_rescale", False),
        ("resample", 6),
        ("resample", "bicubic"),
        ("size", {"height": 16, "width": 8}),
        ("size", {"longest_edge": 16}),
        ("size", "16"),
        ("crop_size", 8),
        ("do_center_crop", False),
        ("cloze_resize", "tile"),
    ],
)
def test_settings_of_images_are_checked(name, value, tmp_path):
    folder = clip_model("clip-text", resize="crop").save(tmp_path / "model")
    change(folder / "preprocessor_config.json", "cloze_resize", None)
    change(folder / "preprocessor_config.json", name, value)
    with raises(
        ClozeError, "resize" if name == "cloze_resize" else name.removeprefix("do_center_")
    ):
        cloze.load(folder)


def change(file, path, value):
    values = json.loads(file.read_text())
    *tables, name = path.split(".")
    inner = values
    for table in tables:
        inner = inner[table]
    inner[name] = value
    file.write_text(json.dumps(values))
