"""GPT-3's bands: dense and locally banded layers alternate."""

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models

import cloze
from cloze.errors import ClozeError, InputError
from cloze.interpret.capture import capture
from cloze.models.build import build_on_meta
from cloze.models.configs.gpt import GPT2Config, GPT3Config
from cloze.nn.attention import Attention
from cloze.nn.layout import Packed, Varlen
from cloze.text.tokenizer import Tokenizer
from helpers import raises, tiny_model

WINDOW = 3


def make_model(**changes):
    return tiny_model("lm", family="gpt3", window_size=WINDOW, **changes)


def dense_pass(module, ids):
    """The last layer of one sequence, with each layer's mask written out."""
    position = torch.arange(len(ids))
    distance = position[:, None] - position
    x = module.embeddings(ids[None])
    for number, block in enumerate(module.blocks):
        visible = distance >= 0
        if number % module.config.global_attention_every:
            visible &= distance < WINDOW
        normed = block.attention_norm(x)
        qkv = block.attention.qkv(normed).unflatten(-1, (3, block.attention.num_heads, -1))
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))  # 1 h t d
        scores = query @ key.mT / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        x = x + block.attention.out((weights @ value).transpose(1, 2).flatten(2))
        x = x + block.ffn(block.ffn_norm(x))
    return module.norm(x)[0]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_every_layout_equals_a_dense_mask(every):
    module = make_model(num_layers=4, global_attention_every=every).module.double()
    rng = torch.Generator().manual_seed(0)
    rows = [torch.randint(5, 20, (length,), generator=rng) for length in (12, 5, 1, 5, 20)]
    lengths = [len(row) for row in rows]
    with torch.no_grad():
        expected = [dense_pass(module, row) for row in rows]
        packed = module(torch.cat(rows), Packed.from_lengths(lengths))
        starts = torch.tensor([0, *lengths]).cumsum(0).int()
        positions = torch.cat([torch.arange(length) for length in lengths])
        varlen = module(torch.cat(rows), Varlen(starts, positions, max(lengths)))
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        batch = module(padded, mask)[mask]
        alone = torch.cat([module(row[None])[0] for row in rows])
    for found in (packed, varlen, batch, alone):
        torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-10)


def test_what_a_banded_layer_attends_to():
    module = make_model(num_layers=2).module
    with capture(module, Attention) as captured, torch.no_grad():
        module(torch.arange(5, 17)[None])
    dense, banded = (weights[0, 0] > 0 for weights in captured)
    assert dense.equal(torch.ones(12, 12).tril().bool())
    assert banded.sum(1).tolist() == [1, 2, *[WINDOW] * 10]
    assert banded.diagonal().all()


def test_it_differs_from_a_gpt2_and_is_not_read_as_one(tmp_path):
    model = make_model()
    folder = model.save(tmp_path / "m")
    again = cloze.load(folder)
    assert again.config == model.config
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        assert torch.equal(again.module(ids), model.module(ids))
        other = tiny_model("lm", family="gpt2")
        other.module.load_state_dict(model.module.state_dict())
        assert not torch.allclose(other.module(ids), model.module(ids), atol=1e-3)
    with pytest.raises(ValueError, match="gpt3"):
        transformers.AutoConfig.from_pretrained(folder)
    with raises(ClozeError, "huggingface", "GPT-3"):
        cloze.export("huggingface", model, tmp_path / "hf")


def test_the_sizes_of_the_paper():
    counts = {}
    for name in GPT3Config.PRESETS:
        if name.startswith("gpt3-"):
            module = build_on_meta(GPT3Config.preset(name, vocab_size=50_257), ("lm",))
            counts[name] = sum(weight.numel() for weight in module.parameters()) / 1e9
            banded = [block.attention.window_size is not None for block in module.blocks]
            assert banded == [False, True] * (len(banded) // 2)
    expected = [0.125, 0.356, 0.760, 1.316, 2.651, 6.659, 12.85, 174.6]
    assert list(counts.values()) == pytest.approx(expected, rel=0.005)
    assert GPT2Config.preset("gpt2").max_positions * 2 == GPT3Config.preset("tiny").max_positions


def test_generation_and_scores():
    model = make_model(positions=40)
    text = cloze.generate(model, ["the cat", "a"], temperature=0, max_new_tokens=12)
    alone = [
        cloze.generate(model, one, temperature=0, max_new_tokens=12) for one in ("the cat", "a")
    ]
    assert [one.continuations[0].tokens for one in text] == [
        one.continuations[0].tokens for one in alone
    ]


def test_a_vocabulary_without_tokens_that_begin_and_end_a_text():
    """That of the first GPT: prompts are continued, but whole texts have no probability."""
    backend = Backend(models.BPE({letter: n for n, letter in enumerate("abcdefgh")}, []))
    tokenizer = Tokenizer(backend, special_tokens={})
    model = tiny_model("lm", family="openai-gpt", vocab_size=8, tokenizer=tokenizer)
    generated = cloze.generate(model, ["ab", "cdef"], temperature=0, max_new_tokens=6)
    for prompt, one in zip(("ab", "cdef"), generated, strict=True):
        ids = tokenizer.encode(prompt).ids
        for _ in range(6):
            with torch.no_grad():
                logits = model.module.logits("lm", model.module(torch.tensor([ids])))
            ids = [*ids, int(logits[0, -1].argmax())]
        assert list(one.continuations[0].tokens) == ["abcdefgh"[n] for n in ids[-6:]]
    assert cloze.suggest(model, "ab", top=3)
    with raises(InputError, "prompt", fix="prompt"):
        cloze.generate(model, "")
    with raises(InputError, "begin", fix="generate"):
        cloze.score(model, "ab")


@pytest.mark.parametrize("family", ["openai-gpt", "gpt2", "gpt3"])
def test_the_residual_stream_has_the_dtype_of_autocast(family):
    """Else it would take twice the memory, and the first block would not be fused on a GPU."""
    module = tiny_model("lm", family=family).module
    ids = torch.arange(5, 17)[None]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        states = list(module.hidden_states(ids))
    assert {state.dtype for state in states} == {torch.bfloat16}
    with torch.no_grad():
        exact = list(module.hidden_states(ids))
    assert {state.dtype for state in exact} == {torch.float32}
