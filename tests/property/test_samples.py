"""Samples follow the original rules, for all documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from cloze.data import samples as sampling_module
from cloze.data.batch import IGNORE_INDEX
from cloze.data.samples import SamplePlan, Samples, Sampling, plan_samples, truncate_pairs
from cloze.errors import ConfigError, InputError
from corpora import InMemory, small_corpus, some_documents
from helpers import raises

DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=15), min_size=2, max_size=12)
LENGTHS = st.integers(8, 64)
SEEDS = st.integers(0, 2**64 - 1)
SURE = 1e-9  # a test that fails by chance once in a billion


def likely(count: int, trials: int, probability: float) -> bool:
    """Whether a count lies where a binomial variable almost surely does."""
    low, high = binom.ppf([SURE, 1 - SURE], trials, probability)
    return bool(low <= count <= high)


def planned(corpus: InMemory, **settings) -> SamplePlan:
    return plan_samples(corpus.split, Sampling(**settings), epoch=0)


def tokens(spans: np.ndarray) -> list[int]:
    return sorted(t for first, last in spans.tolist() for t in range(first, last))


# Nothing but documents.


@given(DOCUMENTS, LENGTHS, SEEDS, st.sampled_from([0.0, 0.1, 1.0]))
def test_without_pairs_every_token_occurs_once_per_epoch(documents, length, seed, short):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="none", max_length=length, seed=seed, short_seq_prob=short)
    assert tokens(made.a) == list(range(corpus.sentence_starts[-1]))
    assert made.lengths.max() <= length
    assert (made.labels == IGNORE_INDEX).all()
    for first, last in made.a.tolist():
        assert corpus.document_of(first) == corpus.document_of(last - 1)


@given(DOCUMENTS, LENGTHS, SEEDS)
def test_without_pairs_only_long_sentences_are_split(documents, length, seed):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="none", max_length=length, seed=seed)
    edges = set(corpus.sentence_starts.tolist())
    for last in made.a[:, 1].tolist():
        if last not in edges:
            sentence = np.searchsorted(corpus.sentence_starts, last) - 1
            assert np.diff(corpus.sentence_starts)[sentence] > length - 2


def alone(samples, number):
    return samples.make_batch(np.array([number]))


def test_every_token_of_a_corpus_occurs_once_per_epoch(tmp_path):
    from corpora import numbered_tokenizer

    corpus = small_corpus(tmp_path, some_documents())
    made = Samples(corpus.train, numbered_tokenizer(), Sampling(pairs="none", max_length=16))
    seen = np.concatenate([alone(made, n).input_ids[1:-1] for n in range(len(made))])
    assert np.bincount(seen, minlength=corpus.vocab_size).tolist() == (
        corpus.train.count_token_ids().tolist()
    )


# Next sentence.


@given(DOCUMENTS, LENGTHS, SEEDS)
def test_negative_pairs_are_from_another_document_and_positive_ones_consecutive(
    documents, length, seed
):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="nsp", max_length=length, seed=seed)
    assert made.lengths.max() <= length
    assert set(made.labels.tolist()) <= {0, 1}
    for a, b, label in zip(made.a.tolist(), made.b.tolist(), made.labels.tolist(), strict=True):
        assert a[0] < a[1]
        assert b[0] < b[1]
        owners = {corpus.document_of(token) for token in (a[0], a[1] - 1)}
        others = {corpus.document_of(token) for token in (b[0], b[1] - 1)}
        assert len(owners) == len(others) == 1
        if label == 1:
            assert owners != others
        else:
            assert owners == others
            assert a[1] <= b[0]


@given(DOCUMENTS, SEEDS)
def test_sentences_replaced_by_a_random_b_are_reused(documents, seed):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="nsp", max_length=4000, seed=seed)  # so long that nothing is cut
    true_b = made.b[made.labels == 0]
    assert tokens(np.concatenate([made.a, true_b])) == list(range(corpus.sentence_starts[-1]))
    assert (made.a[made.labels == 0][:, 1] == true_b[:, 0]).all()


def test_half_of_the_pairs_are_positive():
    # The whole of such a document is one chunk. Right: one sample. Wrong: B is put back, and being
    # alone is the A of a second wrong one.
    count = 4000
    made = planned(
        InMemory([[3, 3]] * count), pairs="nsp", max_length=64, seed=1, short_seq_prob=0.0
    )
    right = int((made.labels == 0).sum())
    assert likely(right, count, 0.5)
    assert len(made) == right + 2 * (count - right)


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_long_sentences_give_as_many_positive_as_negative_pairs(pairs):
    made = planned(InMemory([[50] * 40] * 200), pairs=pairs, max_length=16, seed=1)
    labels = made.labels[made.labels != IGNORE_INDEX]
    # the last sentence of a document has none after it, and is the A of a wrong pair, or alone
    ends = 200 if pairs == "nsp" else 0
    assert likely(int((labels == 1).sum()) - ends, len(labels) - ends, 0.5)
    assert len(labels) > 0.9 * len(made)


def test_negative_pairs_cover_all_documents_and_sentences():
    corpus = InMemory([[1] * 4] * 10)
    seen = set()
    for seed in range(40):
        made = planned(corpus, pairs="nsp", max_length=16, seed=seed)
        seen |= set(made.b[made.labels == 1][:, 0].tolist())
    assert seen == set(range(40))


def test_one_document_in_ten_has_short_samples():
    # Sentences of one token, so that the first sample of a document is as long as its target.
    count, room = 2000, 14
    corpus = InMemory([[1] * 100] * count)
    made = planned(corpus, pairs="none", max_length=room + 2, seed=3)
    first = made.a[np.isin(made.a[:, 0], corpus.sentence_starts[corpus.document_starts[:-1]])]
    sizes = np.diff(first)[:, 0]
    assert len(sizes) == count
    assert set(sizes.tolist()) == set(range(2, room + 1))
    assert likely(int((sizes < room).sum()), count, 0.1 * (room - 2) / (room - 1))


def test_next_sentence_needs_two_documents():
    with raises(InputError, "document", fix="blank lines"):
        planned(InMemory([[3, 3]]), pairs="nsp")


# Sentence order.


@given(DOCUMENTS, LENGTHS, SEEDS)
def test_sentence_order_pairs_are_consecutive(documents, length, seed):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="sop", max_length=length, seed=seed)
    assert made.lengths.max() <= length
    for a, b, label in zip(made.a.tolist(), made.b.tolist(), made.labels.tolist(), strict=True):
        if label == IGNORE_INDEX:
            assert b[0] == b[1]
            continue
        early, late = (a, b) if label == 0 else (b, a)
        assert early[0] < early[1] <= late[0] < late[1]
        assert corpus.document_of(early[0]) == corpus.document_of(late[1] - 1)


@given(DOCUMENTS, SEEDS)
def test_sentence_order_pairs_cover_the_text(documents, seed):
    corpus = InMemory(documents)
    made = planned(corpus, pairs="sop", max_length=4000, seed=seed)
    assert tokens(np.concatenate([made.a, made.b])) == list(range(corpus.sentence_starts[-1]))


def test_half_of_the_sentence_order_pairs_are_exchanged():
    count = 4000
    made = planned(
        InMemory([[3, 3]] * count), pairs="sop", max_length=64, seed=1, short_seq_prob=0.0
    )
    assert len(made) == count
    assert likely(int((made.labels == 1).sum()), count, 0.5)


# Cutting to length.


def cut_one_by_one(a: int, b: int, most: int) -> tuple[int, int]:
    """The original's loop, lengths only."""
    while a + b > most:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@given(st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1), LENGTHS)
