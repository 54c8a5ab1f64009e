"""Decoding with a KV cache and with packed weights equals reading every context again."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch

import cloze
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.decode.language import language_model
from cloze.decode.prompts import start_rows
from cloze.nn.packed import can_pack, get_packed_step
from helpers import tiny_model

FAMILIES = {
    "gpt2": ("lm", {"family": "gpt2"}),
    "gpt": ("lm", {"family": "openai-gpt"}),
    "gpt3": ("lm", {"family": "gpt3", "window_size": 3}),
    "music": ("lm", {"family": "music-transformer"}),
    "bert": ("mlm", {"is_causal": True}),
}
WIDE = {"hidden_size": 256, "num_heads": 4, "intermediate_size": 1024}


def make_model(name, **changes):
    head, options = FAMILIES[name]
    return tiny_model(head, **(options | changes))


def read_again(language, context):
    """Log-probabilities of the next token, without a cache."""
    module = language.module
    with torch.no_grad():
        logits = module.logits(module.lm_head, module(torch.tensor([context]))[0, -1])
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def assert_equal(found, expected, tolerance):
    allowed = found.isfinite()  # special tokens are never generated
    assert allowed.sum() > 10
    torch.testing.assert_close(found[allowed], expected[allowed], rtol=0, atol=tolerance)


def decode(language, prompts, steps, tolerance, rows=None, **options):
    """Steps of random tokens, each compared with a whole pass over every row."""
    rng = torch.Generator().manual_seed(1)
    contexts = [prompts[row] for row in rows or range(len(prompts))]
    tokens, state = start_rows(language, prompts, rows or range(len(prompts)), **options)
    for _ in range(steps):
        log_probs, state = language.step(tokens, state)
        for found, context in zip(log_probs, contexts, strict=True):
            assert_equal(found, read_again(language, context), tolerance)
        tokens = torch.randint(5, 20, (len(contexts),), generator=rng)
        contexts = [[*context, int(id_)] for context, id_ in zip(contexts, tokens, strict=True)]
    return contexts, tokens, state


PROMPTS = [[2, 7, 8, 9, 10], [2, 11], [2, 12, 13]]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("reserved", [None, 3, 12], ids=["unknown", "too few", "enough"])
def test_cache_equals_no_cache_for_prompts_of_different_lengths(name, reserved):
    model = make_model(name)
    model.module.double()
    decode(language_model(model), PROMPTS, 12, 1e-10, max_new_tokens=reserved)
    decode(language_model(model), PROMPTS[:1], 12, 1e-10, max_new_tokens=reserved)
    decode(language_model(model), PROMPTS, 6, 1e-10, rows=[2, 0, 0, 1], max_new_tokens=reserved)


@pytest.mark.parametrize("name", FAMILIES)
def test_reordered_rows_and_older_states_stay_exact(name):
    model = make_model(name)
    model.module.double()
    language = language_model(model)
    contexts, tokens, state = decode(language, PROMPTS, 3, 1e-10, max_new_tokens=9)
    log_probs, after = language.step(tokens, state)
    other, _ = language.step(tokens.flip(0), state)  # from the same state, after another step
    again, _ = language.step(tokens, state)
    torch.testing.assert_close(again, log_probs, rtol=0, atol=1e-12)
    assert not torch.allclose(other, log_probs)
    order = torch.tensor([2, 0, 2, 1])
    moved = language.reorder(after, order)
    next_ids = torch.tensor([6, 7, 8, 9])
    found, _ = language.step(next_ids, moved)
    language.step(torch.tensor([5, 5, 5]), after)
    for row, old in enumerate(order.tolist()):
        assert_equal(found[row], read_again(language, [*contexts[old], int(next_ids[row])]), 1e-10)


def test_buffers_are_allocated_once_and_no_larger_than_reserved():
    language = language_model(make_model("gpt2"))
    tokens, state = start_rows(language, PROMPTS, range(3), max_new_tokens=10)
    addresses = set()
    for _ in range(10):
        _, state = language.step(tokens, state)
        addresses.add(tuple(cache.buffer.key.data_ptr() for cache in state.caches))
    assert len(addresses) == 1
    assert {cache.buffer.key.shape[2] for cache in state.caches} == {5 + 10 - 1}
    assert language.reorder(state, torch.arange(3)) is state
    two = language.reorder(state, torch.tensor([0, 2]))
    assert {(len(cache.buffer.key), cache.buffer.key.shape[2]) for cache in two.caches} == {(2, 14)}


def test_reserve_is_limited_by_the_model():
    language = language_model(make_model("gpt2", positions=12))
    tokens, state = start_rows(language, PROMPTS, range(3), max_new_tokens=1000)
    _, state = language.step(tokens, state)
    assert {cache.buffer.key.shape[2] for cache in state.caches} == {12}


def test_beams_equal_those_without_a_cache():
    model = make_model("gpt2")
    model.module.double()
    language = language_model(model)

    class Uncached:
        def step(self, tokens, rows):
            rows = [[*row, int(id_)] for row, id_ in zip(rows, tokens, strict=True)]
            scores = torch.stack([read_again(language, row) for row in rows])
            return scores.index_fill(-1, language._banned_ids, -torch.inf), rows

        def reorder(self, rows, indices):
            return [rows[index] for index in indices.tolist()]

    settings = {"eos_id": language.eos_id, "max_lengths": [8, 8, 8]}
    tokens, state = start_rows(language, PROMPTS, range(3), max_new_tokens=8)
    config = BeamConfig(beam=3, n_best=3)
    found = beam_search(language, state, tokens, config, **settings)
    expected = beam_search(Uncached(), [row[:-1] for row in PROMPTS], tokens, config, **settings)
    assert [[one.tokens for one in some] for some in found] == [
        [one.tokens for one in some] for some in expected
    ]


@pytest.fixture(scope="module", params=[*FAMILIES])
def wide(request):
    model = make_model(request.param, **WIDE)
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.mul_(0.2)
    assert can_pack(model.module)
    return model


def test_packed_steps_equal_plain_ones(wide):
    language = language_model(wide)
    decode(language, PROMPTS, 6, 2e-5, max_new_tokens=20)
    assert get_packed_step(wide.module, steps=1) is not None  # it is used, and kept
    decode(language, PROMPTS[:1], 6, 2e-5, max_new_tokens=2)


def test_packed_weights_follow_the_model(wide):
    model = replace(wide, module=copy.deepcopy(wide.module))
    module, language = model.module, language_model(model)
    assert get_packed_step(module, steps=15) is None  # too few steps to pay for it
    packed = get_packed_step(module, steps=None)
    assert get_packed_step(module, steps=1) is packed
    with torch.no_grad():
        module.blocks[1].ffn.down.weight.mul_(-1)
    assert get_packed_step(module, steps=1) is None
    decode(language, PROMPTS, 4, 2e-5, max_new_tokens=20)
    assert get_packed_step(copy.deepcopy(module), steps=1) is None
    assert "_packed_step" not in pickle.loads(pickle.dumps(module.state_dict()))
    calls = []
    handle = module.blocks[0].attention.register_forward_hook(lambda *_: calls.append(1))
    decode(language, PROMPTS, 3, 2e-5, max_new_tokens=20)
    handle.remove()
    assert calls  # hooks see every step


def test_generation_in_training_mode_has_no_dropout(wide):
    expected = cloze.generate(wide, ["a", "the cat"], max_new_tokens=16, temperature=0)
    wide.module.train()
    assert cloze.generate(wide, ["a", "the cat"], max_new_tokens=16, temperature=0) == expected
    assert all(part.training for part in wide.module.modules())
    wide.module.eval()


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="the CPU has no bfloat16"
)
def test_packed_bfloat16(wide):
    model = replace(wide, module=copy.deepcopy(wide.module).bfloat16())
    language = language_model(model)
    _, tokens, state = decode(language, PROMPTS, 6, 0.1, max_new_tokens=20)
    assert get_packed_step(model.module, steps=1) is not None
    found, _ = language.step(tokens, state)
    handle = model.module.blocks[0].register_forward_hook(lambda *_: None)
    plain, _ = language.step(tokens, state)  # with the cache of packed steps
    handle.remove()
    torch.testing.assert_close(found, plain, rtol=0, atol=0.1)
