"""The losses of sentence embeddings against sentence-transformers, number by number."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as theirs
from torch import nn

from cloze.data.pair_batch import PairLayout
from cloze.objectives.contrastive import (
    CoSENTLoss,
    CosineLoss,
    MatryoshkaLoss,
    MultipleNegativesLoss,
)

pytestmark = pytest.mark.parity
ROWS, SIZE = 13, 24


class Given(nn.Module):
    """A module of sentence-transformers whose vectors are given."""

    def forward(self, features):
        return features | {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self):
        return SIZE

    def get_sentence_embedding_dimension(self):
        return SIZE


def columns_of(count: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(count)
    return [
        torch.randn(ROWS, SIZE, generator=rng, dtype=torch.float64).requires_grad_()
        for _ in range(count)
    ]


def compare(ours, make_loss, count: int, labels=None) -> None:
    """Equal losses, and equal gradients of all vectors."""
    model = SentenceTransformer(modules=[Given()], device="cpu")
    given = columns_of(count)
    features = [{"vectors": one} for one in given]
    expected = make_loss(model)(features, labels)
    gradients = torch.autograd.grad(expected, given)
    vectors = torch.cat(given).detach().requires_grad_()
    scores = None if labels is None else labels.numpy()
    rows = np.arange(ROWS * count).reshape(count, ROWS).T
    layout = PairLayout.from_rows(rows, scores)
    found = ours(vectors, layout).loss
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)
    (gradient,) = torch.autograd.grad(found, vectors)
    torch.testing.assert_close(gradient, torch.cat(gradients), atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("scale", [20.0, 4.0])
def test_multiple_negatives_ranking(count, scale):
    """Pairs, triplets, and several negatives."""
    compare(
        MultipleNegativesLoss(scale=scale),
        lambda model: theirs.MultipleNegativesRankingLoss(model, scale=scale),
        count,
    )


@pytest.mark.parametrize("count", [2, 4])
def test_symmetric_multiple_negatives_ranking(count):
    compare(
        MultipleNegativesLoss(symmetric=True),
        lambda model: theirs.MultipleNegativesRankingLoss(
            model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        ),
        count,
    )


@pytest.mark.parametrize("scores", ["distinct", "tied"])
def test_cosent(scores):
    rng = torch.Generator().manual_seed(1)
    labels = torch.rand(ROWS, generator=rng, dtype=torch.float64)
    labels = (labels * 3).round() if scores == "tied" else labels
    compare(CoSENTLoss(scale=7.0), lambda model: theirs.CoSENTLoss(model, scale=7.0), 2, labels)


def test_cosine_similarity():
    labels = torch.arange(ROWS).double() / 16  # exact in float32, to which theirs converts them
    compare(CosineLoss(), lambda model: theirs.CosineSimilarityLoss(model), 2, labels)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 0.5, 0.25)])
@pytest.mark.parametrize("inner", ["ranking", "cosent", "cosine"])
def test_matryoshka(inner, weights):
    kinds = {
        "ranking": (MultipleNegativesLoss(), theirs.MultipleNegativesRankingLoss, None),
        "cosent": (CoSENTLoss(), theirs.CoSENTLoss, torch.arange(ROWS).double() / 16),
        "cosine": (CosineLoss(), theirs.CosineSimilarityLoss, torch.arange(ROWS).double() / 16),
    }
    ours, cls, labels = kinds[inner]
    sizes = (SIZE, 12, 5)
    compare(
        MatryoshkaLoss(ours, sizes, weights),
        lambda model: theirs.MatryoshkaLoss(model, cls(model), sizes, list(weights)),
        2 if labels is not None else 3,
        labels,
    )