def test_the_longer_segment_is_truncated(sizes, length):
    a = np.array([[1000, 1000 + first] for first, _ in sizes])
    b = np.array([[5000, 5000 + second] for _, second in sizes])
    made = truncate_pairs(a, b, np.zeros(len(a), np.int64), length, np.random.default_rng(0))
    expected = [cut_one_by_one(*size, length - 3) for size in sizes]
    assert list(zip(np.diff(made.a)[:, 0], np.diff(made.b)[:, 0], strict=True)) == expected
    assert (made.a[:, 0] >= a[:, 0]).all()
    assert (made.a[:, 1] <= a[:, 1]).all()


def test_both_ends_are_truncated_equally_often():
    count, off = 500, 40
    a = np.tile([0, 50 + off], (count, 1))
    b = np.tile([1000, 1003], (count, 1))
    made = truncate_pairs(a, b, np.zeros(count, np.int64), 56, np.random.default_rng(5))
    assert likely(int(made.a[:, 0].sum()), count * off, 0.5)
    assert (np.diff(made.a) == 50).all()


# Order and repetition.


@given(DOCUMENTS, SEEDS, st.sampled_from(["nsp", "sop", "none"]))
def test_a_plan_depends_on_seed_and_epoch_alone(documents, seed, pairs):
    split = InMemory(documents).split
    settings = Sampling(pairs=pairs, max_length=16, seed=seed)
    one, two = plan_samples(split, settings, epoch=3), plan_samples(split, settings, epoch=3)
    assert np.array_equal(one.a, two.a)
    assert np.array_equal(one.b, two.b)
    assert np.array_equal(one.labels, two.labels)


