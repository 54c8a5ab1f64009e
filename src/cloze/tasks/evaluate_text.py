"""`evaluate` for masked language models: MLM and NSP accuracy on text."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.data.batch import Ints, PackedBatch
from cloze.data.config import MIN_LENGTH, Batching, CorpusOptions
from cloze.data.packing import Epoch
from cloze.data.prepare import prepare_corpus
from cloze.data.samples import Sampling
from cloze.data.sources import Source, as_list
from cloze.errors import InputError
from cloze.metrics.perplexity import perplexity
from cloze.metrics.pretraining import (
    EVALUATION_MLM_PROBABILITY,
    EVALUATION_SEED,
    compute_pretraining_scores,
    majority_baseline,
    make_evaluation_epoch,
    make_evaluation_masking,
    unigram_baseline,
)
from cloze.objectives.masking import Masking, mask_batch
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation
from cloze.tasks.inference import BATCH_TOKENS

_Targets: TypeAlias = tuple[Ints, Ints]  # masked tokens of a batch, and labels of its pairs


def evaluate_masked(
    model: Model,
    data: Source | Sequence[Any],
    *,
    max_length: int | None = None,
    text_column: str | int | None = None,
    skip_bad: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> CorpusEvaluation:
    """Mask tokens of a text and predict them, like the evaluation during pre-training.

    Samples and masks depend only on text, tokenizer and `max_length`. Next-sentence prediction is
    evaluated if the model has an NSP head and the text has several documents.
    """
    since = time.perf_counter()
    size = model.max_length if max_length is None else max_length
    in_range("max_length", size, MIN_LENGTH, model.max_length)
    masking = make_evaluation_masking(Masking.from_tokenizer(model.tokenizer))
    skipped: list[InputError] = []
    options = CorpusOptions(
        hold_out=0.0,
        text_column=None if text_column is None else str(text_column),
        skip_bad=skip_bad,
    )
    with tempfile.TemporaryDirectory(prefix="cloze-") as folder:
        corpus = prepare_corpus(
            as_list(data), model.tokenizer, folder, options, workers=1, on_skip=skipped.append
        )
        has_pairs = "nsp" in model.task_heads and len(corpus.train) > 1
        epoch = make_evaluation_epoch(
            corpus.train,
            model.tokenizer,
            Sampling(pairs="nsp" if has_pairs else "none", max_length=size),
            Batching(tokens=max(size, batch_tokens)),
        )
        batches: list[_Targets] = []
        means = compute_pretraining_scores(
            model.module, _mask_batches(epoch, masking, batches, progress)
        )
        targets, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
        return CorpusEvaluation(
            kind="masked",
            scores=_masked_scores(
                means, unigram_baseline(corpus.train, targets), majority_baseline(labels)
            ),
            counts={
                "documents": corpus.summary.documents,
                "samples": len(epoch.samples),
                "tokens": corpus.summary.tokens,
                "unknown": corpus.summary.unknown,
                "masked": len(targets),
            },
            notes={"max_length": str(size), "mlm_probability": str(EVALUATION_MLM_PROBABILITY)},
            skipped=tuple(skipped),
            seconds=time.perf_counter() - since,
        )


def _masked_scores(
    means: dict[str, float], unigram: float, majority: float | None
) -> dict[str, float]:
    """Scores by the metric names of a training run, each accuracy with its baseline."""
    scores = {
        "mlm_accuracy": means["mlm.accuracy"],
        "unigram_baseline": unigram,
        "mlm_loss": means["mlm"],
        "perplexity": perplexity(means["mlm"]),
    }
    if majority is not None:
        scores |= {
            "nsp_accuracy": means["nsp.accuracy"],
            "majority_baseline": majority,
            "nsp_loss": means["nsp"],
        }
    return scores


def _mask_batches(
    epoch: Epoch, masking: Masking, targets: list[_Targets], progress: ProgressCallback | None
) -> Iterator[PackedBatch]:
    """Yield batches with masked tokens, and append their targets to `targets`."""
    done = 0
    for number in range(len(epoch)):
        batch = mask_batch(epoch[number], masking, seed=EVALUATION_SEED)
        targets.append((batch.targets, batch.labels))
        yield batch
        done += len(batch)
        if progress:
            progress("samples", done, len(epoch.samples))
