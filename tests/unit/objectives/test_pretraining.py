from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.objectives.core import (
    Learner,
    copy_to_device,
    count_correct,
    cross_entropy,
    get_count_name,
)
from cloze.objectives.pretraining import pretraining_objective
from helpers import scramble
from training import packed, tiny_bert


@pytest.fixture(scope="module")
def model():
    return scramble(tiny_bert()).eval()


def test_sums_equal_those_of_single_sequences(model):
    batch = packed(range(6))
    terms = pretraining_objective(model, batch)
    singles = [pretraining_objective(model, one) for one in batch.split(6)]
    assert len(singles) == 6
    assert set(terms) == {"mlm", "mlm.accuracy", "nsp", "nsp.accuracy"}
    for name, total in terms.items():
        torch.testing.assert_close(total, torch.stack([one[name] for one in singles]).sum())


def test_sums_equal_those_of_a_padded_batch(model):
    batch = packed([4])
    ids, types = torch.from_numpy(batch.input_ids), torch.from_numpy(batch.token_type_ids)
    hidden = model(ids[None], torch.ones(1, len(ids)), types[None])[0]
    words = model.logits("mlm", hidden)[batch.masked_positions]
    targets = torch.from_numpy(batch.targets)
    terms = pretraining_objective(model, batch)
    torch.testing.assert_close(terms["mlm"], F.cross_entropy(words, targets) * len(targets))
    assert terms["mlm.accuracy"] == (words.argmax(-1) == targets).sum()
    pair = model.logits("nsp", hidden[:1])
    torch.testing.assert_close(terms["nsp"], F.cross_entropy(pair, torch.from_numpy(batch.labels)))


def test_only_losses_have_a_gradient(model):
    terms = pretraining_objective(model, packed([1]))
    assert {name for name, term in terms.items() if term.requires_grad} == {"mlm", "nsp"}


def test_pairs_without_a_label_are_ignored(model):
    batch = packed([1, 2])
    batch = replace(batch, labels=np.full(2, IGNORE_INDEX))
    terms = pretraining_objective(model, batch)
    assert terms["nsp"] == 0
    assert terms["nsp.accuracy"] == 0
    assert batch.counts["nsp"] == 0


def test_a_model_without_the_nsp_head_has_only_the_mlm_loss():
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
    )
    words = build(config, ["mlm"], rng=torch.Generator().manual_seed(0))
    assert set(pretraining_objective(words, packed([1, 2]))) == {"mlm", "mlm.accuracy"}


def test_a_batch_without_masked_tokens_has_a_zero_loss_with_gradient(model):
    none = np.zeros(0, np.int64)
    batch = replace(packed([1]), masked_positions=none, targets=none)
    terms = pretraining_objective(model, batch)
    assert terms["mlm"] == 0
    terms["mlm"].backward()
    assert model.embeddings.word.weight.grad is not None
    model.zero_grad()


def test_half_precision_logits_are_summed_in_float32():
    logits, targets = torch.randn(300, 7).bfloat16(), torch.zeros(300, dtype=torch.long)
    total = cross_entropy(logits, targets)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, F.cross_entropy(logits.float(), targets) * 300)


def test_ignored_targets_count_in_neither_loss_nor_accuracy():
    logits, targets = torch.eye(3), torch.tensor([0, IGNORE_INDEX, 0])
    assert cross_entropy(logits, targets) == cross_entropy(logits[[0, 2]], targets[[0, 2]])
    assert count_correct(logits, targets) == 1


def test_learner_applies_the_objective_to_the_model(model):
    batch = packed([1, 2])
    terms, direct = (
        Learner(model, pretraining_objective)(batch),
        pretraining_objective(model, batch),
    )
    assert {name: term.item() for name, term in terms.items()} == {
        name: term.item() for name, term in direct.items()
    }


def test_get_count_name():
    assert get_count_name("mlm.accuracy") == get_count_name("mlm") == "mlm"


def test_copy_to_device():
    array = np.arange(5)
    assert copy_to_device(array, torch.device("cpu")).tolist() == array.tolist()
