"""All functions take a model or its folder, and raise clear errors for anything else."""

import inspect
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import ClozeError, ConfigError, InputError
from cloze.models.configs.word2vec import CharNGrams
from grams import text_model
from helpers import check_mentions, raises, tiny_model, tiny_tokenizer, word_model
from languages import neural_model
from translators import translator

EXAMPLES = [TextExample(text=text, label="yes", origin=Origin(line=1)) for text in "abcd" * 50]


def word_vectors():
    return word_model(words=list("abc"), vectors=np.eye(3, dtype=np.float32))


# One model for each family, and how every verb is asked; both are made anew when they are needed.
MODELS = {
    "mlm": lambda: tiny_model("mlm"),
    "sequence": lambda: tiny_model("sequence", task=Task(name="classify")),
    "token": lambda: tiny_model("token", labels=("O", "B-X")),
    "span": lambda: tiny_model("span"),
    "choice": lambda: tiny_model("choice"),
    "ngram": lambda: text_model(2),
    "lstm": lambda: neural_model("lstm"),
    "transformer": translator,
    "word2vec": word_vectors,
}
ASKED = {
    "fill": lambda model: cloze.fill(model, ["a [MASK]", "[MASK]"], top=2),
    "embed": lambda model: cloze.embed(model, ["a b", "c"]),
    "classify": lambda model: cloze.classify(model, ["a b", "c"]),
    "tag": lambda model: cloze.tag(model, ["a b", "c"]),
    "answer": lambda model: cloze.answer(model, "a", "b c"),
    "choose": lambda model: cloze.choose(model, "a", ["b", "c"]),
    "suggest": lambda model: cloze.suggest(model, ["the", "a"], top=2),
    "generate": lambda model: cloze.generate(model, ["the", "a"], max_new_tokens=2),
    "score": lambda model: cloze.score(model, ["the", "a"]),
    "translate": lambda model: cloze.translate(model, ["ein Hund", "zwei"], beam=1),
    "similar": lambda model: cloze.similar(model, ["a", "b"]),
    "similarity": lambda model: cloze.similarity(model, "the", "a"),
    "rerank": lambda model: cloze.rerank(model, "the", ["a", "b"], by="embeddings"),
    "tokenize": lambda model: cloze.tokenize(model, ["the", "a"]),
    "evaluate": lambda model: cloze.evaluate(model, EXAMPLES).scores,
    "compare": lambda model: cloze.compare({"it": model}, EXAMPLES, resamples=2).rows(),
}
ABLE = {
    "fill": "mlm",
    "classify": "sequence",
    "tag": "token",
    "answer": "span",
    "choose": "choice",
    "suggest": "ngram",
    "generate": "lstm",
    "score": "mlm",
    "translate": "transformer",
    "similar": "word2vec",
    "embed": "mlm",
    "similarity": "mlm",
    "rerank": "mlm",
    "tokenize": "mlm",
    "evaluate": "sequence",
}


@pytest.mark.parametrize("verb", ABLE)
def test_a_folder_is_as_good_as_what_it_holds(verb, tmp_path):
    model = MODELS[ABLE[verb]]()
    model.save(tmp_path / "model")
    wanted = rounded(ASKED[verb](model))
    for path in (tmp_path / "model", str(tmp_path / "model")):
        assert rounded(ASKED[verb](path)) == wanted


