"""How well an encoder knows running text: the masked words, and whether one text follows another.

A pre-training run judges itself so, on documents held out, and `evaluate` judges any model so.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from cloze.data.batch import IGNORE_INDEX, Ints, PackedBatch
from cloze.data.config import Batching
from cloze.data.corpus import CorpusSplit
from cloze.data.packing import Epoch
from cloze.data.samples import Samples, Sampling
from cloze.nn.encoder import Encoder
from cloze.nn.utils import eval_mode
from cloze.objectives.core import count_name
from cloze.objectives.masking import Masking
from cloze.objectives.pretraining import pretraining_objective
from cloze.text.tokenizer import Tokenizer

EVALUATION_SEED = 1  # of the samples and masks that every judgement of every model sees
EVALUATION_MLM_PROBABILITY = 0.15  # of the words, however many a run hides while it learns


def make_evaluation_epoch(
    view: CorpusSplit, tokenizer: Tokenizer, sampling: Sampling, batching: Batching
) -> Epoch:
    """The documents as samples: the same pairs and places every time, and for every model."""
    return Epoch(Samples(view, tokenizer, replace(sampling, seed=EVALUATION_SEED)), batching)


def make_evaluation_masking(masking: Masking) -> Masking:
    """The same with every chosen word hidden behind [MASK].

    Those that training leaves in place would be right by copying, and lift the accuracy of a model
    that has learned nothing else by a tenth.
    """
    return replace(masking, split=(1.0, 0.0, 0.0), mlm_probability=EVALUATION_MLM_PROBABILITY)


@torch.inference_mode()
def compute_pretraining_scores(module: Encoder, batches: Iterable[PackedBatch]) -> dict[str, float]:
    """Loss and share of hits of BERT's two tasks over all batches; no pairs, nothing of pairs."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    with eval_mode(module):
        for batch in batches:
            for name, total in pretraining_objective(module, batch).items():
                sums[name] = sums.get(name, 0.0) + float(total)
                counts[name] = counts.get(name, 0) + batch.counts[count_name(name)]
    return {name: total / counts[name] for name, total in sums.items() if counts[name]}


def majority_baseline(labels: Ints) -> float | None:
    """How often the commoner answer about pairs is right; ends of documents make them uneven."""
    told = labels[labels != IGNORE_INDEX]
    return float(np.bincount(told).max() / len(told)) if len(told) else None


def unigram_baseline(known: CorpusSplit, targets: Ints) -> float:
    """How often the most frequent token is right: what a model must beat to have learned any."""
    return float((targets == known.count_token_ids().argmax()).mean())
