"""Capture: the model computes the same, the kinds agree with each other, and nothing stays."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import InputError
from cloze.interpret.capture import KINDS, capture, list_sources
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.nn.attention import Attention
from cloze.nn.fuse import fuse
from cloze.nn.layout import Packed
from generated_examples import examples
from helpers import ENCODERS, PIECES, raises, scramble
from languages import neural_model
from translators import translator

SHAPE = {
    "vocab_size": len(PIECES),
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 2,
    "intermediate_size": 64,
    "max_positions": 12,
}
ENCODER_KINDS = ("attention", "qkv", "heads", "ffn", "blocks", "embeddings")
MODULES = {
    family: scramble(
        build(FAMILIES[family].config_class(**SHAPE), (), rng=torch.Generator().manual_seed(0))
    )
    for family in ENCODERS
}
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=3)


def traces(module):
    """What a capture could leave behind."""
    return [
        (len(part._forward_hooks), len(part._forward_pre_hooks), sorted(vars(part)))
        for part in module.modules()
    ]


def make_inputs(sizes):
    """The same sequences padded (ids, mask) and packed (ids, layout)."""
    rng = torch.Generator().manual_seed(len(sizes))
    rows = [torch.randint(5, len(PIECES), (size,), generator=rng) for size in sizes]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor(sizes)[:, None]
    return (ids, mask), (torch.cat(rows), Packed.from_lengths(sizes))


def run(module, inputs, kind, **options):
    with torch.no_grad(), capture(module, kind, **options) as captured:
        return module(*inputs), captured


@examples(40)
@given(
    family=st.sampled_from(ENCODERS),
    sizes=lengths,
    kind=st.sampled_from(ENCODER_KINDS),
    packed=st.booleans(),
    fused=st.booleans(),
    training=st.booleans(),
)
def test_the_model_computes_the_same_and_nothing_stays(
    family, sizes, kind, packed, fused, training
):
    module = build(FAMILIES[family].config_class(**SHAPE), (), rng=torch.Generator())
    module.load_state_dict(MODULES[family].state_dict())
    module = (fuse(module) if fused else module).train(training)
    inputs, before = make_inputs(sizes)[packed], traces(module)
    with torch.no_grad():
        torch.manual_seed(1)
        plain = module(*inputs)
        torch.manual_seed(1)
        observed, captured = run(module, inputs, kind)
    assert torch.equal(plain, observed)
    assert traces(module) == before
    expected = [0] if kind == "embeddings" else [1, 2, 3]
    assert [source.layer for source in captured.sources] == expected
    assert len(captured) == len(captured.sources)


@examples(20)
@given(family=st.sampled_from(ENCODERS), sizes=lengths)
def test_weights_and_values_give_the_heads_in_both_layouts(family, sizes):
    module = MODULES[family].eval()
    padded, packed = make_inputs(sizes)
    found = {kind: run(module, padded, kind)[1] for kind in ("attention", "qkv", "heads", "ffn")}
    flat = {kind: run(module, packed, kind)[1] for kind in ("attention", "qkv", "heads", "ffn")}
    close = {"rtol": 1e-4, "atol": 1e-5}
    for layer in range(3):
        start = 0
        for row, size in enumerate(sizes):
            weights = found["attention"][layer][row, :, :size, :size]
            value = found["qkv"][layer].value[row, :size]
            heads = found["heads"][layer][row, :size]
            torch.testing.assert_close(torch.einsum("hqk,khd->qhd", weights, value), heads, **close)
            inside = slice(start, start + size)
            torch.testing.assert_close(flat["attention"][layer][row], weights, **close)
            for name in ("query", "key", "value"):
                one = getattr(found["qkv"][layer], name)[row, :size]
                torch.testing.assert_close(getattr(flat["qkv"][layer], name)[inside], one, **close)
            torch.testing.assert_close(flat["heads"][layer][inside], heads, **close)
            torch.testing.assert_close(
                flat["ffn"][layer][inside], found["ffn"][layer][row, :size], **close
            )
            start += size


@examples(20)
@given(layers=st.lists(st.sampled_from([1, 2, 3, -1, -2, -3]), max_size=4), sizes=lengths)
def test_only_selected_layers_are_recorded_and_reduced(layers, sizes):
    module = MODULES["bert"].eval()
    inputs = make_inputs(sizes)[1]
    _, whole = run(module, inputs, "attention")
    _, captured = run(module, inputs, "attention", layers=layers, reduce=lambda one: one.mean(0))
    wanted = sorted({number if number > 0 else 4 + number for number in layers})
    assert [source.layer for source in captured.sources] == wanted
    for number, value in zip(wanted, captured, strict=True):
        for one, other in zip(whole[number - 1], value, strict=True):
            assert torch.equal(one.mean(0), other)


def test_blocks_and_embeddings_are_the_hidden_states():
    for family, module in MODULES.items():
        inputs = make_inputs([5, 3])[1]
        with torch.no_grad():
            states = list(module.eval().hidden_states(*inputs))
        (_, blocks), (_, embeddings) = (
            run(module, inputs, one) for one in ("blocks", "embeddings")
        )
        for one, other in zip([embeddings[0], *blocks][:-1], states[:-1], strict=True):
            assert torch.equal(one, other), family
        assert torch.equal(module.norm(blocks[-1]), states[-1])


def test_captures_may_be_nested():
    module, inputs = MODULES["bert"].eval(), make_inputs([4])[0]
    before = traces(module)
    with torch.no_grad(), capture(module, "heads") as outer:
        with capture(module, "heads", layers=[1]) as inner, capture(module, "attention"):
            module(*inputs)
        module(*inputs)
    assert (len(outer), len(inner)) == (6, 1)
    assert traces(module) == before


@pytest.mark.parametrize("kind", [*ENCODER_KINDS, Attention])
def test_an_error_leaves_nothing_behind(kind):
    module, inputs = MODULES["modernbert"], make_inputs([4])[0]
    before = traces(module)

    def run_and_fail():
        with capture(module, kind):
            module(*inputs)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        run_and_fail()

    def fail(_):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), capture(module, kind, reduce=fail):
        module(*inputs)
    assert traces(module) == before


def test_translators_have_two_stacks():
    module = translator("transformer").module.eval()
    source, target = torch.randint(5, 20, (1, 6)), torch.randint(5, 20, (1, 4))
    inputs = source, torch.ones_like(source, dtype=torch.bool), target
    _, weights = run(module, inputs, "attention")
    assert [(one.stack, one.layer) for one in weights.sources] == [
        *(("encoder", layer) for layer in (1, 2)),
        *(("decoder", layer) for layer in (1, 2)),
    ]
    assert [tuple(one.shape) for one in weights] == [(1, 2, 6, 6)] * 2 + [(1, 2, 4, 4)] * 2
    _, cross = run(module, inputs, "cross_attention", layers=[-1])
    assert [tuple(one.shape) for one in cross] == [(1, 2, 4, 6)]
    _, qkv = run(module, inputs, "cross_qkv", layers=[-1])
    _, heads = run(module, inputs, "cross_heads", layers=[-1])
    mixed = torch.einsum("bhqk,bkhd->bqhd", cross[0], qkv[0].value)
    torch.testing.assert_close(mixed, heads[0], rtol=1e-4, atol=1e-5)
    _, tables = run(module, inputs, "embeddings")
    assert [tuple(one.shape) for one in tables] == [(1, 6, 16), (1, 4, 16)]
    assert {one.stack for one in list_sources(module, "ffn", stack="decoder")} == {"decoder"}


@pytest.mark.parametrize("variety", ["lstm", "gru", "rnn", "awd"])
def test_recurrent_layers_and_gates(variety):
    module = neural_model(variety).module
    ids = torch.tensor([[3, 4, 5, 6]])
    inputs = ids, module.init_state(1)
    before = traces(module)
    with torch.no_grad():
        plain, _ = module(*inputs)
    (observed, _), states = run(module, inputs, "recurrent")
    _, gates = run(module, inputs, "gates")
    assert torch.equal(plain, observed)
    assert traces(module) == before
    for one, other in zip(states, gates, strict=True):
        torch.testing.assert_close(other.hidden, one, rtol=1e-4, atol=1e-6)
    assert [source.layer for source in states.sources] == [*range(1, len(states) + 1)]


def test_mistakes_are_named():
    module = MODULES["bert"]
    for layers, number in (([4], 4), ([0], 0), ([1, -4], -4)):
        with (
            raises(InputError, "layer", number, fix="1 to 3"),
            capture(module, "attention", layers=layers),
        ):
            pass
    with raises(InputError, "atention", fix="attention"), capture(module, "atention"):
        pass
    assert set(ENCODER_KINDS) < set(KINDS)
