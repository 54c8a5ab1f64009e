"""Properties of parallel batches, beam search and BLEU."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.parallel_text import TranslationBatches
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.metrics.bleu import TOKENIZERS, compute_bleu
from cloze.tasks.word_alignment import join_words
from cloze.text.joint_bpe import decode_sentence, encode_sentences
from generated_examples import examples
from texts import ANY_TEXT
from translators import translator

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
MODEL = translator()


@given(LENGTHS, st.integers(1, 200), st.integers(0, 5))
def test_an_epoch_has_every_pair_once(lengths, tokens, seed):
    sides = [[[1] * pair[side] for pair in lengths] for side in (0, 1)]
    pairs = TranslationBatches(*sides, batch_tokens=tokens, seed=seed)
    for epoch in range(2):
        batches = [pairs.batch(epoch * pairs.per_epoch + n) for n in range(pairs.per_epoch)]
        order = np.concatenate([batch.sample_ids for batch in batches])
        assert sorted(order.tolist()) == list(range(len(lengths)))
        for batch in batches:
            widest = max(batch.source_lengths.max(), batch.target_lengths.max())
            assert len(batch) == 1 or len(batch) * widest <= tokens


@given(st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_any_text_is_decoded_unchanged(texts):
    for text, ids in zip(texts, encode_sentences(MODEL.tokenizer, texts), strict=True):
        assert decode_sentence(MODEL.tokenizer, ids[:-1]) == text
        words = list(join_words(MODEL.tokenizer, ids[:-1]))
        edges = [0, *(last for _, _, last in words)]
        assert edges == [first for _, first, _ in words] + edges[-1:]
        assert edges[-1] == len(ids) - 1
        joined = "".join("".join(word.split()) for word, _, _ in words)
        assert joined == "".join(text.split())


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=4), st.sampled_from(sorted(TOKENIZERS)))
def test_bleu_is_at_most_100_and_100_for_equal_texts(pairs, tokenize):
    found = compute_bleu(
        [one for one, _ in pairs], [other for _, other in pairs], tokenize=tokenize
    )
    assert 0.0 <= found.score <= 100.0 + 1e-9
    told = [other for _, other in pairs]
    same = compute_bleu(told, told, tokenize=tokenize)
    assert same.score == pytest.approx(100.0) or not all(same.precisions)


class Table:
    """One distribution for each step, whatever was said."""

    def __init__(self, seed, vocabulary, steps):
        rng = torch.Generator().manual_seed(seed)
        self.scores = torch.randn(steps, vocabulary, generator=rng, dtype=torch.float64)
        self.scores = self.scores.log_softmax(-1)

    def step(self, tokens, state):
        return self.scores[state].expand(len(tokens), -1), state + 1

    def reorder(self, state, _rows):
        return state


@examples(40)
@given(st.integers(0, 1000), st.integers(2, 4), st.integers(1, 4), st.floats(0.0, 2.0))
def test_a_wide_beam_finds_the_best_hypothesis(seed, vocabulary, limit, alpha):
    table, search = (
        Table(seed, vocabulary, limit),
        BeamConfig(beam=100, n_best=1, length_penalty=alpha),
    )
    ((found,),) = beam_search(table, 0, torch.tensor([1]), search, eos_id=0, max_lengths=[limit])
    best = max(
        search.score(
            sum(float(table.scores[n, word]) for n, word in enumerate([*said, 0])), length + 1
        )
        for length in range(limit)
        for said in itertools.product(range(1, vocabulary), repeat=length)
    )
    assert found.finished
    assert found.score == pytest.approx(best, abs=1e-12)
