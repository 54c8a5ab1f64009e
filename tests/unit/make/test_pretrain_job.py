"""`pretrain`: from text to a folder that others open; resumed runs; going on from a model."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import cloze
from cloze.checkpoint.load import load
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.make.resume import resume
from cloze.text.tokenizer_training import extend_tokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.fit import DivergedWarning
from helpers import Watch, raises, tiny_tokenizer

SMALL = [
    "model.preset=tiny",
    "model.num_layers=1",
    "model.hidden_size=16",
    "model.max_positions=32",
    "vocabulary.size=200",
    "sampling.max_length=32",
    "run.batch_tokens=256",
    "data.hold_out=0.2",
    "run.steps=8",
    "run.eval_every=4",
    "run.log_every=1",
    "run.device=cpu",
    "data.workers=1",
]
SUBJECTS = ["the cat", "a dog", "my old horse", "her bird", "one fish"]
VERBS = ["sat on", "slept under", "looked at", "ran from", "sang to"]
OBJECTS = ["the mat", "a tree", "our house", "the king", "some water"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Sixty little stories."""
    rng = np.random.default_rng(0)
    stories = [
        "\n".join(
            " ".join(str(rng.choice(part)) for part in (SUBJECTS, VERBS, OBJECTS)) + "."
            for _ in range(6)
        )
        for _ in range(60)
    ]
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    path.write_text("\n\n".join(stories))
    return path


def small(*settings):
    return recipe(settings=[*SMALL, *settings])


def train(text, out, *settings, **options):
    return pretrain(text, out, small(*settings), **options)


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return train(text, out), out


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_folder_is_a_model(trained):
    ended, out = trained
    assert (ended.steps, ended.stopped) == (8, None)
    model = cloze.load(out)
    assert model.task_heads == ("mlm", "nsp")
    assert not model.report
    assert cloze.fill(model, "the [MASK] sat on the mat.").masks[0].predictions
    assert cloze.embed(model, ["the cat"]).shape == (1, 16)
    for name in ("recipe.toml", "metrics.jsonl", "report.html", "fills.json", "corpus.json"):
        assert (out / name).is_file(), name


@pytest.mark.parity
def test_transformers_opens_it(trained):
    import transformers

    _, out = trained
    peer, loading = transformers.BertForPreTraining.from_pretrained(out, output_loading_info=True)
    assert not any(loading.values()), loading
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = tokenizer("the cat sat on the mat.", return_tensors="pt")
    model = cloze.load(out)
    assert ids["input_ids"][0].tolist() == model.tokenizer.encode("the cat sat on the mat.").ids
    with torch.no_grad():
        theirs = peer.eval()(**ids).prediction_logits
        ours = model.module.logits("mlm", model.module(ids["input_ids"]))
    assert (ours - theirs).abs().max() <= 1e-5


def test_the_written_recipe_is_complete_and_runs_the_same(trained, text, tmp_path):
    _, out = trained
    again = recipe(out / "recipe.toml")
    assert again == small(f'data.sources=["{text}"]')
    pretrain([], tmp_path / "again", again)
    assert_same_weights(out, tmp_path / "again")


def assert_same_weights(one, other):
    ours, theirs = load(one).module.state_dict(), load(other).module.state_dict()
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name]), name


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(trained, text, tmp_path):
    class Killed(BaseException):
        pass

    def kill_after_five(step):
        if step == 5:
            raise Killed

    with pytest.raises(Killed):
        train(text, tmp_path / "run", "run.save_every=3", callbacks=[Watch(step=kill_after_five)])
    ended = resume(tmp_path / "run", settings=["run.guard=skip", "run.keep_states=1"])
    assert ended.steps == 8
    assert_same_weights(trained[1], tmp_path / "run")
    rows = [row["step"] for row in metrics(tmp_path / "run") if row.get("kind") == "train"]
    assert rows == list(range(1, 9))


def test_scores_stand_beside_the_unigram_baseline(trained):
    ended, out = trained
    assert {"mlm_loss", "mlm_accuracy", "nsp_accuracy", "unigram_baseline"} <= set(ended.scores)
    assert ended.scores["perplexity"] == pytest.approx(np.exp(ended.scores["mlm_loss"]))
    assert 0 < ended.scores["unigram_baseline"] < 1
    assert 0.5 <= ended.scores["majority_baseline"] <= 1
    assert [row["step"] for row in metrics(out) if row.get("kind") == "eval"] == [4, 8]


