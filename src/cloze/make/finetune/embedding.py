"""Train sentence embeddings: an encoder and pairs of texts become a model that searches.

The run's folder is the model's folder. It contains the best model so far by the dev data, in the
layout of sentence-transformers:

    config.json model.safetensors tokenizer.json …     the encoder, and maybe its masked-LM head
    modules.json 1_Pooling/ …                           how the vector of a text is computed
    recipe.toml metrics.jsonl data.json neighbours.json report.html state/
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike as OsPath
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, unsupported_function_error
from cloze.data.labelled.pairs import PairColumns
from cloze.data.retrieval_set import read_retrieval_set
from cloze.data.text_pairs import TextPairs, load_text_pairs
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, absolute_path
from cloze.make.finetune.embedding_evaluation import EmbeddingEvaluation
from cloze.make.finetune.embedding_job import PairRun, train_embedding
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.model import ModelSource
from cloze.make.run_folder import check_extras, prepare_folder, start_run
from cloze.make.sources import UNNAMED, check_standard_input, name_sources, resolve_model_name
from cloze.nn.encoder import Encoder
from cloze.tasks.features import check_pooling
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import DistributedContext, distributed_context
from cloze.train.result import RunResult


def finetune_embedding(
    model: Model | PathLike,
    train: Sequence[Any],
    out: PathLike,
    recipe: EmbeddingRecipe,
    *,
    dev: Sequence[Any] = (),
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train the vectors of a model on pairs of texts; `cloze.finetune("embed", …)` calls it.

    The model is evaluated on the dev data several times in an epoch, and the folder contains the
    best one at the end. Start it with `torchrun` for several processes: the loss then compares the
    texts of all of them. SIGTERM and Ctrl-C save the state and end the run; `resume` continues it,
    bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        model: the encoder to start from.
        train: tables of pairs, triplets or scored pairs, running text, or tuples of texts: see
            `load_text_pairs`.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        dev: pairs or scored pairs to evaluate on (default: some of the training pairs, chosen by a
            hash).
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    named = resolve_model_name(model) if isinstance(model, str | OsPath) else UNNAMED
    made = replace(
        recipe,
        model=ModelSource(init_from=named),
        data=replace(
            recipe.data,
            train=_name_data(train),
            dev=_name_data(dev),
            retrieval=recipe.data.retrieval and absolute_path(recipe.data.retrieval),
        ),
    )
    check_standard_input([*made.data.train, *made.data.dev])
    check_extras(made.run)
    separate = {"model": None if named == UNNAMED else named}
    with distributed_context(made.run.device) as distributed, ExitStack() as lock:
        distributed.run_on_first(
            lambda: lock.enter_context(start_run(out, force=force, separate_from=separate))
        )
        prepared = _prepare(model, train, dev, made, distributed)
        distributed.run_on_first(lambda: prepare_folder(Path(out), made))
        return train_embedding(prepared, Path(out), callbacks or CallbackList())


def resume_embedding(
    out: PathLike, recipe: EmbeddingRecipe, *, callbacks: CallbackList | None = None
) -> RunResult:
    """Continue the run in a folder with its recipe."""
    folder, data = Path(out), recipe.data
    check_extras(recipe.run)
    if UNNAMED in (recipe.model.init_from, *data.train, *data.dev):
        raise InputError(
            "this run was started with Python objects, which its recipe cannot name",
            fix="train again, or give the model and the data as files",
        )
    check_standard_input([*data.train, *data.dev], resuming=True)
    with distributed_context(recipe.run.device) as distributed, ExitStack() as lock:
        distributed.run_on_first(lambda: lock.enter_context(lock_folder(folder)))
        prepared = _prepare(recipe.model.init_from, data.train, data.dev, recipe, distributed)
        return train_embedding(prepared, folder, callbacks or CallbackList())


def _name_data(sources: Iterable[Any]) -> tuple[str, ...]:
    """Files by their paths; tuples of texts, examples and tables have no name."""
    listed = list(sources)
    if all(isinstance(one, str | OsPath) for one in listed):
        return name_sources(listed)
    return (UNNAMED,)


def _prepare(
    model: Model | PathLike,
    train: Sequence[Any],
    dev: Sequence[Any],
    recipe: EmbeddingRecipe,
    distributed: DistributedContext,
) -> PairRun:
    """Open the model and read the data; raises before anything is overwritten."""
    base = model if isinstance(model, Model) else load(model, device=distributed.device, quiet=True)
    pooling = _check_base(base, recipe)
    errors: list[InputError] = []
    pairs = _load_pairs(train, recipe, errors)
    if not len(pairs):
        raise InputError("there are no pairs to learn from", fix="check the files of --train")
    is_held_out = not dev and recipe.data.hold_out > 0 and recipe.data.retrieval is None
    dev_pairs = _load_pairs(dev, recipe, errors) if dev else None
    if is_held_out:
        pairs, dev_pairs = pairs.hold_out(recipe.data.hold_out, recipe.data.max_dev)
    if not len(pairs):
        raise InputError("all pairs are held out", fix="give more pairs, or dev data (--dev)")
    retrieval = recipe.data.retrieval
    evaluation = EmbeddingEvaluation(
        pairs=dev_pairs if dev_pairs is not None and len(dev_pairs) else None,
        retrieval=None if retrieval is None else read_retrieval_set(retrieval),
        batch_tokens=recipe.run.eval_batch_tokens,
    )
    _check_loss(pairs, recipe)
    return PairRun(
        base=base,
        pairs=pairs.scale_scores() if recipe.loss.kind == "cosine" else pairs,
        evaluation=evaluation,
        recipe=recipe,
        pooling=pooling,
        distributed=distributed,
        is_held_out=is_held_out,
        skipped=len(errors),
    )


def _load_pairs(
    sources: Sequence[Any], recipe: EmbeddingRecipe, errors: list[InputError]
) -> TextPairs:
    table = recipe.data
    columns = PairColumns(
        text=table.text_column,
        pair=table.pair_column,
        negatives=table.negative_column,
        score=table.score_column,
    )
    return load_text_pairs(
        list(sources),
        kinds=table.make_pairs,
        columns=columns,
        max_per_document=table.pairs_per_document,
        seed=recipe.run.seed,
        on_error=errors.append if table.skip_bad else "raise",
    )


def _check_base(base: Model, recipe: EmbeddingRecipe) -> str:
    """The pooling; raises if the model does not support the recipe."""
    if not isinstance(base.module, Encoder):
        raise unsupported_function_error(base, "finetune embed", "it is not an encoder")
    own = base.pooling.modes if base.pooling else ()
    pooling = recipe.embedding.pooling or (own[0] if own in (("mean",), ("cls",)) else "mean")
    check_pooling(base, (pooling,))
    wants_head = recipe.embedding.keep_mlm_head or recipe.loss.mlm_weight > 0
    if wants_head and (base.module.lm_head != "mlm" or base.is_causal):
        raise ConfigError(
            "the model has no masked-LM head that could be kept or trained",
            fix="leave --mlm-weight and --keep-mlm-head out, or start from a masked language model",
        )
    limit, size = base.module.max_positions, base.config.hidden_size
    for name, length in (
        ("data.max_length", recipe.data.max_length),
        ("embedding.max_length", recipe.embedding.max_length),
    ):
        if length is not None and length > limit:
            raise ConfigError(
                f"{name} is {length:,}, but the model has only {limit:,} positions",
                fix=f"use {limit} or less, or leave it out",
            )
    largest = max(recipe.loss.matryoshka_sizes, default=0)
    if largest > size:
        raise ConfigError(
            f"loss.matryoshka has the size {largest:,}, but the model's vectors have {size:,}",
            fix=f"use sizes up to {size}",
        )
    return pooling


def _check_loss(pairs: TextPairs, recipe: EmbeddingRecipe) -> None:
    """Raise if the loss does not fit the data."""
    kind, is_scored = recipe.loss.kind, pairs.scores is not None
    if kind in ("cosent", "cosine") and not is_scored:
        raise ConfigError(
            f"the loss {kind} needs scored pairs, but the training data have no scores",
            fix="use --loss multiple-negatives, or name the column: --score-column",
        )
    if kind == "multiple-negatives" and is_scored:
        raise ConfigError(
            "the loss multiple-negatives takes every pair for similar texts, but the pairs have "
            "scores",
            fix="use --loss cosent, or keep only the pairs of similar texts, without the score",
        )
    if is_scored and recipe.data.hard_negatives:
        raise ConfigError(
            "data.hard_negatives has no effect on scored pairs",
            fix="leave --hard-negatives out, or train on pairs without scores",
        )
