"""`cloze.explain.heads`: patterns against a slow computation, inputs, and bounded batches."""

import math

import numpy as np
import pandas
import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.interpret.attention import compute_attention
from cloze.interpret.head_patterns import PATTERNS, HeadPatterns, is_punctuation
from cloze.tasks.explain.inputs import encode_input
from helpers import raises, tiny_model
from translators import TEXTS, translator

CORPUS = ["the cat sat.", "the cats, the cat, the cats.", "a b c a b", "", "cat", ", ."]
PAIRS = [("the cat", "sat the cat."), ("a b", "b a b"), ("cats.", "the")]


@pytest.fixture(scope="module")
def model():
    return tiny_model("mlm", positions=32)


def find_keys(name, words, query):
    """The keys of a pattern, one by one."""
    ids, sequences = words.ids, words.sequence_ids
    for key in range(len(ids)):
        is_special = sequences[key] is None
        found = {
            "previous token": key == query - 1,
            "next token": key == query + 1,
            "self": key == query,
            "first token": key == 0,
            "separator": words.tokens[key] == "[SEP]",
            "punctuation": words.tokens[key] in (".", ","),
            "same token": key != query and ids[key] == ids[query],
            "rest of the word": key != query
            and not is_special
            and (words.words[key], sequences[key]) == (words.words[query], sequences[query]),
            "after the same token": key > 0 and key - 1 != query and ids[key - 1] == ids[query],
            "other text": not is_special and sequences[key] != sequences[query],
        }
        if found[name]:
            yield key


def compute_slowly(model, encoded, *, causal=False):
    """Mean attention to each pattern and the entropy: pattern -> layers × heads."""
    sums = {name: [] for name in [*PATTERNS, "broad"]}
    for words in encoded:
        (found,) = compute_attention(model, words.ids, words.type_ids)
        for query in range(len(words)):
            if words.sequence_ids[query] is None:
                continue
            row = found.weights[:, :, query].astype(np.float64)
            visible = query + 1 if causal else len(words)
            for name in PATTERNS:
                keys = [key for key in find_keys(name, words, query) if key < visible]
                if keys:
                    sums[name].append(row[:, :, keys].sum(-1))
            if visible > 1:
                entropy = -(row * np.log(np.where(row > 0, row, 1))).sum(-1)
                sums["broad"].append(entropy / math.log(visible))
    return {name: np.mean(rows, 0) if rows else None for name, rows in sums.items()}


