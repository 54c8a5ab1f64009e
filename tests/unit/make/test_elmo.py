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