def test_other_seeds_and_epochs_give_other_plans():
    split = InMemory([[5] * 30] * 20).split
    first = plan_samples(split, Sampling(max_length=16, seed=1), epoch=0)
    for seed, epoch in ((2, 0), (1, 1)):
        assert not np.array_equal(
            plan_samples(split, Sampling(max_length=16, seed=seed), epoch=epoch).a, first.a
        )


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
@given(documents=DOCUMENTS, seed=SEEDS)
def test_long_documents_are_split_into_parts(pairs, documents, seed):
    corpus = InMemory(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_module, "PART_TOKENS", 25)
        made = planned(corpus, pairs=pairs, max_length=4000, seed=seed, short_seq_prob=0.0)
    own = made.b[made.labels != 1] if pairs == "nsp" else made.b
    assert tokens(np.concatenate([made.a, own])) == list(range(corpus.sentence_starts[-1]))


def test_a_sample_is_its_segments_with_special_tokens():
    corpus = InMemory([[4, 5, 6], [7, 3]])
    made = Samples(corpus.split, corpus.tokenizer, Sampling(pairs="nsp", max_length=12, seed=2))
    cls, sep = corpus.tokenizer.cls_id, corpus.tokenizer.sep_id
    for number in range(len(made)):
        sample, (a, b) = alone(made, number), (made.plan.a[number], made.plan.b[number])
        a, b = (list(range(corpus.FIRST + s[0], corpus.FIRST + s[1])) for s in (a, b))
        assert sample.input_ids.tolist() == [cls, *a, sep, *b, sep]
        assert sample.token_type_ids.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        special = [0, len(a) + 1, len(a) + len(b) + 2]
        assert np.flatnonzero(~sample.maskable).tolist() == special
        assert sample.word_starts[[*special, 1, len(a) + 2]].all()
        assert sample.sample_ids.tolist() == [number]
        assert sample.labels.tolist() == [made.plan.labels[number]]


def test_invalid_settings_and_tokenizers_are_reported(tmp_path):
    corpus = InMemory([[3], [4]])
    with raises(ConfigError, "pairs", "nps", fix="nsp"):
        Sampling(pairs="nps")
    with raises(ConfigError, "max_length", "2"):
        Sampling(max_length=2)
    with raises(ConfigError, "short", "2"):
        Sampling(short_seq_prob=2)
    with raises(InputError, "12", "tokenizer", "13"):
        Samples(corpus.split, InMemory([[8]]).tokenizer, Sampling())
    empty = type(corpus.split)(corpus, np.zeros(0, np.int64))
    with raises(InputError, "documents"):
        Samples(empty, corpus.tokenizer, Sampling())
