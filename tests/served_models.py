"""A small model for every function, for tests of the server and of its page."""

from dataclasses import replace

import numpy as np

from cloze.checkpoint.task import Task
from grams import text_model
from helpers import tiny_model, word_model
from images import clip_model, diffusion_model
from translators import translator

WORDS = ["cat", "dog", "mat", "sat", "the"]


def make_models(labels=("no", "yes"), tags=("O", "B-X", "I-X"), words=WORDS, positions=24):
    table = np.random.default_rng(0).standard_normal((len(words), 4)).astype(np.float32)
    return {
        "mlm": tiny_model("mlm", positions=positions),
        "labels": tiny_model(
            "sequence", labels=labels, task=Task(name="classify"), positions=positions
        ),
        "tags": tiny_model("token", labels=tags, positions=positions),
        "spans": tiny_model("span", positions=positions),
        "choices": tiny_model("choice", positions=positions),
        "gpt": tiny_model("lm", family="gpt2", positions=positions),
        "ngram": text_model(3),
        "translator": translator("learned"),
        "summarizer": replace(
            translator("learned"), task=Task(name="summarize", max_target_length=20)
        ),
        "pictures": diffusion_model(),
        "clip": clip_model(),
        "vectors": word_model(words=words, vectors=table),
    }


def save_models(models, place):
    """The folder of each model, by name."""
    return {name: model.save(place / name) for name, model in models.items()}
