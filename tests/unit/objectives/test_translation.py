"""The objective of translators."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.nn import functional as F

from cloze.data.parallel_text import LOSS_NAME, TranslationBatches
from cloze.data.sequence_pairs import SOURCE_LOSS, SequenceBatches
from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.configs.gpt import GPT2Config
from cloze.models.configs.transformer import TransformerConfig
from cloze.models.seq2seq import Seq2Seq
from cloze.models.transformer import Transformer
from cloze.objectives.core import DeviceBatch
from cloze.objectives.translation import make_sequence_objective, make_translation_objective
from helpers import raises, scramble
from translators import VARIETIES, config_of, module_of

SOURCE, TARGET = [[5, 6, 0], [7, 0], [3, 3, 3, 0]], [[8, 0], [9, 3, 4, 0], [2, 0]]


def batch(own=0.0):
    pairs = TranslationBatches(SOURCE, TARGET, batch_tokens=1000)
    return replace(pairs.batch(0), scheduled_sampling_prob=own)


@pytest.mark.parametrize("variety", ["transformer", "bahdanau"])
def test_sums_equal_those_of_single_pairs(variety):
    module = module_of(variety)
    terms = make_translation_objective()(module, batch(), None)
    total, right = 0.0, 0
    for source, target in zip(SOURCE, TARGET, strict=True):
        inputs = torch.tensor([[0, *target[:-1]]])
        ids = torch.tensor([source])
        scores = module.logits(module(ids, torch.ones_like(ids, dtype=torch.bool), inputs))[0]
        total += F.cross_entropy(scores, torch.tensor(target), reduction="sum").item()
        right += (scores.argmax(-1) == torch.tensor(target)).sum().item()
    assert terms[LOSS_NAME].item() == pytest.approx(total, rel=1e-9)
    assert terms[f"{LOSS_NAME}.nats"].item() == pytest.approx(total, rel=1e-9)
    assert terms[f"{LOSS_NAME}.accuracy"].item() == right
    assert not terms[f"{LOSS_NAME}.nats"].requires_grad


def test_label_smoothing():
    module = module_of("transformer")
    terms = make_translation_objective(smoothing=0.1)(module, batch(), None)
    plain = terms[f"{LOSS_NAME}.nats"].item()
    arrays = {name: torch.from_numpy(array) for name, array in batch().arrays(1).items()}
    inputs = F.pad(arrays["targets"].clamp(min=0), (1, -1))  # bos is 0
    is_target = arrays["targets"] >= 0
    logs = module.logits(
        module(arrays["source"], arrays["attention_mask"], inputs)[is_target]
    ).log_softmax(-1)
    expected = 0.9 * plain - 0.1 * logs.mean(-1).sum().item()
    assert terms[LOSS_NAME].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("variety", VARIETIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_device_batches_give_the_same_sums_and_gradients(variety, smoothing):
    objective, found = make_translation_objective(smoothing=smoothing), []
    for placed in (False, True):
        module = module_of(variety)
        given = DeviceBatch.from_batch(torch.device("cpu"), batch()) if placed else batch()
        terms = objective(module, given, None)
        terms[LOSS_NAME].backward()
        found.append((terms, {name: w.grad for name, w in module.named_parameters()}))
    (terms, grads), (others, other_grads) = found
    assert terms.keys() == others.keys()
    for name in terms:
        assert others[name].item() == pytest.approx(terms[name].item(), rel=1e-10)
    for name, grad in grads.items():
        if grad is None:
            assert other_grads[name] is None
        else:
            torch.testing.assert_close(other_grads[name], grad, rtol=0.0, atol=1e-10)


def test_padding_may_exceed_max_positions():
    module = module_of("learned")
    module.position_encoding.max_positions = 5  # arrays have 8 columns
    whole = make_translation_objective()(module, batch(), None)[LOSS_NAME].item()
    placed = DeviceBatch.from_batch(torch.device("cpu"), batch())
    assert make_translation_objective()(module, placed, None)[LOSS_NAME].item() == pytest.approx(
        whole, rel=1e-10
    )


def test_scheduled_sampling_prob_is_read_from_the_device_batch():
    module = module_of("bahdanau", scale=1.0).train()
    objective = make_translation_objective()
    forced = objective(module, batch(), None)[LOSS_NAME].item()
    placed = DeviceBatch.from_batch(torch.device("cpu"), batch(own=0.5))
    found = []
    for prob in (0.0, 1.0):
        placed.tensors["scheduled_sampling_prob"].fill_(prob)  # as a replayed step finds it
        found.append(objective(module, placed, None)[LOSS_NAME].item())
    everything = objective(module, batch(own=1.0), torch.Generator())[LOSS_NAME].item()
    assert found == pytest.approx([forced, everything], rel=1e-10)
    assert everything != pytest.approx(forced)


@pytest.mark.parametrize(
    ("variety", "own"),
    [("learned", 0.0), ("separate", 0.0), ("plain-lstm", 0.0), ("bahdanau", 0.5), ("unfed", 0.0)],
)
def test_shapes_and_branches_do_not_depend_on_tensor_values(variety, own):
    """So a GPU can record the step: tensors without numbers in them pass through it."""
    config = config_of(variety)
    with FakeTensorMode() as mode:
        module = (Transformer if isinstance(config, TransformerConfig) else Seq2Seq)(config)
        module.train()
        given = DeviceBatch.from_batch(torch.device("cpu"), batch(own))
        tensors = {name: mode.from_tensor(tensor) for name, tensor in given.tensors.items()}
        make_translation_objective(smoothing=0.1)(module, DeviceBatch(batch(), tensors), None)[
            LOSS_NAME
        ].backward()
        with pytest.raises(DynamicOutputShapeException):  # as the packed words of a CPU do
            tensors["targets"][tensors["targets"] >= 0]


def test_scheduled_sampling_needs_a_recurrent_decoder_in_training():
    module = module_of("bahdanau", scale=1.0)
    objective, rng = make_translation_objective(), torch.Generator().manual_seed(0)
    forced = objective(module, batch(), rng)[LOSS_NAME].item()
    assert objective(module, batch(own=1.0), rng)[LOSS_NAME].item() == forced  # not while judging
    module.train()
    assert objective(module, batch(own=1.0), rng)[LOSS_NAME].item() != forced
    with raises(ConfigError, "transformer", fix="0"):
        objective(module_of("transformer"), batch(own=0.5), rng)


def test_a_decoder_only_model_has_the_loss_of_its_targets():
    """Packed on a CPU and padded as on a GPU; the same as from the log-probabilities of all."""
    config = GPT2Config(
        vocab_size=12, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32,
        max_positions=9,
    )  # fmt: skip
    module = build(config, ["lm"], rng=torch.Generator().manual_seed(0)).double().eval()
    scramble(module, 1, 0.3)
    prompts, targets = [[1, 5, 6, 7, 2], [1, 4, 2]], [[8, 9, 0], [3, 3, 4, 10, 0]]
    batch = SequenceBatches(
        prompts, targets, max_positions=9, has_source_loss=True, batch_tokens=100
    ).batch(0)
    total = source = 0.0
    for prompt, target in zip(prompts, targets, strict=True):
        ids = torch.tensor([[*prompt, *target]])
        log_probs = module.logits("lm", module(ids[:, :-1])).log_softmax(-1)[0]
        nats = -log_probs.gather(-1, ids[0, 1:, None])[:, 0]
        total += nats[len(prompt) - 1 :].sum().item()
        source += nats[: len(prompt) - 1].sum().item()
    objective = make_sequence_objective(source_weight=0.5)
    padded = DeviceBatch.from_batch(torch.device("cpu"), batch)
    assert padded.tensors["ids"].shape == (2, 9)  # not beyond the last position
    for given in (batch, padded):
        terms = objective(module, given, None)
        assert terms[LOSS_NAME].item() == pytest.approx(total)
        assert terms[SOURCE_LOSS].item() == pytest.approx(source)
    assert batch.counts == {LOSS_NAME: 8, SOURCE_LOSS: 6}
    parts = [objective(module, part, None)[LOSS_NAME].item() for part in batch.split(2)]
    assert sum(parts) == pytest.approx(total)