def test_loss_falls(text, tmp_path):
    ended = train(text, tmp_path / "m", "run.steps=60", "optimizer.lr=3e-3")
    first = metrics(tmp_path / "m")[0]["mlm_loss"]
    assert ended.scores["mlm_loss"] < 0.8 * first


@pytest.mark.parametrize(("pairs", "heads"), [("none", ("mlm",)), ("sop", ("mlm", "nsp"))])
def test_other_objectives(text, tmp_path, pairs, heads):
    train(text, tmp_path / "m", f"sampling.pairs={pairs}", "masking.whole_word=true", "run.steps=2")
    assert cloze.load(tmp_path / "m").task_heads == heads


def test_budgets(text, tmp_path):
    by_tokens = train(text, tmp_path / "a", "run.steps=8").tokens
    values = recipe(settings=[s for s in SMALL if "steps" not in s], tokens=by_tokens)
    ended = pretrain([text], tmp_path / "b", values)
    assert ended.steps == 8
    one = recipe(settings=[s for s in SMALL if "steps" not in s], epochs=1.0)
    ended = pretrain([text], tmp_path / "c", one)
    assert ended.steps > 8


def test_going_on_from_a_model_with_new_words(trained, text, tmp_path):
    _, out = trained
    other = tmp_path / "new.txt"
    other.write_text("\n\n".join(["the kingfish sat on the doghouse."] * 40))
    base = cloze.load(out)
    assert len(base.tokenizer.encode_ids(["doghouse"], add_special_tokens=False)[0]) > 1
    start = [f'model.init_from="{out}"', "vocabulary.extra_tokens=2", "run.steps=1"]
    pretrain(other, tmp_path / "m", small(), settings=start)
    model = cloze.load(tmp_path / "m")
    assert model.tokenizer.vocab_size == base.tokenizer.vocab_size + 2
    (new,) = model.tokenizer.encode_ids(["doghouse"], add_special_tokens=False)[0:1]
    assert len(new) == 1
    assert model.config.vocab_size == base.config.vocab_size + 2
    # one step at most moves a weight by the learning rate; a word not met again stays where it was
    old = base.module.embeddings.word.weight
    moved = (model.module.embeddings.word.weight[: old.shape[0]] - old).abs().max()
    assert moved < 1e-3


def test_a_model_to_go_on_from_has_its_own_positions(trained, text, tmp_path):
    longer = [f'model.init_from="{trained[1]}"', "sampling.max_length=64"]
    with raises(ConfigError, "sampling.max_length", "64", "32"):
        pretrain(text, tmp_path / "m", small(), settings=longer)
    assert not (tmp_path / "m").exists()


def test_new_rows_begin_as_the_mean_of_their_pieces(trained):
    from cloze.make.extend_model import extend_model

    base = cloze.load(trained[1])
    wider = extend_tokenizer(base.tokenizer, ["kingfish doghouse"] * 9, 2)
    model = extend_model(base, wider, ("mlm", "nsp"), rng=torch.Generator())
    pieces = base.tokenizer.encode_ids(["kingfish"], add_special_tokens=False)[0]
    table = base.module.embeddings.word.weight
    assert torch.allclose(
        model.module.embeddings.word.weight[wider.token_to_id("kingfish")], table[pieces].mean(0)
    )
    ids = torch.tensor([base.tokenizer.encode("the cat sat.").ids])
    assert torch.allclose(model.module(ids), base.module(ids), atol=1e-6)


def test_extending_needs_wordpieces(tmp_path):
    from cloze.text.tokenizer_training import train_tokenizer

    with raises(ConfigError, "char", "words"):
        extend_tokenizer(train_tokenizer(["abc abc"], kind="char", vocab_size=20), ["abc"], 1)
    same = extend_tokenizer(tiny_tokenizer(), ["the cat"], 5)
    assert same.vocab_size == tiny_tokenizer().vocab_size


def test_a_plan_trains_nothing(text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 1.0)
    made = plan(text, tmp_path / "m", small("run.steps=100"))
    assert made.steps == pytest.approx(100, rel=0.1)
    assert made.tokens_per_second > 0
    assert made.non_padding_fraction > 0.9
    assert made.epochs == pytest.approx(made.tokens / made.tokens_per_epoch)
    assert not (tmp_path / "m" / "model.safetensors").exists()
    assert not (tmp_path / "m" / "state").exists()


