"""Tables of RoBERTa and XLM-R in Hugging Face's layout: our names -> theirs.

Their max_position_embeddings is the number of rows of the position matrix, whose first
pad_token_id + 1 rows are not used; our `max_positions` is the maximum length of a sequence.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.interop.huggingface import HuggingFaceLayout

DEFAULT_PAD_ID = 1


def _count_usable_positions(values: Mapping[str, Any]) -> dict[str, Any]:
    """Their settings, without the unused rows in max_position_embeddings."""
    types = values.get("type_vocab_size", 1)
    if types != 1:
        raise ConfigError(
            f"config.json sets type_vocab_size to {types!r}, which is not supported",
            fix="use a model with one token type, as all published RoBERTas have",
        )
    if "max_position_embeddings" not in values:
        return dict(values)
    rows, unused = values["max_position_embeddings"], _count_unused(values)
    in_range("max_position_embeddings", rows, unused + 1, 1 << 24)
    return {**values, "max_position_embeddings": rows - unused}


def _count_all_positions(settings: Mapping[str, Any]) -> dict[str, Any]:
    rows = settings["max_position_embeddings"] + _count_unused(settings)
    return {"max_position_embeddings": rows, "type_vocab_size": 1}


def _count_unused(values: Mapping[str, Any]) -> int:
    return in_range("pad_token_id", values.get("pad_token_id", DEFAULT_PAD_ID), 0, 1 << 24) + 1


ROBERTA = HuggingFaceLayout(
    family="roberta",
    prefix="roberta.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "classifier_dropout": "classifier_dropout",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "tie_embeddings": "tie_word_embeddings",
    },
    architectures={
        "RobertaModel": (),
        "RobertaForMaskedLM": ("mlm",),
        "RobertaForSequenceClassification": ("sequence",),
        "RobertaForTokenClassification": ("token",),
        "RobertaForQuestionAnswering": ("span",),
        "RobertaForMultipleChoice": ("choice",),
    },
    weights={
        "embeddings.word": "roberta.embeddings.word_embeddings",
        "embeddings.position": "roberta.embeddings.position_embeddings",
        "embeddings.token_type": "roberta.embeddings.token_type_embeddings",
        "embeddings.norm": "roberta.embeddings.LayerNorm",
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
        "pooler.dense": "roberta.pooler.dense",
        "task_heads.mlm.dense": "lm_head.dense",
        "task_heads.mlm.norm": "lm_head.layer_norm",
        "task_heads.mlm.bias": "lm_head.bias",
        "task_heads.mlm.weight": "lm_head.decoder.weight",
        "task_heads.sequence.dense": "classifier.dense",
        "task_heads.sequence.out": "classifier.out_proj",
        "task_heads.token.dense": "classifier",
        "task_heads.choice.dense": "classifier",
        "task_heads.span.dense": "qa_outputs",
    },
    block="roberta.encoder.layer.{n}.",
    harmless=frozenset(
        {
            "roberta.embeddings.position_ids",
            "lm_head.decoder.weight",
            "lm_head.decoder.bias",
            "lm_head.bias",
        }
    ),
    lm_head_biases=("lm_head.bias", "lm_head.decoder.bias"),
    optional_parts={"pooler": "pooler.dense.weight"},
    head_parts={"pooler": ("", "choice")},
    head_weights={"lm_head.dense.weight": "mlm", "qa_outputs.weight": "span"},
    ignored_settings=frozenset({"type_vocab_size"}),
    special_ids={"bos_token_id": "cls", "eos_token_id": "sep"},
    normalize_settings=_count_usable_positions,
    extra_settings=_count_all_positions,
)

XLM_ROBERTA = replace(
    ROBERTA,
    family="xlm-roberta",
    architectures={f"XLM{name}": heads for name, heads in ROBERTA.architectures.items()},
)
