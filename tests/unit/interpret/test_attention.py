"""The attention of one text: every kind of model, selections, words, and terms of a score."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.interpret.attention import attend_between, compute_attention, merge_tokens
from cloze.models.build import build
from cloze.models.registry import get_family
from helpers import PIECES, raises, scramble, tiny_model, tiny_tokenizer
from translators import translator

IDS = [2, 7, 8, 9, 7, 10, 3]
SHAPE = {
    "vocab_size": len(PIECES),
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 40,
}
FAMILIES = {
    "bert": {},
    "modernbert": {"window_size": 4},
    "gpt2": {},
    "gpt3": {"window_size": 3},
    "music-transformer": {"max_distance": 3},
}


def make_model(family, **changes):
    config = get_family(family).config_class(**(SHAPE | FAMILIES[family] | changes))
    module = scramble(build(config, (), rng=torch.Generator()), scale=0.5).eval()
    return Model(module=module, config=config, tokenizer=tiny_tokenizer())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_products_of_a_pair_add_up_to_its_score(family):
    """The softmax of the scores of all keys is the row of weights, with windows and distances."""
    model = make_model(family)
    (found,) = compute_attention(model, IDS)
    causal = family in ("gpt2", "gpt3", "music-transformer")
    for layer in found.layers:
        for head in found.heads:
            weights = found.weights[layer - 1, head - 1]
            for query in range(len(IDS)):
                pairs = [found.explain_score(layer, head, query, key) for key in range(len(IDS))]
                assert [pair.weight for pair in pairs] == weights[query].tolist()
                seen = weights[query] > 0
                assert not (causal and seen[query + 1 :].any())
                scores = np.array([pair.score for pair in pairs])[seen]
                expected = np.exp(scores - scores.max())
                np.testing.assert_allclose(
                    weights[query][seen], expected / expected.sum(), atol=1e-5
                )
                np.testing.assert_allclose(pairs[0].products.sum(), pairs[0].score, atol=1e-5)


def test_layers_and_heads_are_selected_by_number():
    model = make_model("bert")
    (whole,) = compute_attention(model, IDS)
    (part,) = compute_attention(model, IDS, layers=[-1, 1], heads=[2])
    assert (part.layers, part.heads) == ((1, 3), (2,))
    np.testing.assert_array_equal(part.weights, whole.weights[[0, 2]][:, [1]])
    assert part.explain_score(1, 2, 0, 1).score == whole.explain_score(1, 2, 0, 1).score
    with raises(InputError, "layer 4", fix="1 to 3"):
        compute_attention(model, IDS, layers=[4])
    with raises(InputError, "head 0", fix="1 to 2"):
        compute_attention(model, IDS, heads=[0])


def test_nothing_stays_on_the_module():
    model = make_model("bert")
    compute_attention(model, IDS)
    with pytest.raises(IndexError):
        compute_attention(model, [10_000])
    assert not any(part._forward_hooks for part in model.module.modules())


def test_a_transformer_has_three_kinds_of_attention():
    model = translator("transformer")
    source, target = [5, 6, 7, 8, 1], [9, 10, 11, 1]
    found = {one.name: one for one in compute_attention(model, source, target_ids=target)}
    assert list(found) == ["encoder", "decoder", "cross-attention"]
    assert [one.weights.shape for one in found.values()] == [
        (2, 2, 5, 5),
        (2, 2, 4, 4),
        (2, 2, 4, 5),
    ]
    for one in found.values():
        np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(found["decoder"].weights, 1).any()
    # the first row is that of the begin token, which predicts the first token of the target
    inputs = torch.tensor([[model.config.bos_id, *target[:-1]]])
    real = torch.ones(1, 5, dtype=torch.bool)
    state = model.module.init_state(torch.tensor([source]), real)
    key = state.caches[1].encoder_kv.key[0, :, 1].detach().numpy()
    np.testing.assert_allclose(found["cross-attention"].vectors.keys[1, 1], key, atol=1e-5)
    assert inputs.shape[1] == found["cross-attention"].weights.shape[2]


def test_a_recurrent_translator_has_one_alignment():
    model = translator("bahdanau")
    (found,) = compute_attention(model, [5, 6, 7, 1], target_ids=[9, 10, 1])
    inputs = torch.tensor([[model.config.bos_id, 9, 10]])
    source = torch.tensor([[5, 6, 7, 1]])
    with torch.inference_mode():
        expected = model.module.compute_alignment(source, source > 0, inputs)
    assert (found.name, found.weights.shape) == ("alignment", (1, 1, 3, 4))
    np.testing.assert_array_equal(found.weights[0], expected.numpy())
    with raises(InputError, "alignment", fix="Transformer"):
        found.explain_score(1, 1, 0, 0)


def test_a_model_without_attention_is_an_error():
    with raises(InputError, "no attention", fix="attention"):
        compute_attention(translator("plain-lstm"), [5, 1], target_ids=[9, 1])


def test_sequences_of_a_pair_attend_to_each_other_and_to_special_tokens():
    sequences = [None, 0, 0, None, 1, None]
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype(np.float32)
    found = attend_between(weights, sequences, sequences)
    rest = weights[:, :, 1:3][..., [0, 3, 5]].sum(-1).mean(-1)
    np.testing.assert_allclose(found[0, 0] + found[0, 1] + rest, 1, atol=1e-6)
    np.testing.assert_allclose(found[1, 0], weights[:, :, 4, 1:3].sum(-1), atol=1e-6)


@st.composite
def partitions(draw, most=8):
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most))
    ends = np.cumsum(sizes).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


@given(partitions(), partitions(), st.integers(0, 99))
def test_rows_of_words_sum_to_one(rows, columns, seed):
    size = (2, rows[-1][1])
    weights = np.random.default_rng(seed).dirichlet(np.ones(columns[-1][1]), size)
    merged = merge_tokens(weights.astype(np.float32), rows, columns)
    assert merged.shape == (2, len(rows), len(columns))
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-5)
    first, last = rows[-1]
    begin, end = columns[0]
    np.testing.assert_allclose(
        merged[1, -1, 0], weights[1, first:last, begin:end].sum(-1).mean(), atol=1e-5
    )


def test_a_fused_model_has_the_same_weights():
    from cloze.nn.fuse import fuse, unfuse

    model = tiny_model("mlm")
    (plain,) = compute_attention(model, IDS)
    fuse(model.module)
    try:
        (fused,) = compute_attention(model, IDS)
    finally:
        unfuse(model.module)
    np.testing.assert_allclose(plain.weights, fused.weights, atol=1e-6)
