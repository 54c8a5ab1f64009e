"""What the demo shows of a model that is there already."""

import pytest

import cloze
from cloze.make.demo import (
    MASKED_SENTENCES,
    NUM_DEV,
    QUERIES,
    TOPICS,
    find_neighbours,
    preview_model,
)
from helpers import SPECIAL, tiny_model, tiny_tokenizer

SENTENCES = [text for texts in TOPICS.values() for text in texts]


KNOWN = ["the", "a", "was", "and", "to", "of", "for", "it", "in", "we", "she", "he", "is", "my"]
MORE = ["had", "with", "on", "that", "an", "."]


@pytest.fixture
def model():
    """A model that knows the commonest words of the sentences."""
    return tiny_model("mlm", positions=32, tokenizer=tiny_tokenizer([*SPECIAL, *KNOWN, *MORE]))


def test_the_sentences_are_many_and_each_is_there_once():
    assert {len(texts) for texts in TOPICS.values()} == {20}
    assert len({*SENTENCES, *QUERIES, *MASKED_SENTENCES}) == 40 + len(QUERIES) + len(
        MASKED_SENTENCES
    )
    assert all("\t" not in text and "[MASK]" not in text for text in SENTENCES)


def test_what_is_seen(model, tmp_path):
    source = model.save(tmp_path / "cloze-xx")
    seen = preview_model(source, tmp_path / "topics", device="cpu")
    assert seen.name == "cloze-xx"
    assert [fill.text for fill in seen.fills] == list(MASKED_SENTENCES)
    assert all(len(fill.words) == 3 for fill in seen.fills)
    assert [one.text for one in seen.neighbours] == list(QUERIES)
    assert (seen.num_dev, 0 <= seen.accuracy <= 1) == (12, True)
    told = cloze.classify(cloze.load(seen.classifier), SENTENCES[0])
    assert set(told.scores) == set(TOPICS)


def test_the_classifier_is_judged_by_sentences_that_it_has_not_seen(model, tmp_path):
    preview_model(model.save(tmp_path / "m"), tmp_path / "topics", device="cpu")
    parts = [
        (tmp_path / f"topics-{part}.tsv").read_text().splitlines()[1:] for part in ("train", "dev")
    ]
    assert [len(part) for part in parts] == [40 - 2 * NUM_DEV, 2 * NUM_DEV]
    told = [line.split("\t") for part in parts for line in part]
    assert sorted(text for text, _ in told) == sorted(SENTENCES)
    assert all(text in TOPICS[topic] for text, topic in told)


def test_a_text_is_nearest_to_itself(model):
    texts = SENTENCES[:10]
    found = find_neighbours(model, texts[:2], texts)
    for query, one in zip(texts[:2], found, strict=True):
        assert one.text == query
        (first, cosine), *others = one.neighbours
        assert (first, round(cosine, 4)) == (query, 1)
        assert all(cosine >= other for _, other in others)
