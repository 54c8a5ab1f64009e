"""Translators: shapes, masks, and steps that equal the full forward pass."""

import pytest
import torch
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.errors import ConfigError, InputError
from cloze.models.build import build_on_meta
from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.seq2seq import Seq2Seq
from helpers import raises
from translators import SIZE, VARIETIES, config_of, module_of, some_ids, translator

CONFIGS = {"transformer": TransformerConfig, "seq2seq": Seq2SeqConfig}
every = pytest.mark.parametrize("variety", VARIETIES)


def batch(rows=3, length=6):
    source, inputs = some_ids(rows, length), some_ids(rows, 7, seed=2)
    inputs[:, 0] = 0
    real = torch.arange(length) < torch.tensor([length - n % 3 for n in range(rows)])[:, None]
    return source, real, inputs


def stepwise(module, source, real, inputs):
    state, found = module.init_state(source, real), []
    for tokens in inputs.unbind(1):
        scores, state = module.step(tokens, state)
        found.append(scores)
    return torch.stack(found, 1)


@every
@torch.no_grad()
def test_cached_steps_equal_one_pass(variety):
    module = module_of(variety)
    source, real, inputs = batch()
    whole = module.logits(module(source, real, inputs)).log_softmax(-1)
    assert whole.shape == (3, 7, SIZE)
    torch.testing.assert_close(stepwise(module, source, real, inputs), whole, rtol=0.0, atol=1e-10)


class Uncached:
    """The same model with no memory: every step reads all words again."""

    def __init__(self, module):
        self.module = module

    def step(self, tokens, state):
        source, real, said = state
        said = torch.cat([said, tokens[:, None]], 1)
        top = self.module(source, real, said)[:, -1]
        return self.module.logits(top).log_softmax(-1), (source, real, said)

    def reorder(self, state, rows):
        return tuple(part[rows] for part in state)


