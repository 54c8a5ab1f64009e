"""`evaluate` for encoders that were trained for no task: what they know of text, or of likeness.

| the model | is judged on | by |
|---|---|---|
| has a masked-LM head | running text | words hidden behind [MASK]; next sentences, with a head |
| and reads left to right | running text | perplexity and bits per byte |
| has no head, or pools (sentence-transformers) | scored pairs | the cosine of its vectors |
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.data.batch import Ints, PackedBatch
from cloze.data.packing import Batching, Epoch
from cloze.data.prepare import Options, prepare
from cloze.data.samples import SHORTEST, Sampling
from cloze.data.sources import Source, as_list
from cloze.errors import InputError
from cloze.metrics.held_out import (
    EVALUATION_MLM_PROBABILITY,
    EVALUATION_SEED,
    compute_pretraining_scores,
    majority_baseline,
    make_evaluation_epoch,
    make_evaluation_masking,
    unigram_baseline,
)
from cloze.metrics.perplexity import perplexity
from cloze.objectives.masking import Masking, mask_batch
from cloze.progress import ProgressCallback
from cloze.tasks.embed import BATCH_TOKENS
from cloze.tasks.evaluate_own import evaluate_text
from cloze.tasks.evaluate_similarity import evaluate_similarity
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.left_to_right import language_model
from cloze.tasks.scored import CorpusEvaluation, check_options

Kind: TypeAlias = Literal["masked", "language", "similarity"]
Asked: TypeAlias = tuple[Ints, Ints]  # the hidden words of a batch, and the answers about pairs

_TAKEN: dict[Kind, tuple[str, ...]] = {
    "masked": ("length", "column", "skip_bad", "batch_tokens"),
    "language": ("column", "skip_bad"),
    "similarity": ("text", "pair", "label", "policy", "stride", "skip_bad", "batch_tokens"),
}
_WHAT: dict[Kind, str] = {
    "masked": "a masked-LM model",
    "language": "a model that reads left to right",
    "similarity": "a model of vectors",
}
RAW = {"mlm", "nsp"}  # heads of models that raw text made


def is_pretrained(model: object) -> bool:
    """Whether this is an encoder that was trained for no task."""
    return isinstance(model, Model) and model.task is None and set(model.heads) <= RAW


def evaluation_kind(model: Model, *, pair: object = None, label: object = None) -> Kind:
    """What such an encoder is judged by; who names a column of pairs or scores has scored pairs."""
    words = "mlm" in model.heads and model.pooling is None
    if not words or pair is not None or label is not None:
        return "similarity"
    return "language" if model.module.is_causal else "masked"


def evaluate_pretrained(
    model: Model,
    data: Source | Sequence[Any],
    *,
    progress: ProgressCallback | None = None,
    **options: Any,  # noqa: ANN401
) -> CorpusEvaluation | Evaluation:
    """Judge an encoder that was trained for no task, on the data of its kind: see above.

    Args:
        model: as `cloze.load` gives it.
        data: running text, documents parted by blank lines (of a model that reads left to right a
            sentence to a line); or pairs of texts with a number each, as STS-B has them.
        progress: is told how many samples, or sequences, are done.
        **options: of running text `column`, where a table has it, and `length` of the samples in
            which words are hidden (the model's own); of pairs `text`, `pair` and `label`, where the
            table has them, `policy` and `stride`, as in `embed`; `skip_bad`, to pass over what
            cannot be read; `batch_tokens`.
    """
    kind = evaluation_kind(model, pair=options.get("pair"), label=options.get("label"))
    chosen = check_options(options, *_TAKEN[kind], of=_WHAT[kind])
    if kind == "language":
        return evaluate_text(language_model(model), data, **chosen)
    if kind == "masked":
        return evaluate_masked(model, data, progress=progress, **chosen)
    return evaluate_similarity(model, data, progress=progress, **chosen)


def evaluate_masked(
    model: Model,
    data: Source | Sequence[Any],
    *,
    length: int | None = None,
    column: str | None = None,
    skip_bad: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> CorpusEvaluation:
    """Hide words of a text behind [MASK] and see which the model finds, as a run judges itself.

    Samples and masks follow from the text, the tokenizer and the length alone. Next sentences are
    asked about where the model has a head for them and the text more than one document.
    """
    since = time.perf_counter()
    size = in_range("length", model.limit if length is None else length, SHORTEST, model.limit)
    masking = make_evaluation_masking(Masking.of(model.tokenizer))
    skipped: list[InputError] = []
    chosen = Options(hold_out=0.0, column=column, skip_broken=skip_bad)
    with tempfile.TemporaryDirectory(prefix="cloze-") as folder:
        corpus = prepare(
            as_list(data), model.tokenizer, folder, chosen, workers=1, on_skip=skipped.append
        )
        asks = "nsp" in model.heads and len(corpus.train) > 1
        epoch = make_evaluation_epoch(
            corpus.train,
            model.tokenizer,
            Sampling(pairs="nsp" if asks else "none", length=size),
            Batching(tokens=max(size, batch_tokens)),
        )
        asked: list[Asked] = []
        means = compute_pretraining_scores(model.module, _hidden(epoch, masking, asked, progress))
        targets, labels = (np.concatenate(column) for column in zip(*asked, strict=True))
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
                "hidden": len(targets),
            },
            notes={"length": str(size), "rate": str(EVALUATION_MLM_PROBABILITY)},
            skipped=tuple(skipped),
            seconds=time.perf_counter() - since,
        )


def _masked_scores(
    means: dict[str, float], unigram: float, commoner: float | None
) -> dict[str, float]:
    """By the names of a run's metrics, each share beside that of whoever knows frequencies."""
    scores = {
        "mlm_accuracy": means["mlm.accuracy"],
        "unigram_accuracy": unigram,
        "mlm_loss": means["mlm"],
        "perplexity": perplexity(means["mlm"]),
    }
    if commoner is not None:
        scores |= {
            "nsp_accuracy": means["nsp.accuracy"],
            "commoner_pair_accuracy": commoner,
            "nsp_loss": means["nsp"],
        }
    return scores


def _hidden(
    epoch: Epoch, masking: Masking, asked: list[Asked], progress: ProgressCallback | None
) -> Iterator[PackedBatch]:
    """The batches with words hidden; what each asks for is noted."""
    done = 0
    for number in range(len(epoch)):
        batch = mask_batch(epoch[number], masking, seed=EVALUATION_SEED)
        asked.append((batch.targets, batch.labels))
        yield batch
        done += len(batch)
        if progress:
            progress("samples", done, len(epoch.samples))