def check(view, expected):
    found = view.data["patterns"]
    assert list(found) == list(expected)
    for name, weights in expected.items():
        if weights is None:
            assert found[name]["weights"] is None
        else:
            np.testing.assert_allclose(found[name]["weights"], weights, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("batch_tokens", [1, 2048])
def test_patterns_equal_a_slow_computation(model, batch_tokens):
    view = cloze.explain.heads(model, CORPUS, batch_tokens=batch_tokens)
    encoded = [model.tokenizer.encode(text) for text in CORPUS if text]
    check(view, compute_slowly(model, encoded))
    assert view.data["num_texts"] == len(CORPUS)
    assert view.data["num_tokens"] == sum(map(len, encoded))
    assert view.data["patterns"]["other text"]["weights"] is None


def test_pairs(model):
    table = pandas.DataFrame(PAIRS, columns=["sentence1", "sentence2"])
    view = cloze.explain.heads(model, table, text_column="sentence1", pair_column="sentence2")
    check(view, compute_slowly(model, [model.tokenizer.encode(*pair) for pair in PAIRS]))
    assert view.data["patterns"]["other text"]["weights"] is not None


def test_a_causal_model_attends_to_earlier_tokens_only():
    model = tiny_model("lm", family="gpt2", positions=32)
    view = cloze.explain.heads(model, CORPUS)
    found = view.data["patterns"]
    assert found["next token"]["weights"] is None
    encoded = [encode_input(model, text).words for text in CORPUS if text]
    check(view, compute_slowly(model, encoded, causal=True))


def test_equal_weights_have_the_uniform_value():
    model = tiny_model("mlm")
    for block in model.module.blocks:
        block.attention.qkv.weight.data.zero_()
        block.attention.qkv.bias.data.zero_()
    found = cloze.explain.heads(model, CORPUS).data["patterns"]
    for name, pattern in found.items():
        if pattern["weights"] is not None:
            np.testing.assert_allclose(pattern["weights"], pattern["uniform"], atol=1e-5)
        assert name != "broad" or pattern["uniform"] == 1.0


def test_heads_are_ranked(model):
    view = cloze.explain.heads(model, CORPUS, patterns=["self", "same token"])
    assert list(view.data["patterns"]) == ["self", "same token", "broad"]
    for name, ranked in view.data["ranked"].items():
        weights = np.array(view.data["patterns"][name]["weights"])
        assert sorted((layer, head) for layer, head, _ in ranked) == [
            (1, 1),
            (1, 2),
            (2, 1),
            (2, 2),
        ]
        assert [weights[layer - 1, head - 1] for layer, head, _ in ranked] == sorted(
            weights.ravel(), reverse=True
        )
    assert np.array(view.data["strongest"]).shape == (2, 2, 2)
    text = view.html()
    assert "Same token" in text
    assert "Previous token" not in text


def test_what_a_head_does_is_its_strongest_pattern():
    """Half of the tokens have another token like them: a weight of 80 % is a share of 40 %."""
    found = HeadPatterns(
        names=["self", "same token", "broad"],
        weights=np.array([[[0.9, 0.2, 0.2]], [[0.95, 0.8, 0.1]], [[0.1, 0.5, 0.9]]]),
        uniform=[0.1, 0.2, 1.0],
        num_queries=[100, 50, 100],
        num_tokens=120,
    )
    expected = [("self", 0.9), ("same token", 0.4), ("broad", 0.9)]
    (row,) = found.classify()
    assert row == [(name, pytest.approx(share)) for name, share in expected]


def test_texts_come_from_a_file_a_list_or_rows(model, tmp_path):
    expected = cloze.explain.heads(model, CORPUS[:3]).data
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(CORPUS[:3]))
    rows = [{"text": text, "label": "a"} for text in CORPUS[:3]]
    generated = (text for text in CORPUS[:3])
    for source in (path, str(path), rows, pandas.DataFrame(rows), generated):
        assert cloze.explain.heads(model, source).data == expected
    assert cloze.explain.heads(model, CORPUS, max_texts=3).data == expected


def test_long_texts_are_read_in_parts(model):
    found = cloze.explain.heads(model, ["a b c " * 30]).data
    assert found["num_tokens"] > 90
    assert found["num_texts"] == 1


def test_a_translator_shows_its_encoder():
    found = cloze.explain.heads(translator("transformer"), TEXTS[:4]).data
    assert np.array(found["patterns"]["self"]["weights"]).shape == (2, 2)
    assert found["patterns"]["separator"]["weights"] is not None


def test_errors(model):
    with raises(ConfigError, "pattern", "previous", fix="previous token"):
        cloze.explain.heads(model, CORPUS, patterns=["previous"])
    with raises(InputError, "no tokens"):
        cloze.explain.heads(model, ["", " "])
    with raises(InputError, "text 2", "int"):
        cloze.explain.heads(model, ["a", 2])
    with raises(InputError, "int", fix="list"):
        cloze.explain.heads(model, 7)


def test_punctuation():
    marks = [".", "##,", "Ġ!", "▁?", "…", "$", "。"]
    assert all(map(is_punctuation, marks))
    assert not any(map(is_punctuation, ["a.", "[SEP]", "Ġ", "", "1", "##s"]))


def test_texts_without_a_token_that_could_attend_to_another():
    view = cloze.explain.heads(tiny_model("mlm"), ["K"])  # unknown, and nothing beside it
    assert "<svg" in view.html()
    assert view.data["num_texts"] == 1
