"""A run's folder: one process at a time, and nothing of an older run or model under a new one."""

import fcntl
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

import cloze
from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import LOCK_FILE
from cloze.interop.sentence_transformers import Pooling
from cloze.make.finetune.dispatch import finetune
from cloze.make.ngram import train_ngram
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.plan import plan
from cloze.make.recipe.complete import recipe
from cloze.make.recipe.pretrain import is_fast
from cloze.make.resume import resume
from cloze.make.run_folder import clear_run
from cloze.make.word2vec import train_word2vec
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.word2vec import Word2VecConfig
from cloze.train.config import Word2VecRun, Word2VecVocabulary
from grams import TEXT, text_model
from helpers import Watch, files_of, raises, tiny_model, word_model
from languages import neural_model
from smallruns import SMALL, stories
from translators import TEXTS, train_translator, translator
from tunings import FAST, body, texts

QUICK = {
    "bert": [*SMALL, "run.steps=2"],
    "lstm": [
        "model.hidden_size=12",
        "model.embedding_size=12",
        "run.batch_size=4",
        "run.bptt_length=5",
        "run.steps=2",
    ],
    "classify": [*(one for one in FAST if "epochs" not in one), "run.steps=2"],
    "transformer": [
        *("model.hidden_size=16", "model.num_layers=1", "model.num_heads=2"),
        *(
            "model.intermediate_size=24",
            "vocabulary.size=300",
            "run.batch_tokens=200",
            "run.steps=2",
        ),
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Text, labelled rows, two sides of sentences, and a model to begin with."""
    folder = tmp_path_factory.mktemp("files")
    stories(folder)
    rows = "".join(f"{one.text}\t{one.label}\n" for one in texts(40))
    (folder / "rows.tsv").write_text(f"text\tlabel\n{rows}")
    for side in ("en", "de"):
        (folder / f"a.{side}").write_text("".join(f"{text}\n" for text in TEXTS))
    body(BertConfig).save(folder / "base")
    return folder


def word_vectors(out, **how):
    pytest.importorskip("numba")
    how |= {"settings": Word2VecRun(epochs=1, threads=1), "config": Word2VecConfig(hidden_size=8)}
    return train_word2vec([TEXT], out, text=Word2VecVocabulary(min_count=1), **how)


def several(files, out, count, **how):
    settings = [*QUICK["classify"], f"run.seeds={count}"]
    rows = files / "rows.tsv"
    return finetune("classify", files / "base", rows, out, dev=rows, settings=settings, **how)


MAKERS = {
    "bert": lambda files, out, **how: pretrain(files / "a.txt", out, settings=QUICK["bert"], **how),
    "lstm": lambda files, out, **how: pretrain(
        files / "a.txt", out, "lstm", settings=QUICK["lstm"], **how
    ),
    "classify": lambda files, out, **how: finetune(
        "classify", files / "base", files / "rows.tsv", out, settings=QUICK["classify"], **how
    ),
    "transformer": lambda files, out, **how: train_translator(
        files / "a.en", files / "a.de", out, settings=QUICK["transformer"], **how
    ),
    "ngram": lambda _, out, **how: train_ngram([TEXT], out, order=2, **how),
    "word2vec": lambda _, out, **how: word_vectors(out, **how),
}
STEPPED = ("bert", "lstm", "classify", "transformer")
AGAIN = {
    "bert": resume,
    "lstm": resume,
    "classify": resume,
    "transformer": resume,
}


class Killed(BaseException):
    pass


def kill(_):
    raise Killed


def embedder(folder):
    """A folder as of sentence-transformers, with a prompt and a limit of its own."""
    pooling = Pooling(
        modes=("mean",),
        normalize=True,
        max_seq_length=9,
        prompts={"query": "query: "},
        default_prompt="query",
    )
    replace(tiny_model(), pooling=pooling).save(folder)
    (folder / "2_Normalize").mkdir()
    return folder


def reader(folder):
    """A folder with a reader beside its body."""
    spec = FeatureSettings(input_size=16)
    task = Task(name="classify", truncation="head", features=spec)
    replace(tiny_model(task=task), feature_head=build_feature_head(spec, 2)).save(folder)
    return folder


def vectors(folder):
    return word_model(words=["a", "b"], vectors=np.eye(2, dtype=np.float32)).save(folder)


SAVED = {
    "embedder": embedder,
    "reader": reader,
    "answers": lambda folder: tiny_model(
        "span", task=Task(name="answer", allow_no_answer=True, threshold=1.5)
    ).save(folder),
    "lstm": lambda folder: neural_model("lstm").save(folder),
    "transformer": lambda folder: translator("transformer").save(folder),
    "ngram": lambda folder: text_model().save(folder),
    "word2vec": vectors,
}


# What a new run leaves of an old one


@pytest.mark.parametrize("kind", SAVED)
def test_nothing_of_a_model_before_is_left(kind, tmp_path):
    folder = tmp_path / "m"
    SAVED[kind](folder)
    (folder / "notes.md").write_text("mine")
    (folder / "pytorch_model.bin").write_text("mine")
    clear_run(folder)
    assert {path.name for path in folder.iterdir()} == {"notes.md", "pytorch_model.bin"}


def test_nothing_of_a_run_before_is_left(tmp_path):
    ours = [
        *("recipe.toml", "metrics.jsonl", "report.html", "corpus.json", "data.json"),
        *("fills.json", "neighbours.json", "samples.json", "trials.json"),
        *("state/000001-step-1/metadata.json", "state/.000002-step-2.ab12/metadata.json"),
        *("vocabulary/vocab.txt", "tokenizer/tokenizer.json", "tokenizer/origin.json"),
        *("seed-0/recipe.toml", "seed-0/config.json", "lr-5e-05-batch-16-epochs-3/recipe.toml"),
        *("tensorboard/events.out.tfevents.1", "model.safetensors.index.json"),
        *("model-00001-of-00002.safetensors", "special_tokens_map.json"),
    ]
    theirs = [
        *("mine.txt", "seed-1/mine.txt", "state/mine.txt", "1_Pooling/mine.txt", "corpus/a.txt"),
        "seed-of-doubt/config.json",
    ]
    for name in (*ours, *theirs):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    clear_run(tmp_path)
    assert files_of(tmp_path) == {*theirs}
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and not any(path.iterdir())]
    clear_run(tmp_path / "nowhere")


def test_runs_of_their_own_are_no_trials(tmp_path):
    """Folders named so are of one run only where it was one of several."""
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "recipe.toml").write_text("")
    clear_run(tmp_path)
    assert files_of(tmp_path) == {"seed-0/recipe.toml"}


def test_states_behind_a_link_go_too(tmp_path):
    (tmp_path / "disk" / "000001-step-1").mkdir(parents=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "state").symlink_to(tmp_path / "disk")
    clear_run(tmp_path / "m")
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize("kind", MAKERS)
def test_a_forced_run_has_nothing_of_another_model(kind, files, tmp_path):
    out = embedder(tmp_path / "m")
    (out / "cloze.json").write_text('{"format_version": 1, "name": "classify"}')
    (out / "notes.md").write_text("mine")
    MAKERS[kind](files, out, force=True)
    MAKERS[kind](files, tmp_path / "new")
    ours, theirs = ({path.name for path in folder.iterdir()} for folder in (out, tmp_path / "new"))
    assert ours == {*theirs, "notes.md"}
    made = cloze.load(out, device="cpu")
    assert made.pooling is None
    assert made.max_length > 9


@pytest.mark.parametrize("kind", STEPPED)
def test_a_forced_run_that_is_killed_shows_no_older_model(kind, files, tmp_path):
    out = tmp_path / "m"
    tiny_model("sequence").save(out)
    with pytest.raises(Killed):
        MAKERS[kind](files, out, force=True, callbacks=[Watch(step=kill)])
    assert not {"config.json", "model.safetensors", "tokenizer.json"} & files_of(out)


def test_fewer_seeds_leave_no_older_ones(files, tmp_path):
    out = tmp_path / "m"
    for count in (3, 2):
        several(files, out, count, force=True)
    assert sorted(path.name for path in out.glob("seed-*")) == ["seed-0", "seed-1"]
    MAKERS["lstm"](files, out, force=True)
    assert not list(out.glob("seed-*"))


def test_seeds_that_were_killed_in_the_first_leave_none_either(files, tmp_path):
    out = tmp_path / "m"
    with pytest.raises(Killed):
        several(files, out, 2, callbacks=[Watch(step=kill)])
    assert (out / "seed-0").is_dir()
    MAKERS["classify"](files, out, force=True)
    assert not (out / "seed-0").exists()


@pytest.mark.parametrize("place", ["", "seed-0", "vocabulary", "tokenizer"])
def test_what_a_run_begins_with_is_not_removed_for_it(place, files, tmp_path):
    out = tmp_path / "m"
    base = shutil.copytree(files / "base", out / place)
    for begin in (
        lambda: finetune("classify", base, files / "rows.tsv", out, force=True),
        lambda: pretrain(
            *(files / "a.txt", out), settings=["run.steps=1", f"model.init_from={base}"], force=True
        ),
        lambda: pretrain(
            *(files / "a.txt", out),
            settings=[*QUICK["bert"], f"vocabulary.folder={base}"],
            force=True,
        ),
        lambda: pretrain(
            *(files / "a.txt", out, "lstm"),
            settings=["run.steps=1", f"vocabulary.folder={base / 'vocab.txt'}"],
            force=True,
        ),
    ):
        before = files_of(out)
        with raises(InputError, "--out", fix="--out"):
            begin()
        assert files_of(out) == before


# One at a time


@pytest.mark.parametrize("kind", MAKERS)
def test_a_second_process_is_refused(kind, files, tmp_path):
    """A lock is of an open file, so one process can hold two of them against each other."""
    out = tmp_path / "m"
    with lock_folder(out), raises(FolderError, "process", fix="wait"):
        MAKERS[kind](files, out, force=True)
    assert not out.exists(), "nothing was written"
    MAKERS[kind](files, out)
    assert not (out / LOCK_FILE).exists()
    before = files_of(out)
    with lock_folder(out):
        with raises(FolderError, "process"):
            MAKERS[kind](files, out, force=True)
        if kind in STEPPED:
            with raises(FolderError, "process"):
                AGAIN[kind](out)
    assert files_of(out) == before


def test_a_plan_waits_its_turn(files, tmp_path):
    out = tmp_path / "m"
    with lock_folder(out), raises(FolderError, "process"):
        plan(files / "a.txt", out, cloze.recipe(settings=QUICK["bert"]))


def test_one_of_several_runs_is_held_too(files, tmp_path):
    out, seen = tmp_path / "m", []

    def look(_):
        if not seen:
            for place in (out, out / "seed-0"):
                with raises(FolderError, "process") as error:
                    resume(place)
                seen.append(error)

    several(files, out, 2, callbacks=[Watch(step=look)])
    assert len(seen) == 2
    assert not list(out.rglob(LOCK_FILE))


def test_a_lock_that_was_left_behind_is_in_nobodys_way(files, tmp_path):
    (tmp_path / LOCK_FILE).write_text("")
    MAKERS["classify"](files, tmp_path)
    assert cloze.load(tmp_path, device="cpu").labels == ("no", "yes")


def test_a_lock_that_goes_as_it_is_asked_for(tmp_path, monkeypatch):
    """Its holder removes it as it ends: whoever holds the removed file holds nothing."""
    plain, asked = fcntl.flock, []

    def flock(file, how):
        if not asked:
            (tmp_path / LOCK_FILE).unlink()
        asked.append(how)
        plain(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock_folder(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
        with raises(FolderError, "process"), lock_folder(tmp_path):
            pass
    assert not (tmp_path / LOCK_FILE).exists()


def test_disks_and_systems_without_locks(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock_folder(tmp_path), lock_folder(tmp_path):
        pass
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with lock_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists(), "nothing came of it"


@pytest.mark.parametrize("family", ["lstm", "ngram", "word2vec"])
def test_what_trains_in_one_process_is_told_so_under_torchrun(tmp_path, monkeypatch, family):
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "t.txt").write_text("a cat sat\nthe dog slept\n" * 20)
    with raises(ConfigError, "one process", "2", fix="torchrun"):
        cloze.pretrain(tmp_path / "t.txt", tmp_path / "m", family=family, progress=False)
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}] * 9
    with raises(ConfigError, "one process", "2", fix="torchrun"):
        cloze.finetune("classify", "cloze-en", rows, tmp_path / "m", progress=False)
    assert not (tmp_path / "m").exists()


def test_batches_of_other_objectives_cannot_be_shared():
    with raises(ConfigError, "detection", "2", fix="causal"):
        is_fast(recipe("fast", settings=["objective.kind=detection"]), "cpu", 2)
    with raises(ConfigError, "run.fast", fix="leave"):
        is_fast(recipe("fast", settings=["objective.kind=mlm", "run.fast=true"]), "cpu", 2)
    assert is_fast(recipe("gpt"), "cpu", 2)
