"""ModernBERT against transformers in both directions: heads, windows, old and new settings."""

import json
import random

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.model import Model
from cloze.interop.encoders import MODERNBERT
from cloze.models.build import build
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.layout import Packed
from helpers import PIECES, scramble, tiny_tokenizer

pytestmark = pytest.mark.parity
TOLERANCE = 1e-5

CLASSES = {
    (): "ModernBertModel",
    ("mlm",): "ModernBertForMaskedLM",
    ("sequence",): "ModernBertForSequenceClassification",
    ("token",): "ModernBertForTokenClassification",
    ("span",): "ModernBertForQuestionAnswering",
    ("choice",): "ModernBertForMultipleChoice",
}
AUTO = {
    (): transformers.AutoModel,
    ("mlm",): transformers.AutoModelForMaskedLM,
    ("sequence",): transformers.AutoModelForSequenceClassification,
    ("token",): transformers.AutoModelForTokenClassification,
    ("span",): transformers.AutoModelForQuestionAnswering,
    ("choice",): transformers.AutoModelForMultipleChoice,
}
CASES = [
    pytest.param(number, heads, id=f"{number}-{'+'.join(heads) or 'body'}")
    for number, heads in enumerate(list(CLASSES) * 4)
]


def our_config(number, heads):
    """Configuration `number`: windows shorter and longer than the texts, each bias on and off."""
    rng = random.Random(number)
    count = rng.choice([1, 2, 3])
    labels = tuple("abcdefg"[: rng.randint(1, 7)])
    return ModernBertConfig(
        vocab_size=rng.randint(len(PIECES), 90),
        num_heads=count,
        hidden_size=count * rng.choice([4, 8, 12]),
        num_layers=rng.randint(1, 5),
        intermediate_size=rng.choice([16, 33]),
        max_positions=40,
        window_size=rng.choice([2, 4, 7, 16, 128]),
        global_attention_every=rng.randint(1, 3),
        rope_theta=rng.choice([160_000.0, 1000.0]),
        local_rope_theta=rng.choice([10_000.0, 500.0]),
        activation=["gelu", "gelu_new", "silu"][number % 3],
        classifier_activation=rng.choice(["gelu", "relu"]),
        tie_embeddings=number % 5 != 4,
        classifier_pooling=rng.choice(["cls", "mean"]),
        norm_eps=rng.choice([1e-5, 1e-3]),
        **{
            f"{part}_bias": rng.random() < 0.5
            for part in ("norm", "attention", "ffn", "classifier", "lm_head")
        },
        **({"labels": labels} if {"sequence", "token"} & set(heads) else {}),
    )


def batch(config):
    rng = torch.Generator().manual_seed(7)
    lengths = [config.max_positions, 11, 3, 1]
    ids = torch.randint(0, config.vocab_size, (len(lengths), max(lengths)), generator=rng)
    return ids, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def our_outputs(module, heads, config):
    ids, mask = batch(config)
    places = torch.arange(mask.numel()).view(mask.shape)
    with torch.no_grad():
        hidden = module(ids, mask, torch.ones_like(ids))  # segments that it does not have
        outputs = {"intermediate_size": hidden[mask]}
        for head in heads:
            at = places[mask] if head in ("mlm", "token", "span") else places[:, 0]
            outputs[head] = module.logits(head, module.head_inputs(head, hidden, at, mask))
    return outputs


def their_outputs(peer, heads, config):
    ids, mask = batch(config)
    given = {"input_ids": ids, "attention_mask": mask.long()}
    if heads == ("choice",):
        given = {name: value[None] for name, value in given.items()}
    with torch.no_grad():
        seen = peer(**given, output_hidden_states=True)
    if not heads:
        return {"intermediate_size": seen.last_hidden_state[mask]}
    outputs = {"intermediate_size": seen.hidden_states[-1][mask]}
    if heads == ("span",):
        outputs["span"] = torch.stack([seen.start_logits, seen.end_logits], -1)[mask]
    elif heads == ("choice",):
        outputs["choice"] = seen.logits.view(-1, 1)
    else:
        outputs[heads[0]] = seen.logits if heads == ("sequence",) else seen.logits[mask]
    return outputs


