"""RETRO as a language model: with a KV cache as without one, and windows of whole chunks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.decode.language import language_model
from cloze.nn.utils import log_softmax
from generated_examples import examples
from helpers import PIECES, tiny_model
from retrieving import RandomRetriever, place_neighbors

SIZE = len(PIECES)


def make_decoder(positions=64, **changes):
    options = {"num_layers": 4, "retrieval_every": 2, "chunk_length": 4} | changes
    model = tiny_model("lm", family="retro", positions=positions, **options)
    model.module.double()
    return replace(language_model(model), retriever=RandomRetriever(model.module))


def drop_caches(state):
    return replace(state.read_pending(), caches=(), mask=None, retrieval=None)


@examples(8)
@given(st.data())
def test_a_cache_changes_nothing(data):
    """Rows of different lengths, whose chunks end at different steps, in float64."""
    decoder = make_decoder()
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    lengths = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=4))
    prompts = [[2, *torch.randint(5, SIZE, (length,)).tolist()] for length in lengths]
    tokens, state = decoder.start(prompts)
    if data.draw(st.booleans()):
        state = decoder.reserve(state, 12)
    for _ in range(12):
        expected, _ = decoder.step(tokens, drop_caches(state))
        found, state = decoder.step(tokens, state)
        assert state.caches
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
        tokens = torch.randint(5, SIZE, (len(lengths),))
        if data.draw(st.integers(0, 4)) == 0:  # as beam search does
            rows = torch.randint(0, len(lengths), (len(lengths),))
            state, tokens = decoder.reorder(state, rows), tokens[rows]


def test_a_step_is_a_pass_over_the_whole_text():
    """Without the code of decoding: the module, with the neighbors of all complete chunks."""
    decoder = make_decoder()
    module, ids = decoder.module, [2, *torch.randint(5, SIZE, (14,)).tolist()]
    tokens, state = decoder.start([ids[:6]])
    for length in range(6, len(ids)):
        found, state = decoder.step(tokens, state)
        chunks = [ids[at : at + 4] for at in range(1, length - 3, 4)]
        placed = place_neighbors(module, [length], *decoder.retriever.find(chunks))
        with torch.no_grad():
            logits = module.logits("lm", module(torch.tensor([ids[:length]]), neighbors=placed))
        allowed = found[0] > -torch.inf
        expected = log_softmax(logits[0, -1])[allowed]
        torch.testing.assert_close(found[0][allowed], expected, atol=1e-10, rtol=0)
        tokens = torch.tensor([ids[length]])


def test_neighbors_are_retrieved_once_per_chunk():
    decoder = make_decoder()
    tokens, state = decoder.start([[2, 5, 6]])
    for _ in range(11):
        _, state = decoder.step(tokens, state)
        tokens = torch.tensor([7])
    assert decoder.retriever.calls == 3  # 12 tokens after bos


def test_neighbors_matter_and_their_absence_is_a_plain_decoder():
    decoder = make_decoder()
    plain, ids = replace(decoder, retriever=None), [2, *range(5, 17), 3]
    (with_,), (without,) = decoder.log_probs([ids]), plain.log_probs([ids])
    # the token at position 5, the first of the second chunk, is the first that depends on them
    assert (with_[:4] == without[:4]).all()
    assert (with_[4:] != without[4:]).all()


def test_scores_are_the_probabilities_of_steps():
    decoder = make_decoder(tokenizer=None)
    ids = [2, *torch.randint(5, SIZE, (18,)).tolist()]
    (scores,) = decoder.log_probs([ids])
    tokens, state = decoder.start([ids[:1]])
    for position in range(1, len(ids)):
        log_probs, state = decoder.step(tokens, state)
        assert scores[position - 1] == pytest.approx(log_probs[0, ids[position]].item(), abs=1e-9)
        tokens = torch.tensor([ids[position]])


def test_texts_beyond_the_maximum_lose_whole_chunks():
    decoder = make_decoder(positions=15)  # bos and three chunks fit, and two tokens
    ids = [2, *torch.randint(5, SIZE, (30,)).tolist()]
    (scores,) = decoder.log_probs([ids])
    assert len(scores) == 30
    tokens, state = decoder.start([ids])
    found, _ = decoder.step(tokens, state)  # 31 tokens: the first four chunks are left out
    tokens, state = decoder.start([[2, *ids[17:]]])
    expected, _ = decoder.step(tokens, state)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    calls = decoder.retriever.calls
    log_probs, _ = decoder.step(torch.tensor([6]), state)
    assert log_probs.shape == (1, SIZE)
    assert decoder.retriever.calls - calls <= 4


def test_states_of_requests_can_be_merged():
    decoder = make_decoder()
    for one in (decoder, replace(decoder, retriever=None)):
        states, tokens = [], []
        for prompt in ([2, 5, 6, 7, 8, 9], [2, 10]):
            first, state = one.start([prompt])
            _, state = one.step(first, state)
            states.append(state)
            tokens.append(11)
        merged, _ = one.step(torch.tensor(tokens), one.merge(states))
        for row, prompt in enumerate(([2, 5, 6, 7, 8, 9, 11], [2, 10, 11])):
            alone, _ = one.step(*one.start([prompt]))
            torch.testing.assert_close(merged[row], alone[0], atol=1e-10, rtol=0)


def test_generation_does_not_depend_on_the_batch():
    decoder = make_decoder()
    prompts = ["a b c d e f", "the cat", "a b c d"]
    together = cloze.generate(decoder, prompts, max_new_tokens=12, stop=False, seed=3)
    for prompt, found in zip(prompts, together, strict=True):
        alone = cloze.generate(decoder, prompt, max_new_tokens=12, stop=False, seed=3)
        assert alone[0].tokens == found[0].tokens
    beam = cloze.generate(decoder, prompts, max_new_tokens=8, beam=3, n_best=2)
    assert [len(one) for one in beam] == [2, 2, 2]
