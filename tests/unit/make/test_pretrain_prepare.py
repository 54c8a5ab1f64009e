"""How a run on raw text begins: what is wrong is told before anything is written or overwritten."""

import io
import shutil
import sys

import pytest

import cloze
from cloze.checkpoint.load import load
from cloze.config import read_toml
from cloze.data.sources import read_rows
from cloze.errors import ClozeError, ConfigError, InputError
from cloze.make.distill.job import distill
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import complete_pretraining, recipe
from cloze.make.recipe.pretrain import check_processes, is_fast
from cloze.make.resume import resume
from helpers import Watch, files_of, raises
from smallruns import SMALL, stories

FEW = [*SMALL, "run.steps=2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return stories(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def made(text, tmp_path_factory):
    """A run that came to its end."""
    out = tmp_path_factory.mktemp("runs") / "made"
    pretrain(text, out, settings=FEW)
    return out


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.plan.TRIAL_SECONDS", 0.05)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in files_of(folder)}


def train(text, out, *settings, **options):
    return pretrain(text, out, recipe(settings=FEW), settings=settings, **options)


# What is there already


def test_a_plan_touches_no_run(made, text, quick):
    before = contents(made)
    with raises(InputError, "plan", fix="folder"):
        plan(text, made, recipe(settings=[*FEW, "vocabulary.size=90"]))
    assert contents(made) == before


def test_a_run_that_is_going_on_is_not_planned_over(made, text, tmp_path, quick):
    (tmp_path / "state").mkdir()
    with raises(InputError, "plan"):
        plan(text, tmp_path, recipe(settings=FEW))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("a.txtt", [], "a.txtt"),
        ("empty.txt", [], "empty.txt"),
        ("broken.jsonl", [], "JSON"),
        ("a.jsonl", [], "column"),
        ("a.txt", ["vocabulary.folder={made}/tokenizer"], "--out"),
        ("a.txt", ["vocabulary.folder=nowhere"], "nowhere"),
        ("a.txt", ["data.folder={texts}"], "corpus"),
        ("a.txt", ["model.init_from=nowhere"], "nowhere"),
        ("a.txt", ["model.init_from={made}"], "--out"),
        (
            "a.txt",
            ["model.init_from={base}", "sampling.max_length=64"],
            "32",
        ),
        ("a.txt", ["objective.kind=both", "run.fast=false"], "device"),
    ],
)
def test_force_overwrites_nothing_before_all_is_checked(
    name, settings, message, made, text, tmp_path
):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(text.read_text())
    (texts / "empty.txt").write_text("")
    (texts / "broken.jsonl").write_text("{\n")
    (texts / "a.jsonl").write_text('{"one": "a cat", "two": "a dog"}\n')
    places = {"made": made, "texts": texts, "base": shutil.copytree(made, tmp_path / "base")}
    before = contents(made)
    with raises(ClozeError, message):
        train(texts / name, made, *(s.format(**places) for s in settings), force=True)
    assert contents(made) == before


def test_a_mistake_leaves_no_folder_behind(text, tmp_path):
    with raises(InputError, "a.txtt"):
        train(tmp_path / "a.txtt", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_run_that_failed_before_its_first_state_is_begun_again(text, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('"the cat sat."\n' * 30 + "{\n")
    out = tmp_path / "m"
    with raises(InputError, "rows.jsonl:31"):
        train(rows, out, "vocabulary.min_count=1")
    assert (out / "recipe.toml").exists()
    assert train(text, out).steps == 2
    assert cloze.load(out).tokenizer.vocab_size > 60, "learned from the text that was named at last"


def test_what_is_not_of_a_run_is_not_taken_over(text, tmp_path):
    (tmp_path / "recipe.toml").write_text("")
    (tmp_path / "mine.txt").write_text("notes")
    with raises(InputError, "exists"):
        train(text, tmp_path)


def test_a_vocabulary_that_was_named_is_taken_again(made, text, tmp_path, quick):
    """Of a plan, too: it may have been another one."""
    small = tmp_path / "small"
    cloze.vocabulary(text, out=small, size=60)
    out = tmp_path / "m"
    plan(text, out, recipe(settings=[*FEW, f"vocabulary.folder={made / 'tokenizer'}"]))
    train(text, out, f"vocabulary.folder={small}")
    assert cloze.load(out).tokenizer.vocab_size == cloze.Tokenizer.load(small).vocab_size


# Text that can be read once


def test_standard_input_gives_a_vocabulary_and_a_corpus(made, text, tmp_path, monkeypatch):
    class Piped:
        buffer = io.BytesIO(text.read_bytes())

    monkeypatch.setattr(sys, "stdin", Piped)
    out = tmp_path / "m"
    train("-", out)
    assert read_toml(out / "recipe.toml")["data"]["sources"] == ["-"]
    assert (out / "model.safetensors").read_bytes() == (made / "model.safetensors").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["m"], "the text is kept nowhere else"
    assert resume(out).steps == 2  # from the corpus; there is nothing more to read
    (out / "corpus" / "corpus.json").unlink()
    with raises(InputError, "pipe", fix="--force"):
        resume(out)


def test_an_empty_pipe_overwrites_nothing(made, monkeypatch):
    class Piped:
        buffer = io.BytesIO()

    monkeypatch.setattr(sys, "stdin", Piped)
    before = contents(made)
    with raises(InputError, "standard input"):
        train("-", made, force=True)
    assert contents(made) == before


def test_an_iterator_is_read_once(text, tmp_path):
    told = text.read_text().split("\n\n")
    train([iter(told)], tmp_path / "a")
    train([told], tmp_path / "b")
    ours, theirs = (tmp_path / name / "model.safetensors" for name in "ab")
    assert ours.read_bytes() == theirs.read_bytes()
    assert resume(tmp_path / "a").steps == 2


def test_rows_that_cannot_be_read_are_passed_over_by_the_vocabulary_too(tmp_path):
    told = [f"the cat number {n} sat. it saw a dog." for n in range(60)]
    train([iter([*told, 3])], tmp_path / "m", "data.skip_bad=true")
    assert '"skipped": 1' in (tmp_path / "m" / "corpus.json").read_text()


# What would change nothing


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.preset=small", "model.preset"),
        ("model.hidden_size=64", "model.hidden_size"),
        ("model.family=modernbert", ("model.family", "modernbert")),
        ("vocabulary.size=64", ("vocabulary.size", "--extra-tokens")),
        ("vocabulary.folder=x", "vocabulary.folder"),
    ],
)
def test_a_model_to_go_on_from_has_its_own_shape(setting, message, made):
    with raises(ConfigError, message):
        recipe(settings=[f"model.init_from={made}", setting])
    recipe(settings=[f"model.init_from={made}", "model.family=bert", "vocabulary.extra_tokens=3"])


