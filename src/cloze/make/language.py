"""`pretrain --model nnlm | lstm`: running text to a neural language model.

The run's folder is the model's folder, and the model in it is the best so far by the perplexity of
text it does not learn from. Beside it lie what it ran with, how it went, and what a resumed run
goes on from:

    config.json model.safetensors tokenizer.json …     what `cloze.load` opens
    recipe.toml metrics.jsonl data.json report.html vocabulary/ state/
"""

import json
import math
import shutil
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.language import NeuralModel
from cloze.checkpoint.model import device_of
from cloze.checkpoint.ngram import Vocabulary
from cloze.config import to_mapping
from cloze.data.files import PathLike, fresh_path
from cloze.data.running import Strips, Windows
from cloze.data.streams import Source
from cloze.errors import InputError
from cloze.make.language_recipe import LanguageRecipe, language_recipe
from cloze.make.language_text import Lines, RunningText, read_lines
from cloze.make.metrics import Meter, eval_row
from cloze.make.ngram import learn_words
from cloze.make.pretrain import Pretrained
from cloze.make.report import write_report
from cloze.make.run import (
    METRICS,
    RECIPE,
    REPORT,
    STATE,
    UNNAMED,
    Watch,
    named,
    recipe_in,
    write_recipe,
)
from cloze.make.tuning import SUMMARY, keeping_best
from cloze.models.ngram import BOS, EOS, UNK
from cloze.models.nnlm import NNLM
from cloze.objectives.core import Learner
from cloze.objectives.language import Carried, language
from cloze.text.tokenizer import Tokenizer
from cloze.train.consumers import (
    append_metrics,
    early_stopping,
    evaluating,
    saving,
    writing_metrics,
    writing_tensorboard,
)
from cloze.train.loop import run
from cloze.train.optim import optimiser
from cloze.train.signals import stop_on_signals
from cloze.train.state import TrainState, resume, save
from cloze.train.step import Step

VOCABULARY = "vocabulary"


