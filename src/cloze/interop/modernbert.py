"""How a ModernBERT is spelled in published folders.

Its settings have an old spelling (global_attn_every_n_layers, global_rope_theta, local_rope_theta)
and a new one (layer_types, rope_parameters). We read both, the new one first as the library does,
and write both.
"""

from collections.abc import Mapping
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.interop.layouts import Layout
from cloze.models.configs.base import MAX_LAYERS
from cloze.models.configs.modernbert import ModernBertConfig

FULL, SLIDING = "full_attention", "sliding_attention"
THETAS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
ROPE = {"rope_theta", "rope_type", "type"}  # what may be said of the angles


def settled(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the old spelling, whichever they come in."""
    told = dict(values)
    if told.get("rope_scaling"):
        raise _mathematics("rope_scaling", told["rope_scaling"])
    if (kinds := told.get("layer_types")) is not None:
        layers = told.get("num_hidden_layers", ModernBertConfig.num_layers)
        old = told.get("global_attn_every_n_layers")
        told["global_attn_every_n_layers"] = _every(kinds, layers, old)
    rope = told.get("rope_parameters")
    for kind, name in THETAS.items():
        if rope is not None:
            told[name] = _theta(rope, kind, told.get(name))
        if told.get(name) is None:  # unsaid; the old library read a null local theta as global
            told.pop(name, None)
    if values.get("local_rope_theta", 0) is None and rope is None and THETAS[FULL] in told:
        told["local_rope_theta"] = told[THETAS[FULL]]
    return told


def besides(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The new spelling of the same."""
    every, layers = settings["global_attn_every_n_layers"], settings["num_hidden_layers"]
    return {
        "layer_types": [SLIDING if layer % every else FULL for layer in range(layers)],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": settings[name]}
            for kind, name in THETAS.items()
        },
    }


def _every(kinds: object, layers: object, old: object) -> object:
    """The n of "every n-th layer is global" that a list of layers says; `old` if it says that."""
    count = in_range("num_hidden_layers", layers, 1, MAX_LAYERS)
    known = isinstance(kinds, list) and all(kind in (FULL, SLIDING) for kind in kinds)
    if isinstance(kinds, list) and known and len(kinds) == count:
        whole = [layer for layer, kind in enumerate(kinds) if kind == FULL]
        every = whole[1] if len(whole) > 1 else count
        if whole == list(range(0, count, every)):
            same = isinstance(old, int) and old > 0 and whole == list(range(0, count, old))
            return old if same else every
    raise ConfigError(
        f"layer_types does not say {FULL!r} for every n-th of {count} layers, from the first on",
        fix=f"cloze computes that pattern only, with {SLIDING!r} between",
    )


def _theta(rope: object, kind: str, old: object) -> object:
    if not isinstance(rope, Mapping) or not isinstance(rope.get(kind) or {}, Mapping):
        raise ConfigError(
            f"rope_parameters is {rope!r}", fix=f"give a table each for {FULL} and {SLIDING}"
        )
    said = rope.get(kind) or {}
    if said.get("rope_type", said.get("type", "default")) != "default" or set(said) - ROPE:
        raise _mathematics("rope_parameters", said)
    return said.get("rope_theta", old)


def _mathematics(name: str, value: object) -> ConfigError:
    return ConfigError(
        f"config.json sets {name} to {value!r}, which changes the mathematics",
        fix="cloze computes rotary angles of the default kind only; use a folder that has those",
    )


MODERNBERT = Layout(
    base="model.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "activation": "hidden_activation",
        "dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "ffn_dropout": "mlp_dropout",
        "classifier_dropout": "classifier_dropout",
        "norm_eps": "norm_eps",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "ffn_bias": "mlp_bias",
        "classifier_bias": "classifier_bias",
        "classifier_activation": "classifier_activation",
        "lm_head_bias": "decoder_bias",
        "classifier_pooling": "classifier_pooling",
        "global_attention_every": "global_attn_every_n_layers",
        "window_size": "local_attention",
        "rope_theta": "global_rope_theta",
        "local_rope_theta": "local_rope_theta",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "tie_embeddings": "tie_word_embeddings",
    },
    architectures={
        "ModernBertModel": (),
        "ModernBertForMaskedLM": ("mlm",),
        "ModernBertForSequenceClassification": ("sequence",),
        "ModernBertForTokenClassification": ("token",),
        "ModernBertForQuestionAnswering": ("span",),
        "ModernBertForMultipleChoice": ("choice",),
    },
    weights={
        "embeddings.word": "model.embeddings.tok_embeddings",
        "embeddings.norm": "model.embeddings.norm",
        "attention.qkv": "attn.Wqkv",  # one matrix there too
        "attention.out": "attn.Wo",
        "attention_norm": "attn_norm",
        "ffn.up": "mlp.Wi",
        "ffn.down": "mlp.Wo",
        "ffn_norm": "mlp_norm",
        "norm": "model.final_norm",
        "transform.dense": "head.dense",
        "transform.norm": "head.norm",
        "task_heads.mlm.bias": "decoder.bias",
        "task_heads.mlm.weight": "decoder.weight",
        "task_heads.sequence.dense": "classifier",
        "task_heads.token.dense": "classifier",
        "task_heads.choice.dense": "classifier",
        "task_heads.span.dense": "classifier",
    },
    block="model.layers.{n}.",
    harmless=frozenset({"decoder.weight"}),
    signs={"decoder.bias": "mlm"},
    silent=frozenset(
        """
        layer_types rope_parameters rope_scaling initializer_cutoff_factor
        cls_token_id sep_token_id layer_norm_eps reference_compile repad_logits_with_grad
        deterministic_flash_attn sparse_prediction sparse_pred_ignore_index
        """.split()  # noqa: SIM905
    ),
    special={
        "cls_token_id": "cls",
        "sep_token_id": "sep",
        "bos_token_id": "cls",
        "eos_token_id": "sep",
    },
    settled=settled,
    besides=besides,
)
