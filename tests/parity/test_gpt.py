"""GPT and GPT-2 both ways with transformers, at tiny sizes: every head, padded and packed."""

import random
from tempfile import TemporaryDirectory

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.decode.language import language_model
from cloze.models.build import build, build_on_meta
from cloze.models.registry import get_family, resolve
from cloze.nn.layout import Packed
from cloze.text.input_tokens import add_input_tokens
from cloze.text.tokenizer_training import train_tokenizer
from generated_examples import examples
from helpers import PIECES, raises, scramble, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.parity
TOLERANCE = 1e-5
LABELLED = {"sequence", "token"}
CLASSES = {
    ("gpt2", ()): "GPT2Model",
    ("gpt2", ("lm",)): "GPT2LMHeadModel",
    ("gpt2", ("sequence",)): "GPT2ForSequenceClassification",
    ("gpt2", ("token",)): "GPT2ForTokenClassification",
    ("gpt2", ("span",)): "GPT2ForQuestionAnswering",
    ("gpt2", ("choice", "lm")): "GPT2DoubleHeadsModel",
    ("openai-gpt", ()): "OpenAIGPTModel",
    ("openai-gpt", ("lm",)): "OpenAIGPTLMHeadModel",
    ("openai-gpt", ("sequence",)): "OpenAIGPTForSequenceClassification",
    ("openai-gpt", ("choice", "lm")): "OpenAIGPTDoubleHeadsModel",
}
POOLED = ("sequence", "choice")
CASES = [
    pytest.param(family, heads, number, id=f"{family}-{'+'.join(heads) or 'body'}-{number}")
    for family, heads in CLASSES
    for number in range(3)
]


def make_config(family, heads, number):
    rng = random.Random(number)
    count = rng.choice([1, 2, 3])
    size = count * rng.choice([4, 8, 12])
    return get_family(family).config_class(
        vocab_size=rng.randint(40, 90),
        num_heads=count,
        hidden_size=size,
        num_layers=rng.randint(1, 4),
        intermediate_size=4 * size if family == "openai-gpt" else rng.choice([4 * size, 33]),
        max_positions=rng.randint(16, 40),
        activation=["gelu_new", "relu", "silu"][number],
        norm_eps=rng.choice([1e-5, 1e-3]),
        pad_id=0,
        tie_embeddings=number != 2,
        **(
            {"labels": tuple("abcd"[: rng.randint(2, 4)])}
            if {"sequence", "token"} & {*heads}
            else {"labels": ("LABEL_0",)}  # their class has one
            if "choice" in heads
            else {}
        ),
    )


def make_batch(config):
    rng = torch.Generator().manual_seed(7)
    lengths = torch.tensor([config.max_positions, 11, 3, 1])
    ids = torch.randint(1, config.vocab_size, (4, config.max_positions), generator=rng)
    mask = torch.arange(config.max_positions) < lengths[:, None]
    return ids * mask, mask


@torch.no_grad()
def our_outputs(module, heads, config):
    ids, mask = make_batch(config)
    hidden = module(ids, mask)
    outputs = {"hidden": hidden[mask]}
    indices = torch.arange(mask.numel()).view(mask.shape)
    for head in heads:
        at = indices[:, 0] if head in POOLED else indices[mask]
        outputs[head] = module.logits(head, module.head_inputs(head, hidden, at, mask))
    return outputs


@torch.no_grad()
def their_outputs(peer, heads, config):
    ids, mask = make_batch(config)
    if "choice" in heads:  # four options of one question; no token attends to padding after it
        seen = peer(
            input_ids=ids[None],
            mc_token_ids=mask.sum(1)[None] - 1,
            output_hidden_states=True,
        )
        hidden, logits = seen.hidden_states[-1].view(*mask.shape, -1), seen.logits[0]
        return {"hidden": hidden[mask], "lm": logits[mask], "choice": seen.mc_logits.view(-1, 1)}
    seen = peer(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
    if not heads:
        return {"hidden": seen.last_hidden_state[mask]}
    outputs = {"hidden": seen.hidden_states[-1][mask]}
    if heads == ("span",):
        outputs["span"] = torch.stack([seen.start_logits, seen.end_logits], -1)[mask]
    else:
        outputs[heads[0]] = seen.logits if heads == ("sequence",) else seen.logits[mask]
    return outputs


def assert_same(ours, theirs):
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=name)


