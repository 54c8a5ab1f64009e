"""Pairs of token sequences for a tiny BERT, and their objective."""

from itertools import count

import numpy as np
import torch

from cloze.data.pair_batch import EncodedTexts, PairLayout, PartOptions, RowShape, make_parts
from cloze.objectives.contrastive import MultipleNegativesLoss
from cloze.objectives.embedding import EmbeddingObjective
from cloze.objectives.masking import Masking
from cloze.train.distributed import SINGLE_PROCESS, DistributedContext
from training import VOCABULARY, tiny_bert

NUM_TEXTS = 60


def encoded_texts(longest: int = 12) -> EncodedTexts:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, longest, NUM_TEXTS)
    return EncodedTexts([rng.integers(5, VOCABULARY, n).tolist() for n in lengths])


def rows_of(step: int, rows: int = 9, columns: int = 3) -> PairLayout:
    """Distinct texts, of which some negatives are missing."""
    found = np.random.default_rng(step).permutation(NUM_TEXTS)[: rows * columns]
    found = found.reshape(rows, columns)
    found[::4, 2:] = -1
    return PairLayout.from_rows(found)


def pair_objective(loss=None, *, mlm_weight: float = 0.0, **options) -> EmbeddingObjective:
    masking = Masking(mask_id=3, replacement_ids=np.arange(5, VOCABULARY))
    return EmbeddingObjective(
        loss or MultipleNegativesLoss(),
        torch.device("cpu"),
        masking=masking if mlm_weight else None,
        mlm_weight=mlm_weight,
        special_ids=frozenset(range(5)),
        **options,
    )


def pair_parts(
    step: int,
    tokens: int,
    *,
    mlm: bool = False,
    shape: RowShape | None = None,
    distributed: DistributedContext = SINGLE_PROCESS,
):
    options = PartOptions(tokens=tokens, mlm_probability=0.2 if mlm else 0.0, shape=shape)
    place = {"rank": distributed.rank, "world_size": distributed.world_size}
    return make_parts(rows_of(step), encoded_texts(), options, **place)


def pair_data(tokens: int, distributed: DistributedContext = SINGLE_PROCESS, *, mlm: bool = False):
    def groups(start: int):
        return (pair_parts(n, tokens, mlm=mlm, distributed=distributed) for n in count(start))

    return groups


def pair_bert(dropout: float = 0.0, **options):
    """Without the parts that no loss here trains."""
    model = tiny_bert(dropout, **options)
    model = model.select_heads(["mlm"])
    model.pooler = None
    return model
