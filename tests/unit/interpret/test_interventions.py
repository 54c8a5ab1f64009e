"""Ablations and patches against direct computations."""

from copy import deepcopy

import pytest
import torch

from cloze.errors import InputError
from cloze.interpret.ablation import compute_ablations, compute_part_means
from cloze.interpret.interventions import (
    Edit,
    Part,
    find_stacks,
    list_parts,
    measure_runs,
    record_parts,
    replace_parts,
)
from cloze.interpret.patching import Patch, align_positions, compute_patches
from cloze.interpret.scores import Batch, HeadScore, NextTokenScore, TranslationScore
from cloze.nn.fuse import fuse
from helpers import raises, tiny_model
from languages import neural_model
from translators import module_of

IDS = torch.tensor([[2, 5, 6, 4, 8, 18, 3]])
OTHER = torch.tensor([[2, 9, 6, 4, 11, 18, 3]])
FAMILIES = ["bert", "modernbert", "distilbert", "roberta", "gpt2", "openai-gpt"]


def scored(family, ids=IDS, **options):
    """A model, a score, and a batch of one row."""
    if family == "transformer":
        module = module_of("transformer")
        source = ids.remainder(20) + 3
        inputs = torch.tensor([[1, 7, 9, 4]])
        batch = Batch(inputs, None, None, source, torch.ones_like(source, dtype=torch.bool))
        return module.eval(), TranslationScore(2, 11), batch
    head = "lm" if "gpt" in family else "mlm"
    module = tiny_model(head, family=family, **options).module
    score = NextTokenScore(5, 9) if head == "lm" else HeadScore("mlm", 3, 9)
    return module, score, Batch(ids)


@torch.no_grad()
def zero_output_columns(module, part):
    """A copy of a module whose output projection ignores one head."""
    changed = deepcopy(module)
    block = find_stacks(changed)[part.stack][part.layer]
    attention = block.cross_attention if part.kind == "cross_head" else block.attention
    size = attention.out.in_features // attention.num_heads
    attention.out.weight[:, part.head * size : (part.head + 1) * size] = 0
    return changed


@torch.no_grad()
def zero_sublayer(module, part):
    """A copy of a module one of whose sublayers computes zeros."""
    changed = deepcopy(module)
    block = find_stacks(changed)[part.stack][part.layer]
    last = block.ffn.down if part.kind == "ffn" else getattr(block, part.kind).out
    for weight in last.parameters():
        weight.zero_()
    return changed


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", [*FAMILIES, "transformer"])
@torch.no_grad()
def test_ablations_equal_those_of_changed_weights(family, fused):
    module, score, batch = scored(family)
    kinds = ["head", "attention", "ffn"]
    kinds += ["cross_head", "cross_attention"] if family == "transformer" else []
    parts = [
        part
        for stack in find_stacks(module)
        for kind in kinds
        for row in list_parts(module, stack, kind)
        for part in row
    ]
    expected = []
    for part in parts:
        change = zero_output_columns if part.head is not None else zero_sublayer
        expected.append(score(change(module, part), batch))
    if fused:
        fuse(module)
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    base, changes = compute_ablations(module, score, batch, parts, metric="logit")
    assert base == pytest.approx(float(score(module, batch)), abs=1e-5)
    torch.testing.assert_close(changes + base, torch.cat(expected).float(), rtol=1e-4, atol=1e-5)
    assert changes.abs().max() > 0.01
    assert all(torch.equal(weight, before[name]) for name, weight in module.state_dict().items())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())


@torch.no_grad()
def test_a_removed_block_is_skipped():
    module, score, batch = scored("gpt2")
    shorter = deepcopy(module)
    del shorter.blocks[0]
    base, changes = compute_ablations(
        module, score, batch, [Part("blocks", 0, "block")], metric="logit"
    )
    torch.testing.assert_close(changes + base, score(shorter, batch))


@torch.no_grad()
def test_batched_runs_equal_single_ones_in_every_metric():
    module, score, batch = scored("bert")
    parts = [part for row in list_parts(module, "blocks", "head") for part in row]
    for metric in ("logit", "log_probability", "probability"):
        base, together = compute_ablations(module, score, batch, parts, metric=metric)
        _, alone = compute_ablations(module, score, batch, parts, metric=metric, batch_tokens=1)
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)
        found = score.log_probability(module, batch)
        expected = {"logit": score(module, batch), "log_probability": found}.get(
            metric, found.exp()
        )
        assert base == pytest.approx(float(expected), abs=1e-5)


