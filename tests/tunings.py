"""Labelled examples that a tiny model learns in seconds, and a fine-tuning of it."""

import json

import numpy as np
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import (
    Answer,
    ChoiceExample,
    Origin,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.make.finetune.dispatch import finetune
from cloze.make.finetune.job import depth_of
from helpers import tiny_tokenizer

FAST = [
    "run.device=cpu",
    "run.batch_size=8",
    "run.epochs=4.0",
    "run.log_every=1",
    "optimizer.lr=5e-3",
    "transfer.dropout=0.0",
    "transfer.hidden_size=16",
]


def body(family):
    tokenizer = tiny_tokenizer()
    # with larger first weights than BERT's it learns from a few hundred examples
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 32,
        "init_std": 0.1,
    }
    config = family(vocab_size=tokenizer.vocab_size, **shape)
    return Model.from_config(config, tokenizer, rng=torch.Generator().manual_seed(0))


def texts(count, seed=0):
    """An `a` in the text makes it yes, however far it stands from the beginning."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        words = rng.choice(list("bcdefgh"), rng.integers(1, 8)).tolist()
        yes = bool(rng.integers(2))
        if yes:
            words.insert(int(rng.integers(len(words) + 1)), "a")
        label = "yes" if yes else "no"
        found.append(TextExample(text=" ".join(words), label=label, origin=Origin(line=number + 1)))
    return found


def tagged(count, seed=0):
    """An `a`, and the `b` after it, are a span."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(int(rng.integers(2, 6))):
            if rng.integers(3) == 0:
                words, tags = [*words, "a", "b"], [*tags, "B-X", "I-X"]
            else:
                words, tags = [*words, str(rng.choice(list("cdefg")))], [*tags, "O"]
        places = [(2 * n, 2 * n + 1) for n in range(len(words))]
        found.append(TaggedExample(text=" ".join(words), words=tuple(places), tags=tuple(tags)))
    return found


def questions(count, seed=0):
    """The answer is where the context has the letter of the question."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = rng.permutation(list("bcdefg")).tolist()
        context, wanted = " ".join(words), str(rng.choice(list("bcdefgh")))
        known = () if wanted == "h" else (Answer(text=wanted, start=context.index(wanted)),)
        found.append(QuestionExample(question=wanted, context=context, answers=known))
    return found


def picks(count, seed=0):
    """The right option is the one with an `a`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        options = rng.choice(list("bcdefg"), 3).tolist()
        right = int(rng.integers(3))
        options[right] = "a"
        found.append(ChoiceExample(text="the cat", options=tuple(options), label=right))
    return found


def tune(base, out, *settings, task="classify", train=None, dev=None, **options):
    train = texts(160) if train is None else train
    dev = texts(40, seed=1) if dev is None else dev
    counted = any(setting.startswith("run.steps") for setting in settings)
    fast = [setting for setting in FAST if not (counted and setting.startswith("run.epochs"))]
    return finetune(task, base, train, out, dev=dev, settings=[*fast, *settings], **options)


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(model):
    return model.module.state_dict()


def changed(base, out):
    """The depths at which a fine-tuning has changed weights."""
    before, after = weights(base), weights(cloze.load(out))
    return {
        depth_of(name, 2)
        for name, weight in after.items()
        if name in before and not torch.equal(weight, before[name])
    }