def assert_same(ours, theirs):
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, name
        torch.testing.assert_close(ours[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=name)


def our_model(number, heads):
    config = our_config(number, heads)
    module = build(config, heads, rng=torch.Generator().manual_seed(number)).eval()
    return Model(module=scramble(module, number), config=config, tokenizer=tiny_tokenizer())


def their_model(config, heads, seed=0, **changes):
    values = {**MODERNBERT.write_config(config, heads), **changes}
    peer = getattr(transformers, CLASSES[heads])(transformers.AutoConfig.for_model(**values))
    return scramble(peer.eval(), seed)


@pytest.mark.parametrize(("number", "heads"), CASES)
def test_transformers_loads_our_models(number, heads, tmp_path):
    model = our_model(number, heads)
    model.save(tmp_path / "m")
    peer, loading = AUTO[heads].from_pretrained(tmp_path / "m", output_loading_info=True)
    assert type(peer).__name__ == CLASSES[heads]
    assert not any(loading.values()), loading
    assert (peer.config.cls_token_id, peer.config.sep_token_id) == (2, 3)
    assert_same(
        our_outputs(model.module, heads, model.config),
        their_outputs(peer.eval(), heads, model.config),
    )


@pytest.mark.parametrize(("number", "heads"), CASES)
def test_we_load_their_models(number, heads, tmp_path):
    config = our_config(number, heads)
    peer = their_model(config, heads, number)
    peer.save_pretrained(tmp_path / "m")
    tiny_tokenizer().save(tmp_path / "m")
    model = cloze.load(tmp_path / "m")
    assert model.task_heads == heads
    assert not model.report
    assert model.config == config
    assert_same(our_outputs(model.module, heads, config), their_outputs(peer, heads, config))


@pytest.mark.parametrize("number", range(8))
def test_packed_equals_padded(number):
    """Also where a sequence is longer than the window of local layers, and for means."""
    model = our_model(number, ("sequence", "mlm"))
    module, config = model.module, model.config
    ids, mask = batch(config)
    packed = Packed.from_lengths(mask.sum(1).tolist())
    places = torch.arange(mask.numel()).view(mask.shape)[:, 0]
    with torch.no_grad():
        padded, flat = module(ids, mask), module(ids[mask], packed)
        torch.testing.assert_close(flat, padded[mask], rtol=TOLERANCE, atol=TOLERANCE)
        torch.testing.assert_close(
            module.head_inputs("sequence", flat, packed.starts, packed),
            module.head_inputs("sequence", padded, places, mask),
            rtol=TOLERANCE,
            atol=TOLERANCE,
        )


def test_every_layer_equals_theirs():
    config = our_config(9, ())
    peer = their_model(config, ())
    ids, mask = batch(config)
    with torch.no_grad():
        theirs = peer(ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        module = build(config, rng=torch.Generator()).eval()
        scramble_like(module, peer, config)
        ours = list(module.hidden_states(ids, mask))
    assert len(ours) == len(theirs) == config.num_layers + 1
    for layer, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(
            one[mask], other[mask], rtol=TOLERANCE, atol=TOLERANCE, msg=str(layer)
        )


def scramble_like(module, peer, config):
    theirs = peer.state_dict()
    rules = MODERNBERT.map_weights(config, module.state_dict())
    module.load_state_dict(
        {ours: theirs[rule.names[0].removeprefix("model.")] for ours, rule in rules.items()}
    )


OLD = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 2,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 3,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 1000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 16,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "layer_norm_eps": 1e-05,
    "local_attention": 6,
    "local_rope_theta": 100.0,
    "max_position_embeddings": 40,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 2,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "reference_compile": None,
    "sep_token_id": 3,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.48.0",
    "vocab_size": len(PIECES),
}
NEW = {
    **{k: v for k, v in OLD.items() if not k.endswith("_rope_theta") and "every_n" not in k},
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "rope_parameters": {
        "full_attention": {"rope_theta": 1000.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
    },
}


@pytest.mark.parametrize("values", [OLD, NEW], ids=["old", "new"])
def test_old_and_new_settings(values, tmp_path):
    """The published folders were written by an older library than the one installed."""
    peer = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**values)).eval()
    scramble(peer, 3)
    peer.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text(json.dumps(values))
    tiny_tokenizer().save(tmp_path / "m")
    model = cloze.load(tmp_path / "m")
    assert not model.report
    assert (
        model.config.global_attention_every,
        model.config.rope_theta,
        model.config.local_rope_theta,
    ) == (
        2,
        1000.0,
        100.0,
    )
    assert_same(
        our_outputs(model.module, ("mlm",), model.config),
        their_outputs(peer, ("mlm",), model.config),
    )
