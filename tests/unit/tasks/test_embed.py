"""`embed`: layers, pooling, lengths, windows, order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.checkpoint.model import Model
from cloze.data.batch import batch_by_tokens
from cloze.data.embedding_records import EmbeddingRecord
from cloze.data.result_files import open_result_file
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.interop.sentence_transformers import Pooling
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.word2vec import WordVectors
from cloze.tasks.features import LAYER_CHOICES, select_layers
from helpers import PIECES, raises, scramble, tiny_tokenizer

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_layers=5,
    num_heads=2,
    intermediate_size=16,
    max_positions=10,
)
TEXTS = ["the cat sat.", "a", "", "b c d e f", "the cats, the cat", "猫"]
LONG = "a b c d e f g h i j a b c d e f g h i j"


def model_with(pooling=None):
    module = scramble(build(CONFIG, rng=torch.Generator())).eval()
    return Model(module=module, config=CONFIG, tokenizer=tiny_tokenizer(), pooling=pooling)


@pytest.fixture(scope="module")
def model():
    return model_with()


def layers_of(model, text):
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    with torch.no_grad():
        return [layer[0].numpy() for layer in model.module.hidden_states(ids)]


EXPECTED = {
    "embeddings": lambda x: x[0],
    "second-to-last": lambda x: x[4],
    "last": lambda x: x[5],
    "sum-last-4": lambda x: x[2] + x[3] + x[4] + x[5],
    "concat-last-4": lambda x: np.concatenate([x[2], x[3], x[4], x[5]], -1),
    "sum-all": lambda x: x[1] + x[2] + x[3] + x[4] + x[5],
    "0,-1": lambda x: np.concatenate([x[0], x[5]], -1),
    "3": lambda x: x[3],
}


@pytest.mark.parametrize("choice", EXPECTED)
def test_layer_choices(model, choice):
    found = cloze.embed(model, TEXTS, layers=choice, pooling="none")
    for text, tokens in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(
            tokens.vectors, EXPECTED[choice](layers_of(model, text)), atol=1e-5
        )
        assert tokens.encoding == model.tokenizer.encode(text)


def test_every_named_choice_is_tested():
    assert set(LAYER_CHOICES) <= set(EXPECTED)


def test_numbers_are_a_list_too(model):
    by_name = cloze.embed(model, TEXTS, layers="0,-1")
    assert np.array_equal(cloze.embed(model, TEXTS, layers=[0, -1]), by_name)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("cls", lambda x: x[0]),
        ("mean", lambda x: x.mean(0)),
        ("max", lambda x: x.max(0)),
        (None, lambda x: x.mean(0)),
    ],
)
def test_poolings(model, pooling, expected):
    vectors = cloze.embed(model, TEXTS, pooling=pooling)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 8)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(layers_of(model, text)[-1]), atol=1e-5)


def test_normalising(model):
    vectors = cloze.embed(model, TEXTS, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    tokens = cloze.embed(model, TEXTS, pooling="none", normalize=True)
    np.testing.assert_allclose(np.linalg.norm(tokens[0].vectors, axis=1), 1, atol=1e-6)


def test_the_folder_s_own_ways_are_the_default():
    own = model_with(Pooling(modes=("cls", "max"), normalize=True, max_seq_length=5))
    with pytest.warns(TruncationWarning, match="maximum of 5 tokens"):
        vectors = cloze.embed(own, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    options = {"normalize": False, "truncation": "head"}
    asked = [cloze.embed(own, TEXTS, pooling=mode, **options) for mode in ("cls", "max")]
    both = cloze.embed(own, TEXTS, **options)
    np.testing.assert_allclose(both, np.concatenate(asked, axis=1), atol=1e-6)
    # its limit of 5 leaves "b c d" of "b c d e f"
    np.testing.assert_allclose(both[3], cloze.embed(own, "b c d", normalize=False), atol=1e-6)


@given(
    texts=st.lists(st.text("abc ", max_size=12), max_size=12),
    tokens=st.integers(1, 40),
)
def test_order_and_batch_size_change_nothing(texts, tokens):
    model = model_with()
    texts = [text for text in texts if len(model.tokenizer.encode(text)) <= 10]
    whole = cloze.embed(model, texts, batch_tokens=tokens)
    assert whole.shape == (len(texts), 8)
    for text, vector in zip(texts, whole, strict=True):
        np.testing.assert_allclose(vector, cloze.embed(model, text), atol=1e-5)


@given(st.lists(st.integers(1, 50)), st.integers(1, 100))
def test_batches_hold_everything_once_and_no_more_than_asked(lengths, most):
    batches = list(batch_by_tokens(lengths, most))
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[n] for n in batch) <= most


def test_progress_reaches_the_end(model):
    seen = []
    cloze.embed(model, TEXTS, batch_tokens=8, progress=lambda *place: seen.append(place))
    assert seen[-1] == ("sequences", len(TEXTS), len(TEXTS))
    assert seen == sorted(seen)


# Texts that are too long


def test_too_long_a_text_is_an_error_on_request(model):
    with raises(InputError, "text 2", "22", "10", fix=("head", "tail", "head+tail")):
        cloze.embed(model, ["a", LONG], truncation="error")


def test_long_text_is_truncated_with_one_warning(model):
    with pytest.warns(TruncationWarning) as told:
        vectors = cloze.embed(model, ["a", LONG])
    assert np.array_equal(vectors, cloze.embed(model, ["a", LONG], truncation="head"))
    (warning,) = told
    assert "1 of 2 texts" in str(warning.message)
    assert "23 characters" in str(warning.message)
    assert warning.filename == __file__
    with pytest.warns(TruncationWarning) as told:
        model.embed(LONG)
    assert [one.filename for one in told] == [__file__]


def test_the_others_are_finished_where_errors_are_taken(model):
    failures = []
    vectors = cloze.embed(
        model,
        ["a", LONG, "b"],
        truncation="error",
        on_error=lambda *what: failures.append(what),
    )
    assert [number for number, _ in failures] == [1]
    assert np.isnan(vectors[1]).all()
    np.testing.assert_allclose(vectors[[0, 2]], cloze.embed(model, ["a", "b"]), atol=1e-6)
    tokens = cloze.embed(
        model, [LONG, "b"], pooling="none", truncation="error", on_error=lambda *_: None
    )
    assert tokens[0] is None
    assert len(tokens[1].encoding) == 3


@pytest.mark.parametrize(
    ("policy", "left"),
    [("head", "a b c d e f g h"), ("tail", "c d e f g h i j"), ("head+tail", "a b c d g h i j")],
)
def test_policies(model, policy, left):
    # head+tail: 20 pieces are beyond 800/510 of the 8 that fit, so half and half
    np.testing.assert_allclose(
        cloze.embed(model, LONG, truncation=policy), cloze.embed(model, left), atol=1e-6
    )
    tokens = cloze.embed(model, LONG, truncation=policy, pooling="none")
    assert tokens.encoding.num_truncated == (12, 0)
    assert [LONG[a:b] for a, b in tokens.encoding.offsets[1:-1]] == left.split()


def test_what_was_cut_is_told_where_someone_asks(model):
    texts = ["a b", LONG, "c", LONG + " a"]
    cuts: dict[int, int] = {}
    for pooling in ("mean", "none"):
        cuts.clear()
        cloze.embed(model, texts, pooling=pooling, truncation="head", on_truncated=cuts.__setitem__)
        assert cuts == {1: 23, 3: 25}
    cuts.clear()
    cloze.embed(model, texts, truncation="window", on_truncated=cuts.__setitem__)
    assert cuts == {}
    own = model_with(Pooling(modes=("mean",), max_seq_length=6))
    cloze.embed(own, texts, on_truncated=cuts.__setitem__)
    assert cuts == {1: 31, 3: 33}


def test_numbers_that_are_none_are_not_written(tmp_path):
    broken = EmbeddingRecord(text="the cat", vectors=np.array([1.0, np.nan], np.float32))
    with (
        raises(InputError, "the cat"),
        open_result_file(tmp_path / "v.jsonl", "embed") as write,
    ):
        write([broken])
    assert list(tmp_path.iterdir()) == []


def test_windows_take_each_token_where_it_has_the_most_context(model):
    tokens = cloze.embed(model, LONG, truncation="window", overlap=4, pooling="none")
    assert tokens.encoding == model.tokenizer.encode(LONG)
    pieces = LONG.split()
    windows = [pieces[start : start + 8] for start in (0, 4, 8, 12)]
    vectors = [layers_of(model, " ".join(window))[-1] for window in windows]
    # piece 5 stands at 5 of window 0 (2 to its right) and at 1 of window 1 (1 to its left)
    np.testing.assert_allclose(tokens.vectors[1 + 5], vectors[0][1 + 5], atol=1e-5)
    np.testing.assert_allclose(tokens.vectors[1 + 7], vectors[1][1 + 3], atol=1e-5)
    np.testing.assert_allclose(tokens.vectors[1 + 19], vectors[3][1 + 7], atol=1e-5)
    np.testing.assert_allclose(tokens.vectors[0], np.mean([v[0] for v in vectors], 0), atol=1e-5)
    mean = cloze.embed(model, LONG, truncation="window", overlap=4)
    np.testing.assert_allclose(mean, tokens.vectors.mean(0), atol=1e-5)


def test_one_text_has_one_vector(model):
    assert cloze.embed(model, "a b").ndim == 1
    assert cloze.embed(model, ["a b"]).ndim == 2
    np.testing.assert_allclose(cloze.embed(model, "a b"), cloze.embed(model, ["a b"])[0], atol=1e-6)
    assert cloze.embed(model, "a b", pooling="none").vectors.shape[0] == 4


def test_windows_and_plain_texts_in_one_call(model):
    texts = ["a b", LONG, "c", LONG + " a"]
    together = cloze.embed(model, texts, truncation="window", pooling="max")
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(
            vector, cloze.embed(model, text, truncation="window", pooling="max"), atol=1e-5
        )


# What a user can get wrong


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": "lats"}, ConfigError, ("lats", "last")),
        ({"layers": "7"}, InputError, ("layer", "7", "5", "0")),
        ({"layers": [-7]}, InputError, ("layer", "-7")),
        ({"layers": "1,,2"}, ConfigError, ("layer", "1,,2")),
        ({"layers": []}, ConfigError, "layer"),
        ({"pooling": "average"}, ConfigError, ("pooling", "average")),
        ({"truncation": "middle"}, ConfigError, ("middle", "head+tail")),
        ({"batch_tokens": 0}, ConfigError, ("batch_tokens", "0")),
    ],
)
def test_unknown_choices(model, options, error, message):
    with raises(error, message):
        cloze.embed(model, "a", **options)


def test_too_few_layers():
    with raises(InputError, "concat-last-4", "2"):
        select_layers("concat-last-4", 2)
    assert select_layers("second-to-last", 1).numbers == (0,)


def test_a_text_that_is_not_text(model):
    with raises(InputError, "text 2", "int"):
        cloze.embed(model, ["a", 3])


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("python", ["He got bit by Python.", "Python is my favourite programming language."]),
        ("stick", ["He hit the dog with a stick.", "You should stick to the plan."]),
    ],
)
def test_a_word_has_one_static_vector_and_one_in_each_context(word, texts):
    """Word vectors and BERT's embedding table know one vector of a word; its layers know more."""
    bert = cloze.load("cloze-en")

    def cosine(layers):
        found = cloze.embed(bert, texts, pooling="none", layers=layers, normalize=True)
        places = [
            [text[a:b].lower() for a, b in one.encoding.offsets].index(word)
            for text, one in zip(texts, found, strict=True)
        ]
        first, second = (one.vectors[n] for one, n in zip(found, places, strict=True))
        return float(first @ second)

    assert cosine("embeddings") == pytest.approx(1, abs=1e-5)
    assert cosine("last") < 0.9
    words = WordVectors(vectors=np.eye(2, 3, dtype=np.float32), words=("python", "stick"))
    one, other = (words[word] for _ in texts)  # there is nothing else to look up by
    assert (one == other).all()


