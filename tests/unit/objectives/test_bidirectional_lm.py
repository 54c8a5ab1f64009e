"""The objective of ELMo against plain definitions."""

import numpy as np
import pytest
import torch

from cloze.data.batch import IGNORE_INDEX
from cloze.data.language_model_batches import BPTTBatches, WordBatches
from cloze.models.configs.ngram import BOS, EOS, UNK
from cloze.models.language import OpenVocabulary
from cloze.objectives.bidirectional_lm import (
    bidirectional_objective,
    compute_losses,
    draw_candidates,
    sampled_cross_entropy,
)
from cloze.objectives.language_model import StatefulLSTM
from elmo_reference import read_direction, weights_of, word_vector
from languages import elmo_model

TEXT = ["the cat sat on the mat", "a dozzled wug sat", "the mat"]


def running_text(model):
    vocabulary = OpenVocabulary(model.tokenizer)
    encoded = vocabulary.encode(TEXT)
    return np.array([n for ids in encoded for n in (BOS, *ids, EOS)]), vocabulary


def batches_of(model, *, rows=2, length=5, reset_prob=1.0):
    ids, vocabulary = running_text(model)
    size, characters = model.config.vocab_size, vocabulary.characters()
    numbers = np.arange(len(characters))
    model.module.set_vocabulary(torch.from_numpy(characters[:size]))
    return WordBatches(
        BPTTBatches(ids, batch_size=rows, num_steps=length, reset_prob=reset_prob),
        characters,
        np.where(numbers < size, numbers, UNK),
        max_filter_width=3,
        bos_id=BOS,
        eos_id=EOS,
    )


def log_softmax(x):
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def output_layer(weights, vocabulary, size):
    if isinstance(weights["output"], dict):
        rows = vocabulary.characters_of(range(size))
        vectors = np.array([word_vector(row, weights["output"]) for row in rows])
        return vectors + weights["correction"] @ weights["correction_projection"]
    return weights["output"]


@pytest.mark.parametrize("output", ["softmax", "cnn"])
def test_both_losses_equal_the_equations(output):
    model = elmo_model(output=output, num_candidates=0)
    module = model.module.double()
    weights = weights_of(module)
    _, vocabulary = running_text(model)
    batch = batches_of(model).batch(0)
    size = model.config.vocab_size
    table = output_layer(weights, vocabulary, size)
    expected = {"lm": 0.0, "lm_backward": 0.0}
    counts = dict.fromkeys(expected, 0)
    full = np.full((len(batch.characters), 50), 260)
    full[:, : batch.characters.shape[1]] = batch.characters
    for left, right in zip(batch.inputs, batch.targets, strict=True):
        for name, read, wanted, begin in (
            ("lm", left, right, BOS),
            ("lm_backward", right[::-1], left[::-1], EOS),
        ):
            x = np.array([word_vector(full[n], weights) for n in read])
            direction = weights["forward" if name == "lm" else "backward"]
            for h, target in zip(read_direction(x, direction)[-1], wanted, strict=True):
                if batch.word_ids[target] != begin:
                    logs = log_softmax(table @ h + weights["bias"])
                    expected[name] -= logs[batch.word_ids[target]]
                    counts[name] += 1
    found = bidirectional_objective(StatefulLSTM(module, 2), batch)
    assert dict(batch.counts) == counts
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, rel=1e-6)


def test_unknown_words_are_read_by_their_characters_and_predicted_as_unknown():
    model = elmo_model()
    ids, vocabulary = running_text(model)
    assert {vocabulary.spellings[id_] for id_ in ids} >= {"dozzled", "wug"}
    batches = batches_of(model, rows=1, length=len(ids) - 1)
    batch = batches.batch(0)
    unknown = batch.characters[batch.word_ids == UNK]
    spelled = {bytes(row[1:][row[1:] < 256].astype(np.uint8)) for row in unknown.astype(int)}
    assert {b"dozzled", b"wug"} <= spelled


