"""Evaluate sentence embeddings during training, on scored pairs, on pairs, and by retrieval.

| dev data | scores | the one that selects the best model |
|---|---|---|
| retrieval set | nDCG@10 | nDCG@10 |
| scored pairs | Spearman and Pearson correlation of the cosines | Spearman |
| pairs, triplets | MRR, accuracy, recall@10 of the positive among all dev positives | MRR |
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.data.retrieval_set import RetrievalSet
from cloze.data.text_pairs import TextPairs
from cloze.metrics.ranking import compute_ndcg, find_ranks
from cloze.metrics.regression import pearson, spearman
from cloze.retrieval.exact import search_exact
from cloze.tasks.embed import embed
from cloze.tasks.evaluation import shorten

RESULTS = 10  # documents of a query, texts of an anchor
NEIGHBOURS_SHOWN, TEXT_CHARS = 5, 200  # in the report
_BLOCK = 1024  # anchors that are compared at once
INITIAL = "initial_"  # before the names of the scores of the model that the run started from

Vectors = NDArray[np.float32]


def embed_texts(model: Model, texts: list[str], batch_tokens: int | None = None) -> Vectors:
    """Vectors of length 1, so that inner products are cosines; a long text is truncated."""
    return embed(
        model,
        texts,
        normalize=True,
        batch_tokens=batch_tokens,
        progress=False,
        on_truncated=lambda *_: None,
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingEvaluation:
    """The scores of a model on pairs and on a retrieval set, if they are given."""

    pairs: TextPairs | None
    retrieval: RetrievalSet | None = None
    batch_tokens: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.pairs is None and self.retrieval is None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores; the first selects the best model."""
        found: tuple[str, ...] = ()
        if self.pairs is not None:
            is_scored = self.pairs.scores is not None
            found = ("spearman", "pearson") if is_scored else ("mrr", "accuracy", "recall_at_10")
        return found if self.retrieval is None else ("ndcg_at_10", *found)

    def compute_scores(self, model: Model) -> dict[str, float]:
        """The scores by name, in the order of `names`."""
        found: dict[str, float] = {}
        if self.retrieval is not None:
            found["ndcg_at_10"] = score_retrieval(model, self.retrieval, self.batch_tokens)
        if self.pairs is not None:
            vectors = embed_texts(model, list(self.pairs.texts), self.batch_tokens)
            if self.pairs.scores is not None:
                found |= score_similarities(vectors, self.pairs)
            else:
                found |= score_pairs(vectors, self.pairs)
        return found


def score_similarities(vectors: Vectors, pairs: TextPairs) -> dict[str, float]:
    """The correlations of the cosines with the scores of the pairs."""
    assert pairs.scores is not None
    cosines = (vectors[pairs.rows[:, 0]] * vectors[pairs.rows[:, 1]]).sum(1)
    gold = pairs.scores.astype(np.float64)
    return {"spearman": spearman(gold, cosines), "pearson": pearson(gold, cosines)}


def score_pairs(vectors: Vectors, pairs: TextPairs) -> dict[str, float]:
    """How well each anchor finds its positive among all positives and negatives of the dev data.

    The anchor itself is no candidate, unless it is its own positive.
    """
    anchors, positives = pairs.rows[:, 0], pairs.rows[:, 1]
    candidates = np.unique(pairs.rows[:, 1:][pairs.rows[:, 1:] >= 0])
    correct = np.searchsorted(candidates, positives)
    ranks = []
    for start in range(0, len(anchors), _BLOCK):
        block = slice(start, start + _BLOCK)
        scores = vectors[anchors[block]] @ vectors[candidates].T
        is_self = (anchors[block, None] == candidates) & (anchors != positives)[block, None]
        ranks.append(find_ranks(np.where(is_self, -np.inf, scores), correct[block]))
    found = np.concatenate(ranks)
    return {
        "mrr": float((1 / found).mean()),
        "accuracy": float((found == 1).mean()),
        "recall_at_10": float((found <= RESULTS).mean()),
    }


def score_retrieval(model: Model, data: RetrievalSet, batch_tokens: int | None = None) -> float:
    """nDCG@10 of the documents with the most similar vectors."""
    documents, queries = (
        embed_texts(model, list(one.values()), batch_tokens)
        for one in (data.documents, data.queries)
    )
    _, found = search_exact(queries, documents, RESULTS)
    names = list(data.documents)
    rankings = {
        query: [names[n] for n in row if n >= 0]
        for query, row in zip(data.queries, found.tolist(), strict=True)
    }
    return fmean(
        compute_ndcg(rankings[query], relevance, RESULTS)
        for query, relevance in data.judgments.items()
        if max(relevance.values()) > 0
    )


def find_neighbours(model: Model, pairs: TextPairs, shown: int = 6) -> list[dict[str, Any]]:
    """The nearest texts of the first anchors, for the report."""
    anchors = list(dict.fromkeys(pairs.rows[:, 0].tolist()))[:shown]
    texts = list(pairs.texts)
    vectors = embed_texts(model, texts)
    numbers = np.arange(len(texts))
    groups = (torch.tensor(anchors), torch.from_numpy(numbers))  # a text is not its own neighbour
    scores, found = search_exact(vectors[anchors], vectors, NEIGHBOURS_SHOWN, exclude=groups)
    return [
        {
            "text": shorten(texts[anchor], TEXT_CHARS),
            "neighbours": [
                [shorten(texts[n], TEXT_CHARS), round(score, 4)]
                for score, n in zip(row_scores, row, strict=True)
                if n >= 0
            ],
        }
        for anchor, row_scores, row in zip(anchors, scores.tolist(), found.tolist(), strict=True)
    ]
