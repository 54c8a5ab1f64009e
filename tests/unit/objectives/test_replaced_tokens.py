"""Replaced token detection against a plain reference, its counts and its gradients."""

from dataclasses import replace
from fractions import Fraction

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
from cloze.models.registry import FAMILIES
from cloze.nn.layout import Packed
from cloze.objectives.detector import build_detector
from cloze.objectives.masking import Masking, mask_row
from cloze.objectives.pretraining import make_device_objective
from cloze.objectives.replaced_tokens import (
    ReplacedTokenBatch,
    compute_detection_terms,
    is_detection_batch,
    make_detection_objective,
)
from corpora import numbered_tokenizer, small_corpus, some_documents
from helpers import scramble

CPU = torch.device("cpu")
LENGTH, PLACES, RATE, SEED = 24, 192, 0.25, 5
TOKENIZER = numbered_tokenizer()
MASKING = Masking.from_tokenizer(TOKENIZER, mlm_probability=RATE)
HIDING = replace(MASKING, split=(1.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus"), some_documents())


def batch_of(corpus, number=0, *, pairs="none", fills=False, detects=True, seed=None):
    sampling = Sampling(pairs=pairs, max_length=LENGTH, short_seq_prob=0.3)
    batches = PackedBatches(corpus.train, TOKENIZER, sampling, Batching(tokens=PLACES, window=None))
    made = CorpusSliceBatches(
        DeviceCorpus(corpus, TOKENIZER, CPU), batches, max_seqlen=LENGTH, mlm_probability=RATE
    )
    plain = made.step(number)[0]
    return ReplacedTokenBatch.from_batch(
        replace(plain, seed=seed), has_mlm=fills, has_detection=detects
    )


def learner(family="modernbert", heads=("mlm",), width=None):
    shape = {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": LENGTH,
    }
    config = FAMILIES[family].config_class(vocab_size=TOKENIZER.vocab_size, **shape)
    model = build(config, heads, rng=torch.Generator().manual_seed(0))
    both = build_detector(
        model, num_layers=1, hidden_size=width, rng=torch.Generator().manual_seed(1)
    )
    return scramble(both).eval()


def objective(weight=50.0, correction=0.0):
    return make_detection_objective(MASKING, CPU, weight=weight, correction=correction)


def rng(seed=SEED):
    return torch.Generator().manual_seed(seed)


def by_hand(both, batch):
    """The same with plain losses, all scores at once, one sequence of the corpus after another."""
    random = rng()
    row = batch.gather_tokens()
    masked = mask_row(row, HIDING, torch.from_numpy(MASKING.replacement_ids),
                      max_masked=batch.max_masked, num_masked=batch.num_masked,
                      rng=random)  # fmt: skip
    draws = torch.rand(batch.max_masked, generator=random)
    size = int(batch.lengths.sum())
    packed = Packed.from_lengths(batch.lengths)
    known = masked.targets != IGNORE_INDEX
    positions, targets = masked.positions[known], masked.targets[known]
    guesses = both.generator.logits(
        "mlm", both.generator(masked.ids[:size], packed, row.token_type_ids[:size])[positions]
    )
    filled = row.ids[:size].clone()
    for position, probs, draw in zip(positions, guesses.softmax(-1), draws[known], strict=True):
        filled[position] = int(torch.searchsorted(probs.cumsum(0), draw, right=True))
    hidden = both.model(filled, packed, row.token_type_ids[:size])
    inner = torch.ones(size, dtype=torch.bool)
    starts = np.cumsum([0, *batch.lengths])
    inner[starts[:-1]] = inner[starts[1:] - 1] = False
    for (begin, end), start in zip(batch.a.tolist(), starts[:-1].tolist(), strict=True):
        inner[start + end - begin + 1] = False  # [SEP] after the first segment
    truth = (filled != row.ids[:size])[inner]
    scores = both.discriminator_logits(hidden)[inner]
    words = both.model.logits("mlm", hidden[positions])
    return {
        "generator": F.cross_entropy(guesses, targets, reduction="sum"),
        "generator.accuracy": (guesses.argmax(-1) == targets).sum(),
        "detection": F.binary_cross_entropy_with_logits(scores, truth.float(), reduction="sum"),
        "detection.accuracy": ((scores > 0) == truth).sum(),
        "detection.original": (~truth).sum(),
        "correction": F.cross_entropy(words, targets, reduction="sum"),
        "correction.accuracy": (words.argmax(-1) == targets).sum(),
    }, int(inner.sum())


@pytest.mark.parametrize(("family", "pairs"), [("modernbert", "none"), ("bert", "nsp")])
@pytest.mark.parametrize("width", [None, 8])
def test_terms_equal_a_plain_computation(corpus, family, pairs, width):
    both = learner(family, width=width)
    for number in (0, 1, 19):
        batch = batch_of(corpus, number, pairs=pairs)
        terms = objective(correction=3.0)(both, batch, rng())
        expected, tokens = by_hand(both, batch)
        assert terms.keys() == expected.keys()
        for name, value in expected.items():
            assert terms[name].item() == pytest.approx(value.item(), rel=1e-4), name
        assert batch.counts["detection"] == tokens == int(batch.gather_tokens().is_text.sum())
        assert batch.counts["generator"] == batch.counts["correction"] == batch.num_masked
        assert 0 < expected["detection.original"] < tokens


def gradients(both, loss):
    weights = dict(both.named_parameters())
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True, retain_graph=True)
    return {name: grad for name, grad in zip(weights, found, strict=True) if grad is not None}


def test_detection_trains_the_model_and_not_the_generator(corpus):
    both = learner(width=8)
    terms = objective()(both, batch_of(corpus), rng())
    found = gradients(both, terms["detection"])
    assert not any(name.startswith("generator.") for name in found)
    assert {"head.weight", "model.blocks.0.attention.qkv.weight"} <= found.keys()
    taught = gradients(both, terms["generator"])
    own = {name for name in taught if not name.startswith("generator.")}
    assert own == {"model.embeddings.word.weight", "model.embeddings.norm.weight"}
    assert not any(term.requires_grad for name, term in terms.items() if "." in name)


def test_weights_scale_gradients_and_not_the_reported_losses(corpus):
    both, batch = learner(), batch_of(corpus)
    once, often = (
        objective(weight=weight, correction=weight)(both, batch, rng()) for weight in (1.0, 7.0)
    )
    for name in ("detection", "correction"):
        assert once[name].item() == pytest.approx(often[name].item())
        small, large = gradients(both, once[name]), gradients(both, often[name])
        for key, grad in small.items():
            torch.testing.assert_close(7.0 * grad, large[key], rtol=1e-4, atol=1e-5)


def test_a_correctly_sampled_token_counts_as_original(corpus):
    both, batch = learner(), batch_of(corpus)
    with torch.no_grad():  # a generator that always says one word
        both.generator.task_heads["mlm"].bias.zero_()[9] = 1e4
    row = batch.gather_tokens()
    masked = mask_row(row, HIDING, torch.from_numpy(MASKING.replacement_ids),
                      max_masked=batch.max_masked, num_masked=batch.num_masked,
                      rng=rng())  # fmt: skip
    guessed = int((masked.targets == 9).sum())
    terms = objective()(both, batch, rng())
    assert terms["generator.accuracy"] == guessed
    assert terms["detection.original"] == batch.counts["detection"] - batch.num_masked + guessed


def test_detection_counts_text_tokens_only():
    row = TokenRow(*(torch.zeros(5),) * 6, is_text=torch.tensor([0, 1, 1, 1, 0]).bool(),
                   maskable=torch.zeros(5), word_starts=torch.zeros(0))  # fmt: skip
    scores = torch.tensor([9.0, 2.0, -3.0, 4.0, 9.0])
    replaced = torch.tensor([False, True, False, False, False])
    terms = compute_detection_terms(scores, replaced, row, 50.0)
    assert terms["detection"].item() == pytest.approx(0.12693 + 0.04859 + 4.01815, abs=1e-4)
    assert (terms["detection.accuracy"], terms["detection.original"]) == (2, 2)


def test_an_mlm_batch_equals_plain_pretraining(corpus):
    both = learner()
    batch = batch_of(corpus, fills=True, detects=False)
    terms = objective()(both, batch, rng())
    plain = make_device_objective(MASKING, CPU)(both.model, batch, rng())
    assert {name: term.item() for name, term in terms.items()} == {
        name: term.item() for name, term in plain.items()
    }
    assert batch.counts == {"mlm": batch.num_masked, "nsp": 0, "generator": 0, "detection": 0,
                            "correction": 0}  # fmt: skip


def test_evaluation_batches_have_all_losses_and_are_reproducible(corpus):
    both = learner("bert", heads=("mlm", "nsp"))
    batch = batch_of(corpus, pairs="nsp", fills=True, seed=3)
    first, second = (objective(correction=1.0)(both, batch) for _ in range(2))
    assert {name: term.item() for name, term in first.items()} == {
        name: term.item() for name, term in second.items()
    }
    assert set(first) == {
        *("mlm", "mlm.accuracy", "nsp", "nsp.accuracy", "generator", "generator.accuracy"),
        *("detection", "detection.accuracy", "detection.original"),
        *("correction", "correction.accuracy"),
    }
    plain = make_device_objective(MASKING, CPU)(both.model, batch)  # masks and pairs of any run
    assert all(first[name].item() == term.item() for name, term in plain.items())


def test_samples_depend_on_rng_alone(corpus):
    both, batch = learner(), batch_of(corpus)
    losses = [objective()(both, batch, rng(seed))["detection"].item() for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_parts_of_a_batch_keep_its_objective(corpus):
    batch = batch_of(corpus, pairs="nsp")
    parts = batch.split(3)
    assert all(part.has_detection and not part.has_mlm for part in parts)
    assert sum(part.counts["detection"] for part in parts) == batch.counts["detection"]


@pytest.mark.parametrize("fraction", [Fraction(1, 2), Fraction(1, 3), Fraction(3, 4), Fraction(1)])
def test_detection_batches_are_spread_evenly(fraction):
    chosen = [is_detection_batch(number, fraction) for number in range(48)]
    size = fraction.denominator
    for first in range(0, 48, size):
        assert sum(chosen[first : first + size]) == fraction.numerator
