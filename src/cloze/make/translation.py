"""Train a model that writes a target for each source: a translation, a summary.

The run's folder is the model's folder, and it contains the model with the best score on the dev
data so far: BLEU of translations, ROUGE-L of summaries.

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json samples.json report.html state/
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.model import Model
from cloze.data.parallel_text import LOSS_NAME, ParallelText, TranslationBatch
from cloze.data.source_target import check_sides, load_pairs
from cloze.decode.causal_encoder import make_causal_encoder
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, write_json
from cloze.make.best_model import fit_best, new_state
from cloze.make.extend_model import extend_model
from cloze.make.pair_encoding import (
    EncodedPairs,
    PairFormat,
    check_pairs,
    find_separator,
    make_format,
)
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, check_one_process, prepare_folder
from cloze.make.sequence_models import load_or_train_tokenizer, open_base, start_sequence_model
from cloze.make.sources import UNNAMED, check_standard_input, name_sources
from cloze.metrics.bleu import compute_bleu
from cloze.metrics.perplexity import perplexity
from cloze.models.registry import get_family
from cloze.nn.fuse import move_to_device
from cloze.nn.utils import eval_mode
from cloze.objectives.core import Learner
from cloze.objectives.translation import make_sequence_objective, make_translation_objective
from cloze.report.page import write_report
from cloze.tasks.evaluate_summarizer import score_summaries
from cloze.tasks.evaluation import shorten
from cloze.tasks.summarize import summarize
from cloze.tasks.translate import translate
from cloze.text.joint_bpe import train_joint_bpe
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import add_bos_and_eos, add_special_token, train_tokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.fit import one_batch_each
from cloze.train.loop import evaluate_objective
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, SAMPLES, VOCABULARY
from cloze.train.state import TrainState

_NUM_SAMPLES = 10  # dev sources whose targets are saved
_SAMPLE_CHARS = 1000  # of such a source
METRICS = {"translate": "bleu", "summarize": "rouge_l"}


def train_translator(
    train: Sequence[Any],
    out: PathLike,
    recipe: TranslationRecipe,
    *,
    dev: Sequence[Any] = (),
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train a model on pairs; `cloze.finetune("translate", …)` and `"summarize"` call it.

    A new model has one vocabulary for both sides, trained on them. A decoder-only model, new or
    pre-trained, reads source, separator and target as one sequence. After every epoch the dev
    sources are translated or summarized, and the folder contains the best model at the end;
    without dev data, the last one. SIGTERM and Ctrl-C save the state and end the run; `resume`
    continues it, bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        train: two files with aligned lines (compressed or not, `-` for standard input), two lists,
            or tables with a column for each side: see `load_pairs`.
        out: the run's and the model's folder.
        recipe: a complete recipe. Its `model.init_from` is a model to continue, which keeps its
            vocabulary and its configuration; begin and end tokens and a separator are added to a
            vocabulary without them.
        dev: pairs to evaluate on, in one of these forms.
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    check_extras(recipe.run)
    for name, given in (("train", train), ("dev", dev)):
        if given and not recipe.data.lead_as_summary:
            check_sides(given, recipe.task, name)
    data = replace(recipe.data, train=name_sources(train), dev=name_sources(dev))
    check_standard_input([*data.train, *data.dev])
    load_vocabulary = _load_vocabulary if _is_translator(recipe) else _load_decoder_vocabulary
    with start_sequence_model(
        out, replace(recipe, data=data), force=force, load_vocabulary=load_vocabulary
    ) as (folder, made, base):
        base = _check_base(base)
        pairs = _load("train", train, made)
        dev_pairs = _load("dev", dev, made) if dev else None
        prepare_folder(folder, made.to_file())
        return _train(pairs, dev_pairs, folder, made, base, callbacks or CallbackList())


def resume_translator(
    out: PathLike, recipe: TranslationRecipe, *, callbacks: CallbackList | None = None
) -> RunResult:
    """Continue the run in a folder with its recipe."""
    check_one_process()
    check_extras(recipe.run)
    data = recipe.data
    if UNNAMED in (*data.train, *data.dev) or not data.train:
        raise InputError(
            "this run was started with Python objects, which its recipe cannot name",
            fix="train again, or give the data as files",
        )
    check_standard_input([*data.train, *data.dev], resuming=True)
    dev = _load("dev", data.dev, recipe) if data.dev else None
    train, base = _load("train", data.train, recipe), _check_base(open_base(recipe))
    with lock_folder(Path(out)):
        return _train(train, dev, Path(out), recipe, base, callbacks or CallbackList())


def _load(name: str, data: Sequence[Any], recipe: TranslationRecipe) -> ParallelText:
    table = recipe.data
    return load_pairs(
        list(data),
        recipe.task,
        text_column=table.text_column,
        target_column=table.target_column,
        lead_as_summary=table.lead_as_summary,
        name=name,
    )


def _is_translator(recipe: TranslationRecipe) -> bool:
    """Whether the model is an encoder–decoder."""
    return get_family(recipe.model.family).kind == "translator"


def _check_base(base: Model | None) -> Model | None:
    """Raise unless the model to continue can write targets."""
    if base is not None and base.family.kind != "translator":
        try:
            make_causal_encoder(base)
        except InputError as error:
            raise InputError(
                f"{base.folder} is not a translator, and {error.problem}",
                fix="use a translator or a causal language model (a GPT), or leave it out to "
                "train a new one: --recipe transformer or decoder-translate",
            ) from None
    return base


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
    if not _is_translator(recipe):
        tokenizer = add_bos_and_eos(tokenizer)
        tokenizer = add_special_token(tokenizer, find_separator(tokenizer))
    model = _build_model(recipe, tokenizer, base)
    pair_format = _make_format(recipe, model)
    pairs = check_pairs(pair_format.encode(data), pair_format)
    callbacks.on_log(_describe_pairs(data, pairs, pair_format))
    model = _finish_model(model, recipe, pair_format, pairs)
    run, loss = recipe.run, recipe.loss
    batches = pair_format.make_batches(
        pairs, batch_tokens=run.batch_tokens, source_weight=loss.source_weight, seed=run.seed
    )
    if pair_format.is_decoder_only:
        objective: Any = make_sequence_objective(
            smoothing=loss.label_smoothing, source_weight=loss.source_weight
        )
    else:
        objective = make_translation_objective(smoothing=loss.label_smoothing)
    state = new_state(Learner(model.module, objective), recipe)
    evaluation = TargetEvaluation(model, dev, recipe, state, pair_format) if dev else None

    def batch(index: int) -> Any:  # noqa: ANN401 (of either architecture)
        found = batches.batch(index)
        prob = loss.sampling_prob_at(index / batches.per_epoch)
        if prob and isinstance(found, TranslationBatch):
            return replace(found, scheduled_sampling_prob=prob)
        return found

    def save_model() -> None:
        if evaluation:
            evaluation.save_model(out)
        else:
            replace(model, module=model.module.eval()).save_into(out)

    result = fit_best(
        state,
        recipe,
        out=out,
        batches=one_batch_each(batch),
        steps_per_epoch=batches.per_epoch,
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
    left_out = data.num_blank + pairs.num_too_long
    summary = {
        "training": len(data),
        "dev": len(dev) if dev else 0,
        "left_out": left_out,
        **({"truncated": pairs.num_truncated} if pair_format.truncates else {}),
    }
    write_json(out / DATA_FACTS, summary)
    write_report(out)
    result = replace(
        result,
        task=recipe.task,
        metric=METRICS[recipe.task],
        left_out=left_out,
        truncated=pairs.num_truncated,
    )
    callbacks.on_train_end(result)
    return result


class TargetEvaluation:
    """BLEU or ROUGE of the dev data, and loss and accuracy of their reference targets."""

    def __init__(
        self,
        model: Model,
        dev: ParallelText,
        recipe: TranslationRecipe,
        state: TrainState,
        pair_format: PairFormat,
    ) -> None:
        self._model, self._dev, self._recipe, self._state = model, dev, recipe, state
        if not pair_format.truncates and not pair_format.is_decoder_only:  # all that the model can
            most = model.module.max_positions or 1 << 30
            pair_format = replace(pair_format, max_source=most, max_target=most)
        pairs = pair_format.encode(dev)
        self._batches = (
            pair_format.make_batches(
                pairs,
                batch_tokens=recipe.run.batch_tokens,
                source_weight=recipe.loss.source_weight,
            ).batches()
            if pairs.source
            else []
        )
        self._samples: list[dict[str, str]] = []

    def __call__(self) -> dict[str, float]:
        means = evaluate_objective(self._state, self._batches) if self._batches else {}
        with eval_mode(self._model.module):
            texts = self._write_targets()
        name = "translation" if self._recipe.task == "translate" else "summary"
        self._samples = [
            {"source": shorten(source, _SAMPLE_CHARS), "reference": reference, name: text}
            for source, reference, text in zip(
                self._dev.source[:_NUM_SAMPLES],
                self._dev.target[:_NUM_SAMPLES],
                texts,
                strict=False,
            )
        ]
        scores = self._score(texts)
        nats = means.get(f"{LOSS_NAME}.nats", math.nan)
        return {
            **scores,
            "loss": nats,
            "perplexity": perplexity(nats),
            "accuracy": means.get(f"{LOSS_NAME}.accuracy", math.nan),
            "score": scores[METRICS[self._recipe.task]],
        }

    def _write_targets(self) -> list[str]:
        run = self._recipe.run
        options: Any = {
            "beam": run.beam_size,
            "on_error": lambda *_: None,  # counts as an empty target
            "batch_tokens": 4 * run.batch_tokens,
            "progress": False,
        }
        if self._recipe.task == "summarize":
            options["truncation"] = "head"  # which does not warn
        write = translate if self._recipe.task == "translate" else summarize
        found: Any = write(self._model, list(self._dev.source), **options)
        return [one.text for one in found]

    def _score(self, texts: Sequence[str]) -> dict[str, float]:
        dev = self._dev
        if self._recipe.task == "summarize":
            return score_summaries(texts, dev).scores
        tokenizer = self._recipe.run.bleu_tokenizer
        return {"bleu": compute_bleu(texts, dev.target, tokenize=tokenizer).score}

    def save_model(self, out: Path) -> None:
        """Save the model and some of the targets that it writes."""
        self._model.save_into(out)
        if self._samples:  # a run that is stopped early was not evaluated
            write_json(out / SAMPLES, self._samples)


def _load_vocabulary(folder: str) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.eos_id is None or tokenizer.bos_id is None or tokenizer.unk_id is not None:
        raise ConfigError(
            f"the vocabulary in {folder} has no begin and end tokens, or maps text to [UNK]",
            fix="use a byte-level BPE vocabulary: cloze vocabulary --kind bpe",
        )
    return tokenizer


def _load_decoder_vocabulary(folder: str) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.start_id is None or tokenizer.end_id is None:
        raise ConfigError(
            f"the vocabulary in {folder} has no tokens that begin and end a text",
            fix="use one that cloze vocabulary makes, such as --kind bpe",
        )
    return tokenizer


def _train_tokenizer(
    data: ParallelText, recipe: TranslationRecipe, callbacks: CallbackList
) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        load = _load_vocabulary if _is_translator(recipe) else _load_decoder_vocabulary
        return load(table.folder)
    callbacks.on_log(f"training a tokenizer with {table.size:,} tokens on both sides")
    options: Any = {
        "lowercase": table.lowercase,
        "min_count": table.min_count,
        "progress": callbacks.on_progress,
    }
    texts = [*data.source, *data.target]
    if table.kind == "bpe":
        return train_joint_bpe(texts, table.size, **options)
    options["byte_fallback"] = table.byte_fallback
    return train_tokenizer(texts, kind=table.kind, vocab_size=table.size, **options)


def _build_model(recipe: TranslationRecipe, tokenizer: Tokenizer, base: Model | None) -> Model:
    """A new model, or the one to continue with its vocabulary extended; on the CPU."""
    rng = torch.Generator().manual_seed(recipe.run.seed)
    if base is not None and _is_translator(recipe):
        return base
    if _is_translator(recipe):
        config: Any = replace(
            recipe.model.new_config,
            vocab_size=tokenizer.vocab_size,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
        )
        return Model.from_config(config, tokenizer, rng=rng)
    config = base.config if base else recipe.model.new_config
    changes: dict[str, Any] = {}
    if recipe.run.dropout is not None:
        names = ("dropout", "attention_dropout", "embedding_dropout")
        changes = {name: recipe.run.dropout for name in names if hasattr(config, name)}
    if base is not None:
        return extend_model(base, tokenizer, base.task_heads, rng=rng, **changes)
    heads = get_family(config.family).module_class.TASK_HEADS
    changes |= {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.pad_id}
    head = "lm" if "lm" in heads else "mlm"
    return Model.from_config(replace(config, **changes), tokenizer, [head], rng=rng)


def _make_format(recipe: TranslationRecipe, model: Model) -> PairFormat:
    is_decoder_only = not _is_translator(recipe)
    positions = model.max_length if is_decoder_only else model.module.max_positions
    return make_format(
        recipe, model.tokenizer, max_positions=positions, is_decoder_only=is_decoder_only
    )


def _finish_model(
    model: Model, recipe: TranslationRecipe, pair_format: PairFormat, pairs: EncodedPairs
) -> Model:
    """The model with its task, on the training device."""
    move_to_device(model.module, resolve_device(recipe.run.device))
    config = model.config
    if not pair_format.is_decoder_only:
        longest = max(pairs.longest, config.max_trained_length)
        config = replace(config, max_trained_length=longest)
    return replace(model, config=config, task=pair_format.make_task(recipe.task))


def _describe_pairs(data: ParallelText, pairs: EncodedPairs, pair_format: PairFormat) -> str:
    longest = f"longer than {pair_format.max_target:,} tokens"
    if pair_format.max_source != pair_format.max_target and not pair_format.truncates:
        longest = (
            f"with more than {pair_format.max_source:,} source or {pair_format.max_target:,} "
            "target tokens"
        )
    left_out = [
        f"{some:,} {why}"
        for some, why in (
            (data.num_blank, "empty on one side"),
            (pairs.num_too_long, longest),
        )
        if some
    ]
    note = f"; left out: {', '.join(left_out)}" if left_out else ""
    if pairs.num_truncated:
        note += (
            f"; of {pairs.num_truncated:,} sources only the first {pair_format.max_source:,} "
            "tokens are read"
        )
    return f"{len(pairs.source):,} training pairs{note}"
