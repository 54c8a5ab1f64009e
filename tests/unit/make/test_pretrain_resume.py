"""How a run on raw text is stopped, goes on from what lies in its folder, and is told."""

import os
import shutil
from dataclasses import replace

import pytest
import torch

import cloze
from cloze.data.prepare import prepare_corpus
from cloze.errors import FolderError, InputError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.pretrain.probes import sample_probes
from cloze.make.pretrain.setup import describe_corpus
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from cloze.text.tokenizer import Tokenizer
from cloze.train.guard import BadStepError
from corpora import LINES, small_corpus, write_documents
from helpers import SPECIAL, Watch, raises
from smallruns import SMALL, metrics, stories


def half(text, out, *settings):
    """A run that was stopped after its third step."""

    def kill(step):
        if step == 3:
            raise KeyboardInterrupt

    made = recipe(settings=[*SMALL, "run.save_every=2", *settings])
    with pytest.raises(KeyboardInterrupt):
        pretrain(text, out, made, callbacks=[Watch(step=kill)])
    return out


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    pretrain(stories(folder), folder / "m", recipe(settings=SMALL))
    return (folder / "m" / "model.safetensors").read_bytes()


def check(out, straight, **options):
    assert resume(out, **options).steps == 6
    assert (out / "model.safetensors").read_bytes() == straight


def other_text(folder):
    path = folder / "other.txt"
    path.write_text("\n\n".join(f"a bird of {n} colours sang.\nit flew." for n in range(99)))
    return path


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_goes_on_from_its_corpus_and_reads_no_text(shared, straight, tmp_path, monkeypatch):
    text = stories(tmp_path)
    monkeypatch.chdir(tmp_path)
    half(text.name, tmp_path / "m", *(['data.folder="shared"'] if shared else []))
    text.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = []
    check(tmp_path / "m", straight, callbacks=[Watch(log=said.append)])
    assert any("no text is read" in line for line in said)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_corpus_that_is_gone_is_prepared_again(straight, tmp_path, monkeypatch):
    text = stories(tmp_path)
    monkeypatch.chdir(tmp_path)
    out = half(text.name, tmp_path / "m")
    shutil.rmtree(out / "corpus")
    os.utime(text, (1, 1))
    monkeypatch.chdir(out)
    check(out, straight)


