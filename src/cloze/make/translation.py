"""Train a translator on aligned sentences.

The run's folder is the model's folder, and it contains the model with the best BLEU on the dev
data so far:

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json samples.json report.html state/
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.model import Model
from cloze.data.parallel_text import (
    LOSS_NAME,
    ParallelText,
    TranslationBatch,
    TranslationBatches,
    load_parallel_text,
)
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, write_json
from cloze.make.best_model import fit_best, new_state
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, lock_folder, prepare_folder
from cloze.make.sequence_models import load_or_train_tokenizer, open_base, start_sequence_model
from cloze.make.sources import UNNAMED, check_standard_input, name_sources
from cloze.metrics.bleu import compute_bleu
from cloze.metrics.perplexity import perplexity
from cloze.nn.fuse import move_to_device
from cloze.nn.utils import eval_mode
from cloze.objectives.core import Learner
from cloze.objectives.translation import make_translation_objective
from cloze.report.page import write_report
from cloze.tasks.translate import translate
from cloze.text.joint_bpe import encode_sentences, train_joint_bpe
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.loop import evaluate_objective
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, SAMPLES, VOCABULARY
from cloze.train.state import TrainState

Side = PathLike | Sequence[str]
_NUM_SAMPLES = 10  # dev sentences whose translations are saved


def train_translator(
    source: Side,
    target: Side,
    out: PathLike,
    recipe: TranslationRecipe,
    *,
    dev: tuple[Side, Side] | None = None,
    force: bool = False,
    callbacks: CallbackList | None = None,
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
        callbacks: what is called while the run is prepared and trained.
    """
    check_extras(recipe.run)
    data = replace(recipe.data, train=name_sources((source, target)), dev=name_sources(dev or ()))
    check_standard_input([*data.train, *data.dev])
    with start_sequence_model(
        out, replace(recipe, data=data), force=force, load_vocabulary=_load_vocabulary
    ) as (folder, made, base):
        train = load_parallel_text(source, target)
        dev_pairs = load_parallel_text(*dev) if dev else None
        prepare_folder(folder, made.to_file())
        return _train(train, dev_pairs, folder, made, base, callbacks or CallbackList())


def resume_translator(
    out: PathLike, recipe: TranslationRecipe, *, callbacks: CallbackList | None = None
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
        return _train(train, dev, Path(out), recipe, base, callbacks or CallbackList())


def _train(
    data: ParallelText,
    dev: ParallelText | None,
    out: Path,
    recipe: TranslationRecipe,
    base: Model | None,
    callbacks: CallbackList,
) -> RunResult:
    tokenizer = load_or_train_tokenizer(
        out / VOCABULARY, base, lambda: _train_tokenizer(data, recipe, callbacks)
    )
    config = base.config if base else _complete_config(recipe, tokenizer)
    pairs, fitting = _pairs(data, tokenizer, recipe, config, callbacks)
    model = _build_model(recipe, tokenizer, config, fitting, base)
    objective = make_translation_objective(smoothing=recipe.loss.label_smoothing)
    state = new_state(Learner(model.module, objective), recipe)
    evaluation = TranslationEvaluation(model, dev, recipe, state) if dev else None

    def batch(index: int) -> TranslationBatch:
        return pairs.batch(index, recipe.loss.sampling_prob_at(index / pairs.per_epoch))

    def save_model() -> None:
        if evaluation:
            evaluation.save_model(out)
        else:
            replace(model, module=model.module.eval()).save_into(out)

    result = fit_best(
        state,
        recipe,
        out=out,
        batch_of=batch,
        steps_per_epoch=pairs.per_epoch,
        fingerprint={
            "recipe": run_fingerprint(recipe, "data.train", "data.dev"),
            "train": data.fingerprint,
            "dev": dev.fingerprint if dev else None,
        },
        evaluate=evaluation,
        save_model=save_model,
        callbacks=callbacks,
        faster_steps="smaller batches (--batch-tokens)",
    )
    left_out = data.num_blank + len(data) - fitting.kept
    _write_outputs(out, data, dev, left_out)
    result = replace(result, task="translate", metric="bleu", left_out=left_out)
    callbacks.on_train_end(result)
    return result


class TranslationEvaluation:
    """BLEU of the dev sentences, and loss and accuracy of their reference translations."""

    def __init__(
        self,
        model: Model,
        dev: ParallelText,
        recipe: TranslationRecipe,
        state: TrainState,
    ) -> None:
        self._model, self._dev, self._run, self._state = model, dev, recipe.run, state
        source, target = (
            encode_sentences(model.tokenizer, side) for side in (dev.source, dev.target)
        )
        fits = [n for n in range(len(dev)) if _fits(model, source[n], target[n])]
        self._batches = (
            TranslationBatches(
                [source[n] for n in fits],
                [target[n] for n in fits],
                batch_tokens=recipe.run.batch_tokens,
            ).batches()
            if fits
            else []
        )
        self._samples: list[dict[str, str]] = []

    def __call__(self) -> dict[str, float]:
        means = evaluate_objective(self._state, self._batches) if self._batches else {}
        with eval_mode(self._model.module):
            found = translate(
                self._model,
                list(self._dev.source),
                beam=self._run.beam_size,
                on_error=lambda *_: None,  # counts as an empty translation
                batch_tokens=4 * self._run.batch_tokens,
            )
        texts = [one.text for one in found]
        self._samples = [
            {"source": source, "reference": reference, "translation": text}
            for source, reference, text in zip(
                self._dev.source[:_NUM_SAMPLES],
                self._dev.target[:_NUM_SAMPLES],
                texts,
                strict=False,
            )
        ]
        score = compute_bleu(texts, self._dev.target, tokenize=self._run.bleu_tokenizer).score
        nats = means.get(f"{LOSS_NAME}.nats", math.nan)
        return {
            "bleu": score,
            "loss": nats,
            "perplexity": perplexity(nats),
            "accuracy": means.get(f"{LOSS_NAME}.accuracy", math.nan),
            "score": score,
        }

    def save_model(self, out: Path) -> None:
        """Save the model and some of its translations."""
        self._model.save_into(out)
        if self._samples:  # a run that is stopped early was not evaluated
            write_json(out / SAMPLES, self._samples)


def _fits(model: Model, source: Sequence[int], target: Sequence[int]) -> bool:
    limit = model.module.max_positions
    return limit is None or max(len(source), len(target)) <= limit


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
    data: ParallelText, recipe: TranslationRecipe, callbacks: CallbackList
) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return _load_vocabulary(table.folder)
    callbacks.on_log(f"training a tokenizer with {table.size:,} tokens on both sides")
    return train_joint_bpe(
        [*data.source, *data.target],
        table.size,
        lowercase=table.lowercase,
        min_count=table.min_count,
        progress=callbacks.on_progress,
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
    callbacks: CallbackList,
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
    callbacks.on_log(f"{len(fits):,} training pairs{note}")
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
    made = base or Model.from_config(config, tokenizer, rng=rng)
    move_to_device(made.module, resolve_device(recipe.run.device))
    longest = max(fitting.longest, made.config.max_trained_length)
    return replace(made, config=replace(made.config, max_trained_length=longest))


def _write_outputs(out: Path, data: ParallelText, dev: ParallelText | None, left_out: int) -> None:
    summary = {"training": len(data), "dev": len(dev) if dev else 0, "left_out": left_out}
    write_json(out / DATA_FACTS, summary)
    write_report(out)
