"""`pretrain`: one function for every family."""

import json

import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.make.recipe.complete import complete_pretraining, recipe
from cloze.make.recipe.language_models import LanguageModelRecipe, NGramRecipe, Word2VecRecipe
from cloze.make.recipe.options import OptionError
from cloze.make.recipe.pretrain import PretrainRecipe, is_fast
from cloze.text.backends import build_word_bpe
from cloze.text.tokenizer import Tokenizer
from grams import TEXT
from helpers import raises, tiny_model
from smallruns import stories


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT * 4), encoding="utf-8")
    return path


def test_a_name_says_which_family(text, tmp_path):
    settings = ["vocabulary.kind=spaced", "model.order=2"]
    ended = cloze.pretrain(text, tmp_path / "ngram", family="ngram", settings=settings)
    assert ended.scores.keys() == {"1-grams", "2-grams"}
    assert (ended.steps, ended.stopped) == (0, None)
    assert cloze.load(tmp_path / "ngram").config.order == 2
    assert isinstance(recipe(tmp_path / "ngram/recipe.toml"), NGramRecipe)
    again = cloze.pretrain([], tmp_path / "again", tmp_path / "ngram/recipe.toml")
    assert again.scores == ended.scores  # the recipe names its text
    with raises(InputError, "ngram"):
        cloze.resume(tmp_path / "ngram")


def test_word_vectors(text, tmp_path):
    settings = ["vocabulary.min_count=1", "model.hidden_size=4"]
    ended = cloze.pretrain(
        [text], tmp_path / "words", family="word2vec", settings=settings, epochs=1, threads=1
    )
    assert ended.scores["words"] == len(cloze.load(tmp_path / "words").module.words)
    assert cloze.load(tmp_path / "words").module.vectors.shape[1] == 4


def test_a_recipe_says_which_family(text, tmp_path):
    settings = [
        "model.embedding_size=4",
        "model.hidden_size=4",
        "run.steps=1",
        "vocabulary.kind=spaced",
    ]
    ended = cloze.pretrain(text, tmp_path / "nnlm", "nnlm", settings=settings)
    assert ended.steps == 1
    assert cloze.resume(tmp_path / "nnlm").steps == 1


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("ngram", NGramRecipe),
        ("word2vec", Word2VecRecipe),
        ("nnlm", LanguageModelRecipe),
        ("lstm", LanguageModelRecipe),
        ("bert", PretrainRecipe),
        ("modernbert", PretrainRecipe),
    ],
)
def test_every_family_has_a_recipe(family, kind):
    made = complete_pretraining(family=family)
    assert isinstance(made, kind)
    assert made.model.family == made.model.config.family == family


def test_a_modernbert_is_an_encoder_without_pairs():
    made = complete_pretraining(family="modernbert")
    assert (made.model.family, made.sampling.pairs) == ("modernbert", "none")
    with raises(ConfigError, "sampling.pairs", "modernbert"):
        complete_pretraining(family="modernbert", options={"pairs": "nsp"})


def test_what_does_not_go_together():
    with raises(ConfigError, "nnlm", "ngram"):
        complete_pretraining("nnlm", family="ngram")
    with raises(ConfigError, "nnlm", "lstm"):
        complete_pretraining("nnlm", family="lstm")
    with raises(ConfigError, "elmoo"):
        complete_pretraining(family="elmoo")
    with raises(ConfigError, "transformer"):
        complete_pretraining(family="transformer")
    with raises(ConfigError, "finetune"):
        complete_pretraining("finetune")
    with raises(ConfigError, "distill"):
        complete_pretraining("distill")
    with raises(InputError, "text"):
        cloze.pretrain([], "nowhere", family="ngram")
    with raises(ConfigError, "masking"):
        complete_pretraining(family="ngram", settings=["masking.mlm_probability=0.1"])


def test_an_option_is_the_setting_of_its_family():
    assert complete_pretraining(family="word2vec", options={"epochs": 2.0}).run.epochs == 2
    assert complete_pretraining(family="lstm", options={"max_length": 7}).run.bptt_length == 7
    assert complete_pretraining("laptop", options={"max_length": 8}).sampling.max_length == 8
    assert complete_pretraining(family="word2vec", options={"lr": 0.5}).run.lr == 0.5
    assert complete_pretraining("laptop", options={"lr": None}) == recipe("laptop")
    with raises(OptionError, "pairs", "lstm"):
        complete_pretraining(family="lstm", options={"pairs": "none"})
    with raises(OptionError, "preset", "ngram"):
        complete_pretraining(family="ngram", options={"preset": "mini"})
    complete_pretraining(family="ngram", options={"seed": 3, "device": "cpu"})  # of every command


def test_a_preset_replaces_the_sizes_of_a_recipe():
    small = recipe("laptop", settings=["model.hidden_size=128", "model.num_heads=2"])
    assert small.model.config.intermediate_size == 512, "it follows the hidden size"
    base = recipe(small, preset="base")
    assert base.model.config.hidden_size == base.model.config.intermediate_size / 4 == 768
    assert base.model.config.dropout == 0, "no size: the recipe's"


