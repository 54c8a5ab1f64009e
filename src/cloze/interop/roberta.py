"""Tables of RoBERTa and XLM-R in Hugging Face's layout: our names -> theirs.

Their max_position_embeddings is the number of rows of the position matrix, whose first
pad_token_id + 1 rows are not used; our `max_positions` is the maximum length of a sequence.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.interop.encoders import BERT
from cloze.interop.huggingface import HuggingFaceLayout
from cloze.interop.layout import Entry

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


_BODY: dict[str, Entry] = {
    ours: entry.replace("bert.", "roberta.", 1) if isinstance(entry, str) else entry
    for ours, entry in BERT.weights.items()
    if not ours.startswith("task_heads.")
}

ROBERTA = HuggingFaceLayout(
    family="roberta",
    prefix="roberta.",
    settings={
        ours: theirs
        for ours, theirs in BERT.settings.items()
        if ours not in ("type_vocab_size", "is_causal")
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
        **_BODY,
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
    token_types=False,
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
