"""`train_translator`: aligned files to a model that translates.

The run's folder is the model's folder, and the model in it is the best so far by BLEU on the dev
data. Beside it lie what it ran with, how it went, and what a resumed run goes on from:

    config.json model.safetensors tokenizer.json …     what `translate` opens
    recipe.toml metrics.jsonl data.json samples.json report.html state/
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike as OsPath
from pathlib import Path

import torch

from cloze.checkpoint.translator import Translator, learn_pieces, load_translator, sentences
from cloze.data.files import PathLike, absolute, fresh_path
from cloze.data.parallel import PairBatch, Pairs, Parallel, parallel
from cloze.device import resolve_device
from cloze.errors import ConfigError, InputError
from cloze.files import write_json
from cloze.make.course import Course, exact, take
from cloze.make.folder import alone, check_apart, clear
from cloze.make.init_from import base_of, fitted, said
from cloze.make.pretrain.tokenizer import kept_vocabulary
from cloze.make.run import (
    DATA_FACTS,
    UNNAMED,
    VOCABULARY,
    Watch,
    check_extras,
    check_piped,
    recipe_in,
    write_recipe,
)
from cloze.make.translation.evaluation import Judge
from cloze.make.translation.recipe import DEFAULT, TranslateRecipe, translate_recipe
from cloze.nn.fuse import move_to_device
from cloze.objectives.core import Learner
from cloze.objectives.translation import translation
from cloze.report.page import write_report
from cloze.text.tokenizer import Tokenizer
from cloze.train.optim import build_optimizer
from cloze.train.state import TrainState

Side = PathLike | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How one run ended."""

    folder: Path
    score: float | None  # the best BLEU on the dev data; None where there are none
    scores: Mapping[str, float]  # all measures of the best
    best_step: int
    steps: int
    seconds: float
    left_out: int  # pairs that were blank on one side, or too long
    stopped: str | None = None  # the signal, where one ended it early


