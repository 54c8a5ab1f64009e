"""What a translator learns from."""

import pytest
import torch
from torch.nn import functional as F

from cloze.data.parallel import NAME, Pairs
from cloze.errors import ConfigError
from cloze.objectives.translation import translation
from translators import module_of

SOURCE, TARGET = [[5, 6, 0], [7, 0], [3, 3, 3, 0]], [[8, 0], [9, 3, 4, 0], [2, 0]]


def batch(own=0.0):
    pairs = Pairs(SOURCE, TARGET, batch_tokens=1000)
    return pairs.batch(0, own)


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_the_sum_is_that_of_the_pairs_one_by_one(variety):
    module = module_of(variety)
    terms = translation()(module, batch(), None)
    total, right = 0.0, 0
    for source, target in zip(SOURCE, TARGET, strict=True):
        inputs = torch.tensor([[0, *target[:-1]]])
        ids = torch.tensor([source])
        scores = module.logits(module(ids, torch.ones_like(ids, dtype=torch.bool), inputs))[0]
        total += F.cross_entropy(scores, torch.tensor(target), reduction="sum").item()
        right += (scores.argmax(-1) == torch.tensor(target)).sum().item()
    assert terms[NAME].item() == pytest.approx(total, rel=1e-9)
    assert terms[f"{NAME}.nats"].item() == pytest.approx(total, rel=1e-9)
    assert terms[f"{NAME}.accuracy"].item() == right
    assert not terms[f"{NAME}.nats"].requires_grad


def test_label_smoothing_spreads_a_share_over_all_words():
    module = module_of("transformer")
    terms = translation(smoothing=0.1)(module, batch(), None)
    plain = terms[f"{NAME}.nats"].item()
    source, real, inputs, told = (torch.from_numpy(a) for a in batch().padded(bos=0))
    logs = module.logits(module(source, real, inputs)[told]).log_softmax(-1)
    expected = 0.9 * plain - 0.1 * logs.mean(-1).sum().item()
    assert terms[NAME].item() == pytest.approx(expected, rel=1e-9)


def test_own_words_are_for_recurrent_nets_while_they_learn():
    module = module_of("bahdanau", scale=1.0)
    objective, rng = translation(), torch.Generator().manual_seed(0)
    forced = objective(module, batch(), rng)[NAME].item()
    assert objective(module, batch(own=1.0), rng)[NAME].item() == forced  # not while judging
    module.train()
    assert objective(module, batch(own=1.0), rng)[NAME].item() != forced
    with pytest.raises(ConfigError, match="none of its own\n.*loss.own_words to 0"):
        objective(module_of("transformer"), batch(own=0.5), rng)