def rounded(found):
    """What is printed of a result; the last bits depend on where in memory the weights lie."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.4f}", str(found))


def test_export_takes_a_folder_and_compare_a_single_one(tmp_path):
    text_model(2).save(tmp_path / "ngram")
    written = cloze.export("arpa", tmp_path / "ngram", tmp_path / "out.arpa")
    assert written.read_text().startswith("\\data\\")
    (tmp_path / "text.txt").write_text("the cat\n")
    found = cloze.compare(str(tmp_path / "ngram"), tmp_path / "text.txt")
    assert [one.name for one in found.entries] == [str(tmp_path / "ngram")]


OTHERS = (None, 5, b"runs/bert", {}, ["runs/bert"], object(), SimpleNamespace(config=None), str)


@pytest.mark.parametrize("given", OTHERS, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("verb", [*ASKED, "export"])
def test_what_is_no_model(verb, given, tmp_path):
    ask = ASKED.get(verb) or (lambda model: cloze.export("arpa", model, tmp_path / "out"))
    name = f"class {given.__name__}" if isinstance(given, type) else type(given).__name__
    with raises(InputError, name, fix="folder"):
        ask(given)


def test_a_part_of_a_model_is_none():
    for part in (tiny_model("mlm").module, tiny_tokenizer(), text_model(2).module):
        with raises(InputError, "model"):
            cloze.suggest(part, "the")


@pytest.mark.parametrize("verb", [*ASKED][:-2])  # nearly all can evaluate and compare
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_cannot_says_what_it_can(verb, kind):
    model = MODELS[kind]()
    if model.family.kind != "encoder":
        if verb not in model.capabilities:
            with raises(InputError, model.family.description, verb):
                ASKED[verb](model)
    elif verb in ("suggest", "generate"):
        with raises(InputError, "next"):
            ASKED[verb](model)
    elif verb in ("translate", "similar"):
        with raises(InputError, verb, fix=("embed", "token")):
            ASKED[verb](model)
    elif ABLE[verb] != kind and verb not in (
        "embed",
        "similarity",
        "rerank",
        "tokenize",
    ):
        with raises(InputError, "cannot"):
            ASKED[verb](model)


def test_info_is_of_models_and_compare_wants_names():
    model = tiny_model("mlm")
    for given in (5, None):
        with raises(InputError, "model", fix="folder"):
            cloze.info(given)
    for given in (model, [model], word_vectors(), [5], 5, None):
        with raises(InputError, "name", fix="mine"):
            cloze.compare(given, EXAMPLES)


@pytest.mark.parametrize("given", [None, 5, b"a [MASK]", {"a": 1}, ["a", None], [b"a"]], ids=str)
@pytest.mark.parametrize("verb", [*ABLE][:-1])
def test_what_is_no_text(verb, given):
    model = MODELS[ABLE[verb]]()
    options = {"answer": ("c",), "choose": (["a", "b"],), "rerank": (["a"],)}.get(verb, ())
    with raises(InputError, "type", fix="str"):
        getattr(cloze, verb)(model, given, *options)


def test_other_texts_are_checked_too():
    mlm, sequence, span, choice = (MODELS[one]() for one in ("mlm", "sequence", "span", "choice"))
    with raises(InputError, "pair 1", "int"):
        cloze.classify(sequence, ["a"], [1])
    with raises(InputError, "context", "int"):
        cloze.answer(span, "a", 3)
    with raises(InputError, "context"):
        cloze.answer(span, "a", None)
    with raises(InputError, "option 2", "int"):
        cloze.choose(choice, "a", ["b", 3])
    with raises(InputError, "question", "int"):
        cloze.choose(choice, "a", ["b", "c"], question=1)
    with raises(InputError, "candidate", "int"):
        cloze.fill(mlm, "a [MASK]", candidates=5)


def test_layers_are_a_name_or_numbers():
    model = tiny_model()
    assert np.array_equal(cloze.embed(model, "a", layers=1), cloze.embed(model, "a", layers=[1]))
    for given in (None, 1.5, [1, "2"], {}, object()):
        with raises(ConfigError, "layer"):
            cloze.embed(model, "a", layers=given)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_one_line(kind):
    told = repr(MODELS[kind]())
    assert len(told) < 200
    assert "\n" not in told


def test_what_the_line_says():
    shape = ("num_layers=2", "hidden_size=16", "intermediate_size=32")
    check_mentions(repr(tiny_model("mlm", "nsp")), "'bert'", *shape, "('mlm', 'nsp')", "25")
    check_mentions(repr(text_model(2)), "ngram", "order=2")
    grams = word_model(words=["a"], vectors=np.eye(1, dtype=np.float32), char_ngrams=CharNGrams())
    check_mentions(repr(grams.module), "words=1", "CharNGrams(")


def test_results_are_short_to_see_and_can_be_kept():
    model = MODELS["sequence"]()
    scored = cloze.evaluate(model, EXAMPLES)
    assert repr(scored).startswith("Evaluation(kind='classify', count=200, scores={'accuracy':")
    compared = cloze.compare({"one": model, "two": model}, EXAMPLES, resamples=5)
    for found, most in ((scored, 200), (scored.result, 200), (compared, 2000)):
        assert len(repr(found)) < most
        again = pickle.loads(pickle.dumps(found))
        assert repr(again) == repr(found)
    assert pickle.loads(pickle.dumps(scored)).scores == scored.scores


def test_what_holds_arrays_can_be_compared():
    vectors = word_vectors()
    assert vectors == vectors
    assert vectors != word_vectors()
    one, other = (cloze.translate(translator(), "ein Hund", align=True, beam=1) for _ in "ab")
    assert one == one
    assert one != other  # each alignment is a thing of its own
    tokens, others = (cloze.embed(tiny_model(), "a", pooling="none") for _ in "ab")
    assert tokens != others


def test_help_shows_the_choices_of_evaluate():
    shown = inspect.signature(cloze.evaluate).parameters
    assert {"truncation", "overlap", "chinese", "swap", "beam", "bleu", "skip_bad"} < set(shown)
    assert all(f"{name}:" in inspect.getdoc(cloze.evaluate) for name in shown)


def test_a_path_that_is_not_there():
    for verb in ASKED:
        with raises(ClozeError, "runs-that/never/were"):
            ASKED[verb]("runs-that/never/were")


def test_the_name_of_a_file_as_a_text_is_warned_of(tmp_path, recwarn):
    file, model = tmp_path / "new.csv", tiny_model("sequence")
    cloze.classify(model, str(file))  # there is no such file
    assert not [one for one in recwarn if "new.csv" in str(one.message)]
    file.write_text("text\na\n")
    with pytest.warns(UserWarning, match=r"new\.csv is processed as a text"):
        cloze.classify(model, str(file))