class LayersOnly(torch.nn.Module):
    """A source of features that is no encoder: two layers, of different sizes."""

    num_layers = 2
    num_last = 0  # how often the last layer was computed

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(len(PIECES), 3)

    def hidden_states(self, input_ids, *_):
        x = self.table(input_ids)
        yield x
        yield 2 * x
        self.num_last += 1
        yield torch.cat([x, x], -1)


def test_a_source_needs_only_its_layers():
    module = LayersOnly()
    model = Model(module=module, config=CONFIG, tokenizer=tiny_tokenizer())
    rows = module.table.weight.detach()[model.tokenizer.encode("a b").ids].numpy()
    same = {"embeddings": rows, "second-to-last": 2 * rows, "last": np.tile(rows, 2)}
    for name, vectors in (same | {"1,2": np.concatenate([2 * rows, rows, rows], -1)}).items():
        found = cloze.embed(model, ["a b", "c"], layers=name)
        np.testing.assert_allclose(found[0], vectors.mean(0), rtol=1e-6)
    assert cloze.embed(model, [], layers="1,2").shape == (0, 9)
    with raises(InputError, "layer 1 has 3", "layer 2 has 6", fix="concatenate"):
        cloze.embed(model, "a b", layers="sum-all")


def test_layers_above_the_selected_ones_are_not_computed():
    model = Model(module=LayersOnly(), config=CONFIG, tokenizer=tiny_tokenizer())
    cloze.embed(model, ["a b", "c"], layers="0,1")
    assert model.module.num_last == 0
    cloze.embed(model, ["a b", "c"], layers="last")
    assert model.module.num_last == 1
