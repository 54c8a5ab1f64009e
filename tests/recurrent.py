"""Tiny recurrent encoders."""

from dataclasses import replace

import torch

from cloze.checkpoint.model import Model
from cloze.checkpoint.recurrent_encoder import make_recurrent_encoder
from cloze.make.extend_model import extend_model
from languages import neural_model


def recurrent_encoder(head="sequence", labels=("no", "yes"), **changes) -> Model:
    """An encoder with a head, made from a scrambled AWD-LSTM."""
    base = make_recurrent_encoder(neural_model("awd"))
    rng = torch.Generator().manual_seed(0)
    made = extend_model(base, base.tokenizer, [head], rng=rng, labels=labels, **changes)
    return replace(made, folder=None)
