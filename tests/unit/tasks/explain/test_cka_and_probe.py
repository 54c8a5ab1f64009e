"""explain.cka and explain.probe on tiny models, and the vectors of words that they compare."""

import numpy as np
import pytest
import torch

import cloze
from cloze.data.labelled.senses import read_sense_examples
from cloze.errors import InputError
from cloze.interpret.similarity import compute_cka
from cloze.tasks.explain.corpus import iterate_word_vectors
from cloze.text.words import find_words
from helpers import raises, tiny_model, tiny_tokenizer
from languages import neural_model

TEXTS = ["the cats sat .", "a b c , the cat", "cats , cats . the d e f"] * 4
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijst.,",
    *(f"##{c}" for c in "abcdefhist"),
]


def test_the_vector_of_a_word_is_the_mean_of_its_tokens_in_each_layer():
    model = tiny_model("mlm")
    text = "the cats , zz sat"
    items = [(text, find_words(text)), ("a", [(0, 1)])]
    ((known, vectors),) = iterate_word_vectors(model, items)
    assert known == [[True] * 5, [True]]
    for layer, found in enumerate(vectors):
        tokens = cloze.embed(model, text, pooling="none", layers=layer)
        assert tokens.encoding.tokens[2:4] == ["cat", "##s"]
        np.testing.assert_allclose(found[1], tokens.vectors[2:4].mean(0), atol=1e-5)
        np.testing.assert_allclose(
            found[5], cloze.embed(model, "a", pooling="none", layers=layer).vectors[1], atol=1e-5
        )


def test_words_beyond_the_maximum_length_have_no_vector():
    model = tiny_model("mlm", positions=6)
    ((known, vectors),) = iterate_word_vectors(model, [("a b c d e f", find_words("a b c d e f"))])
    assert known == [[True] * 4 + [False] * 2]
    assert len(vectors[0]) == 4


def test_exact_cka_equals_that_of_the_embeddings():
    model = tiny_model("mlm")
    view = cloze.explain.cka(model, TEXTS, estimator="exact")
    layers = []
    for number in range(3):
        found = cloze.embed(model, TEXTS, pooling="none", layers=number)
        layers.append(torch.tensor(np.concatenate([one.vectors[1:-1] for one in found])))
    for i in range(3):
        for j in range(3):
            expected = compute_cka(layers[i], layers[j])
            assert view.data["cka"][i][j] == pytest.approx(expected, abs=1e-4)
    assert view.data["tokens"] == len(layers[0])


def test_cka_of_two_models_with_different_tokenizers_compares_words(tmp_path):
    first = tiny_model("mlm")
    second = tiny_model(
        "mlm", num_layers=1, tokenizer=tiny_tokenizer(PIECES), vocab_size=len(PIECES)
    )
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    view = cloze.explain.cka(first, tmp_path / "texts.txt", other_model=second, batch_size=16)
    assert np.shape(view.data["cka"]) == (3, 2)
    assert view.data["words"] == sum(len(find_words(text)) for text in TEXTS)
    same = cloze.explain.cka(first, TEXTS, other_model=first, batch_size=16)
    np.testing.assert_allclose(np.diagonal(same.data["cka"]), 1, atol=1e-6)


def test_cka_works_for_recurrent_models_and_needs_enough_text():
    view = cloze.explain.cka(neural_model("lstm"), TEXTS, batch_size=8)
    assert np.shape(view.data["cka"]) == (3, 3)
    with raises(InputError, "words", fix="more text"):
        cloze.explain.cka(tiny_model("mlm"), ["a"])


# --- probes


def write_tagged(path, sentences):
    path.write_text("\n".join("".join(f"{w}\t{t}\n" for w, t in one) for one in sentences))
    return path