def pretrain_language(
    sources: Source | list[Source],
    out: PathLike,
    recipe: LanguageRecipe | PathLike,
    *,
    dev: Source | list[Source] | None = None,
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Pretrained:
    """Learn an NNLM or an LSTM from running text, a sentence to a line.

    Every epoch the model is judged by text it does not learn from, and the folder holds the best in
    the end. SIGTERM and Ctrl-C save and end it; `resume_language` goes on, exactly where the budget
    is in epochs, steps or tokens.

    Args:
        sources: what `cloze.data.streams.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the run's and the model's folder.
        recipe: a `LanguageRecipe`, the name of one (nnlm, lstm), or its file.
        dev: text to judge by; else the recipe's, else the last lines of the sources.
        settings: such as "lstm.width=200", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    made = language_recipe(recipe, settings=settings)
    texts = _listed(sources) or list(made.corpus.sources)
    judged = _listed(dev) or list(made.corpus.dev)
    corpus = replace(made.corpus, sources=named(texts), dev=named(judged))
    made = replace(made, corpus=corpus)
    lines = read_lines(texts, judged, made.corpus)  # before anything is overwritten
    folder = fresh_path(out, force)
    for name in (RECIPE, METRICS, SUMMARY, REPORT):
        (folder / name).unlink(missing_ok=True)
    for name in (STATE, VOCABULARY):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_recipe(folder, made)
    return _train(lines, folder, made, watch or Watch())


def resume_language(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    dev: Source | list[Source] | None = None,
    settings: Sequence[str] = (),
    watch: Watch | None = None,
) -> Pretrained:
    """Go on with the run in a folder, by the recipe that lies there.

    The text is named again where it has moved, or where the recipe could not name it.
    """
    made = language_recipe(recipe_in(out), settings=settings)
    texts = _listed(sources) or list(made.corpus.sources)
    judged = _listed(dev) or list(made.corpus.dev)
    if UNNAMED in (*texts, *judged):
        raise InputError(
            "this run began with texts in Python, which a folder cannot name",
            fix="give the same texts again: resume_language(out, sources=…)",
        )
    return _train(read_lines(texts, judged, made.corpus), Path(out), made, watch or Watch())


def _train(lines: Lines, out: Path, recipe: LanguageRecipe, watch: Watch) -> Pretrained:
    tokenizer = _tokenizer(lines.train, out, recipe, watch)
    text = RunningText.of(lines.train, tokenizer)
    model = _model(recipe, tokenizer, text)
    batches = _batches(text, recipe)
    watch.say.text(
        f"{len(text.ids):,} tokens to learn from, {len(model.words):,} words, "
        f"{sum(weight.numel() for weight in model.module.parameters()):,} parameters"
    )
    net = (
        model.module if isinstance(model.module, NNLM) else Carried(model.module, recipe.run.batch)
    )
    state = TrainState(
        learner=Learner(net, language),
        model=net,
        optimiser=optimiser(net, recipe.optimiser),
        config=recipe.loop(),
    )
    judge = _Judge(model, lines.dev)
    identity = {"recipe": _exact(recipe), "text": text.fingerprint, "dev": judge.fingerprint}
    resume(state, out / STATE, identity)
    best = state.notes.setdefault("best", {"score": None, "step": 0, "scores": {}})
    budget = recipe.run.budget(batches.per_epoch)
    since = state.progress
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        steps = run(
            state,
            lambda first: ([batches.batch(number)] for number in count(first)),
            budget=budget,
            schedule=recipe.schedule,
            stop=stop,
        )
        if judge:
            every = max(1, round(recipe.run.evaluate_epochs * batches.per_epoch))
            steps = keeping_best(
                evaluating(steps, judge, every=every), best, lambda: model.save_into(out)
            )
            if recipe.run.patience:
                steps = early_stopping(
                    steps, state.notes, score="score", patience=recipe.run.patience, better="higher"
                )
        steps = saving(
            steps,
            lambda: save(state, out / STATE, identity, keep=1),
            every=recipe.run.save_every,
            minutes=recipe.run.save_minutes,
        )
        steps = _written(steps, out, recipe, Meter(budget, 1.0, since))
        ended = deque(watch.steps(steps, Meter(budget, 1.0, since)), maxlen=1)
    if judge and ended and not ended[0].scores and budget.spent(state.progress):
        # a budget of minutes shows only afterwards which step was the last
        last = replace(ended[0], scores=judge())
        deque(keeping_best(iter([last]), best, lambda: model.save_into(out)), maxlen=0)
        append_metrics(out / METRICS, eval_row(last.number, last.scores))
        save(state, out / STATE, identity, keep=1)
    if best["score"] is None:  # nothing to choose by: the last one
        model.save_into(out)
    _tell(out, text, lines)
    return Pretrained(
        folder=out,
        steps=state.progress.step,
        tokens=state.progress.tokens,
        seconds=state.progress.seconds,
        scores=best["scores"],
        stopped=stop.reason,
    )


class _Judge:
    """The perplexity of lines that the model does not learn from."""

    def __init__(self, model: NeuralModel, lines: Sequence[str]) -> None:
        self._model = model
        self._sequences = model.sequences(lines) if lines else []
        flat = [id_ for one in self._sequences for id_ in one]
        self.fingerprint = [len(flat), zlib.crc32(np.array(flat, np.int32).tobytes())]

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def __call__(self) -> dict[str, float]:
        self._model.module.eval()  # the loop sets it to learning again
        logs = self._model.log_probs(self._sequences)
        loss = -sum(float(one.sum(dtype="float64")) for one in logs) / sum(map(len, logs))
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "score": -loss}


def _tokenizer(lines: Sequence[str], out: Path, recipe: LanguageRecipe, watch: Watch) -> Tokenizer:
    table, place = recipe.vocabulary, out / VOCABULARY
    if place.is_dir():  # of the same run, which is resumed
        return Tokenizer.load(place)
    if table.folder is not None:
        tokenizer = Tokenizer.load(table.folder)
    else:
        tokenizer = learn_words(
            lines,
            kind=table.kind,
            size=table.size,
            min_count=table.min_count,
            lowercase=table.lowercase,
            progress=watch.say.vocabulary,
        )
    with whole_folder(place) as folder:
        tokenizer.save(folder)
    return tokenizer


def _model(recipe: LanguageRecipe, tokenizer: Tokenizer, text: RunningText) -> NeuralModel:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    config = recipe.config(len(Vocabulary(tokenizer).words))
    made = NeuralModel.new(config, tokenizer, rng=rng)
    made.module.expect(torch.from_numpy(text.frequencies(config.vocab_size)))
    made.module.to(device_of(recipe.run.device))
    return made


def _batches(text: RunningText, recipe: LanguageRecipe) -> Windows | Strips:
    table = recipe.run
    if recipe.nnlm is None:
        sizes = {"batch": table.batch, "length": table.length, "seed": table.seed}
        return Strips(text.ids, reset=table.reset, **sizes)
    return Windows(
        text.ids, order=recipe.nnlm.order, bos=BOS, end=EOS, batch=table.batch, seed=table.seed
    )


def _listed(sources: Source | list[Source] | None) -> list[Source]:
    if sources is None:
        return []
    return list(sources) if isinstance(sources, list | tuple) else [sources]


def _written(
    steps: Iterator[Step], out: Path, recipe: LanguageRecipe, meter: Meter
) -> Iterator[Step]:
    every = recipe.run.log_every
    steps = writing_metrics(steps, out / METRICS, rows=meter.rows, every=every, after=meter.since)
    if recipe.run.tensorboard:
        steps = writing_tensorboard(steps, out / "tensorboard", every=every)
    return steps


def _tell(out: Path, text: RunningText, lines: Lines) -> None:
    summary = {
        "lines": len(lines.train),
        "tokens": len(text.ids),
        "unknown": int((text.ids == UNK).sum()),
        "held_out_lines": len(lines.dev),
    }
    (out / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
    write_report(out)


def _exact(recipe: LanguageRecipe) -> dict[str, Any]:
    """What must be the same for a resumed run to go on exactly; the text has its own."""
    described = to_mapping(recipe)
    for name in ("device", "tensorboard", "save_every", "save_minutes", "log_every"):
        described["run"].pop(name, None)
    for name in ("sources", "dev"):
        described["corpus"].pop(name, None)
    return described