@torch.no_grad()
def test_the_mean_of_a_head_is_over_the_real_tokens_of_all_texts():
    module, score, batch = scored("bert")
    padded = Batch(
        torch.tensor([[2, 7, 4, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1, 0, 0]], dtype=torch.bool)
    )
    part = Part("blocks", 1, "head", 1)
    means = compute_part_means(module, [(score, batch), (HeadScore("mlm", 2, 9), padded)], [part])
    values = []
    for one in (batch, padded):
        x = list(module.hidden_states(one.ids, one.mask))[1]
        context = module.make_context(one.ids, one.mask)
        heads = module.blocks[1].attention.compute_heads(x, context)[0, :, 8:]
        values.append(heads if one.mask is None else heads[one.mask[0]])
    torch.testing.assert_close(means[part], torch.cat(values).mean(0))
    _, changes = compute_ablations(module, score, batch, [part], means=means, metric="logit")
    weight = module.blocks[1].attention.out.weight
    changed = zero_output_columns(module, part)
    changed.blocks[1].attention.out.bias += weight[:, 8:] @ means[part]
    torch.testing.assert_close(changes, score(changed, batch) - score(module, batch))


def test_hooks_are_removed_after_an_error():
    module, _, _ = scored("bert")
    part = Part("blocks", 0, "head", 0)

    def fail():
        with record_parts(module, [part]), replace_parts(module, [[Edit(part, torch.zeros(()))]]):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())


def test_a_model_without_attention_blocks_is_an_error():
    with raises(InputError, "LSTM", fix="encoder"):
        find_stacks(neural_model("lstm").module)


# --- patching


@pytest.mark.parametrize("family", [*FAMILIES, "transformer"])
@pytest.mark.parametrize(
    "kind", ["head", "attention", "cross_head", "cross_attention", "ffn", "block"]
)
def test_a_text_patched_with_itself_does_not_change(family, kind):
    module, score, batch = scored(family)
    patches = [
        Patch(part, position)
        for stack in find_stacks(module)
        for row in list_parts(module, stack, kind)
        for part in row
        for position in (None, 0, 3)
    ]
    if not patches:
        return
    found = compute_patches(module, (score, batch), (score, batch), patches)
    assert found.base == pytest.approx(found.source, abs=1e-6)
    torch.testing.assert_close(found.changes, torch.zeros(len(patches)), rtol=0, atol=2e-6)


@torch.no_grad()
def test_a_patched_block_equals_a_manual_forward_pass():
    module, score, batch = scored("gpt2")
    patch = Patch(Part("blocks", 0, "block"), 4)
    found = compute_patches(module, (score, batch), (score, Batch(OTHER)), [patch], metric="logit")
    context = module.make_context(IDS, None)
    first, second = (module.blocks[0](module.embeddings(ids), context) for ids in (IDS, OTHER))
    first[:, 4] = second[:, 4]
    hidden = module.norm(module.blocks[1](first, context))
    expected = module.logits("lm", hidden[:, 5])[0, 9]
    assert found.base + float(found.changes) == pytest.approx(float(expected), abs=1e-4)
    assert found.source == pytest.approx(float(score(module, Batch(OTHER))), abs=1e-5)


@torch.no_grad()
def test_patching_every_last_block_gives_the_source():
    """All positions of the last layer of the other text: its output."""
    module, score, batch = scored("bert")
    patch = Patch(Part("blocks", 1, "block"))
    found = compute_patches(module, (score, batch), (score, Batch(OTHER)), [patch], metric="logit")
    assert found.base + float(found.changes) == pytest.approx(found.source, abs=1e-5)
    assert abs(float(found.changes)) > 0.01


def test_texts_of_different_lengths_are_aligned_at_both_ends():
    assert align_positions([1, 2, 3, 9], [1, 5, 3, 9]) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert align_positions([1, 2, 3, 9], [1, 5, 6, 3, 9]) == {0: 0, 2: 3, 3: 4}
    assert align_positions([1, 1, 9], [1, 9]) == {0: 0, 2: 1}
    assert align_positions([4], [5, 6]) == {}
    module, score, batch = scored("bert")
    source = Batch(torch.tensor([[2, 5, 7, 6, 4, 8, 18, 3]]))
    patches = [Patch(Part("blocks", 0, "block"), n) for n in range(IDS.shape[1])]
    longer = (HeadScore("mlm", 4, 9), source)
    found = compute_patches(module, (score, batch), longer, patches, metric="logit")
    assert not found.changes.isnan().any()  # one token was added: all others have a partner
    changed = Batch(torch.tensor([[2, 5, 7, 7, 4, 8, 18, 3]]))
    found = compute_patches(module, (score, batch), (longer[0], changed), patches)
    assert found.changes.isnan().tolist() == [False, False, True, False, False, False, False]


def test_rows_without_edits_are_unchanged():
    module, score, batch = scored("modernbert")
    part = Part("blocks", 0, "ffn")
    runs = [[], [Edit(part, torch.zeros(()))], []]
    found = measure_runs(module, score, batch, runs, metric="logit")
    assert found[0] == found[2] != found[1]