def test_a_damaged_corpus_is_mended_from_text_that_has_moved(straight, tmp_path):
    out = half(stories(tmp_path), tmp_path / "m")
    (shard,) = (path for path in (out / "corpus/shards").iterdir() if "index" not in path.name)
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    moved = (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    with raises(InputError, "a.txt"):
        resume(out)
    check(out, straight, sources=moved)


def test_a_shared_corpus_that_became_another_is_not_learned_from(straight, tmp_path):
    shared = f'data.folder="{tmp_path / "shared"}"'
    out = half(stories(tmp_path), tmp_path / "m", shared)
    pretrain(other_text(tmp_path), tmp_path / "n", recipe(settings=[*SMALL, shared]))
    check(out, straight)


def test_other_text_is_refused_in_words(tmp_path):
    out = half(stories(tmp_path), tmp_path / "m")
    shutil.rmtree(out / "corpus")
    with raises(FolderError, "run", "corpus"):
        resume(out, sources=other_text(tmp_path))
    assert resume(out).steps == 6, "and nothing is lost"


def test_another_setting_is_named_alone(tmp_path):
    out = half(stories(tmp_path), tmp_path / "m")
    with raises(FolderError, "run.seed", "0", "1"):
        resume(out, settings=["run.seed=1"])


def test_text_that_a_recipe_cannot_name(tmp_path):
    told = [{"text": one} for one in stories(tmp_path).read_text().split("\n\n")]
    out = half([told], tmp_path / "m")
    assert "<objects in Python>" in (out / "recipe.toml").read_text()
    shutil.copytree(out, tmp_path / "n")
    assert cloze.resume(out).steps == 6, "its corpus is there"
    shutil.rmtree(tmp_path / "n" / "corpus")
    with raises(InputError, "pipe", "Python"):
        cloze.resume(tmp_path / "n")
    assert cloze.resume(tmp_path / "n", sources=[told]).steps == 6


def test_a_run_that_the_guard_stopped_goes_on_as_it_advises(straight, tmp_path, monkeypatch):
    """Nothing of the bad step is left: once it is sound, the run ends as if it had always been."""

    def third(means, norm, recent, *, usual):
        return torch.tensor(len(recent[recent.isfinite()]) == 2)

    with monkeypatch.context() as patch:
        patch.setattr("cloze.train.gradients.is_bad_step", third)
        with raises(BadStepError, "step 3") as stopped:
            pretrain(stories(tmp_path), tmp_path / "m", recipe(settings=SMALL))
    assert "--resume --set run.guard=skip" in stopped.value.fix
    check(tmp_path / "m", straight, settings=["run.guard=skip"])


@pytest.mark.parametrize("steps", [2, 15])
def test_the_last_step_is_told_without_an_evaluation(steps, tmp_path):
    settings = [*SMALL, f"run.steps={steps}", "data.hold_out=0", "run.log_every=10"]
    ended = pretrain(stories(tmp_path), tmp_path / "m", recipe(settings=settings))
    *_, last = metrics(tmp_path / "m")
    assert (last["step"], last["tokens"]) == (steps, ended.tokens)
    page = (tmp_path / "m" / "report.html").read_text()
    assert f"{steps} steps · " in page
    assert "Fills" not in page, "nothing is held out to ask for"


def test_sentence_order_is_told_as_such(tmp_path):
    settings = [*SMALL, "sampling.pairs=sop", "run.steps=2"]
    ended = pretrain(stories(tmp_path), tmp_path / "m", recipe(settings=settings))
    assert {"sop_loss", "sop_accuracy", "majority_baseline"} <= set(ended.scores)
    names = {name for row in metrics(tmp_path / "m") for name in row}
    assert {"sop_loss", "sop_accuracy"} <= names
    assert not any(name.startswith("nsp") for name in names | set(ended.scores))
    page = (tmp_path / "m" / "report.html").read_text()
    assert "SOP accuracy" in page
    assert "NSP" not in page


def test_rows_that_were_skipped_are_counted_in_the_line(tmp_path):
    summary = small_corpus(tmp_path, [["w1 w2"], ["w3"]]).summary
    assert "read" not in describe_corpus(summary)
    assert describe_corpus(replace(summary, skipped=1200)).endswith(
        "; 1,200 rows could not be read"
    )


def test_probes_are_looked_for_in_every_sentence(tmp_path):
    """In each document few sentences of many have a word that is worth asking for."""
    dull, words = " ".join(["w1"] * 9), ["caf", "bar", "foo"]
    tokenizer = Tokenizer.from_vocab([*SPECIAL, "w1", *words])
    caf, bar, foo = (f"{dull} {word}" for word in words)
    text = write_documents(tmp_path / "t.txt", [[dull] * 30 + [caf], [bar] + [dull] * 30 + [foo]])
    view = prepare_corpus(text, tokenizer, tmp_path / "corpus", LINES, workers=1).train
    for seed in range(5):
        found = sample_probes(view, tokenizer, 9, seed=seed)
        assert sorted(probe.truth for probe in found) == sorted(words)
        assert len(sample_probes(view, tokenizer, 2, seed=seed)) == 2


def test_probes_come_from_as_many_documents_as_there_are(tmp_path):
    words = [f"wrd{letter}" for letter in "abcdefgh"]
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *words])
    text = write_documents(tmp_path / "t.txt", [[" ".join([one] * 9)] * 5 for one in words])
    view = prepare_corpus(text, tokenizer, tmp_path / "corpus", LINES, workers=1).train
    assert {probe.truth for probe in sample_probes(view, tokenizer, 8, seed=0)} == set(words)
