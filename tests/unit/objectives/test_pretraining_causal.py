"""Causal language modelling against a plain computation."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.config import Batching
from cloze.data.device_corpus import CorpusSliceBatches, DeviceCorpus, TokenRow
from cloze.data.packing import PackedBatches
from cloze.data.samples import Sampling
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.objectives.pretraining import CausalLMBatch, causal_lm_objective, make_next_token_targets
from corpora import numbered_tokenizer, small_corpus, some_documents
from helpers import scramble

CPU = torch.device("cpu")
LENGTH, PLACES = 24, 192
TOKENIZER = numbered_tokenizer()


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    corpus = small_corpus(tmp_path_factory.mktemp("corpus"), some_documents())
    sampling = Sampling(pairs="none", max_length=LENGTH, short_seq_prob=0.3)
    plain = PackedBatches(corpus.train, TOKENIZER, sampling, Batching(tokens=PLACES, window=None))
    made = CorpusSliceBatches(
        DeviceCorpus(corpus, TOKENIZER, CPU), plain, max_seqlen=LENGTH, mlm_probability=0.15
    )
    last = len(plain.epoch(0)) - 1  # the one that is not full
    return [CausalLMBatch.from_batch(made.step(number)[0]) for number in (0, 1, last)]


def learner():
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": LENGTH,
    }
    config = BertConfig(vocab_size=TOKENIZER.vocab_size, **shape, is_causal=True)
    return scramble(build(config, ["mlm"], rng=torch.Generator())).eval()


def by_hand(model, batch):
    """One sequence after another, and all scores at once."""
    row, loss, hits, count = batch.gather_tokens(), 0.0, 0, 0
    for first, length in zip(np.cumsum([0, *batch.lengths]), batch.lengths, strict=False):
        ids = row.ids[first : first + length]
        scores = model.logits("mlm", model(ids[None])[0, :-1])
        loss = loss + F.cross_entropy(scores, ids[1:], reduction="sum")
        hits, count = hits + (scores.argmax(-1) == ids[1:]).sum().item(), count + len(ids) - 1
    return loss, hits, count


def test_terms_equal_a_plain_computation(batches):
    model = learner()
    for batch in batches:
        terms = causal_lm_objective(model, batch)
        loss, hits, count = by_hand(model, batch)
        assert set(terms) == {"lm", "lm.accuracy"}
        assert terms["lm"].item() == pytest.approx(loss.item(), rel=1e-5)
        assert terms["lm.accuracy"].item() == hits
        assert batch.counts == {"lm": count}
        weights = list(model.parameters())
        ours, plain = (
            torch.autograd.grad(one, weights, allow_unused=True) for one in (terms["lm"], loss)
        )
        for a, b in zip(ours, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_last_tokens_and_padding_have_no_target():
    ids = torch.tensor([2, 7, 3, 2, 8, 9, 3, 0, 0])
    positions = torch.tensor([0, 1, 2, 0, 1, 2, 3, 0, 0])
    row = TokenRow(ids, *(torch.zeros(9),) * 8)._replace(positions=positions)
    no = IGNORE_INDEX
    assert make_next_token_targets(row).tolist() == [7, 3, no, 8, 9, 3, no, no, no]


def test_parts_of_a_batch_have_the_same_number_of_targets(batches):
    parts = batches[0].split(3)
    assert len(parts) > 1
    assert sum(part.counts["lm"] for part in parts) == batches[0].counts["lm"]
    model = learner()
    whole = causal_lm_objective(model, batches[0])["lm"].item()
    assert sum(causal_lm_objective(model, part)["lm"].item() for part in parts) == pytest.approx(
        whole
    )
