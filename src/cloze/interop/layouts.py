"""How BERT and DistilBERT are spelled in published folders, as tables; ours is on the left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one family is spelled in a published folder."""

    base: str  # the prefix of the body's weights, absent in folders of the bare body
    settings: Mapping[str, str]
    architectures: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, str | tuple[str, str, str]]  # by module, or by whole name
    block: str  # where block {n} lies on their side
    # stored by older writers, and of no consequence: buffers, copies of tied weights
    harmless: frozenset[str]
    # their masked-LM bias has two names: the first holds when the head is tied, else the second
    biases: tuple[str, str] | None = None
    signs: Mapping[str, str] = field(default_factory=dict)  # weights that tell a head
    silent: frozenset[str] = frozenset()  # settings of theirs that change no number
    special: Mapping[str, str] = field(default_factory=dict)  # settings that name a token, by role
    # where one thing has several spellings: to the one in `settings`, and from it to the others
    settled: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    besides: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}


def _settled(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A null says nothing."""
    return {key: value for key, value in values.items() if (key, value) != ("is_decoder", None)}


BERT = Layout(
    base="bert.",
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
    biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    signs={
        "cls.predictions.transform.dense.weight": "mlm",
        "cls.seq_relationship.weight": "nsp",
        "qa_outputs.weight": "span",
    },
    settled=_settled,
)

DISTILBERT = Layout(
    base="distilbert.",
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
    signs={"vocab_transform.weight": "mlm", "qa_outputs.weight": "span"},
)
