"""Tiny neural language models."""

import torch

from cloze.checkpoint.language import CONFIGS, NeuralModel, on_meta
from cloze.checkpoint.words import Vocabulary
from cloze.models.configs.ngram import BOS
from cloze.models.nnlm import BOS_LOGIT
from cloze.text.tokenizer_training import train_whitespace_tokenizer
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
    "rnn": ("lstm", {"cell": "rnn", "variational_dropout": False}),
}


def language_model(variety="nnlm", tokenizer=None, **changes) -> NeuralModel:
    """A scrambled model of the words of a small text."""
    family, own = VARIETIES[variety]
    tokenizer = tokenizer or train_whitespace_tokenizer(TEXT)
    size = len(Vocabulary(tokenizer).words)
    shape = {**SHAPES[family], **own, **changes}
    config = CONFIGS[family](vocab_size=size, bos_id=BOS, **shape)
    module = scramble(on_meta(config).to_empty(device="cpu"), seed=2, scale=0.5).eval()
    with torch.no_grad():  # as all models begin and, by that, stay
        bias = module.output.bias if family == "nnlm" else module.bias
        bias[BOS] = BOS_LOGIT
    return NeuralModel(module=module, tokenizer=tokenizer, config=config)


def fresh_model(variety="nnlm", **changes) -> NeuralModel:
    """One as training begins with it."""
    made = language_model(variety, **changes)
    return NeuralModel.new(made.config, made.tokenizer, rng=torch.Generator().manual_seed(1))
