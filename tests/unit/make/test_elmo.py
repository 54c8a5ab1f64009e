"""Pre-training an ELMo: what is its own."""

import json

import pytest

import cloze
from cloze.errors import ConfigError
from helpers import raises
from languages import elmo_model

LINES = [f"the {word} sat on the mat ." for word in ("cat", "dog", "wug", "fox")] * 6
SMALL = {
    "model.filter_widths": [1, 2],
    "model.filter_counts": [4, 6],
    "model.projection_size": 6,
    "model.cell_size": 8,
    "run.batch_size": 2,
    "run.bptt_length": 6,
    "run.steps": 2,
}


def test_words_of_the_new_text_are_read_although_the_vocabulary_is_kept(tmp_path):
    """Fine-tuning the biLM on the text of a task: --init-from."""
    base = elmo_model().save(tmp_path / "base")
    lines = ["the zzyzx sat on the plover", "a zzyzx sat"] * 8
    settings = {"model.init_from": str(base), "run.batch_size": 2, "run.bptt_length": 4}
    cloze.pretrain([lines], tmp_path / "on", settings={**settings, "run.steps": 3}, lr=0.05)
    old, new = cloze.load(base), cloze.load(tmp_path / "on")
    assert new.tokenizer.vocab_size == old.tokenizer.vocab_size
    data = json.loads((tmp_path / "on/data.json").read_text())
    assert data["unknown"] > 0
    vectors = cloze.embed(new, ["zzyzx", "plover"], layers=0)
    assert abs(vectors[0] - vectors[1]).max() > 1e-3


def test_both_directions_are_evaluated(tmp_path):
    ended = cloze.pretrain([LINES], tmp_path / "m", family="elmo", settings=SMALL)
    assert {"perplexity", "backward_perplexity", "unigram_perplexity"} <= ended.scores.keys()
    found = cloze.evaluate(tmp_path / "m", [LINES]).scores
    assert found["backward_perplexity"] > 1
    rows = (tmp_path / "m/metrics.jsonl").read_text().splitlines()
    assert any("backward_perplexity" in json.loads(row) for row in rows)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "char"])
def test_other_vocabularies_are_refused(kind, tmp_path):
    settings = {**SMALL, "vocabulary.kind": kind, "vocabulary.size": 300}
    with raises(ConfigError, "vocabulary", kind, fix="word"):
        cloze.pretrain([LINES], tmp_path / "m", family="elmo", settings=settings)
    assert not (tmp_path / "m").exists()


def test_a_published_model_cannot_be_continued(tmp_path):
    base = elmo_model(output="none").save(tmp_path / "base")
    with raises(ConfigError, "output layer", str(base)):
        cloze.pretrain([LINES], tmp_path / "m", settings={"model.init_from": str(base)}, steps=1)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_the_bilm_is_fine_tuned_on_the_texts_of_a_task_before_its_features(task, tmp_path):
    base = elmo_model().save(tmp_path / "base")
    stage = ["run.steps=2", "run.batch_size=2", "run.bptt_length=4", "optimizer.lr=0.05"]
    data = tmp_path / "train.tsv"
    if task == "classify":
        data.write_text("text\tlabel\n" + "a good wug\tyes\nthe bad mat\tno\n" * 8)
    else:
        data.write_text("the O\nwug B-X\nsat O\n\n" * 16)
    cloze.finetune(
        task,
        base,
        data,
        tmp_path / "out",
        dev=data,
        transfer="features",
        settings={
            "language_model.finetune_recipe": "elmo",
            "language_model.finetune_settings": stage,
        },
    )
    old, new = cloze.load(base), cloze.load(tmp_path / "out")
    assert (tmp_path / "out/language_model/config.json").is_file()
    before, after = (model.module.forward_layers[0].weight_ih_l0 for model in (old, new))
    assert not before.equal(after)
    assert task in new.capabilities
    assert cloze.evaluate(new, data).scores
