"""Saliency by properties and by direct computation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cloze.errors import ClozeError
from cloze.interpret.embeddings import compute_gradients, find_embeddings, override_embeddings
from cloze.interpret.examples import Example
from cloze.interpret.removal import FRACTIONS, Removal, compute_faithfulness
from cloze.interpret.saliency import METHODS, compute_saliency
from cloze.interpret.scores import Batch, HeadScore, NextTokenScore, TranslationScore
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from translators import module_of


def text(ids, score, **changes):
    removable = [id_ not in (2, 3, 4) for id_ in ids]
    return Example(ids=ids, type_ids=[0] * len(ids), score=score, removable=removable, **changes)


def classifier():
    model = tiny_model("sequence")
    return model.module.double(), [
        text([2, 5, 6, 7, 8, 3], HeadScore("sequence", 0, 1)),
        text([2, 9, 3], HeadScore("sequence", 0, 0)),
        text([2, 7, 7, 5, 3], HeadScore("sequence", 0, 1)),
    ]


def translation():
    module = module_of("transformer")
    return module, [
        Example(
            ids=target,
            source_ids=source,
            score=TranslationScore(len(target) - 1, 7),
            removable=[True] * (len(source) - 1) + [False] * 2 + [True] * (len(target) - 1),
        )
        for source, target in (([5, 6, 7, 8], [1, 4, 9]), ([9, 8], [1, 3, 2, 6, 5]))
    ]


def language_model():
    module = neural_model("lstm").module.double()
    return module, [
        replace(text(ids, NextTokenScore(position, 6)), type_ids=())
        for ids, position in (([2, 5, 6, 7], 3), ([2, 7, 8, 5, 6, 9], 3))
    ]


def elmo():
    model = elmo_model()
    rows = [model.tokenizer.encode(one).ids for one in ("the cat sat", "cat")]
    return model.module.double(), [
        Example(ids=ids, score=NextTokenScore(1, 4), removable=[True] * len(ids)) for ids in rows
    ]


KINDS = {"class": classifier, "translation": translation, "lstm": language_model, "elmo": elmo}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_at_once_are_as_each_alone(kind, method):
    module, examples = KINDS[kind]()
    together = compute_saliency(module, examples, method, steps=3)
    for one, example in zip(together, examples, strict=True):
        (alone,) = compute_saliency(module, [example], method, steps=3)
        assert len(one.signed) == len(one.saliency) == len(example)
        assert torch.allclose(one.signed, alone.signed, atol=1e-10)
        assert torch.allclose(one.saliency, alone.saliency, atol=1e-10)
        assert one.score == pytest.approx(alone.score)
        assert one.probability == pytest.approx(alone.probability)


@pytest.mark.parametrize("kind", KINDS)
def test_the_saliency_of_a_text_sums_to_one(kind):
    module, examples = KINDS[kind]()
    for one in compute_saliency(module, examples):
        assert float(one.saliency.sum()) == pytest.approx(1)
        assert (one.saliency >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_integrated_gradients_add_up_to_the_difference_of_the_scores(kind):
    module, examples = KINDS[kind]()
    size = compute_gradients(module, *pick(module, examples))[2][0].shape[-1]
    baseline = torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    removal = Removal(baseline=0.1 * baseline)
    found = compute_saliency(module, examples, "integrated", removal=removal, steps=200)
    for one, example in zip(found, examples, strict=True):
        difference = one.score - one.baseline_score
        assert float(one.signed.sum()) == pytest.approx(difference, abs=2e-3)
        assert one.delta == pytest.approx(float(one.signed.sum()) - difference, abs=1e-12)
        fixed = ~torch.tensor(example.removable)
        assert (one.signed[fixed] == 0).all()


def pick(module, examples):
    from cloze.interpret.examples import iterate_batches

    (_, first), *_ = iterate_batches(module, examples[:1])
    return first.batch, first.score


def test_leave_one_out_is_the_score_with_a_mask_in_place_of_the_token():
    module, examples = classifier()
    removal = Removal(baseline=module.embeddings.word.weight[4].detach())
    for one, example in zip(
        compute_saliency(module, examples, "leave-one-out", removal=removal), examples, strict=True
    ):
        score = example.score
        whole = score(module, Batch(torch.tensor([example.ids]))).item()
        for token, id_ in enumerate(example.ids):
            masked = [4 if n == token else other for n, other in enumerate(example.ids)]
            lost = whole - score(module, Batch(torch.tensor([masked]))).item()
            wanted = lost if example.removable[token] else 0.0
            assert one.signed[token].item() == pytest.approx(wanted, abs=1e-10), id_


def test_leave_one_out_without_the_token():
    model = tiny_model("token", labels=("O", "B-X"))
    module = model.module.double()
    example = text([2, 5, 6, 7, 3], HeadScore("token", 2, 1))
    (one,) = compute_saliency(module, [example], "leave-one-out", removal=Removal(drop=True))
    whole = example.score(module, Batch(torch.tensor([example.ids]))).item()
    for token, moved in ((1, 1), (3, 2)):
        ids = [id_ for n, id_ in enumerate(example.ids) if n != token]
        less = HeadScore("token", moved, 1)(module, Batch(torch.tensor([ids]))).item()
        assert one.signed[token].item() == pytest.approx(whole - less, abs=1e-10)
    assert one.signed[2] == 0  # the tagged word itself is read


def test_a_dropped_last_token_leaves_the_one_before_it():
    module, examples = language_model()
    example = examples[1]  # it predicts after the fourth of six tokens
    (one,) = compute_saliency(module, [example], "leave-one-out", removal=Removal(drop=True))
    score = example.score(module, Batch(torch.tensor([example.ids]))).item()
    before = NextTokenScore(2, 6)(module, Batch(torch.tensor([example.ids[:3]]))).item()
    assert one.signed[3].item() == pytest.approx(score - before, abs=1e-10)
    assert one.signed[4:].abs().max() == 0  # later tokens change nothing


def test_dropped_tokens_of_a_source():
    module, examples = translation()
    found = compute_saliency(module, examples, "leave-one-out", removal=Removal(drop=True))
    for one, example in zip(found, examples, strict=True):
        ids, source = torch.tensor([example.ids]), torch.tensor([example.source_ids])
        whole = example.score(module, Batch(ids, source_ids=source)).item()
        less = example.score(module, Batch(ids, source_ids=source[:, 1:])).item()
        assert one.signed[0].item() == pytest.approx(whole - less, abs=1e-10)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("kind", ["class", "translation", "lstm"])
def test_curves_are_those_of_a_direct_computation(kind, drop):
    module, examples = KINDS[kind]()
    saliency = [one.saliency for one in compute_saliency(module, examples)]
    removal = Removal(drop=drop)
    found = compute_faithfulness(module, examples, saliency, removal, random_orders=3, seed=5)
    for one, example, values in zip(found, examples, saliency, strict=True):
        tokens = [n for n, removable in enumerate(example.removable) if removable]
        order = sorted(tokens, key=lambda n: -values[n])
        drawn = [np.random.default_rng(seed).permutation(tokens) for seed in (5, 6, 7)]
        direct = [
            [probability(module, example, o[: round(f * len(o))], drop) for f in FRACTIONS]
            for o in (order, order[::-1], *drawn)
        ]
        assert one.deletion.values == pytest.approx(direct[0], abs=1e-10)
        assert one.insertion.values == pytest.approx(direct[1][::-1], abs=1e-10)
        assert one.random.values == pytest.approx(np.mean(direct[2:], 0), abs=1e-10)
        assert one.low.values == pytest.approx(np.quantile(direct[2:], 0.025, axis=0), abs=1e-10)
        assert one.deletion.area == pytest.approx(np.trapezoid(direct[0], FRACTIONS))
        assert one.gain == pytest.approx(one.insertion.area - one.deletion.area)


def probability(module, example, removed, drop):
    """With zero embeddings of some tokens, or without them."""
    removed = [int(n) for n in removed]
    first = len(example.source_ids)
    if not drop:

        def change(side, vectors):
            changed = vectors.clone()
            start = first if side or not first else 0
            for n in removed:
                if (n >= first) == (start == first):
                    changed[0, n - start] = 0
            return changed

        batch = Batch(
            torch.tensor([example.ids]),
            source_ids=torch.tensor([example.source_ids]) if first else None,
        )
        with torch.no_grad(), override_embeddings(module, 1, change):
            return example.score.log_probability(module, batch).exp().item()
    ids = [id_ for n, id_ in enumerate(example.ids, first) if n not in removed]
    source = [id_ for n, id_ in enumerate(example.source_ids) if n not in removed]
    position = example.score.position
    moved = position - sum(first <= n <= first + position for n in removed)
    batch = Batch(torch.tensor([ids]), source_ids=torch.tensor([source]) if first else None)
    with torch.no_grad():
        score = replace(example.score, position=max(moved, 0))
        return score.log_probability(module, batch).exp().item()


def test_curves_begin_with_the_probability_of_the_text():
    module, examples = classifier()
    found = compute_saliency(module, examples)
    curves = compute_faithfulness(
        module, examples, [one.saliency for one in found], Removal(), random_orders=2
    )
    for one, curve in zip(found, curves, strict=True):
        assert curve.deletion.values[0] == pytest.approx(one.probability)
        assert curve.insertion.values[-1] == pytest.approx(one.probability)
        assert curve.deletion.values[-1] == pytest.approx(curve.insertion.values[0])


def test_hooks_and_modes_are_as_before_also_after_an_error():
    module, examples = classifier()
    module.train()
    bad = replace(examples[0], score=HeadScore("sequence", 0, 99))
    with pytest.raises(RuntimeError):
        compute_saliency(module, [bad])
    assert module.training
    assert not find_embeddings(module)[0]._forward_hooks
    assert all(weight.grad is None for weight in module.parameters())


def test_it_works_in_inference_mode_and_in_half_precision():
    module, examples = classifier()
    wanted = compute_saliency(module, examples)
    with torch.inference_mode():
        inside = compute_saliency(module, examples)
    half = compute_saliency(module.bfloat16(), examples)
    for one, other, rough in zip(wanted, inside, half, strict=True):
        assert torch.equal(one.saliency, other.saliency)
        assert rough.saliency.dtype == torch.float32
        assert torch.allclose(rough.saliency.double(), one.saliency, atol=0.1)


def test_bad_settings():
    module, examples = classifier()
    with raises(ClozeError, "method", fix=METHODS):
        compute_saliency(module, examples, "magic")
    with raises(ClozeError, "steps"):
        compute_saliency(module, examples, "integrated", steps=0)
    with raises(ClozeError, "embeddings"):
        compute_saliency(torch.nn.Linear(2, 2), examples)