def test_a_probe_finds_the_tags_of_words_in_context(tmp_path):
    """Tags that follow from the word itself are found in the embeddings."""
    rng = np.random.default_rng(0)
    words = [*"abcdefgh", "cat", "sat"]
    tags = {word: "LETTER" if len(word) == 1 else "WORD" for word in words}
    sentences = [[(word, tags[word]) for word in rng.choice(words, 6)] for _ in range(40)]
    train = write_tagged(tmp_path / "train.conll", sentences[:30])
    test = write_tagged(tmp_path / "test.conll", sentences[30:])
    view = cloze.explain.probe(tiny_model("mlm"), train, test=test)
    assert view.data["labels"] == ["LETTER", "WORD"]
    assert (view.data["train_words"], view.data["test_words"]) == (180, 60)
    first = view.data["layers"][0]["accuracy"]
    assert first["low"] <= first["value"] == 1.0 <= first["high"]
    assert 0.5 < view.data["majority_baseline"] < 1
    assert [row["layer"] for row in view.data["layers"]] == [0, 1, 2]
    for row in view.data["layers"]:
        difference = row["accuracy"]["value"] - row["control_accuracy"]["value"]
        assert row["selectivity"]["value"] == pytest.approx(difference)
    fewer = cloze.explain.probe(tiny_model("mlm"), train, max_train=50, max_test=20)
    assert (fewer.data["train_words"], fewer.data["test_words"]) == (50, 20)


def test_senses_are_read_with_their_names_and_words(tmp_path):
    folder = tmp_path / "bank"
    folder.mkdir()
    (folder / "train.data.txt").write_text("1\tthe cat sat\n0\tcat , cat\n")
    (folder / "train.gold.txt").write_text("0\n1\n")
    (folder / "classes_map.txt").write_text('{"0": "animal", "1": "program"}')
    first, second = read_sense_examples(folder / "train.data.txt")
    assert (first.text[slice(*first.word)], first.label, first.lemma) == ("cat", "animal", "cat")
    assert (second.word, second.label) == ((0, 3), "program")
    pairs = tmp_path / "wic.data.txt"
    pairs.write_text("cat\tN\t1-0\tthe cat sat\tcat a b\n")
    (tmp_path / "wic.gold.txt").write_text("T\n")
    (pair,) = read_sense_examples(pairs)
    assert (pair.word, pair.pair_word, pair.label) == ((4, 7), (0, 3), "T")


@pytest.mark.parametrize(
    ("row", "gold", "named"),
    [
        ("9\tthe cat\n", "0\n", "word 9"),
        ("the cat\n", "0\n", "index"),
        ("0\tcat\n", "0\n1\n", "1 lines"),
        ("0\tcat\n", None, "labels"),
    ],
)
def test_senses_that_cannot_be_read_are_errors(tmp_path, row, gold, named):
    (tmp_path / "x.data.txt").write_text(row)
    if gold is not None:
        (tmp_path / "x.gold.txt").write_text(gold)
    with raises(InputError, "x.data.txt", named):
        list(read_sense_examples(tmp_path / "x.data.txt"))


def test_probes_of_senses_and_of_pairs(tmp_path):
    rng = np.random.default_rng(1)
    rows, gold, pairs, same = [], [], [], []
    for _ in range(60):
        before = rng.choice(list("abcd"))
        rows.append(f"1\t{before} cat .")
        gold.append(str(int(before in "ab")))
        other = rng.choice(list("abcd"))
        pairs.append(f"cat\tN\t1-1\t{before} cat\t{other} cat")
        same.append("T" if before == other else "F")
    for name, lines, labels in (("one", rows, gold), ("two", pairs, same)):
        (tmp_path / f"{name}.data.txt").write_text("\n".join(lines))
        (tmp_path / f"{name}.gold.txt").write_text("\n".join(labels))
    model = tiny_model("mlm")
    view = cloze.explain.probe(model, tmp_path / "one.data.txt")
    accuracies = [row["accuracy"]["value"] for row in view.data["layers"]]
    assert accuracies[2] > accuracies[0]  # the word itself is always the same
    assert (view.data["train_words"], view.data["test_words"]) == (48, 12)
    view = cloze.explain.probe(model, tmp_path / "two.data.txt")
    assert view.data["labels"] == ["F", "T"]
