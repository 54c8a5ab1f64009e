"""Batches assembled on the device equal those assembled on the host."""

import numpy as np
import pytest
import torch

from cloze.data.batch import IGNORE_INDEX
from cloze.data.config import Batching
from cloze.data.device_corpus import CorpusSliceBatches, DeviceCorpus
from cloze.data.packing import PackedBatches
from cloze.data.samples import Sampling
from cloze.errors import InputError
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.nn.layout import Packed
from cloze.objectives.masking import Masking, mask_row
from cloze.objectives.pretraining import make_device_objective
from cloze.text.tokenizer import Tokenizer
from corpora import numbered_tokenizer, small_corpus, some_documents
from helpers import SPECIAL, raises

CPU = torch.device("cpu")
LENGTH, PLACES = 24, 256


@pytest.fixture
def corpus(tmp_path):
    return small_corpus(tmp_path, some_documents())


def batches_of(corpus, pairs="nsp", mlm_probability=0.25, tokenizer=None, **options):
    tokenizer = tokenizer or numbered_tokenizer()
    sampling = Sampling(pairs=pairs, max_length=LENGTH, short_seq_prob=0.3)
    batches = PackedBatches(corpus.train, tokenizer, sampling, Batching(tokens=PLACES, window=None))
    source = DeviceCorpus(corpus, tokenizer, CPU, **options)
    return batches, CorpusSliceBatches(
        source, batches, max_seqlen=LENGTH, mlm_probability=mlm_probability
    )


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_tokens_equal_those_of_the_host_batch(corpus, pairs):
    batches, resident = batches_of(corpus, pairs)
    for number in range(len(batches.epoch(0)) + 2):  # into the next epoch, past one not full
        plain, (made,) = batches.batch(number), resident.step(number)
        row = made.gather_tokens()
        size = len(plain.input_ids)
        assert row.ids[:size].tolist() == plain.input_ids.tolist()
        assert row.token_type_ids[:size].tolist() == plain.token_type_ids.tolist()
        assert (
            row.positions[:size].tolist()
            == Packed.from_lengths(plain.lengths).position_ids.tolist()
        )
        assert row.maskable[:size].tolist() == plain.maskable.tolist()
        assert (row.ids[size:] == 0).all()
        assert not row.maskable[size:].any()
        assert row.cu_seqlens[: len(plain)].tolist() == plain.starts[:-1].tolist()
        assert row.sample_starts[: len(plain)].tolist() == plain.starts[:-1].tolist()
        assert row.labels[: len(plain)].tolist() == plain.labels.tolist()
        assert (row.labels[len(plain) :] == IGNORE_INDEX).all()
        assert made.sample_ids.tolist() == plain.sample_ids.tolist()


def test_sequences_respect_max_seqlen_and_shapes_are_constant(corpus):
    batches, resident = batches_of(corpus)
    shapes = set()
    for number in range(len(batches.epoch(0))):
        row = resident.step(number)[0].gather_tokens()
        lengths = row.cu_seqlens.diff()
        assert lengths.min() >= 0
        assert lengths.max() <= LENGTH
        assert (row.cu_seqlens[0], row.cu_seqlens[-1]) == (0, PLACES)
        shapes.add(tuple(tuple(part.shape) for part in row))
    assert len(shapes) == 1


def test_num_masked_tokens_are_masked(corpus):
    batches, resident = batches_of(corpus)
    masking = Masking.from_tokenizer(numbered_tokenizer(), mlm_probability=0.25)
    vocab = torch.from_numpy(masking.replacement_ids)
    for number in range(len(batches.epoch(0))):
        (made,) = resident.step(number)
        row = made.gather_tokens()
        rng = torch.Generator().manual_seed(number)
        hidden = mask_row(
            row, masking, vocab, max_masked=made.max_masked, num_masked=made.num_masked, rng=rng
        )
        known = hidden.targets != IGNORE_INDEX
        assert (
            known.sum() == made.num_masked == made.counts["mlm"] == round(0.25 * made.lengths.sum())
        )
        chosen = hidden.positions[known]
        assert len(chosen.unique()) == len(chosen)
        assert row.maskable[chosen].all()
        assert (row.ids[chosen] == hidden.targets[known]).all()
        untouched = torch.ones(PLACES, dtype=torch.bool)
        untouched[chosen] = False
        assert (hidden.ids[untouched] == row.ids[untouched]).all()