def make_model(family, heads, number):
    config = make_config(family, heads, number)
    module = build(config, heads, rng=torch.Generator().manual_seed(number)).eval()
    return Model(module=scramble(module, number), config=config, tokenizer=tiny_tokenizer())


@pytest.mark.parametrize(("family", "heads", "number"), CASES)
def test_what_we_write_they_read(family, heads, number, tmp_path):
    model = make_model(family, heads, number)
    model.save(tmp_path / "m")
    peer, loading = getattr(transformers, CLASSES[family, heads]).from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert not any(loading.values()), loading
    assert_same(
        our_outputs(model.module, heads, model.config),
        their_outputs(peer.eval(), heads, model.config),
    )


@pytest.mark.parametrize(("family", "heads", "number"), CASES)
def test_what_they_write_we_read(family, heads, number, tmp_path):
    config = make_config(family, heads, number)
    values = resolve(get_family(family).layout).write_config(config, heads)
    peer = getattr(transformers, CLASSES[family, heads])(
        transformers.AutoConfig.for_model(**values)
    ).eval()
    scramble(peer, number)
    peer.save_pretrained(tmp_path / "m")
    tiny_tokenizer().save(tmp_path / "m")
    model = cloze.load(tmp_path / "m")
    assert model.task_heads == heads
    assert model.config == config
    assert not model.report.missing
    assert not model.report.unexpected
    assert_same(our_outputs(model.module, heads, config), their_outputs(peer, heads, config))


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_packed_equals_padded(family):
    model = make_model(family, ("lm",), 1)
    ids, mask = make_batch(model.config)
    with torch.no_grad():
        padded = model.module(ids, mask)[mask]
        flat = model.module(ids[mask], Packed.from_lengths(mask.sum(1).tolist()))
    torch.testing.assert_close(flat, padded, rtol=TOLERANCE, atol=TOLERANCE)


@st.composite
def gpts(draw):
    """A family and a configuration of it."""
    family = draw(st.sampled_from(["gpt2", "openai-gpt"]))
    num_heads = draw(st.integers(1, 4))
    size = num_heads * draw(st.sampled_from([2, 6, 8]))
    inner = 4 * size if family == "openai-gpt" else draw(st.sampled_from([4 * size, 17]))
    return get_family(family).config_class(
        vocab_size=draw(st.integers(len(PIECES), 70)),
        num_heads=num_heads,
        hidden_size=size,
        num_layers=draw(st.integers(1, 4)),
        intermediate_size=inner,
        max_positions=draw(st.integers(8, 40)),
        activation=draw(st.sampled_from(["gelu_new", "relu", "silu"])),
        norm_eps=draw(st.sampled_from([1e-6, 1e-5, 1e-3])),
        tie_embeddings=draw(st.booleans()),
        pad_id=draw(st.sampled_from([None, 0, 3])),
    )


@examples(12)
@given(config=gpts(), seed=st.integers(0, 99), ours_first=st.booleans())
def test_logits_of_generated_models_with_and_without_a_cache(config, seed, ours_first):
    kind = getattr(transformers, CLASSES[config.family, ("lm",)])
    with TemporaryDirectory() as folder:
        if ours_first:
            module = scramble(build(config, ("lm",), rng=torch.Generator()), seed).eval()
            model = Model(module=module, config=config, tokenizer=tiny_tokenizer())
            peer = kind.from_pretrained(model.save(f"{folder}/m")).eval()
        else:
            values = resolve(get_family(config.family).layout).write_config(config, ("lm",))
            peer = scramble(kind(transformers.AutoConfig.for_model(**values)), seed).eval()
            peer.save_pretrained(f"{folder}/m")
            tiny_tokenizer().save(f"{folder}/m")
            model = cloze.load(f"{folder}/m")
            assert model.config == config
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (3, config.max_positions), generator=rng)
    with torch.no_grad():
        theirs = peer(ids).logits
        ours = model.module.logits("lm", model.module(ids))
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
    language = language_model(model)
    length = config.max_positions // 2
    tokens, state = language.start(ids[:, :length].tolist())
    usable = sorted(set(range(len(PIECES))) - model.tokenizer.special_ids)
    for position in range(length - 1, config.max_positions - 1):
        scores, state = language.step(tokens, state)
        expected = theirs[:, position].log_softmax(-1)
        torch.testing.assert_close(
            scores[:, usable], expected[:, usable], rtol=TOLERANCE, atol=TOLERANCE
        )
        tokens = ids[:, position + 1]


