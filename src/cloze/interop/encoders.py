"""Tables of BERT, DistilBERT and ModernBERT in Hugging Face's layout: our names -> theirs.

Some settings of ModernBERT have old names (global_attn_every_n_layers, global_rope_theta,
local_rope_theta) and new ones (layer_types, rope_parameters). We read both, with precedence for the
new ones as in transformers, and write both.
"""

from collections.abc import Mapping
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.interop.huggingface import HuggingFaceLayout
from cloze.models.configs.base import MAX_LAYERS
from cloze.models.registry import get_family

FULL, SLIDING = "full_attention", "sliding_attention"
THETAS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
ROPE_KEYS = {"rope_theta", "rope_type", "type"}


def _drop_null_decoder(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove `is_decoder` if it is null."""
    return {key: value for key, value in values.items() if (key, value) != ("is_decoder", None)}


BERT = HuggingFaceLayout(
    family="bert",
    prefix="bert.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "type_vocab_size": "type_vocab_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "classifier_dropout": "classifier_dropout",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "tie_embeddings": "tie_word_embeddings",
        "is_causal": "is_decoder",
    },
    architectures={
        "BertModel": (),
        "BertForPreTraining": ("mlm", "nsp"),
        "BertForMaskedLM": ("mlm",),
        "BertLMHeadModel": ("mlm",),
        "BertForNextSentencePrediction": ("nsp",),
        "BertForSequenceClassification": ("sequence",),
        "BertForTokenClassification": ("token",),
        "BertForQuestionAnswering": ("span",),
        "BertForMultipleChoice": ("choice",),
    },
    weights={
        "embeddings.word": "bert.embeddings.word_embeddings",
        "embeddings.position": "bert.embeddings.position_embeddings",
        "embeddings.token_type": "bert.embeddings.token_type_embeddings",
        "embeddings.norm": "bert.embeddings.LayerNorm",
        "attention.qkv": (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ),
        "attention.out": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "ffn.up": "intermediate.dense",
        "ffn.down": "output.dense",
        "ffn_norm": "output.LayerNorm",
        "pooler.dense": "bert.pooler.dense",
        "task_heads.mlm.dense": "cls.predictions.transform.dense",
        "task_heads.mlm.norm": "cls.predictions.transform.LayerNorm",
        "task_heads.mlm.bias": "cls.predictions.bias",
        "task_heads.mlm.weight": "cls.predictions.decoder.weight",
        "task_heads.nsp.dense": "cls.seq_relationship",
        "task_heads.sequence.dense": "classifier",
        "task_heads.token.dense": "classifier",
        "task_heads.choice.dense": "classifier",
        "task_heads.span.dense": "qa_outputs",
    },
    block="bert.encoder.layer.{n}.",
    harmless=frozenset(
        {
            "bert.embeddings.position_ids",
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
            "cls.predictions.bias",
        }
    ),
    lm_head_biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    optional_parts={"pooler": "pooler.dense.weight"},
    head_parts={"pooler": ("", "nsp", "sequence", "choice")},
    head_weights={
        "cls.predictions.transform.dense.weight": "mlm",
        "cls.seq_relationship.weight": "nsp",
        "qa_outputs.weight": "span",
    },
    normalize_settings=_drop_null_decoder,
)

DISTILBERT = HuggingFaceLayout(
    family="distilbert",
    prefix="distilbert.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_positions": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "qa_dropout": "qa_dropout",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "sinusoidal_positions": "sinusoidal_pos_embds",
        "tie_embeddings": "tie_word_embeddings",
    },
    architectures={
        "DistilBertModel": (),
        "DistilBertForMaskedLM": ("mlm",),
        "DistilBertForSequenceClassification": ("sequence",),
        "DistilBertForTokenClassification": ("token",),
        "DistilBertForQuestionAnswering": ("span",),
        "DistilBertForMultipleChoice": ("choice",),
    },
    weights={
        "embeddings.word": "distilbert.embeddings.word_embeddings",
        "embeddings.position": "distilbert.embeddings.position_embeddings",
        "embeddings.norm": "distilbert.embeddings.LayerNorm",
        "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "ffn.up": "ffn.lin1",
        "ffn.down": "ffn.lin2",
        "ffn_norm": "output_layer_norm",
        "pooler.dense": "pre_classifier",
        "task_heads.mlm.dense": "vocab_transform",
        "task_heads.mlm.norm": "vocab_layer_norm",
        "task_heads.mlm.bias": "vocab_projector.bias",
        "task_heads.mlm.weight": "vocab_projector.weight",
        "task_heads.sequence.dense": "classifier",
        "task_heads.token.dense": "classifier",
        "task_heads.choice.dense": "classifier",
        "task_heads.span.dense": "qa_outputs",
    },
    block="distilbert.transformer.layer.{n}.",
    harmless=frozenset({"distilbert.embeddings.position_ids", "vocab_projector.weight"}),
    head_parts={"pooler": ("sequence", "choice")},
    head_weights={"vocab_transform.weight": "mlm", "qa_outputs.weight": "span"},
)


def _normalize_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings under their old names, whichever names they come with."""
    settings = dict(values)
    if settings.get("rope_scaling"):
        raise _unsupported_setting_error("rope_scaling", settings["rope_scaling"])
    if (types := settings.get("layer_types")) is not None:
        default = get_family("modernbert").config_class.num_layers
        layers = settings.get("num_hidden_layers", default)
        old = settings.get("global_attn_every_n_layers")
        settings["global_attn_every_n_layers"] = _read_period(types, layers, old)
    rope = settings.get("rope_parameters")
    for kind, name in THETAS.items():
        if rope is not None:
            settings[name] = _read_theta(rope, kind, settings.get(name))
        if settings.get(name) is None:  # the default
            settings.pop(name, None)
    # older versions of transformers used the global theta where the local one is null
    if values.get("local_rope_theta", 0) is None and rope is None and THETAS[FULL] in settings:
        settings["local_rope_theta"] = settings[THETAS[FULL]]
    return settings


def _make_new_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings under their new names."""
    every, layers = settings["global_attn_every_n_layers"], settings["num_hidden_layers"]
    return {
        "layer_types": [SLIDING if layer % every else FULL for layer in range(layers)],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": settings[name]}
            for kind, name in THETAS.items()
        },
    }


def _read_period(types: object, layers: object, old: object) -> object:
    """The n of "every n-th layer is global", from `layer_types`; `old` if it means the same."""
    count = in_range("num_hidden_layers", layers, 1, MAX_LAYERS)
    is_known = isinstance(types, list) and all(kind in (FULL, SLIDING) for kind in types)
    if isinstance(types, list) and is_known and len(types) == count:
        full = [layer for layer, kind in enumerate(types) if kind == FULL]
        every = full[1] if len(full) > 1 else count
        if full == list(range(0, count, every)):
            is_same = isinstance(old, int) and old > 0 and full == list(range(0, count, old))
            return old if is_same else every
    raise ConfigError(
        f"layer_types is not {FULL!r} for every n-th of {count} layers, starting with the first, "
        f"and {SLIDING!r} for the others",
        fix="use a model with this pattern; cloze supports no other",
    )


def _read_theta(rope: object, kind: str, old: object) -> object:
    if not isinstance(rope, Mapping) or not isinstance(rope.get(kind) or {}, Mapping):
        raise ConfigError(
            f"rope_parameters is {rope!r}", fix=f"use an object with the keys {FULL} and {SLIDING}"
        )
    parameters = rope.get(kind) or {}
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type != "default" or set(parameters) - ROPE_KEYS:
        raise _unsupported_setting_error("rope_parameters", parameters)
    return parameters.get("rope_theta", old)


def _unsupported_setting_error(name: str, value: object) -> ConfigError:
    return ConfigError(
        f"config.json sets {name} to {value!r}, which is not supported",
        fix="use a model with the default rotary embeddings",
    )


MODERNBERT = HuggingFaceLayout(
    family="modernbert",
    prefix="model.",
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
    head_parts={"transform": ("mlm", "sequence", "token", "span", "choice")},
    head_weights={"decoder.bias": "mlm"},
    ignored_settings=frozenset(
        """
        layer_types rope_parameters rope_scaling initializer_cutoff_factor
        cls_token_id sep_token_id layer_norm_eps reference_compile repad_logits_with_grad
        deterministic_flash_attn sparse_prediction sparse_pred_ignore_index
        """.split()  # noqa: SIM905
    ),
    special_ids={
        "cls_token_id": "cls",
        "sep_token_id": "sep",
        "bos_token_id": "cls",
        "eos_token_id": "sep",
    },
    normalize_settings=_normalize_settings,
    extra_settings=_make_new_settings,
)
