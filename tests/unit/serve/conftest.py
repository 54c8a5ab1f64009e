"""A server with a small model for every function."""

from dataclasses import replace

import numpy as np
import pytest

from cloze.checkpoint.task import Task
from grams import text_model
from helpers import tiny_model, word_model
from servers import run_server
from translators import translator


@pytest.fixture(scope="package")
def models():
    table = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    return {
        "mlm": tiny_model("mlm"),
        "labels": tiny_model("sequence", labels=("no", "yes"), task=Task(name="classify")),
        "tags": tiny_model("token", labels=("O", "B-X", "I-X")),
        "spans": tiny_model("span"),
        "choices": tiny_model("choice"),
        "gpt": tiny_model("lm", family="gpt2"),
        "ngram": text_model(3),
        "translator": translator("learned"),
        "summarizer": replace(
            translator("learned"), task=Task(name="summarize", max_target_length=20)
        ),
        "vectors": word_model(words=["cat", "dog", "mat", "sat", "the"], vectors=table),
    }


@pytest.fixture(scope="package")
def folders(models, tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    return {name: model.save(place / name) for name, model in models.items()}


@pytest.fixture(scope="package")
def server(folders):
    with run_server(folders) as running:
        yield running
