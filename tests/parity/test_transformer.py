"""The Transformer against torch's own, with the same weights."""

import pytest
import torch
from torch import nn

from cloze.models.configs.transformer import TransformerConfig
from cloze.models.transformer import Transformer
from cloze.nn.attention import CrossAttention
from cloze.nn.context import AttentionContext
from helpers import scramble

pytestmark = pytest.mark.parity
SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "intermediate_size": 24,
    "dropout": 0.0,
}


def copy_weights(theirs, ours):
    """Their weights from ours, by name."""
    names = {
        "self_attn.in_proj_weight": "attention.qkv.weight",
        "self_attn.in_proj_bias": "attention.qkv.bias",
        "self_attn.out_proj": "attention.out",
        "multihead_attn.in_proj_weight": "cross_attention.qkv.weight",
        "multihead_attn.in_proj_bias": "cross_attention.qkv.bias",
        "multihead_attn.out_proj": "cross_attention.out",
        "linear1": "ffn.up",
        "linear2": "ffn.down",
    }
    decoder = hasattr(theirs, "multihead_attn")
    norms = ["attention", *(["cross_attention"] if decoder else []), "ffn"]
    names |= {f"norm{n}": f"{part}_norm" for n, part in enumerate(norms, 1)}
    state = ours.state_dict()
    found = {}
    for name in theirs.state_dict():
        begin = next(one for one in names if name.startswith(one))
        found[name] = state[name.replace(begin, names[begin])]
    theirs.load_state_dict(found)


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_equals_the_transformer_of_torch(norm):
    config = TransformerConfig(vocab_size=30, norm=norm, **SHAPE)
    ours = scramble(Transformer(config)).double().eval()
    pre = norm == "pre"
    options = {"dropout": 0.0, "batch_first": True, "norm_first": pre, "dtype": torch.float64}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, **options),
        2,
        ours.encoder_norm if pre else None,
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(16, 4, 24, **options), 3, ours.decoder_norm if pre else None
    )
    theirs = nn.Transformer(
        16, 4, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    ).eval()
    blocks = [*ours.encoder, *ours.decoder]
    for mine, other in zip(blocks, [*encoder.layers, *decoder.layers], strict=True):
        copy_weights(other, mine)
    rng = torch.Generator().manual_seed(3)
    source = torch.randint(30, (3, 7), generator=rng)
    inputs = torch.randint(30, (3, 5), generator=rng)
    real = torch.arange(7) < torch.tensor([7, 4, 6])[:, None]
    expected = theirs(
        ours._embed(source, ours.target_embeddings),
        ours._embed(inputs, ours.target_embeddings),
        tgt_mask=~torch.ones(5, 5, dtype=torch.bool).tril(),
        src_key_padding_mask=~real,
        memory_key_padding_mask=~real,
    )
    torch.testing.assert_close(ours(source, real, inputs), expected, rtol=0.0, atol=1e-12)


@torch.no_grad()
def test_cross_attention_equals_torch():
    ours = scramble(CrossAttention(16, 4)).double()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.copy_(ours.qkv.weight)
    theirs.in_proj_bias.copy_(ours.qkv.bias)
    theirs.out_proj.weight.copy_(ours.out.weight)
    theirs.out_proj.bias.copy_(ours.out.bias)
    rng = torch.Generator().manual_seed(1)
    x, source = (torch.randn(2, n, 16, generator=rng, dtype=torch.float64) for n in (3, 5))
    real = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    expected, weights = theirs(
        x, source, source, key_padding_mask=~real, average_attn_weights=False
    )
    context = AttentionContext(
        max_seqlen=3, device=x.device, encoder_states=source, encoder_mask=real
    )
    torch.testing.assert_close(ours(x, context), expected, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(ours.weights(x, context), weights, rtol=0.0, atol=1e-12)