def test_a_batch_has_each_word_once_and_few_shapes():
    model = elmo_model()
    batches = batches_of(model)
    found = [batches.batch(step) for step in range(6)]
    assert {one.characters.shape[0] % 16 for one in found} == {0}
    for one in found:
        words = one.characters[np.unique([one.inputs, one.targets])]
        assert len({tuple(row) for row in words.tolist()}) == len(words)
        parts = one.split(2)
        assert sum(part.counts["lm"] for part in parts) == one.counts["lm"]


def test_all_candidates_are_the_full_softmax():
    model = elmo_model()
    module, size = model.module.double(), model.config.vocab_size
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(6, 5, generator=rng, dtype=torch.float64)
    targets = torch.tensor([0, 3, IGNORE_INDEX, size - 1, 4, 4])
    candidates = draw_candidates(size, size)
    assert candidates.ids.tolist() == list(range(size))
    loss, hits = sampled_cross_entropy(
        hidden,
        targets,
        candidates,
        module.output(candidates.ids),
        module.output(targets.clamp(min=0)),
    )
    logits = torch.nn.functional.linear(hidden, *module.output())
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
    assert hits == (logits.argmax(-1) == targets).sum()


def test_candidates_are_distinct_and_frequent_words_more_probable():
    torch.manual_seed(0)
    size, count = 50, 10
    seen = torch.zeros(size)
    for _ in range(1000):
        found = draw_candidates(size, count)
        assert len(set(found.ids.tolist())) == count
        seen[found.ids] += 1
    assert seen[0] > 2 * seen[10] > 2 * seen[40]


def test_the_corrected_sum_over_candidates_estimates_that_over_the_vocabulary():
    """Σ over candidates of exp(logit)/P(candidate) has the expectation Σ over all of exp(logit)."""
    torch.manual_seed(1)
    size, count = 40, 12
    logits = torch.randn(size)
    sums = []
    for _ in range(3000):
        found = draw_candidates(size, count)
        sums.append((logits[found.ids] - found.log_inclusion(found.ids)).exp().sum())
    mean, total = torch.stack(sums).mean(), logits.exp().sum()
    error = torch.stack(sums).std() / len(sums) ** 0.5
    assert abs(mean - total) < 4 * error < 0.05 * total


def test_a_target_among_the_candidates_counts_once():
    model = elmo_model()
    module = model.module.double()
    torch.manual_seed(3)
    hidden = torch.randn(7, 5, dtype=torch.float64)
    targets = torch.tensor([0, 1, 2, 3, 4, 5, 6])
    candidates = draw_candidates(model.config.vocab_size, 4)
    sampled, true = module.output(candidates.ids), module.output(targets)
    loss, _ = sampled_cross_entropy(hidden, targets, candidates, sampled, true)
    expected = 0.0
    weight, bias = (part.detach() for part in module.output())
    for h, target in zip(hidden, targets.tolist(), strict=True):
        ids = torch.tensor(sorted({target, *candidates.ids.tolist()}))
        logits = weight[ids] @ h + bias[ids] - candidates.log_inclusion(ids)
        expected -= logits.log_softmax(0)[ids.tolist().index(target)]
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("output", ["softmax", "cnn"])
def test_gradients_reach_the_output_layer_and_both_directions(output):
    model = elmo_model(output=output, num_candidates=6)
    batch = batches_of(model).batch(0)
    torch.manual_seed(0)
    found = bidirectional_objective(StatefulLSTM(model.module, 2), batch)
    (found["lm"] + found["lm_backward"]).backward()
    without = [name for name, one in model.module.named_parameters() if one.grad is None]
    assert not without


def test_the_full_loss_is_the_one_of_evaluation():
    model = elmo_model(num_candidates=0)
    hidden = torch.randn(2, 3, 5)
    targets = torch.tensor([[3, 4, 5], [IGNORE_INDEX, 1, 2]])
    losses, _ = compute_losses(model.module, hidden, targets)
    for loss, vectors, ids in zip(losses, hidden, targets, strict=True):
        logits = torch.nn.functional.linear(vectors, *model.module.output())
        expected = torch.nn.functional.cross_entropy(logits, ids, reduction="sum")
        torch.testing.assert_close(loss, expected)
