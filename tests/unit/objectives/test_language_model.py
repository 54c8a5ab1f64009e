"""The objective of neural language models."""

import numpy as np
import pytest
import torch

from cloze.data.language_model_batches import LOSS_NAME, BPTTBatches, ContextWindows
from cloze.decode.language import language_model
from cloze.models.configs.ngram import BOS, EOS
from cloze.objectives.language_model import StatefulLSTM, language_model_objective
from languages import neural_model


def test_the_loss_is_the_negative_log_probability():
    model = language_model(neural_model("nnlm"))
    ids = np.array(model.encode_texts(["the cat sat on the mat"])[0][1:], np.int32)
    batch = ContextWindows(ids, order=4, bos_id=BOS, eos_id=EOS, batch_size=len(ids)).batch(0)
    found = language_model_objective(model.module, batch)
    (log_probs,) = model.log_probs(model.encode_texts(["the cat sat on the mat"]))
    assert np.isclose(found[LOSS_NAME].item(), -log_probs.sum(), rtol=1e-5)
    assert 0 <= found[f"{LOSS_NAME}.accuracy"] <= len(ids)
    assert not found[f"{LOSS_NAME}.accuracy"].requires_grad


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_the_state_is_carried_from_batch_to_batch(cell):
    module = neural_model(cell).module
    text = np.arange(3, 11, dtype=np.int32)
    batches = BPTTBatches(text, batch_size=1, num_steps=2)
    carried = StatefulLSTM(module, 1)
    for step in range(batches.per_epoch):
        language_model_objective(carried, batches.batch(step))
    inputs = np.concatenate([batches.batch(step).inputs[0] for step in range(4)])
    hidden, *memory = module.compute_state(torch.from_numpy(inputs)[None])
    assert torch.allclose(carried.hidden, hidden, atol=1e-6)
    for part in memory:
        assert torch.allclose(carried.cell, part, atol=1e-6)
    language_model_objective(carried, batches.batch(4))  # an epoch begins: nothing is remembered
    alone = module.compute_state(torch.from_numpy(batches.batch(4).inputs))
    assert torch.allclose(carried.hidden, alone[0], atol=1e-6)


def test_parts_of_a_batch_carry_their_own_state():
    module = neural_model("lstm").module
    batches = BPTTBatches(np.arange(3, 15, dtype=np.int32) % 9 + 3, batch_size=3, num_steps=2)
    whole, parts = StatefulLSTM(module, 3), StatefulLSTM(module, 3)
    for step in range(2):
        one = language_model_objective(whole, batches.batch(step))[LOSS_NAME]
        some = sum(
            language_model_objective(parts, part)[LOSS_NAME]
            for part in batches.batch(step).split(3)
        )
        assert torch.allclose(one, some, rtol=1e-5)
    assert torch.allclose(whole.hidden, parts.hidden, atol=1e-6)


def test_no_gradient_flows_into_the_previous_batch():
    carried = StatefulLSTM(neural_model("lstm").module, 2)
    batches = BPTTBatches(np.arange(3, 11, dtype=np.int32), batch_size=2, num_steps=2)
    for step in range(2):
        language_model_objective(carried, batches.batch(step))[LOSS_NAME].backward()
    assert not carried.hidden.requires_grad
