"""Tiny neural language models."""

import torch

from cloze.checkpoint.model import Model
from cloze.models.build import build_on_meta
from cloze.models.configs.ngram import BOS
from cloze.models.language import Vocabulary
from cloze.models.nnlm import BOS_LOGIT
from cloze.models.registry import FAMILIES
from cloze.text.tokenizer_training import train_whitespace_tokenizer
from cloze.text.word_characters import WordCharacterTokenizer
from grams import TEXT
from helpers import scramble

SHAPES = {
    "nnlm": {"order": 4, "embedding_size": 6, "hidden_size": 10},
    "lstm": {"hidden_size": 8, "embedding_size": 8, "num_layers": 2, "dropout": 0.2},
}
# every manner of model that there is
VARIETIES = {
    "nnlm": ("nnlm", {}),
    "direct": ("nnlm", {"direct_connections": True, "dropout": 0.1}),
    "lstm": ("lstm", {}),
    "untied": (
        "lstm",
        {
            "tie_embeddings": False,
            "embedding_size": 5,
            "variational_dropout": False,
            "num_layers": 1,
        },
    ),
    "gru": ("lstm", {"cell": "gru"}),
    "awd": (
        "lstm",
        {
            "embedding_size": 5,
            "num_layers": 3,
            "input_dropout": 0.4,
            "output_dropout": 0.3,
            "embedding_dropout": 0.1,
            "weight_dropout": 0.5,
        },
    ),
    "rnn": ("lstm", {"cell": "rnn", "variational_dropout": False}),
}


def neural_model(variety="nnlm", tokenizer=None, **changes) -> Model:
    """A scrambled model of the words of a small text."""
    family, own = VARIETIES[variety]
    tokenizer = tokenizer or train_whitespace_tokenizer(TEXT)
    size = len(Vocabulary(tokenizer).tokens)
    shape = {**SHAPES[family], **own, **changes}
    config = FAMILIES[family].config_class(vocab_size=size, bos_id=BOS, **shape)
    module = scramble(build_on_meta(config).to_empty(device="cpu"), seed=2, scale=0.5).eval()
    with torch.no_grad():  # as all models begin and, by that, stay
        bias = module.output.bias if family == "nnlm" else module.bias
        bias[BOS] = BOS_LOGIT
    return Model(module=module, tokenizer=tokenizer, config=config)


ELMO_SHAPE = {
    "char_embedding_size": 4,
    "filter_widths": (1, 2, 3),
    "filter_counts": (2, 3, 4),
    "projection_size": 5,
    "cell_size": 7,
    "num_candidates": 8,
}


def elmo_model(tokenizer=None, seed=2, **changes) -> Model:
    """A scrambled ELMo of the words of a small text."""
    tokenizer = tokenizer or train_whitespace_tokenizer(TEXT)
    tokenizer = WordCharacterTokenizer.from_tokenizer(tokenizer)
    size = len(Vocabulary(tokenizer).tokens)
    config = FAMILIES["elmo"].config_class(vocab_size=size, **{**ELMO_SHAPE, **changes})
    module = scramble(build_on_meta(config).to_empty(device="cpu"), seed=seed, scale=0.5).eval()
    return Model(module=module, tokenizer=tokenizer, config=config)


def fresh_model(variety="nnlm", **changes) -> Model:
    """One as training begins with it."""
    made = neural_model(variety, **changes)
    return Model.from_config(made.config, made.tokenizer, rng=torch.Generator().manual_seed(1))
