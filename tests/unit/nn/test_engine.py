"""The engine computes what the plain modules do: packed, quantized, in graphs and padded."""

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import ConfigError
from cloze.nn import engine, packed, packed_encoder
from cloze.nn.engine import compute_layers, is_quantized, quantize
from cloze.nn.graph_encoder import compute_padded, get_encoder_graphs
from cloze.nn.layout import Packed
from cloze.nn.pooling import _pool_padded as pool_padded
from cloze.nn.pooling import pool, pool_packed
from cloze.tasks import text_encoding
from cloze.tasks.features import select_layers
from helpers import ENCODERS, PIECES, raises, tiny_model

# its attention reads relative positions, for which there are no rows of several sequences
ENCODERS = [name for name in ENCODERS if name != "music-transformer"]
PACKED = [name for name in ENCODERS if name != "retro"]  # its blocks also read neighbors

LENGTHS = (9, 7, 7, 5, 3, 3, 3, 1)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TEXTS = ["the cat sat.", "a", "cats sat, the cat", "b c d e f", "the the", ""]


def make_input(model, lengths=LENGTHS, seed=0):
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, len(PIECES), (sum(lengths),), generator=rng)
    types = torch.cat([(torch.arange(n) >= n // 2).long() for n in lengths])
    return ids, Packed(lengths, model.device), types


def plain(model, ids, layout, types, layers):
    device = model.device
    return layers.combine(model.module.hidden_states(ids.to(device), layout, types.to(device)))


@pytest.fixture
def small_packing(monkeypatch):
    """Tiny models are packed, at the first call."""
    monkeypatch.setattr(packed, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(packed_encoder, "_MIN_TOKENS", 1)


@pytest.fixture
def graphs(monkeypatch):
    """The code of a GPU runs on the CPU."""
    monkeypatch.setattr(engine, "GRAPH_DEVICES", {"cpu", "cuda"})


@pytest.mark.parametrize("layers", ["last", "embeddings", "sum-all", "0,-1"])
@pytest.mark.parametrize("family", PACKED)
def test_packed_equals_plain(family, layers, small_packing):
    model = tiny_model(family=family)
    batch, selection = make_input(model), select_layers(layers, 2)
    with torch.inference_mode():
        found = compute_layers(model.module, *batch, selection)
        assert model.module.__dict__["_packed_encoder"] is not None
        torch.testing.assert_close(found, plain(model, *batch, selection), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", PACKED)
def test_int8_is_close(family):
    model = tiny_model(family=family, hidden_size=32)
    batch, last = make_input(model), select_layers("last", 2)
    with torch.inference_mode():
        expected = plain(model, *batch, last)
        quantize(model.module, True)
        found = compute_layers(model.module, *batch, last)
    assert not torch.equal(found, expected)
    assert torch.cosine_similarity(found, expected).mean() > 0.995


def test_int8_does_not_depend_on_the_batch():
    model = tiny_model(hidden_size=32)
    quantize(model.module, True)
    together = cloze.embed(model, TEXTS[:4])
    alone = np.stack([cloze.embed(model, text) for text in TEXTS[:4]])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_rows_have_few_sizes():
    """oneDNN keeps a kernel for each size, so a server would need more and more memory."""
    sizes = {packed_encoder.round_up_rows(count) for count in range(1, 2049)}
    assert len(sizes) < 64
    for count in range(1, 2049):
        padding = packed_encoder.round_up_rows(count) - count
        assert 0 <= padding < max(16, count / 8)


def test_changed_weights_are_noticed(small_packing):
    model = tiny_model()
    batch, last = make_input(model), select_layers("last", 2)
    with torch.inference_mode():
        before = compute_layers(model.module, *batch, last)
    with torch.no_grad():
        model.module.blocks[0].ffn.up.weight.mul_(2)
    with torch.inference_mode():
        after = compute_layers(model.module, *batch, last)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(after, plain(model, *batch, last), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["block", "linear"])
def test_hooks_see_the_plain_module(where, small_packing, graphs):
    model, seen = tiny_model(), []
    block = model.module.blocks[1]
    hooked = {"block": block, "linear": block.ffn.up}[where]
    batch, last = make_input(model), select_layers("last", 2)
    with torch.inference_mode():
        compute_layers(model.module, *batch, last)
        handle = hooked.register_forward_hook(lambda *given: seen.append(given[2]))
        compute_layers(model.module, *batch, last)
        handle.remove()
        compute_layers(model.module, *batch, last)
    assert len(seen) == 1


@pytest.mark.parametrize("layers", ["last", "concat"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ENCODERS)
def test_rows_of_fixed_shape_equal_plain(family, device, layers, graphs):
    half = device == "cuda"
    model = tiny_model(family=family, hidden_size=64 if half else 16)
    model.to(device, "bfloat16" if half else None)
    selection = select_layers("0,1,2" if layers == "concat" else "last", 2)
    rows = get_encoder_graphs(model.module)
    with torch.inference_mode():
        for seed, lengths in enumerate([LENGTHS, (20, 4), LENGTHS[:5], (2,) * 70]):
            batch = make_input(model, lengths, seed)
            found = rows.compute(model.module, *batch, selection)
            assert found is not None
            expected = plain(model, *batch, selection)
            tolerance = {"rtol": 0.1, "atol": 0.15} if half else {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(found.clone(), expected, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ENCODERS)
def test_padded_rows_equal_plain(family, device):
    model = tiny_model(family=family)
    model.to(device)
    last = select_layers("last", 2)
    with torch.inference_mode():
        for lengths in [LENGTHS, (24, 20, 16, 9, 2), (16, 16), (1,)]:
            batch = make_input(model, lengths)
            found = compute_padded(model.module, *batch, last)
            torch.testing.assert_close(found, plain(model, *batch, last), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_that_change_after_the_capture(device, graphs):
    model = tiny_model()
    model.to(device, "bfloat16" if device == "cuda" else None)
    rows, batch, last = get_encoder_graphs(model.module), make_input(model), None
    with torch.inference_mode():
        before = rows.compute(model.module, *batch, last).float().clone()
    with torch.no_grad():
        model.module.blocks[0].ffn.up.weight.mul_(2)
    with torch.inference_mode():
        after = rows.compute(model.module, *batch, last).float().clone()
    assert not torch.allclose(before, after)
    model.to(dtype="float16" if device == "cuda" else "bfloat16")
    with torch.inference_mode():
        assert rows.compute(model.module, *batch, last).dtype == model.dtype


def test_a_failed_capture_falls_back(graphs, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    model = tiny_model()
    model.to(dtype="bfloat16")
    expected = cloze.embed(model, TEXTS)
    del model.module.__dict__["_encoder_graphs"]
    monkeypatch.setattr("cloze.nn.graph_encoder.GraphRow._capture", fail)
    with pytest.warns(UserWarning, match="out of memory"):
        np.testing.assert_allclose(cloze.embed(model, TEXTS), expected, atol=0.05)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_embed_and_classify_with_rows(device, dtype, pooling, graphs, monkeypatch):
    model = tiny_model("sequence", hidden_size=64)
    texts = TEXTS * 5
    vectors = cloze.embed(model, texts, pooling=pooling)
    labels = cloze.classify(model, texts[:4])
    monkeypatch.setattr(text_encoding, "GPU_PART_CHARS", 40)
    model.to(device, dtype)
    close = (0.99, 0.15) if dtype == "bfloat16" else (1 - 1e-5, 1e-4)
    found = cloze.embed(model, texts, pooling=pooling)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(vectors, axis=1)
    assert ((found * vectors).sum(1) / norms).min() > close[0]
    for one, expected in zip(cloze.classify(model, texts[:4]), labels, strict=True):
        assert one.scores["yes"] == pytest.approx(expected.scores["yes"], abs=close[1])


@pytest.mark.parametrize(
    "mode", ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_padded_pooling_equals_that_of_runs(mode):
    hidden, layout = torch.randn(sum(LENGTHS), 6), Packed(LENGTHS)
    found = pool_padded(hidden, layout, (mode, "cls"), True)
    expected = pool_packed(hidden, layout, (mode, "cls"), True, skip_zeros=False)
    torch.testing.assert_close(found, expected)
    one = pool(hidden[None, :9], (mode, "cls"), True)
    torch.testing.assert_close(found[:1], one)


def test_texts_are_encoded_ahead_in_order(monkeypatch):
    class Device:
        type = "cuda"

    class OnGPU:
        device = Device()

    monkeypatch.setattr(text_encoding, "GPU_PART_CHARS", 4)
    found = list(text_encoding.encode_ahead(OnGPU(), list("abcdefgh"), lambda part, n: (n, part)))
    assert found == [(0, ["a"]), (1, list("bcde")), (5, list("fgh"))]
    long = ["abcdefgh", "ab", "", "c"]
    found = list(text_encoding.encode_ahead(OnGPU(), long, lambda part, n: (n, part)))
    assert found == [(0, ["abcdefgh"]), (1, ["ab", "", "c"])]
    assert list(text_encoding.encode_ahead(OnGPU(), [], lambda part, n: (n, part))) == [(0, [])]


def test_int8_is_for_encoders_on_a_cpu():
    with raises(ConfigError, "int8", fix="float32"):
        quantize(object(), True)
    model = tiny_model()
    assert not is_quantized(model.module)
