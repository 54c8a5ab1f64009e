"""One suite over every kind of folder that `cloze.load` opens: what it says it can do, it does."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import ClozeError
from cloze.models.registry import FAMILIES
from grams import text_model
from helpers import ENCODERS, files_of, raises, tiny_model, word_model
from languages import neural_model
from translators import translator

HEADS = {
    "mlm": ("no", "yes"),
    "sequence": ("no", "yes"),
    "token": ("O", "B-X", "I-X"),
    "span": ("no", "yes"),
    "choice": ("no",),
}
VERBS = {
    "fill": lambda model: cloze.fill(model, "a [MASK] b"),
    "embed": lambda model: cloze.embed(model, ["a b", "c"]),
    "tokenize": lambda model: cloze.tokenize(model, "the cat"),
    "classify": lambda model: cloze.classify(model, "a b", pair="c"),
    "tag": lambda model: cloze.tag(model, "a b c"),
    "answer": lambda model: cloze.answer(model, "a b", "c d e"),
    "choose": lambda model: cloze.choose(model, "a b", ["c", "d"]),
    "suggest": lambda model: cloze.suggest(model, "the cat"),
    "generate": lambda model: cloze.generate(model, "the", seed=0),
    "similar": lambda model: cloze.similar(model, "cat"),
    "translate": lambda model: cloze.translate(model, "ein Hund"),
}


def vectors():
    table = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    return word_model(words=["cat", "dog", "mat"], vectors=table)


MADE = {
    "ngram": text_model,
    "word2vec": vectors,
    "nnlm": partial(neural_model, "nnlm"),
    "lstm": partial(neural_model, "lstm"),
    "transformer": partial(translator, "transformer"),
    "seq2seq": partial(translator, "bahdanau"),
    **{
        f"{family}, {head}": partial(tiny_model, head, family=family, labels=labels)
        for family, (head, labels) in product(ENCODERS, HEADS.items())
    },
}


def test_no_family_is_left_out():
    assert MADE.keys() >= {name for name, one in FAMILIES.items() if one.kind != "encoder"}


@pytest.fixture(params=MADE)
def folder(request, tmp_path):
    return MADE[request.param]().save(tmp_path / "model")


def test_what_is_saved_again_is_the_same_to_the_byte(folder, tmp_path):
    again = cloze.load(folder).save(tmp_path / "again")
    assert files_of(again) == files_of(folder)
    for name in files_of(folder):
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name


def test_it_does_what_it_says_and_refuses_the_rest_in_words(folder):
    able, model = cloze.info(folder).capabilities, cloze.load(folder)
    assert able.keys() & VERBS.keys()
    for verb, ask in VERBS.items():
        if verb in able:
            assert ask(model) is not None
        else:
            with raises(ClozeError, "cannot"):
                ask(model)


def test_answers_do_not_depend_on_the_state_of_torch(folder):
    able, model = cloze.info(folder).capabilities, cloze.load(folder)
    for verb in sorted(able.keys() & VERBS.keys()):
        torch.manual_seed(1)
        one = repr(VERBS[verb](model))
        torch.manual_seed(2)
        with torch.inference_mode():
            assert repr(VERBS[verb](model)) == one
