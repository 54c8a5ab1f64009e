"""Predictions after each layer against direct computations."""

import pytest
import torch
from torch.nn import functional as F

from cloze.errors import InputError
from cloze.interpret.layers import compute_ranks, predict_layers, read_layers
from cloze.interpret.scores import Batch, HeadScore, NextTokenScore, TranslationScore
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import module_of

IDS = torch.tensor([[2, 5, 6, 4, 8, 18, 3]])


def rank_by_sorting(logits, index):
    return 1 + logits.argsort(descending=True, stable=True).tolist().index(index)


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2", "openai-gpt"])
@torch.no_grad()
def test_ranks_and_probabilities_equal_a_sort_after_each_layer(family):
    head = "lm" if "gpt" in family else "mlm"
    module = tiny_model(head, family=family, num_layers=3).module
    positions, candidates = [2, 4], torch.tensor([[9, 7, 0], [9, 7, 0]])
    found = predict_layers(read_layers(module, Batch(IDS), positions, head), candidates, k=4)
    assert found.layers == (0, 1, 2, 3)
    context = module.make_context(IDS, None)
    x = module.embeddings(IDS)
    for layer in range(4):
        logits = module.logits(head, module.norm(x)[0, positions])
        for at in range(2):
            best = logits[at].sort(descending=True, stable=True)
            assert found.top_ids[layer, at].tolist() == best.indices[:4].tolist()
            for n, index in enumerate(candidates[at].tolist()):
                assert found.ranks[layer, at, n] == rank_by_sorting(logits[at], index)
        torch.testing.assert_close(
            found.probabilities[layer], logits.softmax(-1).gather(-1, candidates)
        )
        if layer < 3:
            x = module.blocks[layer](x, context)


def test_equal_logits_are_ranked_by_their_index():
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]])
    assert compute_ranks(logits, torch.tensor([[4, 2, 1, 0, 3]])).tolist() == [[3, 2, 1, 4, 5]]


def last_logits(states):
    return states.compute_logits(states.vectors[-1])


@pytest.mark.parametrize("head", ["sequence", "token", "span"])
@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "gpt2"])
@torch.no_grad()
def test_a_head_reads_the_last_layer_as_it_always_does(family, head):
    module = tiny_model(head, family=family).module
    states = read_layers(module, Batch(IDS), [0], head)
    expected = HeadScore(head, 0, 0).logits(module, Batch(IDS))
    torch.testing.assert_close(last_logits(states), expected)
    assert states.numbers == (0, 1, 2)


@torch.no_grad()
def test_recurrent_models_read_the_layers_that_have_the_size_of_the_last():
    batch = Batch(torch.tensor([[2, 5, 6, 4]]))
    for variety, numbers in (("lstm", (0, 1, 2)), ("untied", None), ("awd", None)):
        module = neural_model(variety).module.eval()
        states = read_layers(module, batch, [3])
        expected = NextTokenScore(3, 0).logits(module, batch)
        torch.testing.assert_close(last_logits(states), expected)
        sizes = [module.embeddings.embedding_dim, *(one.hidden_size for one in module.rnn.layers)]
        assert states.numbers == tuple(n for n, size in enumerate(sizes) if size == sizes[-1])
        assert numbers in (None, states.numbers)
    module = recurrent_encoder().module
    states = read_layers(module, batch, [0], "sequence")
    torch.testing.assert_close(
        last_logits(states), HeadScore("sequence", 0, 0).logits(module, batch)
    )


@torch.no_grad()
def test_elmo_and_the_decoder_of_a_translator():
    module = elmo_model().module.eval()
    characters = torch.randint(1, 200, (1, 4, 12), generator=torch.Generator().manual_seed(1))
    batch = Batch(characters)
    states = read_layers(module, batch, [3])
    torch.testing.assert_close(last_logits(states), NextTokenScore(3, 0).logits(module, batch))
    assert states.numbers == tuple(range(module.num_layers + 1))
    torch.testing.assert_close(
        states.compute_logits(states.vectors[0]),
        F.linear(module.embeddings(characters[0])[3:], *module.output()),
    )
    for variety in ("transformer", "pre-norm"):
        module = module_of(variety)
        source = torch.tensor([[4, 9, 7, 2]])
        batch = Batch(torch.tensor([[1, 7, 9, 4]]), source_ids=source)
        states = read_layers(module, batch, [1, 2])
        for n, position in enumerate((1, 2)):
            expected = TranslationScore(position, 0).logits(module, batch)
            torch.testing.assert_close(last_logits(states)[n], expected[0])
        embedded = module._embed(batch.ids, module.target_embeddings)
        torch.testing.assert_close(states.vectors[0], module.decoder_norm(embedded)[0, 1:3])
        assert not any(one._forward_pre_hooks for one in module.modules())


def test_models_whose_layers_cannot_be_read_are_an_error():
    with raises(InputError, "NNLM", fix="encoder"):
        read_layers(neural_model("nnlm").module, Batch(IDS), [0])
    with raises(InputError, "head", fix="cka"):
        read_layers(tiny_model().module, Batch(IDS), [0])
