"""scikit-learn estimators: what they give, what they take, what they carry, what they refuse."""

import os
import pickle
import runpy
import signal
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

import cloze
import cloze.sklearn
from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.errors import ConfigError, FolderError, InputError, MissingExtraError, TruncationWarning
from cloze.make.finetune.dispatch import finetune
from cloze.make.finetune.encoder import finetune_encoder
from cloze.models.configs.bert import BertConfig
from cloze.sklearn import Classifier, Embedder, Regressor
from cloze.tasks.classify import classify
from cloze.train.callbacks import CallbackList
from helpers import PIECES, Watch, raises, scramble, tiny_tokenizer

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_layers=4,
    num_heads=2,
    intermediate_size=16,
    max_positions=10,
)
TEXTS = ["the cat sat.", "a", "", "b c d e f", "the cats, the cat", "猫"]
LONG = "a b c d e f g h i j a b c d e f g h i j"
GOOD, BAD = ["a b", "b a a", "a", "a b a", "b a", "a a"], ["c d", "d c c", "c", "c d c", "d c", "d"]
FAST = {"epochs": 20, "lr": 1e-2, "batch_size": 4}  # so that a tiny model learns in a second
# of the words alone, so that a regression tells them apart for sure
SURE = {
    "transfer": "features",
    "settings": ["transfer.layers=embeddings", "transfer.pooling=mean", "transfer.l2_penalty=0.01"],
}


@pytest.fixture(scope="module")
def model():
    made = Model.from_config(CONFIG, tiny_tokenizer(), rng=torch.Generator().manual_seed(0))
    scramble(made.module)
    return made


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return model.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def fitted(folder):
    return Classifier(folder, **FAST).fit(GOOD + BAD, ["good"] * 6 + ["bad"] * 6)


# ---- Embedder


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"layers": "concat-last-4", "pooling": "cls"},
        {"layers": [0, -1], "pooling": "max", "normalize": True},
        {"truncation": "window", "overlap": 2, "batch_tokens": 16},
    ],
)
def test_vectors_are_those_of_embed(model, choices):
    expected = cloze.embed(model, [*TEXTS, LONG], **{"truncation": "head", **choices})
    found = Embedder(model, **{"truncation": "head", **choices}).fit_transform([*TEXTS, LONG])
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)


def test_a_folder_does_as_well_as_a_model(model, folder):
    expected = Embedder(model).fit_transform(TEXTS)
    for source in (folder, str(folder)):
        assert np.array_equal(Embedder(source).fit_transform(TEXTS), expected)


def test_texts_come_in_many_ways(model):
    embedder = Embedder(model).fit(TEXTS)
    expected = embedder.transform(TEXTS)
    ways = (
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype=object, index=range(6, 0, -1)),
        (text for text in TEXTS),
    )
    for texts in ways:
        assert np.array_equal(embedder.transform(texts), expected)
    assert embedder.transform([]).shape == (0, 8)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ("the cat", ("X", "list", "[text]")),
        (["a", None], ("text 2", "None", "NoneType")),
        (pd.Series(["a", np.nan]), ("text 2", "nan", "float")),
        ([["a"]], ("text 1", "['a']", "list")),
        ([range(10**9), "a"], ("text 1", "range(0, 1000000000)")),
        ([b"x" * 99], ("text 1", f"b'{'x' * 37}…", "bytes")),
        (np.array([["a", "b"]]), ("X", "(1, 2)", "column")),
        (pd.DataFrame({"text": ["a"]}), ("X", "(1, 1)", "column")),
        (np.array("a"), ("X", "()", "column")),
    ],
)
def test_what_is_no_list_of_texts_is_told(model, texts, problem):
    embedder = Embedder(model).fit(TEXTS)
    for use in (embedder.transform, Embedder(model).fit):
        with raises(InputError, problem):
            use(texts)


def test_choices_are_checked_by_fit_and_not_before(model, tmp_path):
    wrong = [
        (Embedder(model, layers="lost"), ConfigError, "lost"),
        (Embedder(model, pooling="sum"), ConfigError, "sum"),
        (Embedder(model, truncation="fold"), ConfigError, "fold"),
        (Embedder(model, batch_tokens=0), ConfigError, "batch_tokens"),
        (Embedder(tmp_path / "nothing"), FolderError, "nothing"),
        (Embedder(model, pooling="none"), ConfigError, ("pooling", "none")),
    ]
    for embedder, kind, text in wrong:
        with raises(kind, text):
            embedder.fit(TEXTS)


