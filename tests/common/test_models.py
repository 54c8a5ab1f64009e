"""One suite over every entry of MODELS."""

import pytest
import torch
from torch.nn import functional as F

import cloze
from cloze.checkpoint.model import Model
from cloze.interpret.capture import capture
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.nn.attention import Attention
from cloze.nn.block import FeedForward
from cloze.nn.layout import Packed
from helpers import ENCODERS, PIECES, scramble, tiny_tokenizer
from retrieving import some_neighbors

SIZE = len(PIECES)
SHAPE = {
    "vocab_size": SIZE,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 12,
}

pytestmark = pytest.mark.parametrize("family", ENCODERS)


def config_of(family, **changes):
    shape = SHAPE | ({"intermediate_size": 64} if family == "openai-gpt" else {})  # 4·hidden_size
    return FAMILIES[family].config_class(**{**shape, **changes})


def lm_head(family):
    """The name of the head that predicts tokens."""
    return "mlm" if "mlm" in FAMILIES[family].module_class.TASK_HEADS else "lm"


def built(family, heads=None, seed=0, **changes):
    heads = (lm_head(family),) if heads is None else heads
    return build(config_of(family, **changes), heads, rng=torch.Generator().manual_seed(seed))


def some_ids(rows, length, seed=1):
    return torch.randint(5, SIZE, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_every_head_gives_its_shape(family):
    heads = FAMILIES[family].module_class.TASK_HEADS
    module = built(family, heads, labels=("a", "b", "c")).eval()
    hidden = module(some_ids(4, 7))
    assert hidden.shape == (4, 7, 16)
    shapes = {
        "mlm": (4, 7, SIZE),
        "lm": (4, 7, SIZE),
        "token": (4, 7, 3),
        "span": (4, 7, 2),
        "nsp": (4, 2),
        "sequence": (4, 3),
        "choice": (4, 1),
    }
    for head in heads:
        per_token = head in ("mlm", "lm", "token", "span")
        assert module.logits(head, hidden if per_token else hidden[:, 0]).shape == shapes[head]


def test_gradients_reach_every_parameter(family):
    heads = FAMILIES[family].module_class.TASK_HEADS
    if family == "retro":  # every part of it is used if there is something to retrieve
        module = built(family, heads, chunk_length=4)
        hidden = module(some_ids(3, 12), neighbors=some_neighbors(module, rows=3, length=12))
    else:
        module = built(family, heads)
        hidden = module(some_ids(3, 12))
    per_token = ("mlm", "lm", "token", "span")
    sum(
        module.logits(head, hidden if head in per_token else hidden[:, 0]).square().sum()
        for head in heads
    ).backward()
    without = [
        name
        for name, weight in module.named_parameters()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    assert not without


def test_padding_changes_nothing(family):
    module = scramble(built(family)).eval()
    ids = some_ids(1, 5)
    padded = torch.cat([ids, torch.zeros(1, 4, dtype=torch.long)], dim=1)
    mask = torch.tensor([[1] * 5 + [0] * 4])
    torch.testing.assert_close(module(padded, mask)[:, :5], module(ids), rtol=1e-5, atol=1e-6)


def test_a_batch_equals_its_rows_one_by_one(family):
    module = scramble(built(family)).eval()
    ids = some_ids(4, 6)
    singles = torch.cat([module(row[None]) for row in ids])
    torch.testing.assert_close(module(ids), singles, rtol=1e-5, atol=1e-6)


def test_packed_sequences_never_look_at_each_other(family):
    module = scramble(built(family)).eval()
    rows = [some_ids(1, length, seed=length)[0] for length in (3, 3, 7, 1, 7)]
    packed = Packed.from_lengths(len(row) for row in rows)
    flat = module(torch.cat(rows), packed)
    alone = torch.cat([module(row[None])[0] for row in rows])
    torch.testing.assert_close(flat, alone, rtol=1e-5, atol=1e-6)


def test_new_weights_come_from_the_generator_alone(family):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, same, other = built(family, seed=3), built(family, seed=3), built(family, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(one.blocks[0].attention.qkv.weight, other.blocks[0].attention.qkv.weight)


def test_saving_and_loading_gives_the_same_bits(family, tmp_path):
    config = config_of(family)
    module = scramble(built(family)).eval()
    model = Model(module=module, config=config, tokenizer=tiny_tokenizer())
    opened = cloze.load(model.save(tmp_path / "model"))
    assert not opened.report
    assert opened.config == config
    assert opened.task_heads == (lm_head(family),)
    for name, weight in module.state_dict().items():
        assert torch.equal(opened.module.state_dict()[name], weight), name


def test_loss_falls_on_a_tiny_task(family):
    """Learn to name the token at the first place."""
    module = built(family).eval()  # without dropout
    optimiser = torch.optim.AdamW(module.parameters(), lr=3e-3)
    ids = some_ids(16, 6)
    losses = []
    for _ in range(100):
        loss = F.cross_entropy(module.logits(lm_head(family), module(ids)[:, -1]), ids[:, 0])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]


def test_capture_sees_what_attention_computes(family):
    module = scramble(built(family)).eval()
    ids = some_ids(2, 6)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    plain = module(ids, mask)
    with capture(module, Attention) as seen, capture(module, FeedForward) as nets:
        looked = module(ids, mask)
    assert torch.equal(plain, looked)
    assert [weights.shape for weights in seen] == [(2, 2, 6, 6)] * 2
    assert [net.shape for net in nets] == [(2, 6, 16)] * 2
    for weights in seen:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6))
        assert (weights[1, :, :, 4:] == 0).all()
    # the weights are those the block really used: mixing the values by them gives its output
    first = module.blocks[0].attention
    calls = []
    hook = first.register_forward_hook(lambda _, inputs, output: calls.append((*inputs, output)))
    module(ids, mask)
    hook.remove()
    x, *_, output = calls[0]
    value = first.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (2, -1)).transpose(1, 2)
    mixed = first.out((seen[0] @ value).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(mixed, output, rtol=1e-5, atol=1e-6)
    module(ids)
    assert len(seen) == 2  # the hooks are gone


def test_dropout_only_while_training(family):
    module = built(family, dropout=0.5)
    ids = some_ids(2, 6)
    assert not torch.equal(module.train()(ids), module(ids))
    assert torch.equal(module.eval()(ids), module(ids))
