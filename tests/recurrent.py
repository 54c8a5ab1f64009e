"""Tiny recurrent encoders."""

from dataclasses import replace

import torch

from cloze.checkpoint.model import Model
from cloze.checkpoint.recurrent_encoder import make_recurrent_encoder
from cloze.make.extend_model import extend_model
from languages import neural_model


def recurrent_encoder(**changes) -> Model:
    """An encoder with a classifier, made from a scrambled AWD-LSTM."""
    base = make_recurrent_encoder(neural_model("awd"))
    rng = torch.Generator().manual_seed(0)
    made = extend_model(
        base, base.tokenizer, ["sequence"], rng=rng, labels=("no", "yes"), **changes
    )
    return replace(made, folder=None)
