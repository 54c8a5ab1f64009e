"""Tables of GPT, GPT-2 and GPT-3 in Hugging Face's layout: our names -> theirs.

Their matrices are stored as [in, out] (`Conv1D`), so every matrix of a block is transposed. Classes
that transformers lacks (multiple choice without an LM head; tags and answers of a GPT) have the
names that it would give them. It also lacks GPT-3: its GPT-2 would attend to all tokens in every
layer, so the `model_type` is another one, which it refuses. (GPT-Neo has the same bands, but
projections without biases.)
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.errors import ConfigError
from cloze.interop.huggingface import HuggingFaceLayout, read_architecture
from cloze.interop.layout import Rule

# Settings that change the computation, with the values that we support.
SUPPORTED_VALUES = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
}
INNER, SIZE = "n_inner", "n_embd"
# Their multiple-choice head: a linear layer at the last token.
_SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}
_CHOICE_CLASSES = ("GPT2DoubleHeadsModel", "OpenAIGPTDoubleHeadsModel")


def _check_values(values: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    for name, value in supported.items():
        if values.get(name, value) != value:
            raise ConfigError(
                f"config.json sets {name} to {values[name]!r}, which is not supported",
                fix=f"use a model with {name} = {value!r}",
            )


def _check_choice(values: Mapping[str, Any]) -> None:
    if read_architecture(values) in _CHOICE_CLASSES:
        _check_values(values, _SUMMARY)


def _read_gpt2_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    _check_values(values, SUPPORTED_VALUES)
    _check_choice(values)
    found = dict(values)
    if found.get(INNER) is None and isinstance(found.get(SIZE), int):
        found[INNER] = 4 * found[SIZE]
    return found


def _read_gpt_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """GPT's `gelu` is the tanh approximation, and its intermediate size is fixed."""
    _check_choice(values)
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
        "GPT2DoubleHeadsModel": ("choice", "lm"),
        "GPT2ForMultipleChoice": ("choice",),
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
        "task_heads.choice.dense": "multiple_choice_head.summary",
    },
    block="transformer.h.{n}.",
    tied_names={"transformer.wte.weight": "lm_head.weight"},
    harmless=frozenset({"lm_head.weight"}),
    harmless_pattern=r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",
    head_weights={
        "multiple_choice_head.summary.weight": "choice",
        "lm_head.weight": "lm",
        "score.weight": "sequence",
        "qa_outputs.weight": "span",
    },
    ignored_settings=frozenset(
        {"n_ctx", "task_specific_params", "summary_first_dropout", *SUPPORTED_VALUES, *_SUMMARY}
    ),
    special_ids={"bos_token_id": "bos", "eos_token_id": "eos"},
    normalize_settings=_read_gpt2_settings,
)

GPT = replace(
    GPT2,
    family="openai-gpt",
    settings={
        **GPT2.settings,
        "activation": "afn",
        "classifier_dropout": "summary_first_dropout",
    },
    architectures={
        "OpenAIGPTModel": (),
        "OpenAIGPTLMHeadModel": ("lm",),
        "OpenAIGPTForSequenceClassification": ("sequence",),
        "OpenAIGPTForTokenClassification": ("token",),
        "OpenAIGPTForQuestionAnswering": ("span",),
        "OpenAIGPTDoubleHeadsModel": ("choice", "lm"),
        "OpenAIGPTForMultipleChoice": ("choice",),
    },
    weights={
        **{ours: entry for ours, entry in GPT2.weights.items() if ours != "norm"},
        "embeddings.word": "transformer.tokens_embed",
        "embeddings.position": "transformer.positions_embed",
    },
    tied_names={"transformer.tokens_embed.weight": "lm_head.weight"},
    normalize_settings=_read_gpt_settings,
    extra_settings=_write_gpt_settings,
)

GPT3 = replace(
    GPT2,
    family="gpt3",
    settings={
        **GPT2.settings,
        "window_size": "window_size",
        "global_attention_every": "global_attention_every",
    },
    architectures={
        name.replace("GPT2", "GPT3"): heads for name, heads in GPT2.architectures.items()
    },
)
