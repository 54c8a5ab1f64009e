"""RETRO: who reads which neighbors, and a plain reference of the paper's equations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.configs.gpt import GPT2Config
from cloze.models.configs.retro import RetroConfig
from cloze.nn.layout import Packed
from generated_examples import examples
from helpers import raises, scramble
from retrieving import draw_neighbors, place_neighbors, some_neighbors

SHAPE = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_layers": 5,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 40,
}


def make_retro(**changes):
    config = RetroConfig(**(SHAPE | {"chunk_length": 4, "first_retrieval_layer": 2} | changes))
    module = build(config, ("lm",), rng=torch.Generator().manual_seed(0))
    return scramble(module, scale=0.3).double().eval()


def draw_ids(*size, seed=1):
    return torch.randint(0, 30, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (2, (1,)),
        (4, (2,)),
        (8, (3, 6)),
        (12, (6, 9, 12)),
        (24, (9, 12, 15, 18, 21, 24)),
        (32, (9, 12, 15, 18, 21, 24, 27, 30)),
    ],
)
def test_layers_that_retrieve_by_default(layers, expected):
    assert RetroConfig(num_layers=layers).retrieval_layers == expected


def test_the_first_layer_must_exist():
    with raises(ConfigError, "first_retrieval_layer", 5, fix=4):
        RetroConfig(num_layers=4, first_retrieval_layer=5)


# The equations of the paper, position by position, without any code of the model but its weights.


def layer_norm(x, part):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + part.eps) * part.weight + part.bias


def attend(queries, keys, part, *, visible=None):
    """Multi-head attention of rows of vectors: the three matrices are one."""
    width = queries.shape[-1]
    q, k, v = part.qkv.weight.chunk(3)
    bq, bk, bv = part.qkv.bias.chunk(3)
    heads, size = [], width // part.num_heads
    for head in range(part.num_heads):
        some = slice(head * size, (head + 1) * size)
        query = queries @ q[some].T + bq[some]
        key, value = keys @ k[some].T + bk[some], keys @ v[some].T + bv[some]
        scores = query @ key.T / math.sqrt(size)
        if visible is not None:
            scores = scores.masked_fill(~visible, -math.inf)
        heads.append(scores.softmax(-1) @ value)
    return torch.cat(heads, -1) @ part.out.weight.T + part.out.bias


def feed_forward(x, part):
    hidden = x @ part.up.weight.T + part.up.bias
    hidden = (
        0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
    )
    return hidden @ part.down.weight.T + part.down.bias


def encode_reference(module, neighbor, states):
    """Enc(RET(C_u)^j, H_u) of one neighbor."""
    encoder = module.neighbor_encoder
    x = module.embeddings.word.weight[neighbor] + encoder.position.weight[: len(neighbor)]
    for block in encoder.blocks:
        normed = layer_norm(x, block.attention_norm)
        x = x + attend(normed, normed, block.attention)
        x = x + attend(layer_norm(x, block.cross_attention_norm), states, block.cross_attention)
        x = x + feed_forward(layer_norm(x, block.ffn_norm), block.ffn)
    return layer_norm(x, encoder.norm)


def retro_reference(module, ids, neighbors):
    """Logits of one sequence: `neighbors[u - 1]` are those of chunk u."""
    m, length = module.config.chunk_length, len(ids)
    x = module.embeddings.word.weight[ids] + module.embeddings.position.weight[:length]
    past = torch.ones(length, length).tril().bool()
    encoded = None
    for number, block in enumerate(module.blocks, 1):
        normed = layer_norm(x, block.attention_norm)
        x = x + attend(normed, normed, block.attention, visible=past)
        if number in module.config.retrieval_layers:
            h = layer_norm(x, block.cross_attention_norm)
            if encoded is None:  # E_u: all neighbors of chunk u, one after another
                encoded = {
                    u: torch.cat(
                        [
                            encode_reference(module, one, h[(u - 1) * m + 1 : u * m + 1])
                            for one in neighbors[u - 1]
                        ]
                    )
                    for u in range(1, (length - 1) // m + 1)
                }
            added = [
                attend(h[p : p + 1], encoded[p // m], block.cross_attention)[0]
                if p >= m
                else torch.zeros(x.shape[-1])  # the first chunk retrieves nothing
                for p in range(length)
            ]
            x = x + torch.stack(added)
        x = x + feed_forward(layer_norm(x, block.ffn_norm), block.ffn)
    return layer_norm(x, module.norm) @ module.embeddings.word.weight.T


@pytest.mark.parametrize("length", [1, 4, 5, 9, 20, 23])
@torch.no_grad()
def test_forward_is_that_of_the_equations(length):
    module = make_retro()
    ids, found = draw_ids(1, length), draw_neighbors(module, (length - 1) // 4)
    hidden = module(ids, neighbors=place_neighbors(module, [length], found))
    expected = retro_reference(module, ids[0], torch.from_numpy(found))
    torch.testing.assert_close(module.logits("lm", hidden)[0], expected, atol=1e-10, rtol=0)


@examples(25)
@given(
    st.integers(2, 6),  # tokens of a chunk
    st.integers(0, 6),  # complete chunks after the changed one
    st.integers(1, 4),  # the chunk whose neighbors change
    st.integers(0, 5),  # tokens after the last complete chunk
    st.integers(0, 2**16),
)
@torch.no_grad()
def test_no_token_depends_on_the_neighbors_of_its_own_or_a_later_chunk(
    chunk_length, after, changed, rest, seed
):
    length = 1 + (changed + after) * chunk_length + min(rest, chunk_length - 1)
    module = make_retro(chunk_length=chunk_length, max_positions=length, num_layers=3)
    ids = draw_ids(1, length, seed=seed)
    found = draw_neighbors(module, changed + after, seed=seed)
    other = found.copy()
    other[changed - 1] = (found[changed - 1] + 1 + seed % 29) % 30
    before, now = (
        module(ids, neighbors=place_neighbors(module, [length], some))[0] for some in (found, other)
    )
    differs = (before != now).any(-1)
    # the token at position t is predicted at t - 1; chunk u has the positions (u-1)·m+1 … u·m
    last = changed * chunk_length
    for predicted in range(1, length):
        chunk = (predicted - 1) // chunk_length + 1
        if chunk <= changed:
            assert not differs[predicted - 1], (predicted, chunk)
    # the last position of the chunk predicts the first token of the next one, and reads them
    assert differs[last]
    assert not differs[:last].any()


@torch.no_grad()
def test_without_neighbors_it_is_a_gpt2():
    module = make_retro()
    gpt = build(GPT2Config(**SHAPE), ("lm",), rng=torch.Generator().manual_seed(0)).double().eval()
    weights = module.state_dict()
    gpt.load_state_dict({name: weights[name] for name in gpt.state_dict()})
    ids = draw_ids(2, 21)
    assert torch.equal(module(ids), gpt(ids))
    neighbors = some_neighbors(module, rows=2, length=21)
    assert not torch.equal(module(ids, neighbors=neighbors), gpt(ids))
    for part in module.retrieval_attentions:  # and with neighbors, if nothing is added
        part.out.weight.zero_()
        part.out.bias.zero_()
    assert torch.equal(module(ids, neighbors=neighbors), gpt(ids))


@torch.no_grad()
def test_layouts_agree():
    module, lengths = make_retro(), [23, 9, 3, 17]
    rows = [draw_ids(length, seed=length) for length in lengths]
    found = draw_neighbors(module, sum((length - 1) // 4 for length in lengths))
    mask = np.random.default_rng(0).random(found.shape) < 0.8
    mask[2] = False  # a chunk for which nothing was found
    mask[3, 0] = False  # and one neighbor that is missing
    packed = module(
        torch.cat(rows),
        Packed.from_lengths(lengths),
        neighbors=place_neighbors(module, lengths, found, mask),
    ).split(lengths)
    padded_ids = torch.zeros(4, 23, dtype=torch.long)
    for number, row in enumerate(rows):
        padded_ids[number, : len(row)] = row
    real = torch.arange(23) < torch.tensor(lengths)[:, None]
    placed = place_neighbors(module, lengths, found, mask, stride=23)
    padded = module(padded_ids, real, neighbors=placed)
    first = 0
    for number, row in enumerate(rows):
        some = slice(first, first := first + (len(row) - 1) // 4)
        neighbors = place_neighbors(module, [len(row)], found[some], mask[some])
        alone = module(row[None], neighbors=neighbors)[0]
        for other in (packed[number], padded[number, : len(row)]):
            torch.testing.assert_close(alone, other, atol=1e-10, rtol=0)


@torch.no_grad()
def test_what_is_masked_is_not_read():
    module, ids = make_retro(), draw_ids(1, 14)
    found = draw_neighbors(module, 3)
    mask = np.ones(found.shape, np.bool_)
    mask[0, 1], mask[1, 0, 4:] = False, False
    other = np.where(mask, found, (found + 1) % 30)
    one, two = (
        module(ids, neighbors=place_neighbors(module, [14], some, mask)) for some in (found, other)
    )
    assert torch.equal(one, two)


def test_loss_falls_if_the_neighbors_know_what_follows():
    """A task that only retrieval solves: the next chunk repeats the token of the neighbors."""
    module = make_retro(num_layers=2, first_retrieval_layer=1, vocab_size=12).float()
    module.init_weights(0.1, torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)

    def compute_loss(is_retrieved):
        ids, token = rng.integers(0, 12, (16, 9)), rng.integers(0, 12, 16)
        ids[:, 5:] = token[:, None]
        found = np.broadcast_to(token[:, None, None, None], (16, 2, 2, 8)).reshape(32, 2, 8)
        tokens = torch.from_numpy(ids)
        neighbors = place_neighbors(module, [9] * 16, found) if is_retrieved else None
        logits = module.logits("lm", module(tokens, neighbors=neighbors)[:, 4])  # the first one
        return torch.nn.functional.cross_entropy(logits, tokens[:, 5])

    for _ in range(60):
        loss = compute_loss(is_retrieved=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert compute_loss(is_retrieved=True) < 0.5 < 2 < compute_loss(is_retrieved=False)