@pytest.fixture
def words(tmp_path):
    """A corpus in which a word has one, two or three tokens."""
    documents = [
        [" ".join(word + "x" * (int(word[1:]) % 3) for word in line.split()) for line in lines]
        for lines in some_documents()
    ]
    tokenizer = Tokenizer.from_vocab([*SPECIAL, *(f"w{n}" for n in range(500)), "##x"])
    return small_corpus(tmp_path, documents, tokenizer=tokenizer), tokenizer


@pytest.mark.parametrize("pairs", ["nsp", "none"])
def test_whole_words_are_masked_on_the_device_as_on_the_host(words, pairs):
    corpus, tokenizer = words
    batches, resident = batches_of(corpus, pairs, tokenizer=tokenizer, with_words=True)
    masking = Masking.from_tokenizer(tokenizer, mlm_probability=0.25, whole_word=True)
    vocab = torch.from_numpy(masking.replacement_ids)
    counts = np.zeros(4)
    for number in range(len(batches.epoch(0))):
        plain, (made,) = batches.batch(number), resident.step(number)
        row, rng = made.gather_tokens(), torch.Generator().manual_seed(number)
        size = len(plain.input_ids)
        assert row.word_starts[:size].tolist() == plain.word_starts.tolist()
        hidden = mask_row(
            row, masking, vocab, max_masked=made.max_masked, num_masked=made.num_masked, rng=rng
        )
        known = hidden.targets != IGNORE_INDEX
        assert known.sum() == made.num_masked
        chosen = torch.zeros(PLACES, dtype=torch.bool)
        chosen[hidden.positions[known]] = True
        assert not (chosen & ~row.maskable).any()
        for word in np.split(np.arange(size), np.flatnonzero(plain.word_starts)[1:]):
            selected = chosen[word][row.maskable[word]]
            assert selected.all() or not selected.any(), "all tokens of a word, or none"
            counts[len(selected)] += bool(selected.any())
    assert (counts[1:] > 0).all(), "words of every length are selected"


def test_whole_words_need_word_starts(corpus):
    _, resident = batches_of(corpus)
    masking = Masking.from_tokenizer(numbered_tokenizer(), whole_word=True)
    row = resident.step(0)[0].gather_tokens()
    with raises(InputError, "word starts", fix="with_words=True"):
        mask_row(row, masking, torch.arange(5, 9), max_masked=4, num_masked=4, rng=None)


def test_selected_tokens_are_masked_replaced_and_kept_in_the_given_fractions(corpus):
    _, resident = batches_of(corpus)
    masking = Masking.from_tokenizer(numbered_tokenizer())
    vocab = torch.from_numpy(masking.replacement_ids)
    (made,) = resident.step(0)
    row, rng = made.gather_tokens(), torch.Generator().manual_seed(0)
    fates = np.zeros(3)
    for _ in range(200):
        hidden = mask_row(row, masking, vocab, max_masked=40, num_masked=40, rng=rng)
        seen = hidden.ids[hidden.positions]
        masked, kept = seen == masking.mask_id, seen == hidden.targets
        fates += [masked.sum(), (~masked & ~kept).sum(), kept.sum()]
        assert np.isin(seen[~masked].numpy(), masking.replacement_ids).all()
    assert fates / fates.sum() == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


def test_a_split_batch_loses_nothing(corpus):
    batches, resident = batches_of(corpus)
    (made,) = resident.step(0)
    parts = made.split(3)
    joined = torch.cat([part.gather_tokens().ids for part in parts])
    assert joined.tolist() == batches.batch(0).input_ids.tolist()
    assert sum(part.num_masked for part in parts) == pytest.approx(made.num_masked, abs=2)


def test_masks_for_evaluation_are_fixed(corpus):
    tokenizer = numbered_tokenizer()
    batches, resident = batches_of(corpus)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=LENGTH,
    )
    model = build(config, ["mlm", "nsp"], rng=torch.Generator().manual_seed(0)).eval()
    objective = make_device_objective(Masking.from_tokenizer(tokenizer), CPU)
    fixed = resident.make_batch(batches.epoch(0), 0, seed=3)
    first, second = (objective(model, fixed, None)["mlm"].item() for _ in range(2))
    free = resident.make_batch(batches.epoch(0), 0)
    drawn = {objective(model, free, torch.Generator().manual_seed(n))["mlm"].item() for n in (1, 2)}
    assert first == second
    assert len(drawn) == 2
