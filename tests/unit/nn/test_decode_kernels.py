"""The kernels of a decoding step, each beside the plain way to compute the same.

They need CUDA; or Triton on any machine, with TRITON_INTERPRET=1 and `pytest -m gpu` on this file.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")

from cloze.decode.language import language_model
from cloze.decode.prompts import start_rows
from cloze.nn import fused_step, graph_step
from cloze.nn.kernels.decode import attention, linear
from cloze.nn.layers import ACTIVATIONS
from helpers import scramble, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),  # interpreter's
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float32] if DEVICE == "cuda" else [torch.float32]
CLOSE = {
    torch.bfloat16: {"rtol": 2e-2, "atol": 3e-2},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
}
PLAIN = {"none": lambda x: x, "gelu": F.gelu, "gelu_tanh": ACTIVATIONS["gelu_new"], "relu": F.relu}


def random(*shape, dtype, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize(("inputs", "outputs"), [(48, 37), (768, 70), (1600, 40), (3072, 33)])
@torch.no_grad()
def test_linear(dtype, rows, inputs, outputs):
    x, weight = random(rows, inputs, dtype=dtype), random(outputs, inputs, dtype=dtype, seed=1)
    weight /= inputs**0.5
    bias, residual = (
        random(*shape, dtype=dtype, seed=2) for shape in ((outputs,), (rows, outputs))
    )
    norm = scramble(nn.LayerNorm(inputs)).to(DEVICE, dtype)
    for name, activation in PLAIN.items():
        expected = activation(F.linear(norm(x), weight, bias))
        found = linear(x, weight, bias, norm=norm, activation=name)
        torch.testing.assert_close(found, expected, **CLOSE[dtype])
    expected = F.linear(x, weight) + residual
    torch.testing.assert_close(linear(x, weight, None, residual=residual), expected, **CLOSE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 1, 63, 64, 100])
@pytest.mark.parametrize("width", [24, 64])
def test_attention(dtype, length, width):
    rows, capacity, heads = 2, 128, 3
    cache = random(2, rows, capacity, heads, width, dtype=dtype)
    qkv = random(rows, 3 * heads * width, dtype=dtype, seed=1)
    mask = torch.rand(rows, capacity, generator=torch.Generator().manual_seed(0)).to(DEVICE) < 0.7
    mask[:, length] = True
    mask[:, length + 1 :] = False
    query, key, value = qkv.view(rows, 3, heads, width).unbind(1)
    expected_cache = cache.clone()
    expected_cache[0, :, length], expected_cache[1, :, length] = key, value
    expected = F.scaled_dot_product_attention(
        query[:, :, None], *expected_cache.transpose(2, 3), mask[:, None, None]
    )
    found = attention(qkv, cache, torch.tensor([length], device=DEVICE), mask)
    torch.testing.assert_close(found, expected.flatten(1), **CLOSE[dtype])
    assert torch.equal(cache, expected_cache)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3])
@torch.no_grad()
def test_a_step_equals_the_plain_blocks(dtype, count, monkeypatch):
    for module in (graph_step, fused_step):
        monkeypatch.setattr(module, "DEVICES", {"cuda", "cpu"})
    model = tiny_model("lm", family="gpt2", hidden_size=48, num_heads=2)
    model.module.to(DEVICE, dtype)
    assert fused_step.can_fuse_step(model.module, 4)
    calls = []
    fused = graph_step.compute_fused_step
    monkeypatch.setattr(
        graph_step, "compute_fused_step", lambda *given: calls.append(1) or fused(*given)
    )
    language, module = language_model(model), model.module
    prompts = [[2, 7, 8, 9, 10], [2, 11], [2, 12, 13]][:count]
    tokens, state = start_rows(language, prompts, range(count), max_new_tokens=20)
    for step in range(6):
        log_probs, state = language.step(tokens, state)
        for row, context in enumerate(prompts):
            logits = module.logits("lm", module(torch.tensor([context], device=DEVICE))[0, -1])
            expected = logits.float().log_softmax(-1)
            expected = expected.index_fill(-1, language._banned_ids, -torch.inf)
            loose = {"rtol": 0.05, "atol": 0.1}
            tolerance = loose if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
            torch.testing.assert_close(log_probs[row], expected, **tolerance)
        tokens = torch.full((count,), 5 + step, device=DEVICE)
        prompts = [[*context, 5 + step] for context in prompts]
    assert calls
