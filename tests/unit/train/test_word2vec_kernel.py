"""One step of each objective against plain numpy, and the gradients against torch's."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from cloze.train.word2vec.kernel import (
    Corpus,
    LookupTables,
    Tables,
    WindowSettings,
    random_below,
    random_bits32,
    train_sentences,
)
from cloze.train.word2vec.lookup_tables import build_huffman_paths

NOT, THOU, AARON, TACO = range(4)
WIDTH, RATE = 5, np.float32(0.1)
ALWAYS = np.uint32((1 << 32) - 1)
NONE = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def tables(words=4, rows=None, outputs=None, seed=0) -> Tables:
    rng = np.random.default_rng(seed)
    return Tables(
        rng.normal(size=(rows or words, WIDTH)).astype(np.float32),
        rng.normal(size=(outputs or words, WIDTH)).astype(np.float32),
        np.zeros(words, np.float32),
    )


def only(noise: int, words=4) -> tuple[np.ndarray, np.ndarray]:
    """An alias table that always draws one word."""
    return np.zeros(words, np.uint32), np.full(words, noise, np.int32)


def rules(words=4, noise=None, paths=NONE, grams=NONE[:2]) -> LookupTables:
    bars = (np.zeros(0, np.uint32), NONE[1]) if noise is None else only(noise, words)
    return LookupTables(np.full(words, ALWAYS), *bars, *paths, *grams)


def step(sentence, made: Tables, asked: LookupTables, shape: WindowSettings, seed=1) -> Tables:
    """The tables after one sentence; those given stay as they are."""
    after = Tables(*(table.copy() for table in made))
    corpus = Corpus(np.array(sentence, np.int32), np.array([len(sentence)], np.int64))
    learned = train_sentences(corpus, after, asked, shape, RATE, np.uint64(seed))
    assert learned == len(sentence)
    return after


def draws_both(seed: int) -> bool:
    """Whether the negatives of both windows of a sentence of two words are aaron, then taco."""
    state = np.array([seed], np.uint64)
    for _ in range(2):
        random_bits32(state)  # subsampling
    drawn = []
    for _ in range(2):  # windows
        random_below(state, 1)
        for _ in range(2):
            drawn.append((AARON, AARON, TACO, TACO)[random_below(state, 4)])
            random_bits32(state)
    return drawn == [AARON, TACO] * 2


def test_worked_example_of_negative_sampling():
    """The example of the notes: not, its neighbour thou, the negatives aaron and taco.

    error = target − σ(score), with targets 1, 0, 0, moves both matrices. The sentence "thou not" is
    two windows; the second learns from what the first left.
    """
    before = tables()
    shape = WindowSettings(window=1, negatives=2, max_targets=3, cbow=False, nce=False)
    noise = np.zeros(4, np.uint32), np.array([AARON, AARON, TACO, TACO], np.int32)
    asked = LookupTables(np.full(4, ALWAYS), *noise, *NONE, *NONE[:2])
    seed = next(n for n in range(1, 1000) if draws_both(n))
    after = step([THOU, NOT], before, asked, shape, seed)

    embedding, context = before.inputs.astype(float), before.outputs.astype(float)
    for word, neighbour in ((THOU, NOT), (NOT, THOU)):
        # in skip-gram as word2vec.c has it the neighbour is the input, and tells the word
        outputs = [word, AARON, TACO]
        errors = np.array([1, 0, 0]) - sigmoid(context[outputs] @ embedding[neighbour])
        assert errors[0] > 0 > errors[1:].max()
        old = embedding[neighbour].copy()
        embedding[neighbour] += RATE * errors @ context[outputs]
        for output, error in zip(outputs, errors, strict=True):
            context[output] += RATE * error * old
    np.testing.assert_allclose(after.inputs, embedding, atol=1e-6)
    np.testing.assert_allclose(after.outputs, context, atol=1e-6)
    assert (after.inputs[[AARON, TACO]] == before.inputs[[AARON, TACO]]).all()

    def change(word):
        scores = [made.inputs[NOT] @ made.outputs[word] for made in (before, after)]
        return scores[1] - scores[0]

    # thou came nearer, aaron and taco went away
    assert change(THOU) > 0 > max(change(AARON), change(TACO))


def test_windows_shrink_at_random():
    """The radius is uniform in 1 … window: neighbours at distance k are used (w − k + 1) / w often.

    Every word has an output of its own, and only the last word's is not zero: so a vector changes
    only if its word is in the window of the last one.
    """
    words, window, runs = 6, 3, 1500
    own = np.arange(words + 1), np.arange(words, dtype=np.int32), np.ones(words, np.float32)
    asked = rules(words, paths=own)
    shape = WindowSettings(window=window, negatives=0, max_targets=1, cbow=False, nce=False)
    before = tables(words)
    before.outputs[: words - 1] = 0
    used = np.zeros(words)
    for seed in range(1, runs + 1):
        after = step(range(words), before, asked, shape, seed * 7919)
        used += (after.inputs != before.inputs).any(1)
    # from the last word's neighbour backwards
    assert (used[::-1][1:] / runs).tolist() == pytest.approx([1, 2 / 3, 1 / 3, 0, 0], abs=0.04)


def loss(inputs, outputs, labels, shifts=0.0):
    """Σ −log σ(±(score − shift)): what every objective lessens."""
    scores = inputs @ outputs.T - shifts
    signs = 2 * labels - 1
    return -torch.nn.functional.logsigmoid(signs * scores).sum()


def moved(table: np.ndarray, rows) -> torch.Tensor:
    return torch.tensor(table[rows].astype(np.float64), requires_grad=True)


@pytest.mark.parametrize("nce", [False, True])
def test_a_step_goes_down_the_gradient(nce):
    # of the first window alone: the second moves neither the input 1 nor the output 0
    before = tables(3)
    before.shifts[:] = [-1, 0, 1] if nce else 0
    shape = WindowSettings(window=1, negatives=1, max_targets=2, cbow=False, nce=nce)
    after = step([0, 1], before, rules(3, noise=2), shape)
    first, outputs = moved(before.inputs, [1]), moved(before.outputs, [0, 2])
    shifts = moved(before.shifts, [0, 2])
    loss(first, outputs, torch.tensor([1.0, 0.0]), shifts).backward()
    np.testing.assert_allclose(
        after.inputs[1], before.inputs[1] - RATE * first.grad[0].numpy(), atol=1e-6
    )
    np.testing.assert_allclose(
        after.outputs[0], before.outputs[0] - RATE * outputs.grad[0].numpy(), atol=1e-6
    )
    expected = before.shifts[0] - RATE * shifts.grad[0].item() if nce else 0
    assert after.shifts[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("neighbours", [1, 2, 3, 4, 5])
def test_the_words_of_a_window_share_their_outputs(neighbours):
    # word 0 stands in the middle of words that are told apart by their rows alone
    words = neighbours + 2
    sentence = [*range(1, neighbours // 2 + 1), 0, *range(neighbours // 2 + 1, neighbours + 1)]
    before = tables(words)
    noise = words - 1
    shape = WindowSettings(window=1, negatives=1, max_targets=2, cbow=False, nce=False)
    after = step(sentence, before, rules(words, noise), shape)
    embedding, context = before.inputs.astype(float), before.outputs.astype(float)
    for at, word in enumerate(sentence):
        beside = [sentence[n] for n in (at - 1, at + 1) if 0 <= n < len(sentence)]
        errors = [[1, 0]] - sigmoid(embedding[beside] @ context[[word, noise]].T)
        steps = RATE * errors @ context[[word, noise]]
        context[[word, noise]] += RATE * errors.T @ embedding[beside]
        embedding[beside] += steps
    np.testing.assert_allclose(after.inputs, embedding, atol=1e-5)
    np.testing.assert_allclose(after.outputs, context, atol=1e-5)


@pytest.mark.parametrize("cbow", [False, True])
def test_hierarchical_softmax_walks_the_tree(cbow):
    counts = np.array([9, 5, 3, 2])
    paths = build_huffman_paths(counts)
    before = tables()
    longest = int(np.diff(paths[0]).max())
    shape = WindowSettings(window=1, negatives=0, max_targets=longest, cbow=cbow, nce=False)
    after = step([NOT, THOU], before, rules(paths=paths), shape)
    embedding, context = before.inputs.astype(float), before.outputs.astype(float)
    for word, neighbour in ((NOT, THOU), (THOU, NOT)):
        span = slice(paths[0][word], paths[0][word + 1])
        nodes, labels = paths[1][span], paths[2][span]
        errors = labels - sigmoid(context[nodes] @ embedding[neighbour])
        move = RATE * errors @ context[nodes]
        context[nodes] += RATE * np.outer(errors, embedding[neighbour])
        embedding[neighbour] += move
    np.testing.assert_allclose(after.inputs, embedding, atol=1e-6)
    np.testing.assert_allclose(after.outputs, context, atol=1e-6)


@pytest.mark.parametrize("nce", [False, True])
def test_cbow_tells_each_word_from_the_mean_of_its_neighbours(nce):
    before = tables(6)
    before.shifts[:] = np.linspace(-1, 1, 6) if nce else 0
    sentence, noise = [0, 1, 2], 5
    shape = WindowSettings(window=1, negatives=2, max_targets=3, cbow=True, nce=nce)
    after = step(sentence, before, rules(6, noise), shape)
    embedding, context = before.inputs.astype(float), before.outputs.astype(float)
    shifts = before.shifts.astype(float)
    for word, beside in ((0, [1]), (1, [0, 2]), (2, [1])):
        mean = embedding[beside].mean(0)
        rows = [word, noise, noise]
        errors = [1, 0, 0] - sigmoid(context[rows] @ mean - shifts[rows])
        embedding[beside] += RATE * errors @ context[rows]  # each takes the error whole
        np.add.at(context, rows, RATE * np.outer(errors, mean))
        if nce:
            np.add.at(shifts, rows, -RATE * errors)
    np.testing.assert_allclose(after.inputs, embedding, atol=1e-5)
    np.testing.assert_allclose(after.outputs, context, atol=1e-5)
    np.testing.assert_allclose(after.shifts, shifts, atol=1e-5)


@pytest.mark.parametrize("cbow", [False, True])
def test_a_negative_that_is_the_word_itself_is_let_go(cbow):
    before = tables()
    shape = WindowSettings(window=1, negatives=3, max_targets=4, cbow=cbow, nce=False)
    after = step([NOT, NOT], before, rules(noise=NOT), shape)
    embedding, context = before.inputs[NOT].astype(float), before.outputs[NOT].astype(float)
    for _ in range(2):
        error = RATE * (1 - sigmoid(embedding @ context))
        embedding, context = embedding + error * context, context + error * embedding
    np.testing.assert_allclose(after.inputs[NOT], embedding, atol=1e-6)
    np.testing.assert_allclose(after.outputs[NOT], context, atol=1e-6)


@pytest.mark.parametrize("cbow", [False, True])
def test_n_grams_share_in_what_a_word_learns(cbow):
    words, rows = 4, 7
    grams = np.array([0, 2, 3, 3, 3], np.int64), np.array([4, 5, 6], np.int32)
    before = tables(words, rows)
    shape = WindowSettings(window=1, negatives=1, max_targets=2, cbow=cbow, nce=False)
    after = step([NOT, THOU], before, rules(noise=TACO, grams=grams), shape)
    made_of = {NOT: [NOT, 4, 5], THOU: [THOU, 6]}
    embedding, context = before.inputs.astype(float), before.outputs.astype(float)
    for word, neighbour in ((NOT, THOU), (THOU, NOT)):
        mean = embedding[made_of[neighbour]].mean(0)
        errors = [1, 0] - sigmoid(context[[word, TACO]] @ mean)
        embedding[made_of[neighbour]] += RATE * errors @ context[[word, TACO]]
        context[[word, TACO]] += RATE * np.outer(errors, mean)
    np.testing.assert_allclose(after.inputs, embedding, atol=1e-5)
    np.testing.assert_allclose(after.outputs, context, atol=1e-5)


def test_windows_stay_in_their_sentence():
    before = tables()
    corpus = Corpus(np.array([NOT, THOU], np.int32), np.array([1, 2], np.int64))
    after = Tables(*(table.copy() for table in before))
    shape = WindowSettings(window=5, negatives=1, max_targets=2, cbow=False, nce=False)
    train_sentences(corpus, after, rules(noise=TACO), shape, RATE, np.uint64(1))
    assert (after.inputs == before.inputs).all()


def test_words_that_never_stay_are_not_learned_from():
    before = tables()
    after = Tables(*(table.copy() for table in before))
    asked = rules(noise=TACO)._replace(keep=np.array([0, ALWAYS, ALWAYS, ALWAYS], np.uint32))
    shape = WindowSettings(window=2, negatives=1, max_targets=2, cbow=False, nce=False)
    corpus = Corpus(np.array([NOT, THOU, NOT, AARON], np.int32), np.array([4], np.int64))
    assert train_sentences(corpus, after, asked, shape, RATE, np.uint64(1)) == 2
    assert (after.inputs[NOT] == before.inputs[NOT]).all()
    assert (after.inputs[THOU] != before.inputs[THOU]).any()


def test_extreme_scores_stay_numbers():
    before = tables()
    before.inputs[:] *= 1e4
    shape = WindowSettings(window=1, negatives=1, max_targets=2, cbow=False, nce=False)
    after = step([NOT, THOU], before, rules(noise=TACO), shape)
    assert all(np.isfinite(table).all() for table in after)