def test_long_texts_are_cut_unless_they_shall_not(model):
    with pytest.warns(TruncationWarning, match="1 of 2 texts"):
        cut, begin = Embedder(model).fit_transform([LONG, "a b c d e f g h"])
    assert np.array_equal(cut, begin)
    with raises(InputError, "text 2", "tokens"):
        Embedder(model, truncation="error").fit_transform(["a", LONG])


def test_it_must_be_fitted_first(model, folder):
    with pytest.raises(NotFittedError):
        Embedder(model).transform(TEXTS)
    with pytest.raises(NotFittedError):
        Embedder(model).get_feature_names_out()
    for tuner in (Classifier, Regressor):
        with pytest.raises(NotFittedError):
            tuner(folder).predict(TEXTS)


def test_a_pickle_of_an_embedder_has_no_weights(folder):
    embedder = Embedder(folder, pooling="cls").fit(TEXTS)
    content = pickle.dumps(embedder)
    assert len(content) < 1000
    again = pickle.loads(content)
    assert not hasattr(again, "model_")
    assert list(again.get_feature_names_out()) == list(embedder.get_feature_names_out())
    assert np.array_equal(again.transform(TEXTS), embedder.transform(TEXTS))


def test_a_pickle_of_a_loaded_model_carries_it(model):
    embedder = Embedder(model).fit(TEXTS)
    again = pickle.loads(pickle.dumps(embedder))
    assert np.array_equal(again.transform(TEXTS), embedder.transform(TEXTS))


def test_vectors_have_names_and_keep_the_rows_of_a_table(model):
    frame = pd.DataFrame({"text": TEXTS, "n": range(6)}, index=list("uvwxyz"))
    columns = ColumnTransformer([("said", Embedder(model), "text"), ("n", "passthrough", ["n"])])
    found = columns.set_output(transform="pandas").fit_transform(frame)
    assert list(found.columns) == [f"said__embedder{n}" for n in range(8)] + ["n__n"]
    assert list(found.index) == list("uvwxyz")
    assert np.array_equal(found.iloc[:, :8], cloze.embed(model, TEXTS))


