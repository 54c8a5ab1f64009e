"""Capture from fused blocks, with kernels on a GPU: `make test-gpu`."""

import pytest
import torch

from cloze.interpret.capture import capture
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.nn.fuse import fuse
from cloze.nn.layout import Packed, Varlen
from helpers import scramble

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
LENGTHS = (40, 17, 64)
SHAPE = {
    "vocab_size": 50,
    "hidden_size": 128,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 256,
    "max_positions": 64,
    "dropout": 0.1,
}


def make_inputs(layout):
    ids = torch.randint(0, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
    packed = Packed.from_lengths(LENGTHS, DEVICE)
    if layout == "padded":
        return ids[:64].view(2, 32).to(DEVICE), torch.ones(2, 32, dtype=torch.bool, device=DEVICE)
    if layout == "packed":
        return ids.to(DEVICE), packed
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0).int().to(DEVICE)
    return ids.to(DEVICE), Varlen(cu_seqlens, packed.position_ids, max(LENGTHS))


@pytest.mark.parametrize("layout", ["padded", "packed", "varlen"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_fused_blocks_compute_the_same(family, training, layout):
    config = FAMILIES[family].config_class(**SHAPE)
    module = scramble(build(config, (), rng=torch.Generator()), scale=0.1)
    module = fuse(module.to(DEVICE, DTYPE)).train(training)
    inputs = make_inputs(layout)
    for kind in ("attention", "qkv", "heads", "ffn", "blocks", "embeddings"):
        outputs = []
        for observed in (False, True):
            torch.manual_seed(1)
            if observed:
                with torch.no_grad(), capture(module, kind) as captured:
                    outputs.append(module(*inputs))
            else:
                with torch.no_grad():
                    outputs.append(module(*inputs))
        assert torch.equal(*outputs), kind
        assert len(captured) == (1 if kind == "embeddings" else 2)
        if kind == "attention":
            for weights in captured[0] if layout == "packed" else [captured[0]]:
                sums = weights.float().sum(-1)
                torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=2e-2)
