"""Masking follows the original rules for every sequence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from cloze.data.config import Batching
from cloze.data.packing import PackedBatches
from cloze.data.randomness import Purpose, make_generator
from cloze.data.samples import Sampling
from cloze.errors import ConfigError, InputError
from cloze.objectives.masking import Masking, mask_batch, mask_sequence
from corpora import InMemory
from helpers import SPECIAL, raises, tiny_tokenizer

MASK, VOCAB = 4, np.arange(len(SPECIAL), 1000)
SEQUENCES = st.lists(
    st.tuples(st.integers(0, 999), st.booleans()), min_size=1, max_size=120
)  # (id, a word starts here)
SURE = 1e-9


def prepared(sequence):
    ids = np.array([i for i, _ in sequence])
    starts = np.array([s for _, s in sequence])
    starts[0] = True
    return ids, starts, ids >= len(SPECIAL)


@given(SEQUENCES, st.integers(0, 2**32), st.booleans(), st.sampled_from([0.05, 0.15, 0.4, 1.0]))
def test_only_selected_tokens_change_and_special_tokens_are_never_selected(
    sequence, seed, whole, probability
):
    ids, starts, maskable = prepared(sequence)
    masking = Masking(
        mask_id=MASK, replacement_ids=VOCAB, mlm_probability=probability, whole_word=whole
    )
    before = ids.copy()
    masked, positions, targets = mask_sequence(
        ids, starts, maskable, np.random.default_rng(seed), masking
    )
    assert np.array_equal(ids, before)
    assert (np.diff(positions) > 0).all()
    assert maskable[positions].all()
    assert np.array_equal(targets, ids[positions])
    others = np.setdiff1d(np.arange(len(ids)), positions)
    assert np.array_equal(masked[others], ids[others])
    assert np.isin(masked[positions], [MASK, *VOCAB]).all()


@given(SEQUENCES, st.integers(0, 2**32), st.sampled_from([0.05, 0.15, 0.4, 1.0]))
def test_the_number_of_selected_tokens(sequence, seed, probability):
    ids, starts, maskable = prepared(sequence)
    masking = Masking(mask_id=MASK, replacement_ids=VOCAB, mlm_probability=probability)
    _, positions, _ = mask_sequence(ids, starts, maskable, np.random.default_rng(seed), masking)
    assert len(positions) == min(max(1, round(len(ids) * probability)), maskable.sum())


@given(SEQUENCES, st.integers(0, 2**32), st.sampled_from([0.05, 0.15, 0.4, 1.0]))
def test_whole_words_are_selected_while_they_fit(sequence, seed, probability):
    ids, starts, maskable = prepared(sequence)
    masking = Masking(
        mask_id=MASK, replacement_ids=VOCAB, mlm_probability=probability, whole_word=True
    )
    _, positions, _ = mask_sequence(ids, starts, maskable, np.random.default_rng(seed), masking)
    budget = max(1, round(len(ids) * probability))
    words = np.cumsum(starts)
    left = []
    for word in np.unique(words):
        own = np.flatnonzero((words == word) & maskable)
        chosen = np.isin(own, positions)
        assert chosen.all() or not chosen.any()
        if len(own) and not chosen.any():
            left.append(len(own))
    assert len(positions) <= budget
    assert all(size > budget - len(positions) for size in left)


@pytest.mark.parametrize("whole", [False, True])
def test_selected_tokens_are_split_80_10_10(whole):
    size, sequences = 510, 400
    masking = Masking(mask_id=MASK, replacement_ids=VOCAB, whole_word=whole)
    ids = np.full(size, 7)  # an id that a random one is only once in a thousand times
    starts = np.arange(size) % 3 == 0
    hidden = kept = total = 0
    where = np.zeros(size)
    for number in range(sequences):
        rng = make_generator(0, 0, Purpose.MASKING, number)
        masked, positions, _ = mask_sequence(ids, starts, np.ones(size, bool), rng, masking)
        hidden += int((masked[positions] == MASK).sum())
        kept += int((masked[positions] == 7).sum())
        total += len(positions)
        where[positions] += 1
    for count, fraction in ((hidden, 0.8), (kept, 0.1 + 0.1 / len(VOCAB))):
        low, high = binom.ppf([SURE, 1 - SURE], total, fraction)
        assert low <= count <= high
    assert total == (75 if whole else 76) * sequences  # 25 words of three tokens
    # Every place is as likely as any other.
    low, high = binom.ppf([SURE / size, 1 - SURE / size], sequences, total / sequences / size)
    assert low <= where.min() <= where.max() <= high


def test_random_replacements_are_any_ordinary_token():
    masking = Masking(
        mask_id=MASK, replacement_ids=np.arange(5, 25), mlm_probability=1.0, split=(0.0, 1.0, 0.0)
    )
    ids, every = np.full(500, 900), np.ones(500, bool)
    masked, _, _ = mask_sequence(ids, every, every, np.random.default_rng(0), masking)
    assert set(masked.tolist()) == set(range(5, 25))


# Batches.


def some_batch(epoch: int = 0, tokens: int = 200, seed: int = 5):
    corpus = InMemory([[5, 9, 3, 7] * 3] * 12)
    sampling = Sampling(max_length=24, seed=seed)
    made = PackedBatches(corpus.split, corpus.tokenizer, sampling, Batching(tokens=tokens)).epoch(
        epoch
    )
    masking = Masking.from_tokenizer(corpus.tokenizer, whole_word=True)
    return [mask_batch(made[n], masking, seed=seed) for n in range(len(made))]


def by_sample(batches) -> dict[int, tuple[bytes, bytes]]:
    found = {}
    for batch in batches:
        positions = np.split(np.arange(len(batch.input_ids)), batch.starts[1:-1])
        for sample, own in zip(batch.sample_ids.tolist(), positions, strict=True):
            chosen = np.isin(batch.masked_positions, own)
            relative = batch.masked_positions[chosen] - own[0]
            found[sample] = batch.input_ids[own].tobytes(), relative.tobytes()
    return found


def test_the_mask_of_a_sample_is_the_same_in_any_batch():
    assert by_sample(some_batch(tokens=60)) == by_sample(some_batch(tokens=400))


def test_another_epoch_has_other_masks():
    one, two = (
        make_generator(3, epoch, Purpose.MASKING, 7).permutation(50).tolist() for epoch in (0, 1)
    )
    assert one != two


def test_targets_are_the_original_tokens():
    corpus = InMemory([[5, 9, 3, 7] * 3] * 12)
    sampling = Sampling(max_length=24, seed=5)
    made = PackedBatches(corpus.split, corpus.tokenizer, sampling, Batching(tokens=200)).epoch(0)
    masking = Masking.from_tokenizer(corpus.tokenizer)
    for number in range(len(made)):
        plain, masked = made[number], mask_batch(made[number], masking, seed=5)
        assert np.array_equal(plain.input_ids[masked.masked_positions], masked.targets)
        assert plain.maskable[masked.masked_positions].all()
        special = ~plain.maskable
        assert np.array_equal(plain.input_ids[special], masked.input_ids[special])
        expected = [max(1, round(0.15 * length)) for length in plain.lengths.tolist()]
        assert masked.counts == {"mlm": sum(expected), "nsp": len(plain)}


def test_generators_are_independent():
    draws = {
        tuple(make_generator(seed, epoch, purpose, number).integers(2**62, size=2).tolist())
        for seed in (0, 1, 2**64 - 1)
        for epoch in (0, 1)
        for purpose in Purpose
        for number in (0, 1, 2)
    }
    assert len(draws) == 3 * 2 * len(Purpose) * 3


def test_invalid_settings_are_reported():
    with raises(ConfigError, "mlm_probability", "0"):
        Masking(mask_id=MASK, replacement_ids=VOCAB, mlm_probability=0)
    with raises(ConfigError, "split", fix="1"):
        Masking(mask_id=MASK, replacement_ids=VOCAB, split=(0.8, 0.1, 0.2))


def test_replacement_ids_come_from_the_tokenizer():
    tokenizer = tiny_tokenizer()
    masking = Masking.from_tokenizer(tokenizer)
    assert masking.mask_id == tokenizer.mask_id
    assert (
        set(masking.replacement_ids.tolist())
        == set(range(tokenizer.vocab_size)) - tokenizer.special_ids
    )


def test_a_tokenizer_without_a_mask_token_is_reported():
    from cloze.text import backends
    from cloze.text.tokenizer import Tokenizer

    gpt2 = backends.build_byte_bpe({s: n for n, s in enumerate(backends.BYTE_SYMBOLS)}, [])
    with raises(InputError, "[MASK]", fix="wordpiece"):
        Masking.from_tokenizer(Tokenizer(gpt2, special_tokens={}))