def test_a_search_finds_the_layers(model):
    pipeline = make_pipeline(Embedder(model), LogisticRegression(C=100, max_iter=5000))
    grid = {"embedder__layers": [[0], "last"], "embedder__pooling": ["mean", "cls"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
    search.fit(GOOD + BAD, [1] * 6 + [0] * 6)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_params_ == {"embedder__layers": [0], "embedder__pooling": "mean"}
    assert list(search.predict(["a b b", "d d"])) == [1, 0]


# ---- Classifier


@pytest.mark.parametrize(
    ("one", "other"),
    [("good", "bad"), (3, -1), (True, False), ("10", "9"), (np.int8(2), np.int8(7)), (1.0, 2.0)],
)
def test_labels_come_back_as_they_were(folder, one, other):
    labels = [one] * 6 + [other] * 6
    classifier = Classifier(folder, **SURE).fit(GOOD + BAD, labels)
    said = classifier.predict(GOOD + BAD)
    assert said.dtype == np.array(labels).dtype
    assert list(said) == labels
    assert list(classifier.classes_) == sorted({one, other})
    column = list(classifier.classes_).index(one)
    assert (classifier.predict_proba(GOOD)[:, column] > 0.5).all()


def test_probabilities_are_those_of_classify(fitted):
    found = fitted.predict_proba([*GOOD, *BAD])
    for row, said in zip(found, classify(fitted.model_, [*GOOD, *BAD]), strict=True):
        assert [said.scores["bad"], said.scores["good"]] == pytest.approx(row.tolist(), abs=1e-7)
    assert fitted.predict_proba([]).shape == (0, 2)
    assert fitted.predict([]).shape == (0,)
    assert fitted.score(GOOD, ["good"] * 6) == 1
    log_loss(["good"] * 6 + ["bad"] * 6, found)  # warns, which is an error, of odd sums


def test_it_is_what_finetune_makes(folder, tmp_path):
    examples = [TextExample(text=text, label="1") for text in GOOD]
    examples += [TextExample(text=text, label="0") for text in BAD]
    settings = [
        "run.epochs=2",
        "run.batch_size=4",
        "run.seed=5",
        "data.hold_out=0",
        "data.max_length=5",
    ]
    settings += ["optimizer.lr=0.01", "transfer.kind=last-1", "data.truncation=tail"]
    finetune("classify", folder, examples, tmp_path / "run", settings=settings)
    expected = cloze.load(tmp_path / "run", quiet=True)
    made = Classifier(
        folder,
        epochs=np.int64(2),  # as a grid of numpy has them
        lr=np.float64(0.01),
        batch_size=np.int64(4),
        transfer="last-1",
        max_length=5,
        truncation="tail",
        random_state=np.int64(5),
    ).fit(GOOD + BAD, [1] * 6 + [0] * 6)
    assert made.model_.task == expected.task
    assert made.model_.max_length == expected.max_length == 5
    theirs = made.model_.module.state_dict()
    for name, weight in expected.module.state_dict().items():
        assert torch.equal(theirs[name], weight), name


def test_the_random_state_decides(folder):
    def first(state):
        classifier = Classifier(folder, epochs=1, random_state=state)
        return classifier.fit(GOOD + BAD, [1] * 6 + [0] * 6).predict_proba(["a"])[0, 0]

    assert first(0) == first(0)
    assert first(0) != first(1)
    draws = np.random.RandomState(3)
    assert first(draws) != first(draws)
    assert first(np.random.RandomState(3)) == first(np.random.RandomState(3))
    assert 0 < first(None) < 1


def test_settings_reach_the_recipe(folder):
    with raises(ConfigError, "run.epoch"):
        Classifier(folder, settings=["run.epoch=1"]).fit(GOOD + BAD, [1] * 6 + [0] * 6)
    read = Classifier(folder, **SURE).fit(GOOD + BAD, [1] * 6 + [0] * 6)
    assert read.model_.task.features.layers == "embeddings"


def test_some_may_be_held_out_to_choose_by(folder, monkeypatch):
    ended = []
    monkeypatch.setattr(
        cloze.sklearn,
        "finetune_encoder",
        lambda *given: ended.append(finetune_encoder(*given)) or ended[-1],
    )
    texts, labels = [*GOOD, *BAD] * 2, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0] * 2
    Classifier(folder, epochs=1).fit(texts, labels)
    Classifier(folder, epochs=1, hold_out=0.3).fit(texts, labels)
    assert ended[0].score is None
    assert ended[1].score is not None


def test_pairs_come_in_many_ways(folder):
    pairs = [(a, a) for a in GOOD] + [(a, b) for a, b in zip(GOOD, BAD, strict=True)]
    labels = ["same"] * 6 + ["other"] * 6
    classifier = Classifier(folder, epochs=1).fit(pairs, labels)
    expected = classifier.predict_proba(pairs)
    frame = pd.DataFrame(pairs, columns=["a", "b"])
    for way in ([list(pair) for pair in pairs], np.array(pairs), frame, frame.astype(object)):
        assert np.array_equal(classifier.predict_proba(way), expected)
    assert not np.array_equal(classifier.predict_proba([a for a, _ in pairs]), expected)


@pytest.mark.parametrize(
    ("texts", "labels", "problem"),
    [
        (["a", "b"], None, ("y is None", "labels")),
        (["a", "b"], [1], "[2, 1]"),
        (["a", "b"], [1, 1], ("class", "'1'")),
        (["a", "b"], ["x", None], ("label 2", "None")),
        (["a", "b"], pd.Series(["x", np.nan]), ("label 2", "nan")),
        (["a", "b"], ["x", np.nan], ("label 2", "nan")),
        (["a", "b"], [0.5, 0.7], "continuous"),
        (["a", ("a", "b", "c")], [0, 1], ("text 2", "('a', 'b', 'c')", "tuple")),
        (["a", ("a", None)], [0, 1], ("text 2", "('a', None)", "tuple")),
        ("ab", [0, 1], ("X", "list")),
        (np.array([["a"], ["b"]]), [0, 1], ("X", "(2, 1)")),
    ],
)
def test_what_cannot_be_learned_is_told(folder, texts, labels, problem):
    with raises(ValueError, problem):
        Classifier(folder).fit(texts, labels)


def test_a_pickle_of_a_classifier_holds_its_files(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    assert list(again.classes_) == ["bad", "good"]
    assert set(fitted.__getstate__()["model_"]) >= {"config.json", "model.safetensors"}
    assert not hasattr(pickle.loads(pickle.dumps(clone(fitted))), "model_")


def test_what_it_learned_is_a_model_like_any(fitted, tmp_path):
    fitted.model_.save(tmp_path / "kept")
    assert classify(cloze.load(tmp_path / "kept"), "a b").label == "good"


def test_learning_leaves_the_model_and_the_disk_as_they_were(model, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = cloze.embed(model, TEXTS)
    said = cross_val_predict(Classifier(model, epochs=1), GOOD + BAD, [1] * 6 + [0] * 6, cv=2)
    assert set(said) <= {0, 1}
    assert np.array_equal(cloze.embed(model, TEXTS), before)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_fit_leaves_what_was_learned(folder):
    classifier = Classifier(folder, **SURE).fit(GOOD + BAD, [1] * 6 + [0] * 6)
    with raises(InputError, "class"):
        classifier.fit(GOOD, [7] * 6)
    assert classifier.score(GOOD + BAD, [1] * 6 + [0] * 6) == 1


def test_ctrl_c_is_not_taken_for_the_end(folder, monkeypatch):
    def interrupted(_):
        os.kill(os.getpid(), signal.SIGINT)

    watch = CallbackList([Watch(step=interrupted)])
    tune = partial(finetune_encoder, callbacks=watch)
    monkeypatch.setattr(cloze.sklearn, "finetune_encoder", tune)
    classifier = Classifier(folder, epochs=9)
    with raises(KeyboardInterrupt, "SIGINT"):
        classifier.fit(GOOD + BAD, [1] * 6 + [0] * 6)
    assert not hasattr(classifier, "model_")


def test_numbers_are_learned_too(folder):
    regressor = Regressor(folder, **SURE).fit(GOOD + BAD, [1.5] * 6 + [-1] * 6)
    assert regressor.predict(["a b", "d"]) == pytest.approx([1.5, -1], abs=0.5)
    assert regressor.score(GOOD + BAD, [1.5] * 6 + [-1] * 6) > 0.8
    again = pickle.loads(pickle.dumps(regressor))
    assert np.array_equal(again.predict(TEXTS), regressor.predict(TEXTS))


# ---- the extra


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with raises(MissingExtraError, fix="pip install 'cloze[sklearn]'"):
        runpy.run_path(cloze.sklearn.__file__)


def test_the_rest_does_without_it():
    imports = "import sys, cloze, cloze.cli.app, cloze.make.finetune.dispatch"
    code = f"{imports}; print('sklearn' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_matrix_of_labels_gives_several_labels_per_text(model):
    texts = [*GOOD, *BAD, "a c", "d b"]
    matrix = np.array([[1, 0]] * 6 + [[0, 1]] * 6 + [[1, 1]] * 2)
    choices = {**SURE, "settings": [*SURE["settings"][:2], "transfer.l2_penalty=1e-6"]}
    found = Classifier(model, **choices).fit(texts, matrix)
    assert (found.predict(texts) == matrix).all()
    chances = found.predict_proba(texts)
    assert chances.shape == matrix.shape
    assert (chances[12:] > 0.5).all()  # they do not sum to one
    assert found.model_.config.problem_type == "multi_label_classification"
    named = Classifier(model, **choices).fit(texts, pd.DataFrame(matrix, columns=["ab", "cd"]))
    assert named.classes_.tolist() == ["ab", "cd"]
    assert (pickle.loads(pickle.dumps(named)).predict(texts) == matrix).all()
    with raises(ValueError, "14", "13"):
        Classifier(model, **choices).fit(texts, matrix[:-1])