def test_a_budget_replaces_another():
    assert recipe("bert-tiny").run.steps == 1_000_000
    assert recipe("bert-tiny", minutes=3).run.steps is None
    assert recipe("laptop", settings=["run.evals_per_epoch=2"]).run.eval_every is None


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
    made = complete_pretraining(settings=settings)
    assert made.model.family == family
    assert is_fast(made, "cuda", 1) == (family == "modernbert")
    assert complete_pretraining("laptop", settings=settings).model.family == "bert"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert complete_pretraining(settings=settings).model.family == "bert", "it knows one GPU only"


def model_folder(folder, family, **settings):
    folder.mkdir(parents=True)
    values = {"model_type": family, **settings}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("openai-gpt", "gpt"),
        ("gpt2", "gpt"),
        ("gpt3", "gpt"),
        ("music-transformer", "music"),
        ("retro", "retro"),
        ("lstm", "lstm"),
        ("elmo", "elmo"),
        ("bert", "laptop"),
        ("distilbert", "laptop"),
        ("roberta", "laptop"),
    ],
)
def test_a_model_to_continue_chooses_the_recipe_of_its_family(family, name, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    folder = model_folder(tmp_path / "base", family)
    pairs = {"pairs": "none"} if family in ("distilbert", "roberta") else {}
    made = complete_pretraining(options={"init_from": folder, **pairs})
    assert made == complete_pretraining(name, options={"init_from": folder, **pairs})
    assert made.model.init_from == folder
    by_path = complete_pretraining(
        settings={"model.init_from": folder, **({"sampling.pairs": "none"} if pairs else {})}
    )
    assert by_path == made


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_causal_bert_is_continued_with_the_causal_recipe(tmp_path, monkeypatch, on_gpu):
    monkeypatch.setattr("torch.cuda.is_available", lambda: on_gpu)
    options = {"init_from": model_folder(tmp_path / "b", "bert", vocab_size=9, is_decoder=True)}
    made = complete_pretraining(options=options)
    assert made == complete_pretraining("gpt", options=options)
    assert (made.model.family, made.objective.kind, made.sampling.pairs) == (
        *("bert", "causal", "none"),
    )
    assert complete_pretraining(family="bert", options=options) == made
    plain = {"init_from": model_folder(tmp_path / "c", "bert", vocab_size=9, is_decoder=False)}
    assert not complete_pretraining(options=plain).objective.is_causal


@pytest.mark.parametrize(
    ("family", "settings"), [("gpt2", {}), ("bert", {"vocab_size": 9, "is_decoder": True})]
)
@pytest.mark.parametrize("body", ["", "0_Transformer"])
def test_a_name_on_the_hub_chooses_the_recipe_once_it_is_in_the_cache(
    tmp_path, monkeypatch, family, settings, body
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    options = {"init_from": "org/name"}
    assert not complete_pretraining(options=options).objective.is_causal, "it is not known yet"
    folder = tmp_path / "models--org--name"
    model_folder(folder / "snapshots" / "abc" / body, family, **settings)
    if body:  # a folder of sentence-transformers
        modules = [{"path": body, "type": "sentence_transformers.models.Transformer"}]
        (folder / "snapshots" / "abc" / "modules.json").write_text(json.dumps(modules))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    made = complete_pretraining(options=options)
    assert made == complete_pretraining("gpt", options=options)
    assert (made.model.family, made.model.init_from) == (family, "org/name")


def test_an_explicit_recipe_wins_over_that_of_the_model_to_continue(tmp_path, monkeypatch):
    folder = model_folder(tmp_path / "base", "gpt2")
    assert complete_pretraining("gpt2", options={"init_from": folder}).run.dtype == "bfloat16"
    assert complete_pretraining("laptop", options={"init_from": folder}).objective.kind == "mlm"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    bert = complete_pretraining(options={"init_from": model_folder(tmp_path / "bert", "bert")})
    assert is_fast(bert, "cuda", 1), "the recipe fast, as for a new model"


def test_a_gpt_is_continued(tmp_path):
    text = stories(tmp_path)
    sizes = {"model.hidden_size": 16, "model.num_layers": 1, "model.num_heads": 2}
    options = {"progress": False, "steps": 2, "device": "cpu"}
    cloze.pretrain(text, tmp_path / "a", "gpt", settings=sizes, vocabulary_size=300, **options)
    ended = cloze.pretrain(text, tmp_path / "b", init_from=str(tmp_path / "a"), **options)
    assert ended.steps == 2
    assert cloze.load(tmp_path / "b").task_heads == ("lm",)


def test_a_continued_gpt_without_begin_and_end_tokens_gets_both(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789."
    tokens = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
    backend = build_word_bpe({token: n for n, token in enumerate(tokens)}, [])
    base = tiny_model(
        "lm",
        family="openai-gpt",
        vocab_size=len(tokens),
        positions=64,
        tokenizer=Tokenizer(backend, special_tokens={"unk": "<unk>"}),
    )
    base.save(tmp_path / "base")
    options = {"progress": False, "steps": 2, "device": "cpu", "init_from": str(tmp_path / "base")}
    assert cloze.pretrain(stories(tmp_path), tmp_path / "run", **options).steps == 2
    model = cloze.load(tmp_path / "run")
    assert model.tokenizer.eos_token == model.tokenizer.bos_token == "<|endoftext|>"
    assert model.config.vocab_size == model.tokenizer.vocab_size == len(tokens) + 1
    assert cloze.evaluate(model, tmp_path / "a.txt").scores["perplexity"] > 1
