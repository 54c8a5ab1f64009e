"""Any settings in a folder: the model loads, or one of our errors says why not."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.errors import ClozeError, FolderError
from cloze.interop.sentence_transformers import Pooling
from cloze.models.configs.word2vec import CharNGrams
from generated_examples import examples
from grams import text_model
from helpers import raises, tiny_model, word_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import translator

WORDS = word_model(
    words=("a", "b"),
    vectors=np.ones((2, 4), np.float32),
    char_ngrams=CharNGrams(buckets=5),
    ngram_vectors=np.ones((5, 4), np.float32),
)
READ = FeatureSettings(input_size=16, kind="bilstm", hidden_size=4, num_layers=1)
POOLING = Pooling(prompts={"a": "a: "}, default_prompt="a", max_seq_length=20)
SUMMARIZE = Task(name="summarize", max_source_length=9, max_target_length=9)
FOLDERS = {
    "bert": lambda to: tiny_model("sequence", task=Task(name="classify", truncation="head")).save(
        to
    ),
    "features": lambda to: replace(
        tiny_model(), task=Task(name="tag", features=READ), feature_head=build_feature_head(READ, 2)
    ).save(to),
    "pooling": lambda to: replace(tiny_model(), pooling=POOLING).save(to),
    "distilbert": lambda to: tiny_model("mlm", family="distilbert").save(to),
    "modernbert": lambda to: tiny_model("mlm", family="modernbert").save(to),
    "transformer": lambda to: translator("learned").save(to),
    "seq2seq": lambda to: translator("bahdanau").save(to),
    "nnlm": lambda to: neural_model("nnlm").save(to),
    "lstm": lambda to: neural_model("lstm").save(to),
    "awd-lstm": lambda to: neural_model("awd").save(to),
    "elmo": lambda to: elmo_model(output="cnn").save(to),
    "ulmfit": lambda to: recurrent_encoder().save(to),
    "gpt2": lambda to: tiny_model("lm", family="gpt2").save(to),
    "gpt3": lambda to: tiny_model("lm", family="gpt3").save(to),
    "music-transformer": lambda to: tiny_model("lm", family="music-transformer").save(to),
    "summarizer": lambda to: replace(translator("learned"), task=SUMMARIZE).save(to),
    "ngram": lambda to: text_model(2).save(to),
    "word2vec": lambda to: WORDS.save(to),
}
FILES = [
    *((name, "config.json") for name in FOLDERS),
    *((name, "cloze.json") for name in ("bert", "features", "summarizer")),
    ("pooling", "1_Pooling/config.json"),
    ("pooling", "modules.json"),
    ("pooling", "sentence_bert_config.json"),
    ("pooling", "config_sentence_transformers.json"),
    ("bert", "tokenizer_config.json"),
    ("elmo", "tokenizer_config.json"),
]
WRONG = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 3, 1.5, 1 << 62, 10**400, float("nan"), float("inf")),
        *("", "x", "1", "x" * 300, "\ud800", [], {}, [1], ["x"], [[1]], [None], {"a": 1}, {"0": 1}),
    ]
)
DROP = object()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("folders")
    return {name: make(place / name) for name, make in FOLDERS.items()}


def places(value, above=()):
    """Where something stands within a value of JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield (*above, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*above, key))


def change_value(whole, where, value):
    made = copy.deepcopy(whole)
    *above, last = where
    inside = made
    for key in above:
        inside = inside[key]
    if value is DROP:
        del inside[last]
    else:
        inside[last] = value
    return made


@pytest.mark.parametrize(("name", "file"), FILES)
@examples(40)
@given(data=st.data())
def test_any_settings_load_or_raise(folders, name, file, data):
    path = folders[name] / file
    before = path.read_bytes()
    whole = json.loads(before)
    where = data.draw(st.sampled_from([(), *places(whole)]))
    inside = list(whole.values()) if isinstance(whole, dict) else whole
    others = st.sampled_from(inside)  # good ones in the wrong place
    value = data.draw(WRONG if not where else st.just(DROP) | WRONG | others)
    path.write_text(json.dumps(change_value(whole, where, value) if where else value))
    try:
        cloze.load(folders[name], device="cpu", quiet=True)
    except ClozeError:
        pass
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("name", "file", "where", "said"),
    [
        ("transformer", "config.json", ("vocab_size",), ("config.json", "vocab_size")),
        ("lstm", "config.json", ("bos_id",), ("config.json", "bos_id")),
        ("bert", "cloze.json", ("name",), ("cloze.json", "name")),
        ("features", "cloze.json", ("features", "input_size"), "features.input_size"),
        ("features", "cloze.json", ("features", "num_layers"), ("features.num_layers", "0")),
    ],
)
def test_missing_settings_are_named(folders, name, file, where, said):
    path = folders[name] / file
    before = path.read_bytes()
    path.write_text(json.dumps(change_value(json.loads(before), where, DROP)))
    try:
        with raises(FolderError, said):
            cloze.load(folders[name])
        path.write_text("[]")
        with raises(FolderError, file):
            cloze.load(folders[name])
    finally:
        path.write_bytes(before)


def test_an_integer_that_is_no_float_is_rejected(folders):
    path = folders["distilbert"] / "config.json"
    before = path.read_bytes()
    path.write_text(json.dumps(json.loads(before) | {"dropout": 10**400}))
    try:
        with raises(ClozeError, "config.json", "dropout"):
            cloze.load(folders["distilbert"])
    finally:
        path.write_bytes(before)