SIZES = {"gpt2": 124, "gpt2-medium": 355, "gpt2-large": 774, "gpt2-xl": 1558}


@pytest.mark.parametrize(("preset", "millions"), SIZES.items())
def test_the_published_sizes(preset, millions):
    """Parameters of the presets on the meta device: those of transformers, in millions."""
    config = get_family("gpt2").config_class.preset(preset, vocab_size=50_257)
    module = build_on_meta(config, ("lm",))
    count = sum(weight.numel() for weight in module.parameters())
    assert round(count / 1e6) == millions
    values = resolve(get_family("gpt2").layout).write_config(config, ("lm",))
    with torch.device("meta"):
        peer = transformers.GPT2LMHeadModel(transformers.AutoConfig.for_model(**values))
    assert count == peer.num_parameters()


def test_a_choice_head_of_another_kind_is_refused():
    layout = resolve(get_family("gpt2").layout)
    values = layout.write_config(make_config("gpt2", (), 0), ("choice", "lm"))
    with raises(cloze.errors.ConfigError, "summary_activation", "tanh"):
        layout.read_config({**values, "summary_activation": "tanh"})


def test_settings_that_change_the_computation_are_refused():
    layout = resolve(get_family("gpt2").layout)
    values = layout.write_config(make_config("gpt2", (), 0), ())
    with raises(cloze.errors.ConfigError, "scale_attn_by_inverse_layer_idx"):
        layout.read_config({**values, "scale_attn_by_inverse_layer_idx": True})


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_fine_tuned_folders_give_the_same_probabilities(family, tmp_path):
    """Start, delimiter and extract tokens come from the folder's tokenizer."""
    plain = train_tokenizer(["the cat sat on a mat and saw a dog"] * 9, kind="bpe", vocab_size=280)
    tokenizer = add_input_tokens(plain)
    shape = {"family": family, "vocab_size": tokenizer.vocab_size, "tokenizer": tokenizer}
    task = Task(name="classify", transformation="entailment")
    model = tiny_model("sequence", task=task, positions=40, **shape)
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(
        model.save(tmp_path / "m")
    ).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    for texts in (("the cat",), ("the cat sat", "a dog on a mat")):
        given = theirs(*texts, return_tensors="pt")
        with torch.no_grad():
            expected = peer(**given).logits.softmax(-1)[0].tolist()
        found = cloze.classify(tmp_path / "m", *texts).scores
        assert [found[label] for label in model.labels] == pytest.approx(expected, abs=1e-5)
    task = Task(name="choose", transformation="entailment")
    model = tiny_model("choice", "lm", task=task, positions=40, labels=("LABEL_0",), **shape)
    kind = getattr(transformers, CLASSES[family, ("choice", "lm")])
    peer = kind.from_pretrained(model.save(tmp_path / "c")).eval()
    options = ["a dog", "the mat and a cat", "sat"]
    rows = [theirs("the cat sat", option)["input_ids"] for option in options]
    ends = torch.tensor([[len(row) - 1 for row in rows]])
    ids = torch.tensor([[[*row, *[0] * (40 - len(row))] for row in rows]])
    with torch.no_grad():
        logits = peer(input_ids=ids, mc_token_ids=ends).mc_logits.flatten()
    found = cloze.choose(tmp_path / "c", "the cat sat", options)
    assert list(found.scores) == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)
