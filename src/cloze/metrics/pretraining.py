"""Scores of encoders on text: MLM accuracy, NSP accuracy, and their baselines.

Pre-training evaluates itself with them on held-out documents, and `evaluate` any encoder.
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
from cloze.objectives.core import get_count_name
from cloze.objectives.masking import Masking
from cloze.objectives.pretraining import pretraining_objective
from cloze.text.tokenizer import Tokenizer

EVALUATION_SEED = 1  # of samples and masks, the same in every evaluation
EVALUATION_MLM_PROBABILITY = 0.15  # independent of the training's


def make_evaluation_epoch(
    split: CorpusSplit, tokenizer: Tokenizer, sampling: Sampling, batching: Batching
) -> Epoch:
    """The documents as samples, the same ones in every evaluation."""
    return Epoch(Samples(split, tokenizer, replace(sampling, seed=EVALUATION_SEED)), batching)


def make_evaluation_masking(masking: Masking) -> Masking:
    """Masking that replaces every selected token by [MASK].

    Training leaves a tenth of the selected tokens unchanged; a model could predict these by copying
    them, which would raise its accuracy by a tenth.
    """
    return replace(masking, split=(1.0, 0.0, 0.0), mlm_probability=EVALUATION_MLM_PROBABILITY)


@torch.inference_mode()
def compute_pretraining_scores(module: Encoder, batches: Iterable[PackedBatch]) -> dict[str, float]:
    """Loss and accuracy of MLM, and of NSP if the batches have sentence pairs."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    with eval_mode(module):
        for batch in batches:
            for name, total in pretraining_objective(module, batch).items():
                sums[name] = sums.get(name, 0.0) + float(total)
                counts[name] = counts.get(name, 0) + batch.counts[get_count_name(name)]
    return {name: total / counts[name] for name, total in sums.items() if counts[name]}


def majority_baseline(labels: Ints) -> float | None:
    """The accuracy of always predicting the more frequent label of sentence pairs."""
    known = labels[labels != IGNORE_INDEX]
    return float(np.bincount(known).max() / len(known)) if len(known) else None


def unigram_baseline(split: CorpusSplit, targets: Ints) -> float:
    """The accuracy of always predicting the most frequent token of a corpus."""
    return float((targets == split.count_token_ids().argmax()).mean())
