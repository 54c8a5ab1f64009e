"""Train a translator on aligned sentences.

The run's folder is the model's folder, and it contains the model with the best BLEU on the dev
data so far:

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json samples.json report.html state/
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike as OsPath
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.model import Model
from cloze.data.parallel_text import (
    ParallelText,
    TranslationBatch,
    TranslationBatches,
    load_parallel_text,
)
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, absolute_path, write_json
from cloze.make.init_from import load_or_train_tokenizer, open_base, with_absolute_base
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, lock_folder, prepare_folder, start_run
from cloze.make.sources import UNNAMED, check_standard_input
from cloze.make.translation.evaluation import TranslationEvaluation
from cloze.nn.fuse import move_to_device
from cloze.objectives.core import Learner
from cloze.objectives.translation import make_translation_objective
from cloze.report.page import write_report
from cloze.text.joint_bpe import encode_sentences, train_joint_bpe
from cloze.text.tokenizer import Tokenizer
from cloze.train.fit import Callbacks, RunResult, TrainingJob, fit, one_batch_each
from cloze.train.optim import build_optimizer
from cloze.train.run_files import DATA_FACTS, VOCABULARY
from cloze.train.state import TrainState

Side = PathLike | Sequence[str]


def train_translator(
    source: Side,
    target: Side,
    out: PathLike,
    recipe: TranslationRecipe,
    *,
    dev: tuple[Side, Side] | None = None,
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Train a translator on aligned lines; `cloze.finetune("translate", …)` calls it.

    Both languages share one vocabulary, trained on both sides. After every epoch the dev sentences
    are translated, and the folder contains the model with the best BLEU at the end; without dev
    data, the last one. SIGTERM and Ctrl-C save the state and end the run; `resume` continues it,
    bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        source: a file with one sentence per line (compressed or not), `-` for standard input, or
            the sentences.
        target: their translations, line by line.
        out: the run's and the model's folder.
        recipe: a complete recipe. Its `model.init_from` is a translator to continue training,
            which keeps its vocabulary and its configuration.
        dev: source and target to evaluate on.
        force: overwrite what is in `out`.
        callbacks: for logging and progress.
    """
    check_extras(recipe.run)
    data = replace(
        recipe.data, train=_name_sides(source, target), dev=_name_sides(*dev) if dev else ()
    )
    base = open_base(recipe)
    made = with_absolute_base(replace(recipe, data=data))
    check_standard_input([*data.train, *data.dev])
    resolve_device(made.run.device)
    vocabulary = made.vocabulary.folder
    if vocabulary is not None:
        _load_vocabulary(vocabulary)
    separate = {"model": made.model.init_from, "vocabulary": vocabulary}
    with start_run(out, force=force, separate_from=separate) as folder:
        train, dev_pairs = (
            load_parallel_text(source, target),
            load_parallel_text(*dev) if dev else None,
        )
        prepare_folder(folder, made.to_file())
        return _train(train, dev_pairs, folder, made, base, callbacks or Callbacks())


def resume_translator(
    out: PathLike, recipe: TranslationRecipe, *, callbacks: Callbacks | None = None
) -> RunResult:
    """Continue the run in a folder with its recipe."""
    check_extras(recipe.run)
    data = recipe.data
    if UNNAMED in (*data.train, *data.dev) or not data.train:
        raise InputError(
            "this run was started with Python objects, which its recipe cannot name",
            fix="train again, or give the sentences as files",
        )
    check_standard_input([*data.train, *data.dev], resuming=True)
    dev = load_parallel_text(*data.dev) if data.dev else None
    train, base = load_parallel_text(*data.train), open_base(recipe)
    with lock_folder(Path(out)):
        return _train(train, dev, Path(out), recipe, base, callbacks or Callbacks())


