"""Search over a toy model that can be searched through completely."""

import itertools

import pytest
import torch

from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig, average, wu
from cloze.errors import ConfigError
from helpers import raises

EOS, BOS = 0, 1


class Toy:
    """Log-probabilities from a table by sentence, step and the last two tokens; the state is
    what was said."""

    def __init__(self, vocabulary=4, sentences=3, seed=0):
        rng = torch.Generator().manual_seed(seed)
        shape = (sentences, 9, vocabulary, vocabulary, vocabulary)
        self.table = (2 * torch.randn(shape, generator=rng, dtype=torch.float64)).log_softmax(-1)
        self.vocabulary = vocabulary

    def start(self, sentences):
        owners = torch.arange(sentences)
        return owners, torch.full((sentences, 1), BOS)

    def step(self, tokens, state):
        owners, said = state
        said = torch.cat([said, tokens[:, None]], 1)
        return self.table[owners, said.shape[1] - 2, said[:, -2], said[:, -1]], (owners, said)

    def reorder(self, state, rows):
        return state[0][rows], state[1][rows]

    def log_probability(self, sentence, tokens):
        said = [BOS, BOS, *tokens]
        return sum(
            float(self.table[sentence, at, said[at], said[at + 1], said[at + 2]])
            for at in range(len(tokens))
        )


def searched(toy, search, limits, sentences=3):
    first = torch.full((sentences,), BOS)
    return beam_search(toy, toy.start(sentences), first, search, eos_id=EOS, max_lengths=limits)


def exhaustive(toy, sentence, limit, score):
    """Every sequence that ends within the limit, best first."""
    words = [word for word in range(toy.vocabulary) if word != EOS]
    found = []
    for length in range(limit):
        for said in itertools.product(words, repeat=length):
            total = toy.log_probability(sentence, [*said, EOS])
            found.append((score(total, length + 1), said))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", ["wu", "average"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_beam_wide_enough_is_an_exhaustive_search(penalty, alpha):
    toy, limit = Toy(), 4
    search = BeamConfig(beam=81, n_best=20, length_normalization=penalty, length_penalty=alpha)
    found = searched(toy, search, [limit] * 3)
    for sentence, hypotheses in enumerate(found):
        expected = exhaustive(toy, sentence, limit, search.score)[:20]
        assert [one.tokens for one in hypotheses] == [said for _, said in expected]
        for one, (score, said) in zip(hypotheses, expected, strict=True):
            assert one.finished
            assert one.score == pytest.approx(score, abs=1e-12)
            exact = toy.log_probability(sentence, [*said, EOS])
            assert one.log_probability == pytest.approx(exact, abs=1e-12)


def test_a_beam_of_one_is_greedy():
    toy = Toy(vocabulary=6)
    first = torch.full((3,), BOS)
    alone = BeamConfig(beam=1, length_penalty=0.0)
    found = beam_search(toy, toy.start(3), first, alone, eos_id=EOS, max_lengths=[8] * 3)
    for sentence, (one,) in enumerate(found):
        said = []
        for _ in range(8):
            last = [BOS, BOS, *said][-2:]
            word = int(toy.table[sentence, len(said), last[0], last[1]].argmax())
            if word == EOS:
                break
            said.append(word)
        assert list(one.tokens) == said
        assert one.finished is (len(said) < 8)
        assert one.score == one.log_probability


def test_a_sentence_does_not_depend_on_its_neighbours():
    toy, search = Toy(vocabulary=7, seed=4), BeamConfig(beam=3, n_best=3)
    together = searched(toy, search, [8, 3, 6])
    for sentence, limit in enumerate([8, 3, 6]):
        state = torch.tensor([sentence]), torch.full((1, 1), BOS)
        (alone,) = beam_search(
            toy, state, torch.tensor([BOS]), search, eos_id=EOS, max_lengths=[limit]
        )
        assert alone == together[sentence]


def test_scores_fall_and_what_was_cut_comes_last():
    toy = Toy(vocabulary=7)
    toy.table[..., EOS] = -50.0  # nothing wants to end
    for hypotheses in searched(toy, BeamConfig(beam=3, n_best=3), [5] * 3):
        assert [one.finished for one in hypotheses] == [False] * 3
        assert {len(one.tokens) for one in hypotheses} == {5}
        scores = [one.score for one in hypotheses]
        assert scores == sorted(scores, reverse=True)
    toy = Toy(vocabulary=3)
    for hypotheses in searched(toy, BeamConfig(beam=4, n_best=4), [2] * 3):
        assert [one.finished for one in hypotheses] == sorted(
            (one.finished for one in hypotheses), reverse=True
        )


def test_a_wider_beam_scores_no_worse_here():
    toy = Toy(vocabulary=8, seed=2)
    best = [
        [
            found[0].score
            for found in searched(toy, BeamConfig(beam=size, length_penalty=0.0), [8] * 3)
        ]
        for size in (1, 8, 64)
    ]
    assert all(narrow <= wide + 1e-12 for narrow, wide in zip(best[0], best[2], strict=True))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_n_gram_comes_twice(size):
    toy = Toy(vocabulary=4)
    toy.table[..., EOS] = -50.0
    toy.table[..., 2] += 30.0  # would say 2 2 2 2 …
    free = searched(toy, BeamConfig(beam=2, n_best=2), [8] * 3)
    assert free[0][0].tokens == (2,) * 8
    for hypotheses in searched(
        toy, BeamConfig(beam=2, n_best=2, no_repeat_ngram_size=size), [8] * 3
    ):
        for one in hypotheses:
            grams = list(zip(*(one.tokens[n:] for n in range(size)), strict=False))
            assert len(grams) == len(set(grams))


def test_where_every_word_is_forbidden_the_sentence_ends():
    toy = Toy(vocabulary=3)
    found = searched(toy, BeamConfig(beam=1, no_repeat_ngram_size=1), [8] * 3)
    assert all(len(one[0].tokens) <= 2 for one in found)


def test_length_penalties():
    assert wu(1, 0.6) == 1.0
    assert wu(7, 1.0) == 2.0
    assert average(4, 1.0) == 4.0
    assert BeamConfig(length_penalty=0.0).score(-3.0, 9) == -3.0
    assert BeamConfig(length_normalization="average", length_penalty=1.0).score(-3.0, 3) == -1.0


def test_a_longer_hypothesis_wins_with_a_stronger_penalty():
    toy = Toy(vocabulary=5, seed=3)
    lengths = [
        sum(
            len(one[0].tokens)
            for one in searched(toy, BeamConfig(beam=32, length_penalty=alpha), [8] * 3)
        )
        for alpha in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, ("beam", "0")),
        ({"beam": 2, "n_best": 3}, ("n_best", "3", "beam", "2")),
        ({"length_normalization": "long"}, ("length_normalization", "long")),
        ({"length_penalty": -1.0}, ("length_penalty", "-1.0")),
        ({"no_repeat_ngram_size": -1}, ("no_repeat_ngram_size", "-1")),
    ],
)
def test_a_search_that_makes_no_sense(changes, message):
    with raises(ConfigError, message):
        BeamConfig(**changes)


def test_a_limit_below_one():
    with raises(ConfigError, "limit", "0"):
        searched(Toy(), BeamConfig(), [4, 0, 4])
