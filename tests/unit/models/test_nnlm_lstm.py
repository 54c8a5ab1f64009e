"""NNLM and LSTM: shapes, initial weights, states."""

import numpy as np
import pytest
import torch

from cloze.decode.language import language_model
from cloze.errors import ConfigError
from cloze.models.configs.lstm import LSTMConfig
from cloze.models.configs.ngram import BOS
from cloze.models.configs.nnlm import NNLMConfig
from cloze.models.lstm import LSTM
from cloze.nn.recurrent import NETS, LockedDropout, StackedRNN
from helpers import raises
from languages import VARIETIES, fresh_model, neural_model


@pytest.mark.parametrize("variety", VARIETIES)
def test_steps_equal_one_pass(variety):
    model = language_model(neural_model(variety))
    ids = torch.tensor(
        [model.encode_prompt("the cat sat on"), model.encode_prompt("a dog and the")]
    )
    state = model.module.compute_state(ids[:, :0])
    for at in range(ids.shape[1]):
        stepped, state = model.module.step(ids[:, at], state)
    whole, _ = model.module.step(ids[:, -1], model.module.compute_state(ids[:, :-1]))
    assert torch.allclose(stepped, whole, atol=1e-6)
    assert torch.allclose(stepped.exp().sum(-1), torch.ones(2), atol=1e-5)


@pytest.mark.parametrize("variety", VARIETIES)
def test_states_can_be_reordered(variety):
    module = neural_model(variety).module
    ids = torch.tensor([[3, 4], [5, 6], [7, 8]])
    rows = torch.tensor([2, 0, 0])
    moved = module.reorder(module.compute_state(ids), rows)
    other = module.compute_state(ids[rows])
    tokens = torch.tensor([3, 4, 5])
    assert torch.equal(module.step(tokens, moved)[0], module.step(tokens, other)[0])


@pytest.mark.parametrize("variety", VARIETIES)
def test_initial_weights_depend_on_the_generator_only_and_never_predict_bos(variety):
    one, other = fresh_model(variety), fresh_model(variety)
    both = zip(one.module.state_dict().values(), other.module.state_dict().values(), strict=True)
    assert all(torch.equal(*pair) for pair in both)
    one = language_model(one)
    logs = one.next_log_probs(one.encode_prompt("the cat"))
    assert logs[BOS] < -1000
    uniform = -torch.log(torch.tensor(len(one.vocabulary) - 1.0)).item()
    assert abs(logs[3:].mean() - uniform) < 1.0


@pytest.mark.parametrize("variety", VARIETIES)
def test_gradients_reach_every_weight(variety):
    model = fresh_model(variety).module
    if isinstance(model, LSTM):
        vectors, _ = model(torch.tensor([[3, 4, 5]]), model.init_state(1))
        scores = model.logits(vectors)
    else:
        scores = model(torch.tensor([[3, 4, 5]]))
    scores[..., 2:].exp().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize("variety", VARIETIES)
def test_output_biases_start_with_word_frequencies(variety):
    model = language_model(fresh_model(variety))
    often = torch.arange(1.0, len(model.vocabulary) + 1)
    model.module.init_output_bias(often)
    found = np.exp(model.next_log_probs(model.encode_prompt("the cat")))
    assert found[BOS] == 0
    assert np.corrcoef(found, often.where(often != often[BOS], 0.0))[0, 1] > 0.5


def test_an_nnlm_reads_its_context_window_only():
    model = language_model(neural_model("nnlm"))
    near = model.next_log_probs(model.encode_prompt("zebra the cat sat"))
    assert (near == model.next_log_probs(model.encode_prompt("dog the cat sat"))).all()
    assert (near != model.next_log_probs(model.encode_prompt("dog the dog sat"))).any()


def test_variational_dropout_has_one_mask_for_all_steps():
    torch.manual_seed(0)
    kept = LockedDropout(0.5).train()(torch.ones(3, 7, 40))
    assert (kept == kept[:, :1]).all()
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert (kept[0, 0] != kept[1, 0]).any()
    x = torch.randn(2, 3, 4)
    assert LockedDropout(0.5).eval()(x) is x
    assert LockedDropout(0.0).train()(x) is x


@pytest.mark.parametrize("kind", NETS)
def test_separate_layers_equal_stacked_layers_of_torch(kind):
    torch.manual_seed(0)
    stack = StackedRNN(kind, 5, 4, num_layers=3, dropout=0.0, variational=True)
    whole = NETS[kind](5, 4, num_layers=3, batch_first=True)
    for number, layer in enumerate(stack.layers):
        for name, weight in layer.named_parameters():
            getattr(whole, name.replace("_l0", f"_l{number}")).data.copy_(weight)
    x, state = torch.randn(2, 7, 5), tuple(torch.randn(3, 2, 4) for _ in range(stack.state_parts))
    found, after = stack(x, state)
    wanted, end = whole(x, state if kind == "lstm" else state[0])
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(after, end if kind == "lstm" else (end,))


def test_dropout_is_before_and_after_every_layer():
    stack = StackedRNN("lstm", 4, 4, num_layers=2, dropout=1.0, variational=False).train()
    empty = torch.zeros(2, 1, 4), torch.zeros(2, 1, 4)
    assert not stack(torch.randn(1, 3, 4), empty)[0].any()


def test_invalid_configurations():
    with raises(ConfigError, "order", "1"):
        NNLMConfig(order=1)
    with raises(ConfigError, "bos_id", "9"):
        NNLMConfig(vocab_size=9, bos_id=9)
    with raises(ConfigError, "vocab_size", "1"):
        LSTMConfig(vocab_size=1)