def _train(
    data: ParallelText,
    dev: ParallelText | None,
    out: Path,
    recipe: TranslationRecipe,
    base: Model | None,
    callbacks: Callbacks,
) -> RunResult:
    tokenizer = load_or_train_tokenizer(
        out / VOCABULARY, base, lambda: _train_tokenizer(data, recipe, callbacks)
    )
    config = base.config if base else _complete_config(recipe, tokenizer)
    pairs, fitting = _pairs(data, tokenizer, recipe, config, callbacks)
    model = _build_model(recipe, tokenizer, config, fitting, base)
    state = TrainState(
        learner=Learner(
            model.module, make_translation_objective(smoothing=recipe.loss.label_smoothing)
        ),
        model=model.module,
        optimizer=build_optimizer(model.module, recipe.optimizer),
        config=recipe.run,
    )
    evaluation = TranslationEvaluation(model, dev, recipe, state) if dev else None

    def batch(index: int) -> TranslationBatch:
        return pairs.batch(index, recipe.loss.sampling_prob_at(index / pairs.per_epoch))

    def save_model() -> None:
        if evaluation:
            evaluation.save_model(out)
        else:
            replace(model, module=model.module.eval()).save_into(out)

    result = fit(
        TrainingJob(
            out=out,
            state=state,
            batches=one_batch_each(batch),
            fingerprint={
                "recipe": run_fingerprint(recipe, "data.train", "data.dev"),
                "train": data.fingerprint,
                "dev": dev.fingerprint if dev else None,
            },
            budget=recipe.run.budget(pairs.per_epoch),
            schedule=recipe.schedule,
            options=recipe.run,
            callbacks=callbacks,
            evaluate=evaluation,
            eval_every=recipe.run.eval_interval(lambda: pairs.per_epoch),
            save_model=save_model,
            patience=recipe.run.patience,
        )
    )
    left_out = data.num_blank + len(data) - fitting.kept
    _write_outputs(out, data, dev, left_out)
    return replace(result, task="translate", metric="bleu", left_out=left_out)


@dataclass(frozen=True)
class _Fitting:
    """The training pairs that are short enough."""

    kept: int
    longest: int


def _load_vocabulary(folder: str) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.eos_id is None or tokenizer.bos_id is None or tokenizer.unk_id is not None:
        raise ConfigError(
            f"the vocabulary in {folder} has no begin and end tokens, or maps text to [UNK]",
            fix="use a byte-level BPE vocabulary: cloze vocabulary --kind bpe",
        )
    return tokenizer


def _train_tokenizer(
    data: ParallelText, recipe: TranslationRecipe, callbacks: Callbacks
) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return _load_vocabulary(table.folder)
    callbacks.log(f"training a tokenizer with {table.size:,} tokens on both sides")
    return train_joint_bpe(
        [*data.source, *data.target],
        table.size,
        lowercase=table.lowercase,
        min_count=table.min_count,
        progress=callbacks.progress,
    )


def _complete_config(recipe: TranslationRecipe, tokenizer: Tokenizer) -> Any:  # noqa: ANN401
    """The configuration of a new model, with its vocabulary."""
    return replace(
        recipe.model.new_config,
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )


def _pairs(
    data: ParallelText,
    tokenizer: Tokenizer,
    recipe: TranslationRecipe,
    config: Any,  # noqa: ANN401 (of either family)
    callbacks: Callbacks,
) -> tuple[TranslationBatches, _Fitting]:
    source, target = (encode_sentences(tokenizer, side) for side in (data.source, data.target))
    sizes = [max(map(len, both)) for both in zip(source, target, strict=True)]
    limit = recipe.data.max_length
    if getattr(config, "position_encoding", None) == "learned":
        limit = min(limit, config.max_positions)
    fits = [n for n, size in enumerate(sizes) if size <= limit]
    if not fits:
        raise InputError(
            f"no sentence pair is shorter than {limit:,} tokens",
            fix="raise data.max_length, or split the lines",
        )
    skipped = [
        f"{some:,} {why}"
        for some, why in (
            (data.num_blank, "empty on one side"),
            (len(data) - len(fits), f"longer than {limit:,} tokens"),
        )
        if some
    ]
    note = f"; left out: {', '.join(skipped)}" if skipped else ""
    callbacks.log(f"{len(fits):,} training pairs{note}")
    pairs = TranslationBatches(
        [source[n] for n in fits],
        [target[n] for n in fits],
        batch_tokens=recipe.run.batch_tokens,
        seed=recipe.run.seed,
    )
    return pairs, _Fitting(kept=len(fits), longest=max(sizes[n] for n in fits))


def _build_model(
    recipe: TranslationRecipe,
    tokenizer: Tokenizer,
    config: Any,  # noqa: ANN401
    fitting: _Fitting,
    base: Model | None,
) -> Model:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    made = base or Model.new(config, tokenizer, rng=rng)
    move_to_device(made.module, resolve_device(recipe.run.device))
    longest = max(fitting.longest, made.config.max_trained_length)
    return replace(made, config=replace(made.config, max_trained_length=longest))


def _write_outputs(out: Path, data: ParallelText, dev: ParallelText | None, left_out: int) -> None:
    summary = {"training": len(data), "dev": len(dev) if dev else 0, "left_out": left_out}
    write_json(out / DATA_FACTS, summary)
    write_report(out)


def _name_sides(source: Side, target: Side) -> tuple[str, str]:
    first, second = (
        absolute_path(side) if isinstance(side, str | OsPath) else UNNAMED
        for side in (source, target)
    )
    return first, second
