"""The layers of the UNet, and a whole one, beside diffusers with the same weights."""

import pytest
import torch

from cloze.nn.image_layers import (
    Downsample,
    ResBlock,
    SpatialTransformer,
    TimeEmbedding,
    Upsample,
    embed_times,
)
from cloze.nn.unet import UNet

diffusers = pytest.importorskip("diffusers")
resnet = pytest.importorskip("diffusers.models.resnet")
transformer = pytest.importorskip("diffusers.models.transformers.transformer_2d")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

RENAMED = {  # theirs -> ours
    "time_emb_proj": "time",
    "conv_shortcut": "skip",
    "proj_in": "project_in",
    "proj_out": "project_out",
    "transformer_blocks": "blocks",
    "norm3": "ffn_norm",
    "ff.net.0.proj": "ffn.up",
    "ff.net.2": "ffn.down",
    "attn1.to_q": "attention.query",
    "attn2.to_q": "text_attention.query",
    "attn1.to_out.0": "attention.out",
    "attn2.to_out.0": "text_attention.out",
    "resnets": "blocks",
    "attentions": "transformers",
    "downsamplers.0.conv": "resample",
    "upsamplers.0.conv": "resample",
    "down_blocks": "down",
    "up_blocks": "up",
    "mid_block": "middle",
    "conv_norm_out": "norm_out",
    "time_embedding.linear_1": "time.up",
    "time_embedding.linear_2": "time.out",
}


def convert(theirs):
    """Their weights under our names."""
    found, given = {}, theirs.state_dict()
    for name, value in given.items():
        ours = name
        for old, new in RENAMED.items():
            ours = ours.replace(old, new)
        if "transformer_blocks" in name:
            ours = ours.replace("norm1", "attention_norm").replace("norm2", "text_norm")
        for number, prefix in (("1", "attention"), ("2", "text_attention")):
            if f"attn{number}.to_k" in name:
                value = torch.cat([value, given[name.replace("to_k", "to_v")]])
                ours = ours.replace(f"attn{number}.to_k", f"{prefix}.key_value")
        if "to_v" in name:
            continue
        if "ff.net.0" in name:  # their first half is the value, the second the gate
            value = torch.cat(value.chunk(2)[::-1])
        found[ours] = value
    return found


def check_equal(ours, theirs, *inputs):
    ours.load_state_dict(convert(theirs))
    with torch.no_grad():
        expected = theirs(*inputs)
    expected = expected.sample if hasattr(expected, "sample") else expected
    torch.testing.assert_close(ours(*inputs), expected, rtol=1e-5, atol=1e-5)


def test_embedding_of_times():
    times = torch.tensor([0.0, 1.0, 37.5, 999.0])
    expected = diffusers.models.embeddings.get_timestep_embedding(
        times, 16, flip_sin_to_cos=True, downscale_freq_shift=0
    )
    torch.testing.assert_close(embed_times(times, 16), expected)
    theirs = diffusers.models.embeddings.TimestepEmbedding(16, 32)
    ours = TimeEmbedding(16, 32)
    weights = {
        n.replace("linear_1", "up").replace("linear_2", "out"): v
        for n, v in theirs.state_dict().items()
    }
    ours.load_state_dict(weights)
    torch.testing.assert_close(ours(times), theirs(expected))


@pytest.mark.parametrize(("inputs", "outputs"), [(8, 8), (8, 16)])
def test_residual_block(inputs, outputs):
    theirs = resnet.ResnetBlock2D(
        in_channels=inputs, out_channels=outputs, temb_channels=12, groups=4, eps=1e-5
    )
    ours = ResBlock(inputs, outputs, groups=4, time_size=12)
    check_equal(ours, theirs, torch.randn(2, inputs, 6, 5), torch.randn(2, 12))


def test_changes_of_resolution():
    x = torch.randn(2, 4, 6, 6)
    for ours, theirs in (
        (Downsample(4), resnet.Downsample2D(4, use_conv=True)),
        (Upsample(4), resnet.Upsample2D(4, use_conv=True)),
    ):
        ours.load_state_dict(theirs.conv.state_dict())
        torch.testing.assert_close(ours(x), theirs(x))


def test_transformer_over_positions():
    theirs = transformer.Transformer2DModel(
        2, 4, in_channels=8, norm_num_groups=4, cross_attention_dim=6, use_linear_projection=True
    )
    ours = SpatialTransformer(8, 2, 6, groups=4)
    ours.load_state_dict(convert(theirs))
    x, text = torch.randn(2, 8, 3, 5), torch.randn(2, 7, 6)
    expected = theirs(x, encoder_hidden_states=text).sample
    torch.testing.assert_close(ours(x, text), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("stages", [(1, 2), (2,), (0, 1, 2)])
def test_whole_unet(blocks, stages):
    kinds = ["CrossAttn" if index in stages else "" for index in range(3)]
    theirs = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 16, 16),
        down_block_types=tuple(f"{kind}DownBlock2D" for kind in kinds),
        up_block_types=tuple(f"{kind}UpBlock2D" for kind in reversed(kinds)),
        layers_per_block=blocks,
        cross_attention_dim=6,
        attention_head_dim=2,
        norm_num_groups=4,
        use_linear_projection=True,
    )
    ours = UNet(
        image_channels=3,
        channels=(8, 16, 16),
        blocks_per_stage=blocks,
        attention_stages=stages,
        num_heads=2,
        text_size=6,
        groups=4,
    )
    x, times, text = torch.randn(2, 3, 8, 8), torch.tensor([3, 700]), torch.randn(2, 5, 6)
    check_equal(ours, theirs, x, times, text)