def test_the_kind_must_be_that_of_the_model_to_go_on_from(made):
    with raises(ConfigError, "modernbert"):
        complete_pretraining(family="modernbert", settings=[f"model.init_from={made}"])


def test_words_are_added_to_a_model_alone():
    with raises(ConfigError, "extra_tokens", "10", fix="--init-from"):
        recipe(settings=["vocabulary.extra_tokens=10"])


def test_a_student_has_its_teachers_shape(made, text, tmp_path):
    with raises(ConfigError, "model"):
        distill(made, text, tmp_path / "m", settings=["run.steps=1", "model.hidden_size=64"])
    with raises(ConfigError, "64", "32"):
        distill(made, text, tmp_path / "m", settings=["run.steps=1", "sampling.max_length=64"])
    assert not (tmp_path / "m").exists()


def test_the_written_recipe_says_nothing_of_what_another_model_brings(made, text, tmp_path):
    out = tmp_path / "m"
    train(text, out, f"model.init_from={made}", "run.steps=1")
    said = read_toml(out / "recipe.toml")
    assert said["model"]["init_from"] == str(made)
    assert said["model"].keys() == {"family", "init_from", "position_init"}
    assert said["vocabulary"] == {"extra_tokens": 0}
    assert load(out).config == load(made).config
    assert resume(out).steps == 1
    pretrain([], tmp_path / "again", out / "recipe.toml")
    again = tmp_path / "again" / "model.safetensors"
    assert again.read_bytes() == (out / "model.safetensors").read_bytes()


# What else is told


def test_a_step_that_processes_cannot_share():
    with raises(ConfigError, "run.accumulate", "1", "2", fix="--accumulate 2"):
        check_processes(recipe(), 2)
    check_processes(recipe(settings=["run.accumulate=4"]), 2)


@pytest.mark.parametrize("name", ["finetune", "features", "transformer", "seq2seq"])
def test_a_recipe_for_labelled_data(name, text, tmp_path):
    with raises(ConfigError, name, "finetune"):
        cloze.pretrain(text, tmp_path / "m", name, settings=["run.steps=1"])


def test_settings_are_a_list(text, tmp_path):
    with raises(ConfigError, "settings", "run.steps=2", fix="run.steps=2"):
        cloze.pretrain(text, tmp_path / "m", settings="run.steps=2")


def test_what_needs_a_gpu_can_be_had_without():
    with raises(ConfigError, "device", fix=("--set", "run.fast")):
        is_fast(recipe("fast"), "cpu", 1)


def test_a_shared_corpus_is_not_replaced_in_silence(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("cat", "cow"))
    shared, said = f"data.folder={tmp_path / 'shared'}", []
    for number, source in enumerate((text, text, other)):
        said.append([])
        watch = [Watch(log=said[-1].append)]
        train(source, tmp_path / str(number), shared, callbacks=watch)
    first, same, new = ("\n".join(lines) for lines in said)
    assert "preparing" in first
    assert "using the prepared corpus" in same
    assert "preparing" not in same
    assert "another text or vocabulary" in new
    assert "replaces" not in first + same


def test_a_data_frame_is_pretrained_and_distilled_on(text, tmp_path):
    pandas = pytest.importorskip("pandas")
    lines = [row.text for row in read_rows(text) if row.text]
    frame = pandas.DataFrame({"id": range(len(lines)), "story": lines})
    given = {"text_column": "story", "settings": FEW}
    pretrain(frame, tmp_path / "frame", **given)
    pretrain(frame.to_dict("records"), tmp_path / "rows", **given)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("frame", "rows")]
    assert weights[0] == weights[1]
    with raises(InputError, "<DataFrame>:1", "story", fix="text_column="):
        pretrain(frame, tmp_path / "unknown", settings=FEW)
    few = {"steps": 1, "max_length": 32, "text_column": "story"}
    distill(tmp_path / "frame", frame, tmp_path / "student", **few)
    assert cloze.load(tmp_path / "student").config.num_layers == 1
