"""A tiny model of every family, with every head."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from cloze.checkpoint.task import Task
from cloze.models.registry import FAMILIES
from grams import text_model
from helpers import ENCODERS, tiny_model, word_model
from images import clip_model, diffusion_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import translator

HEADS = {
    "mlm": ("no", "yes"),
    "lm": ("no", "yes"),
    "sequence": ("no", "yes"),
    "token": ("O", "B-X", "I-X"),
    "span": ("no", "yes"),
    "choice": ("no",),
}


def vectors():
    table = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    return word_model(words=["cat", "dog", "mat"], vectors=table)


MADE = {
    "ngram": text_model,
    "word2vec": vectors,
    "nnlm": partial(neural_model, "nnlm"),
    "lstm": partial(neural_model, "lstm"),
    "elmo": elmo_model,
    "elmo, cnn": partial(elmo_model, output="cnn"),
    "elmo, published": partial(elmo_model, output="none", cell_clip=3.0, projection_clip=3.0),
    "ulmfit, sequence": recurrent_encoder,
    "ulmfit, token": partial(recurrent_encoder, "token", ("O", "B-X")),
    "transformer": partial(translator, "transformer"),
    "transformer, summarize": lambda: replace(translator(), task=Task(name="summarize")),
    "seq2seq": partial(translator, "bahdanau"),
    "diffusion": diffusion_model,
    "diffusion, pixels": partial(diffusion_model, latent_channels=0, backbone="dit"),
    "clip": clip_model,
    "clip, published": partial(clip_model, "clip-text"),
    "clip, dual encoder": partial(clip_model, text_pooling="pooler"),
    "clip, resnet": partial(clip_model, "modernbert", vision="resnet"),
    "gpt2, translate": partial(tiny_model, "lm", family="gpt2", task=Task(name="translate")),
    "bert, causal": partial(tiny_model, "mlm", is_causal=True),
    **{
        f"{family}, {head}": partial(tiny_model, head, family=family, labels=labels)
        for family, (head, labels) in product(ENCODERS, HEADS.items())
        if head in FAMILIES[family].module_class.TASK_HEADS
        and (family, head) not in product(["gpt3"], {*HEADS} - {"lm"})  # the heads are GPT-2's
    },
}
