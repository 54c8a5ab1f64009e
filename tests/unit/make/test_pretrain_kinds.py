"""`pretrain`: one door to every kind of model."""

import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.make.language_model.recipe import LanguageRecipe, NGramRecipe
from cloze.make.pretrain.dispatch import MODEL_MAKERS, complete, kind_of
from cloze.make.pretrain.recipe import Recipe, recipes
from cloze.make.recipe.maker import has_setting
from grams import TEXT
from helpers import raises


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT * 4), encoding="utf-8")
    return path


def test_a_name_says_which_kind(text, tmp_path):
    settings = ["vocabulary.kind=spaced", "ngram.order=2"]
    ended = cloze.pretrain(text, tmp_path / "ngram", model="ngram", settings=settings)
    assert ended.scores.keys() == {"1-grams", "2-grams"}
    assert (ended.steps, ended.stopped) == (0, None)
    assert cloze.load(tmp_path / "ngram").config.order == 2
    assert kind_of(tmp_path / "ngram/recipe.toml") == "ngram"
    again = cloze.pretrain([], tmp_path / "again", tmp_path / "ngram/recipe.toml")
    assert again.scores == ended.scores  # the recipe names its text
    with raises(InputError, "ngram"):
        cloze.resume(tmp_path / "ngram")


def test_word_vectors(text, tmp_path):
    settings = ["text.min_count=1", "word2vec.width=4", "word2vec.epochs=1", "word2vec.threads=1"]
    ended = cloze.pretrain([text], tmp_path / "words", model="word2vec", settings=settings)
    assert ended.scores["words"] == len(cloze.load(tmp_path / "words").words)


def test_a_recipe_says_which_kind(text, tmp_path):
    settings = [
        "nnlm.embedding_size=4",
        "nnlm.hidden_size=4",
        "run.steps=1",
        "vocabulary.kind=spaced",
    ]
    ended = cloze.pretrain(text, tmp_path / "nnlm", "nnlm", settings=settings)
    assert ended.steps == 1
    assert cloze.resume(tmp_path / "nnlm").steps == 1


def test_every_recipe_tells_its_kind():
    kinds = {name: kind_of(name) for name in recipes()}
    assert {name: kind for name, kind in kinds.items() if kind != "bert"} == {
        name: name for name in ("ngram", "word2vec", "nnlm", "lstm")
    }
    for name in ("ngram", "word2vec", "nnlm", "lstm", "bert"):
        kind, made = complete(model=name)
        assert isinstance(made, kind.recipe)


def test_a_modernbert_is_an_encoder_without_pairs():
    _, made = complete(model="modernbert")
    assert isinstance(made, Recipe)
    assert (made.model.family, made.samples.pairs) == ("modernbert", "none")


def test_what_does_not_go_together():
    with raises(ConfigError, "recipe", "nnlm", "ngram"):
        complete("nnlm", model="ngram")
    with raises(ConfigError, "recipe", "lstm"):
        complete("nnlm", model="lstm")
    with raises(ConfigError, "model", "elmoo"):
        complete(model="elmoo")
    with raises(InputError, "text"):
        cloze.pretrain([], "nowhere", model="ngram")
    with raises(ConfigError, "masking"):
        complete(model="ngram", settings=["masking.rate=0.1"])


def test_settings_that_a_kind_has():
    assert has_setting(LanguageRecipe, "lstm.hidden_size")
    assert has_setting(NGramRecipe, "vocabulary.size")
    assert not has_setting(NGramRecipe, "run.steps")
    assert not has_setting(LanguageRecipe, "run.steps.more")
    assert MODEL_MAKERS["word2vec"].path("run.epochs") == "word2vec.epochs"
    assert MODEL_MAKERS["lstm"].path("samples.length") == "run.length"
    assert MODEL_MAKERS["lstm"].path("samples.pairs") is None


@pytest.mark.parametrize(
    ("there", "settings", "family"),
    [
        (False, [], "bert"),
        (True, [], "modernbert"),
        (True, ["run.device=cpu"], "bert"),
        (True, ["run.device=cuda:1"], "modernbert"),
    ],
)
def test_on_a_gpu_the_fast_recipe_is_the_default(monkeypatch, there, settings, family):
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    _, made = complete(settings=settings)
    assert made.model.family == family
    assert made.is_fast("cuda", 1) == (family == "modernbert")
    _, named = complete("laptop", settings=settings)
    assert named.model.family == "bert"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert complete(settings=settings)[1].model.family == "bert", "it knows one GPU only"