def train_translator(
    source: Side,
    target: Side,
    out: PathLike,
    recipe: TranslateRecipe | PathLike = DEFAULT,
    *,
    dev: tuple[Side, Side] | None = None,
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Trained:
    """Learn to translate from aligned lines.

    Both languages share one vocabulary, learned from both sides. Every epoch the dev sentences are
    translated, and the model with the best BLEU is what the folder holds in the end; without dev
    data it is the last. SIGTERM and Ctrl-C save and end it; `resume` goes on, exactly
    where the budget is in epochs, steps or tokens.

    Args:
        source: a file with a sentence on each line (packed or not), `-` for standard input, or the
            sentences.
        target: the same of their translations, line by line.
        out: the run's and the model's folder.
        recipe: a `TranslateRecipe`, the name of one (transformer, transformer-base, seq2seq), or
            its file. Its `model.init_from` is a translator to continue training, which keeps its
            vocabulary and its configuration.
        dev: source and target to judge by.
        settings: such as "transformer.num_layers=4", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    made = translate_recipe(recipe, settings=settings)
    check_extras(made.run)
    data = replace(made.data, train=_named(source, target), dev=_named(*dev) if dev else ())
    made = replace(made, data=data)
    base = base_of(made, load_translator)
    made = fitted(made, base, Path(out))
    check_piped([*data.train, *data.dev])
    # whether all is there that is named, before anything is overwritten
    resolve_device(made.run.device)
    if made.vocabulary.folder is not None:
        _named_vocabulary(made.vocabulary.folder)
        check_apart(Path(out), made.vocabulary.folder, what="vocabulary")
    train, judged = parallel(source, target), parallel(*dev) if dev else None
    folder = fresh_path(out, force)
    with alone(folder):
        clear(folder)
        write_recipe(folder, said(made))
        return _train(train, judged, folder, made, base, watch or Watch())


def resume_translator(
    out: PathLike, *, settings: Sequence[str] = (), watch: Watch | None = None
) -> Trained:
    """Go on with the run in a folder, by the recipe that lies there."""
    made = translate_recipe(recipe_in(out), settings=settings)
    check_extras(made.run)
    if UNNAMED in (*made.data.train, *made.data.dev) or not made.data.train:
        raise InputError(
            "this run began with sentences in Python, which a folder cannot name",
            fix="train again, or give the sentences as files",
        )
    check_piped([*made.data.train, *made.data.dev], again=True)
    judged = parallel(*made.data.dev) if made.data.dev else None
    train, base = parallel(*made.data.train), base_of(made, load_translator)
    with alone(Path(out)):
        return _train(train, judged, Path(out), made, base, watch or Watch())


def _train(
    data: Parallel,
    dev: Parallel | None,
    out: Path,
    recipe: TranslateRecipe,
    base: Translator | None,
    watch: Watch,
) -> Trained:
    tokenizer = (
        base.tokenizer
        if base
        else kept_vocabulary(out / VOCABULARY, lambda: _tokenizer(data, recipe, watch))
    )
    pairs, fitting = _pairs(data, tokenizer, recipe, watch)
    model = _model(recipe, tokenizer, fitting, base)
    state = TrainState(
        learner=Learner(model.module, translation(smoothing=recipe.loss.smoothing)),
        model=model.module,
        optimizer=build_optimizer(model.module, recipe.optimizer),
        config=recipe.run,
    )
    judge = Judge(model, dev, recipe, state) if dev else None

    def batch(step: int) -> PairBatch:
        return pairs.batch(step, recipe.loss.own(step / pairs.per_epoch))

    def keep() -> None:
        if judge:
            judge.keep(out)
        else:
            replace(model, module=model.module.eval()).save_into(out)

    taken = take(
        state,
        batch,
        Course(
            out=out,
            identity={
                "recipe": exact(recipe, "data.train", "data.dev"),
                "train": data.fingerprint,
                "dev": dev.fingerprint if dev else None,
            },
            budget=recipe.run.budget(pairs.per_epoch),
            schedule=recipe.schedule,
            options=recipe.run,
            watch=watch,
            every=recipe.run.eval_interval(lambda: pairs.per_epoch),
            judge=judge,
            keep=keep,
        ),
    )
    left_out = data.blank + len(data) - fitting.kept
    _tell(out, data, dev, left_out)
    return Trained(
        folder=out,
        score=taken.score,
        scores=taken.scores,
        best_step=taken.best_step,
        steps=state.progress.step,
        seconds=state.progress.seconds,
        left_out=left_out,
        stopped=taken.stopped,
    )


@dataclass(frozen=True)
class _Fitting:
    """What of the training pairs is short enough."""

    kept: int
    longest: int


def _named_vocabulary(folder: str) -> Tokenizer:
    tokenizer = Tokenizer.load(folder)
    if tokenizer.eos_id is None or tokenizer.bos_id is None or tokenizer.unk_id is not None:
        raise ConfigError(
            f"the vocabulary in {folder} has no end of a sentence, or loses characters",
            fix="use one of byte-level BPE: cloze vocabulary --kind bpe",
        )
    return tokenizer


def _tokenizer(data: Parallel, recipe: TranslateRecipe, watch: Watch) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return _named_vocabulary(table.folder)
    watch.say.text(f"learning a vocabulary of {table.size:,} pieces from both sides")
    return learn_pieces(
        [*data.source, *data.target],
        table.size,
        lowercase=table.lowercase,
        min_count=table.min_count,
        progress=watch.say.progress,
    )


def _pairs(
    data: Parallel, tokenizer: Tokenizer, recipe: TranslateRecipe, watch: Watch
) -> tuple[Pairs, _Fitting]:
    source, target = (sentences(tokenizer, side) for side in (data.source, data.target))
    sizes = [max(map(len, both)) for both in zip(source, target, strict=True)]
    limit = recipe.data.limit
    if recipe.transformer is not None and recipe.transformer.position_encoding == "learned":
        limit = min(limit, recipe.transformer.max_positions)
    fits = [n for n, size in enumerate(sizes) if size <= limit]
    if not fits:
        raise InputError(
            f"no pair is shorter than {limit:,} tokens", fix="raise data.limit, or split the lines"
        )
    skipped = [
        f"{some:,} {why}"
        for some, why in (
            (data.blank, "blank on one side"),
            (len(data) - len(fits), f"longer than {limit:,} tokens"),
        )
        if some
    ]
    told = f"; left out: {', '.join(skipped)}" if skipped else ""
    watch.say.text(f"{len(fits):,} pairs to learn from{told}")
    pairs = Pairs(
        [source[n] for n in fits],
        [target[n] for n in fits],
        batch_tokens=recipe.run.batch_tokens,
        seed=recipe.run.seed,
    )
    return pairs, _Fitting(kept=len(fits), longest=max(sizes[n] for n in fits))


def _model(
    recipe: TranslateRecipe, tokenizer: Tokenizer, fitting: _Fitting, base: Translator | None
) -> Translator:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    made = base or Translator.new(recipe.config(tokenizer), tokenizer, rng=rng)
    move_to_device(made.module, resolve_device(recipe.run.device))
    return replace(made, longest=max(fitting.longest, made.longest))


def _tell(out: Path, data: Parallel, dev: Parallel | None, left_out: int) -> None:
    summary = {"training": len(data), "dev": len(dev) if dev else 0, "left out": left_out}
    write_json(out / DATA_FACTS, summary)
    write_report(out)


def _named(source: Side, target: Side) -> tuple[str, str]:
    first, second = (
        absolute(side) if isinstance(side, str | OsPath) else UNNAMED for side in (source, target)
    )
    return first, second
