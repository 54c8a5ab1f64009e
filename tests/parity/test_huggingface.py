"""transformers loads our models and we load theirs: generated configurations, all heads."""

import random

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.model import Model
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.models.configs.roberta import RobertaConfig, XLMRobertaConfig
from cloze.models.registry import get_family, resolve
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed
from helpers import scramble, tiny_tokenizer

pytestmark = pytest.mark.parity
TOLERANCE = 1e-5

BERT_CLASSES = {
    (): "BertModel",
    ("mlm", "nsp"): "BertForPreTraining",
    ("mlm",): "BertForMaskedLM",
    ("nsp",): "BertForNextSentencePrediction",
    ("sequence",): "BertForSequenceClassification",
    ("token",): "BertForTokenClassification",
    ("span",): "BertForQuestionAnswering",
    ("choice",): "BertForMultipleChoice",
}
CLASSES = {"bert": BERT_CLASSES} | {
    family: {
        heads: name.replace("Bert", theirs, 1)
        for heads, name in BERT_CLASSES.items()
        if "nsp" not in heads
    }
    for family, theirs in (
        ("distilbert", "DistilBert"),
        ("roberta", "Roberta"),
        ("xlm-roberta", "XLMRoberta"),
    )
}


def generate_config(number):
    """Configuration `number`: the shape, the heads, with or without the bare body's pooler."""
    rng = random.Random(number)
    heads = rng.choice([1, 2, 3, 4])
    shape = {
        "vocab_size": rng.randint(40, 120),
        "num_heads": heads,
        "hidden_size": heads * rng.choice([4, 8, 12]),
        "num_layers": rng.randint(1, 4),
        "intermediate_size": rng.choice([16, 33, 64]),
        "max_positions": rng.randint(16, 40),
        "activation": ["gelu", "gelu_new", "relu"][number % 3],
        "tie_embeddings": number % 5 != 4,
    }
    return shape, rng


CONFIGURATIONS = [
    pytest.param(family, number, heads, id=f"{family}-{number}-{'+'.join(heads) or 'body'}")
    for family, times in (("bert", 3), ("distilbert", 2), ("roberta", 2), ("xlm-roberta", 1))
    for number, heads in enumerate(list(CLASSES[family]) * times)
]


def our_config(family, number, heads):
    shape, rng = generate_config(number)
    if {"sequence", "token"} & set(heads):
        shape["labels"] = tuple("abcdefg"[: rng.randint(1, 7)])
    if family == "bert":
        return BertConfig(
            **shape, type_vocab_size=rng.randint(1, 4), norm_eps=rng.choice([1e-12, 1e-5])
        )
    if family == "roberta":
        return RobertaConfig(**shape, pad_id=rng.randint(0, 3), norm_eps=rng.choice([1e-5, 1e-12]))
    if family == "xlm-roberta":
        return XLMRobertaConfig(**shape)
    return DistilBertConfig(**shape, sinusoidal_positions=bool(number % 2))


def batch(config, rows=3):
    """Random ids with padding on the right, and segments where the model has them."""
    rng = torch.Generator().manual_seed(7)
    lengths = [config.max_positions, 3, 1][:rows]
    ids = torch.randint(0, config.vocab_size, (rows, max(lengths)), generator=rng)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    if isinstance(config, RobertaConfig):  # the peer counts positions without padding tokens
        ids = torch.where(ids == config.pad_id, ids + 1, ids)
    segments = getattr(config, "type_vocab_size", 0)
    types = torch.randint(0, segments, ids.shape, generator=rng) if segments else None
    return ids, mask, types


def our_outputs(module: Encoder, heads, config):
    ids, mask, types = batch(config)
    with torch.no_grad():
        hidden = module(ids, mask, types)
        outputs = {"last_hidden_state": hidden[mask]}
        if not heads and module.pooler is not None:
            outputs["pooler_output"] = module.pooler(hidden[:, 0])
        for head in heads:
            rows = hidden[mask] if head in ("mlm", "token", "span") else hidden[:, 0]
            outputs[head] = module.logits(head, rows)
        if "choice" in heads:
            outputs["choice"] = outputs["choice"].view(1, -1)
    return outputs


