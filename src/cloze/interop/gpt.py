"""Tables of GPT and GPT-2 in Hugging Face's layout: our names -> theirs.

Their matrices are stored as [in, out] (`Conv1D`), so every matrix of a block is transposed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.errors import ConfigError
from cloze.interop.huggingface import HuggingFaceLayout
from cloze.interop.layout import Rule

# Settings that change the computation, with the values that we support.
SUPPORTED_VALUES = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
}
INNER, SIZE = "n_inner", "n_embd"
_SUMMARY = frozenset(
    f"summary_{name}"
    for name in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")
)


def _read_gpt2_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    for name, supported in SUPPORTED_VALUES.items():
        if values.get(name, supported) != supported:
            raise ConfigError(
                f"config.json sets {name} to {values[name]!r}, which is not supported",
                fix=f"use a model with {name} = {supported!r}",
            )
    found = dict(values)
    if found.get(INNER) is None and isinstance(found.get(SIZE), int):
        found[INNER] = 4 * found[SIZE]
    return found


def _read_gpt_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """GPT's `gelu` is the tanh approximation, and its intermediate size is fixed."""
    found = dict(values)
    if found.get("afn") == "gelu":
        found["afn"] = "gelu_new"
    if isinstance(found.get(SIZE), int):
        found[INNER] = 4 * found[SIZE]
    return found


def _write_gpt_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    if settings[INNER] != 4 * settings[SIZE]:
        raise ConfigError(
            f"intermediate_size is {settings[INNER]}, but GPT's layout stores 4·hidden_size only",
            fix=f"use intermediate_size {4 * settings[SIZE]}, or the family gpt2",
        )
    return {"afn": "gelu"} if settings["afn"] == "gelu_new" else {}


GPT2 = HuggingFaceLayout(
    family="gpt2",
    prefix="transformer.",
    settings={
        "vocab_size": "vocab_size",
        "hidden_size": SIZE,
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "intermediate_size": INNER,
        "max_positions": "n_positions",
        "activation": "activation_function",
        "dropout": "resid_pdrop",
        "embedding_dropout": "embd_pdrop",
        "attention_dropout": "attn_pdrop",
        "classifier_dropout": "classifier_dropout",
        "norm_eps": "layer_norm_epsilon",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
        "tie_embeddings": "tie_word_embeddings",
    },
    architectures={
        "GPT2Model": (),
        "GPT2LMHeadModel": ("lm",),
        "GPT2ForSequenceClassification": ("sequence",),
        "GPT2ForTokenClassification": ("token",),
        "GPT2ForQuestionAnswering": ("span",),
    },
    weights={
        "embeddings.word": "transformer.wte",
        "embeddings.position": "transformer.wpe",
        "attention.qkv": Rule(("attn.c_attn",), transpose=True),
        "attention.out": Rule(("attn.c_proj",), transpose=True),
        "attention_norm": "ln_1",
        "ffn.up": Rule(("mlp.c_fc",), transpose=True),
        "ffn.down": Rule(("mlp.c_proj",), transpose=True),
        "ffn_norm": "ln_2",
        "norm": "transformer.ln_f",
        "task_heads.lm.weight": "lm_head.weight",
        "task_heads.sequence.dense": "score",
        "task_heads.token.dense": "classifier",
        "task_heads.span.dense": "qa_outputs",
    },
    block="transformer.h.{n}.",
    harmless=frozenset({"lm_head.weight"}),
    harmless_pattern=r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",
    head_weights={"lm_head.weight": "lm", "score.weight": "sequence", "qa_outputs.weight": "span"},
    ignored_settings=frozenset({"n_ctx", "task_specific_params", *SUPPORTED_VALUES, *_SUMMARY}),
    special_ids={"bos_token_id": "bos", "eos_token_id": "eos"},
    normalize_settings=_read_gpt2_settings,
)

GPT = replace(
    GPT2,
    family="openai-gpt",
    settings={
        **{ours: theirs for ours, theirs in GPT2.settings.items() if ours != "classifier_dropout"},
        "activation": "afn",
    },
    architectures={
        "OpenAIGPTModel": (),
        "OpenAIGPTLMHeadModel": ("lm",),
        "OpenAIGPTForSequenceClassification": ("sequence",),
    },
    weights={
        **{ours: entry for ours, entry in GPT2.weights.items() if ours != "norm"},
        "embeddings.word": "transformer.tokens_embed",
        "embeddings.position": "transformer.positions_embed",
    },
    head_weights={"lm_head.weight": "lm", "score.weight": "sequence"},
    normalize_settings=_read_gpt_settings,
    extra_settings=_write_gpt_settings,
)