@every
@torch.no_grad()
def test_search_with_and_without_cache_are_equal(variety):
    module = module_of(variety, scale=0.7)
    source, real, _ = batch(5)
    first = torch.zeros(5, dtype=torch.long)
    options = {"eos_id": 0, "max_lengths": [9, 4, 9, 6, 9]}
    search = BeamConfig(beam=3, n_best=3)
    cached = beam_search(module, module.init_state(source, real), first, search, **options)
    nothing = source.new_zeros(5, 0)
    plain = beam_search(Uncached(module), (source, real, nothing), first, search, **options)
    for some, others in zip(cached, plain, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        for one, other in zip(some, others, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-10)


@every
@torch.no_grad()
def test_padding_and_other_rows_change_nothing(variety):
    module = module_of(variety)
    source, real, inputs = batch()
    whole = module(source, real, inputs)
    for row in range(3):
        length = int(real[row].sum())
        alone = module(
            source[row : row + 1, :length], real[row : row + 1, :length], inputs[row, None]
        )
        torch.testing.assert_close(whole[row, None], alone, rtol=0.0, atol=1e-10)


@every
@torch.no_grad()
def test_no_token_attends_to_a_later_one(variety):
    module = module_of(variety)
    source, real, inputs = batch()
    changed = inputs.clone()
    changed[:, 4:] = 5
    one, other = module(source, real, inputs), module(source, real, changed)
    assert torch.equal(one[:, :4], other[:, :4])
    assert not torch.equal(one[:, 4:], other[:, 4:])


@every
def test_gradients_reach_every_parameter(variety):
    module = module_of(variety).train()
    source, real, inputs = batch()
    module.logits(module(source, real, inputs)).square().sum().backward()
    without = [
        name
        for name, weight in module.named_parameters()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    assert not without


@every
def test_initial_weights_depend_on_the_generator_only(variety):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    tokenizer = translator().tokenizer
    made = [
        Model.from_config(
            config_of(variety, 300), tokenizer, rng=torch.Generator().manual_seed(seed)
        ).module.state_dict()
        for seed in (3, 3, 4)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert any(not torch.equal(made[0][name], made[2][name]) for name in made[0])


@pytest.mark.parametrize("variety", ["transformer", "bahdanau", "luong-general", "plain-rnn"])
def test_loss_falls_on_a_tiny_task(variety):
    """Learn to say two words backwards."""
    tokenizer = translator().tokenizer
    module = Model.from_config(
        config_of(variety, 300), tokenizer, rng=torch.Generator().manual_seed(1)
    ).module.train()
    source = some_ids(24, 2)
    targets = source.flip(1)
    inputs = torch.cat([torch.zeros(24, 1, dtype=torch.long), targets[:, :-1]], 1)
    real = torch.ones_like(source, dtype=torch.bool)
    optimiser = torch.optim.Adam(module.parameters(), lr=2e-2)
    losses = []
    for _ in range(60):
        scores = module.logits(module(source, real, inputs))
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert min(losses) < 0.3 * losses[0], losses[::10]


@torch.no_grad()
def test_input_feeding_changes_the_result():
    """Without it the attentional state of a step changes nothing in the next."""
    source, real, inputs = batch()
    for variety, felt in (("unfed", False), ("luong-dot", True)):
        module = module_of(variety)
        state = module.init_state(source, real)
        _, state = module.step(inputs[:, 0], state)
        louder = type(state)(**(vars(state) | {"attentional_state": state.attentional_state + 1.0}))
        one, _ = module.step(inputs[:, 1], state)
        other, _ = module.step(inputs[:, 1], louder)
        assert torch.equal(one, other) is not felt


@torch.no_grad()
def test_bahdanau_attends_before_the_step_and_luong_after():
    """By the state of the step before, and by that of the step itself."""
    source, real, inputs = batch()
    for variety, before in (("bahdanau", True), ("luong-general", False)):
        module = module_of(variety)
        state = module.init_state(source, real)
        _, after = module.step(inputs[:, 1], state)
        _, other = module.step(inputs[:, 2], state)  # another word, the same state
        assert torch.equal(after.attention_weights, other.attention_weights) is before
        assert after.attention_weights.sum(1).tolist() == pytest.approx([1.0] * 3)
        assert (after.attention_weights[~real] == 0).all()


def test_without_attention_the_source_is_only_in_the_first_state():
    module = module_of("plain-lstm")
    source, real, inputs = batch()
    state = module.init_state(source, real)
    other = type(state)(
        **(vars(state) | {"encoder_states": state.encoder_states * 0, "keys": state.keys * 0})
    )
    assert torch.equal(module.step(inputs[:, 0], state)[0], module.step(inputs[:, 0], other)[0])


@torch.no_grad()
def test_scheduled_sampling_feeds_predicted_tokens():
    module = module_of("bahdanau", scale=1.0)
    source, real, inputs = batch()
    rng = torch.Generator().manual_seed(0)
    forced = module(source, real, inputs)
    assert torch.equal(module(source, real, inputs, scheduled_sampling_prob=0.0, rng=rng), forced)
    own = module(source, real, inputs, scheduled_sampling_prob=1.0, rng=rng)
    alone, limits = BeamConfig(beam=1, length_penalty=0.0), [inputs.shape[1]] * 3
    found = beam_search(
        module, module.init_state(source, real), inputs[:, 0], alone, eos_id=-1, max_lengths=limits
    )
    said = module.logits(own).argmax(-1)
    assert [list(one.tokens) for (one,) in found] == said.tolist()
    one, same = (
        module(
            source, real, inputs, scheduled_sampling_prob=0.5, rng=torch.Generator().manual_seed(4)
        )
        for _ in range(2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, forced)


@torch.no_grad()
def test_sinusoids_have_no_maximum_length_and_learned_positions_do():
    source = some_ids(1, 200)
    real = torch.ones_like(source, dtype=torch.bool)
    inputs = some_ids(1, 3)
    assert module_of("transformer")(source, real, inputs).isfinite().all()
    with raises(InputError, "200 tokens", "24 positions"):
        module_of("learned")(source, real, inputs)


@torch.no_grad()
def test_order_matters_with_positions_only():
    """He owes me a million ≠ I owe him a million."""
    module = module_of("transformer")
    source = torch.tensor([[3, 4, 5, 6]])
    real = torch.ones_like(source, dtype=torch.bool)
    inputs = torch.tensor([[0, 7]])
    there, back = module(source, real, inputs), module(source.flip(1), real, inputs)
    assert (there - back).abs().max() > 1e-3
    module.position_encoding = Silent()
    there, back = module(source, real, inputs), module(source.flip(1), real, inputs)
    torch.testing.assert_close(there, back, rtol=0.0, atol=1e-12)


class Silent(torch.nn.Module):
    def forward(self, positions, _most):
        return torch.zeros(len(positions), 16)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, ("hidden_size", "0")),
        ({"dropout": 2.0}, ("dropout", "2.0")),
        ({"embeddings": "some"}, ("embeddings", "some")),
        ({"vocab_size": -1}, ("vocab_size", "-1")),
        ({"eos_id": 99}, ("eos_id", "99")),
    ],
)
def test_a_config_out_of_range(family, changes, message):
    with raises(ConfigError, message):
        CONFIGS[family](**({"vocab_size": 10} | changes))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_config_without_a_vocabulary_builds_nothing(family):
    with raises(ConfigError, "vocab_size", "0"):
        build_on_meta(CONFIGS[family]())


def test_inconsistent_shapes():
    with raises(ConfigError, "hidden_size", "10", "num_heads", "4"):
        TransformerConfig(hidden_size=10, num_heads=4)
    with raises(ConfigError, "hidden_size", "15", fix="hidden_size"):
        Seq2SeqConfig(hidden_size=15)
    with raises(ConfigError, "attention_score", "angle"):
        Seq2SeqConfig(attention_score="angle")
    assert TransformerConfig(vocab_size=5).intermediate_size == 2048
    assert Seq2Seq.max_positions is None