def their_outputs(peer, heads, config):
    ids, mask, types = batch(config)
    given = {"input_ids": ids, "attention_mask": mask.long()}
    if types is not None:
        given["token_type_ids"] = types
    if "choice" in heads:
        given = {name: value[None] for name, value in given.items()}
    with torch.no_grad():
        seen = peer(**given, output_hidden_states=True)
    outputs = {}
    if not heads:
        outputs["last_hidden_state"] = seen.last_hidden_state[mask]
        if getattr(seen, "pooler_output", None) is not None:
            outputs["pooler_output"] = seen.pooler_output
        return outputs
    outputs["last_hidden_state"] = seen.hidden_states[-1][mask]
    if heads == ("mlm", "nsp"):
        outputs |= {"mlm": seen.prediction_logits[mask], "nsp": seen.seq_relationship_logits}
    elif heads == ("span",):
        outputs["span"] = torch.stack([seen.start_logits, seen.end_logits], -1)[mask]
    elif heads in (("mlm",), ("token",)):
        outputs[heads[0]] = seen.logits[mask]
    else:
        outputs[heads[0]] = seen.logits
    return outputs


def assert_same(ours, theirs):
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, name
        assert (ours[name] - value).abs().max() <= TOLERANCE, name


def peer_class(family, heads):
    return getattr(transformers, CLASSES[family][heads])


def with_pooler(family, number, heads):
    """A bare body comes with and without its pooler, turn by turn."""
    return {} if family == "distilbert" or heads else {"pooler": number % 2 == 0}


@pytest.mark.parametrize(("family", "number", "heads"), CONFIGURATIONS)
def test_transformers_loads_our_models(family, number, heads, tmp_path):
    config = our_config(family, number, heads)
    parts = with_pooler(family, number, heads)
    module = build(config, heads, rng=torch.Generator().manual_seed(number), **parts).eval()
    scramble(module, number)
    Model(module=module, config=config, tokenizer=tiny_tokenizer()).save(tmp_path / "m")
    options = {"add_pooling_layer": False} if parts == {"pooler": False} else {}
    peer, loading = peer_class(family, heads).from_pretrained(
        tmp_path / "m", output_loading_info=True, **options
    )
    assert not any(loading.values()), loading
    assert_same(our_outputs(module, heads, config), their_outputs(peer.eval(), heads, config))


@pytest.mark.parametrize(("family", "number", "heads"), CONFIGURATIONS)
def test_we_load_their_models(family, number, heads, tmp_path):
    config = our_config(family, number, heads)
    parts = with_pooler(family, number, heads)
    values = resolve(get_family(config.family).layout).write_config(config, heads)
    peer_config = transformers.AutoConfig.for_model(**values)
    options = {"add_pooling_layer": False} if parts == {"pooler": False} else {}
    peer = peer_class(family, heads)(peer_config, **options).eval()
    scramble(peer, number)
    peer.save_pretrained(tmp_path / "m")
    tiny_tokenizer().save(tmp_path / "m")
    model = cloze.load(tmp_path / "m")
    assert model.task_heads == heads
    assert not model.report.missing
    assert not model.report.unexpected
    assert model.config == config
    assert_same(our_outputs(model.module, heads, config), their_outputs(peer, heads, config))


@pytest.mark.parametrize(("family", "number", "heads"), CONFIGURATIONS[:8] + CONFIGURATIONS[-6:])
def test_packed_equals_padded(family, number, heads):
    config = our_config(family, number, heads)
    module = build(config, heads, rng=torch.Generator().manual_seed(number)).eval()
    scramble(module, number)
    ids, mask, types = batch(config)
    with torch.no_grad():
        padded = module(ids, mask, types)[mask]
        packed = Packed.from_lengths(mask.sum(1).tolist())
        flat = module(ids[mask], packed, None if types is None else types[mask])
    assert (flat - padded).abs().max() <= TOLERANCE