def test_a_plan_of_steps_longer_than_the_trial_goes_by_the_first(text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 1e-9)
    clock = iter([0.0, 4.0])
    stopped = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("cloze.make.pretrain.plan.time", stopped)
    made = plan(text, tmp_path / "m", small("run.steps=100"))
    assert made.tokens_per_second == pytest.approx(made.tokens_per_step / 4, rel=0.5)


def test_a_plan_tries_what_the_run_will_do(text, tmp_path, monkeypatch):
    """Also where the system does not tell how much memory a process had."""
    computed_again = []

    def spy(*arguments, **options):
        computed_again.append(arguments)
        return checkpoint(*arguments, **options)

    monkeypatch.setattr("cloze.train.memory.checkpoint", spy)
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.1)
    monkeypatch.setitem(sys.modules, "resource", None)
    made = plan(text, tmp_path / "m", small("run.gradient_checkpointing=true"))
    assert computed_again
    assert made.peak_mib is None


def test_a_loss_beyond_all_perplexities_ends_no_run(text, tmp_path):
    wide = [
        "model.hidden_size=1024",
        "model.intermediate_size=16",
        "model.init_std=10.0",
        "run.steps=1",
    ]
    with pytest.warns(DivergedWarning, match="perplexity"):
        ended = train(text, tmp_path / "m", *wide)
    assert ended.scores["mlm_loss"] > 710
    assert ended.scores["perplexity"] == np.inf
    assert metrics(tmp_path / "m")[-1]["perplexity"] is None


def test_a_run_begins_with_what_its_plan_prepared(text, tmp_path, monkeypatch):
    said = []
    watch = [Watch(log=said.append)]
    out = tmp_path / "m"
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.1)
    plan(text, out, small("vocabulary.size=80"))
    plan(text, out, small(), callbacks=CallbackList(watch))
    assert cloze.Tokenizer.load(out / "tokenizer").vocab_size > 80  # learned again: other settings
    assert any("training a tokenizer" in line for line in said)
    said.clear()
    assert train(text, out, "run.steps=1", callbacks=watch).steps == 1
    assert not any("tokenizer" in line for line in said)


# What a user can get wrong


def test_nothing_to_resume(tmp_path):
    with raises(FolderError, "resume", fix="recipe.toml"):
        resume(tmp_path)


def test_a_run_is_not_overwritten(trained, text):
    _, out = trained
    before = (out / "model.safetensors").read_bytes()
    with raises(InputError, "exists"):
        train(text, out)
    assert (out / "model.safetensors").read_bytes() == before


def test_no_text(tmp_path):
    with raises(InputError, "text", fix="data.sources"):
        pretrain([], tmp_path / "m", small())


def test_another_recipe_cannot_be_resumed(trained, text, tmp_path):
    train(text, tmp_path / "m", "run.steps=2")
    file = tmp_path / "m" / "recipe.toml"
    changed = file.read_text().replace("lr = 0.0005", "lr = 0.01")
    assert changed != file.read_text()
    file.write_text(changed)
    with raises(FolderError, "optimizer.lr", "0.0005", "0.01"):
        resume(tmp_path / "m")


def test_no_budget(text, tmp_path):
    values = recipe(settings=[s for s in SMALL if "steps" not in s])
    with raises(ConfigError, "budget", fix="--minutes"):
        pretrain(text, tmp_path / "m", values)
    assert not (tmp_path / "m").exists(), "told before any work"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["run.step=3"], ("run.step", "steps")),
        (["modle.width=3"], ("modle", "model")),
        (["run.steps=2", "run.minutes=3"], "steps and minutes"),
        (["sampling.pairs=xyz"], ("sampling.pairs", "xyz")),
        (["model.preset=giant"], ("model.preset", "giant")),
        (["optimizer.name=sgdd"], ("optimizer.name", "sgdd")),
        (["vocabulary.size=many"], ("vocabulary.size", "many")),
    ],
)
def test_recipes_refuse_what_they_do_not_know(settings, message):
    with raises(ConfigError, message):
        recipe(settings=settings)


def test_recipes_that_come_with_the_package():
    for size in ("tiny", "mini", "small", "medium", "base"):
        made = recipe(f"bert-{size}")
        assert isinstance(made, PretrainRecipe)
        assert made.run.batch_tokens * made.run.accumulate == 131_072
        assert made.model.preset == size
    with raises(ConfigError, "recipe", "bert", fix="bert-mini"):
        recipe("bert-mimi")
