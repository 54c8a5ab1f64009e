"""Saliency against captum, on the same embedding layers, in float64."""

import pytest
import torch

from cloze.interpret.embeddings import find_embeddings
from cloze.interpret.examples import Example
from cloze.interpret.removal import Removal
from cloze.interpret.saliency import compute_saliency
from cloze.interpret.scores import (
    Batch,
    HeadScore,
    NextTokenScore,
    TranslationScore,
    join_scores,
    select_rows,
)
from helpers import tiny_model
from languages import neural_model
from recurrent import recurrent_encoder
from translators import module_of, some_ids

captum = pytest.importorskip("captum.attr")

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 4, 3]])
TYPES = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
REMOVABLE = torch.tensor([[False, True, True, True, False]] * 2)
ENCODERS = {
    "class": (lambda: tiny_model("sequence"), [HeadScore("sequence", 0, n) for n in (0, 1)]),
    "mask": (lambda: tiny_model("mlm"), [HeadScore("mlm", 2, 7), HeadScore("mlm", 3, 9)]),
    "tag": (
        lambda: tiny_model("token", family="distilbert", labels=("O", "B-X")),
        [HeadScore("token", 1, 1), HeadScore("token", 2, 0)],
    ),
    "start and end": (
        lambda: tiny_model("span", family="modernbert"),
        [HeadScore("span", 3, 0), HeadScore("span", 2, 1)],
    ),
    "roberta": (
        lambda: tiny_model("sequence", family="roberta"),
        [HeadScore("sequence", 0, 0)] * 2,
    ),
    "choice": (lambda: tiny_model("choice", labels=("no",)), [HeadScore("choice", 0, 0)] * 2),
    "gpt-2": (
        lambda: tiny_model("lm", family="gpt2"),
        [NextTokenScore(3, 7), NextTokenScore(2, 9)],
    ),
    "gpt-2, class": (
        lambda: tiny_model("sequence", family="gpt2"),
        [HeadScore("sequence", 0, n) for n in (0, 1)],
    ),
    "lstm": (lambda: neural_model("lstm"), [NextTokenScore(3, 7), NextTokenScore(4, 5)]),
    "nnlm": (lambda: neural_model("nnlm"), [NextTokenScore(3, 7), NextTokenScore(4, 5)]),
    "ulmfit": (recurrent_encoder, [HeadScore("sequence", 0, n) for n in (0, 1)]),
}


def make(name):
    build, scores = ENCODERS[name]
    module = build().module.double()
    examples = [
        Example(ids=ids, type_ids=types, score=score, removable=REMOVABLE[0].tolist())
        for ids, types, score in zip(IDS.tolist(), TYPES.tolist(), scores, strict=True)
    ]
    score = join_scores(scores)

    def forward(ids, types):
        rows = torch.arange(len(ids)) % len(scores)  # captum repeats the batch for every step
        return select_rows(score, rows)(module, Batch(ids, None, types))

    return module, examples, forward, find_embeddings(module)[0]


def check(found, wanted, most=1e-8):
    """Signed sums and normalized norms of the products, b t d."""
    for row, product in zip(found, wanted, strict=True):
        norms = product.norm(dim=-1)
        assert torch.allclose(row.signed, product.sum(-1), atol=most, rtol=0)
        assert torch.allclose(row.saliency, norms / norms.sum(), atol=most, rtol=0)


@pytest.mark.parametrize("name", ENCODERS)
def test_gradient_times_input(name):
    module, examples, forward, layer = make(name)
    wanted = captum.LayerGradientXActivation(forward, layer).attribute(
        IDS, additional_forward_args=(TYPES,)
    )
    check(compute_saliency(module, examples), wanted.detach())


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    ("baseline", "steps", "most"),
    [
        (4, 2, 1e-8),
        (0, 2, 1e-8),
        (4, 8, 1e-6),  # captum rounds the weights of the steps to float32; those of 2 are exact
    ],
)
def test_integrated_gradients(name, baseline, steps, most):
    module, examples, forward, layer = make(name)
    wanted, deltas = captum.LayerIntegratedGradients(forward, layer).attribute(
        IDS,
        IDS.where(~REMOVABLE, baseline),
        additional_forward_args=(TYPES,),
        n_steps=steps,
        return_convergence_delta=True,
    )
    vector = layer.weight[baseline].detach()
    removal = Removal(baseline=vector)
    found = compute_saliency(module, examples, "integrated", removal=removal, steps=steps)
    check(found, wanted.detach(), most)
    assert [one.delta for one in found] == pytest.approx(deltas.tolist(), abs=most)


@pytest.mark.parametrize("variety", ["transformer", "separate", "bahdanau", "luong-general"])
def test_both_sides_of_a_translator(variety):
    module = module_of(variety)
    source, target = some_ids(2, 5), some_ids(2, 4, seed=3)
    scores = [TranslationScore(2, 7), TranslationScore(3, 5)]
    examples = [
        Example(ids=ids, source_ids=sources, score=score, removable=[True] * 9)
        for ids, sources, score in zip(target.tolist(), source.tolist(), scores, strict=True)
    ]
    found = compute_saliency(module, examples)
    score = join_scores(scores)
    layers = find_embeddings(module)
    if len(layers) == 1:  # one table for both: separate them, so that captum can tell them apart
        module.source_embeddings = torch.nn.Embedding.from_pretrained(layers[0].weight)
        layers = find_embeddings(module)
    forward = lambda ids, sources: score(module, Batch(ids, source_ids=sources))  # noqa: E731
    sides = [
        captum.LayerGradientXActivation(forward, layer).attribute(
            target, additional_forward_args=(source,)
        )
        for layer in layers
    ]
    check(found, torch.cat(sides, 1).detach())
