"""Train a neural language model (NNLM or LSTM) on running text.

The run's folder is the model's folder, and it contains the model with the lowest perplexity on
held-out text so far:

    config.json model.safetensors tokenizer.json …     the model
    recipe.toml metrics.jsonl data.json report.html vocabulary/ state/
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cloze.checkpoint.model import Model
from cloze.data.language_model_batches import BPTTBatches, ContextWindows
from cloze.data.sources import Source
from cloze.decode.language import language_model
from cloze.device import resolve_device
from cloze.files import PathLike, write_json
from cloze.make.init_from import (
    inherit_config,
    load_or_train_tokenizer,
    open_base,
    recipe_values,
)
from cloze.make.language_model.recipe import LanguageRecipe, language_recipe
from cloze.make.language_model.text import Lines, RunningText, read_lines
from cloze.make.ngram import train_lm_tokenizer
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import (
    check_extras,
    find_run_recipe,
    lock_folder,
    prepare_folder,
    start_run,
)
from cloze.make.sources import check_can_reread, name_sources, resolve_sources
from cloze.metrics.perplexity import perplexity, score_language
from cloze.models.configs.ngram import BOS, EOS, UNK
from cloze.models.language import Vocabulary
from cloze.models.nnlm import NNLM
from cloze.nn.utils import eval_mode
from cloze.objectives.core import Learner
from cloze.objectives.language import Carried, language
from cloze.report.page import write_report
from cloze.text.tokenizer import Tokenizer
from cloze.train.fit import Callbacks, RunResult, TrainingJob, fit, one_batch_each
from cloze.train.optim import build_optimizer
from cloze.train.run_files import DATA_FACTS, VOCABULARY
from cloze.train.state import TrainState


def pretrain_language(
    sources: Source | list[Source],
    out: PathLike,
    recipe: LanguageRecipe | PathLike,
    *,
    settings: Sequence[str] = (),
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Train an NNLM or an LSTM on running text, one sentence per line.

    It is a new model, or continues the recipe's `model.init_from` and keeps its vocabulary and
    configuration. After every epoch the model is evaluated on held-out text, and the folder
    contains the best one at the end. SIGTERM and Ctrl-C save the state and end the run; `resume`
    continues it, bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        sources: what `cloze.data.sources.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the run's and the model's folder.
        recipe: a `LanguageRecipe`, the name of one (nnlm, lstm), or its file.
        settings: such as "lstm.hidden_size=200", applied on top of the recipe.
        force: overwrite what is in `out`.
        callbacks: for logging and progress.
    """
    made = language_recipe(recipe, settings=settings)
    check_extras(made.run)
    texts = resolve_sources(sources, made.corpus.sources)
    dev = name_sources(made.corpus.dev)
    made = replace(made, corpus=replace(made.corpus, sources=name_sources(texts), dev=dev))
    base = open_base(made)
    made = inherit_config(made, base)
    resolve_device(made.run.device)
    vocabulary = made.vocabulary.folder
    if vocabulary is not None:
        Tokenizer.load(vocabulary)
    separate = {"model": made.model.init_from, "vocabulary": vocabulary}
    with start_run(out, force=force, separate_from=separate) as folder:
        lines = read_lines(texts, made.corpus)
        prepare_folder(folder, recipe_values(made))
        return _train(lines, folder, made, base, callbacks or Callbacks())


def resume_language(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    settings: Sequence[str] = (),
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Continue the run in a folder with the recipe that is stored there.

    `sources` gives the text again where it has moved or the recipe could not name it.
    """
    made = language_recipe(find_run_recipe(out), settings=settings)
    check_extras(made.run)
    texts = resolve_sources(sources, made.corpus.sources)
    check_can_reread(texts)
    base = open_base(made)
    with lock_folder(Path(out)):
        lines = read_lines(texts, made.corpus)
        return _train(lines, Path(out), made, base, callbacks or Callbacks())


def _train(
    lines: Lines,
    out: Path,
    recipe: LanguageRecipe,
    base: Model | None,
    callbacks: Callbacks,
) -> RunResult:
    tokenizer = load_or_train_tokenizer(
        out / VOCABULARY, base, lambda: _train_tokenizer(lines.train, recipe, callbacks)
    )
    text = RunningText.of(lines.train, tokenizer)
    model = base or _build_model(recipe, tokenizer, text)
    model.module.to(resolve_device(recipe.run.device))
    batches = _batches(text, recipe)
    callbacks.log(
        f"{len(text.ids):,} training tokens, {model.config.vocab_size:,} words, "
        f"{sum(weight.numel() for weight in model.module.parameters()):,} parameters"
    )
    net = (
        model.module if isinstance(model.module, NNLM) else Carried(model.module, recipe.run.batch)
    )
    evaluation = _Evaluation(model, lines.dev)
    result = fit(
        TrainingJob(
            out=out,
            state=TrainState(
                learner=Learner(net, language),
                model=net,
                optimizer=build_optimizer(net, recipe.optimizer),
                config=recipe.run,
            ),
            batches=one_batch_each(batches.batch),
            fingerprint={
                "recipe": run_fingerprint(recipe, "corpus.sources", "corpus.dev"),
                "text": text.fingerprint,
                "dev": evaluation.fingerprint,
            },
            budget=recipe.run.budget(batches.per_epoch),
            schedule=recipe.schedule,
            options=recipe.run,
            callbacks=callbacks,
            evaluate=evaluation if lines.dev else None,
            eval_every=recipe.run.eval_interval(lambda: batches.per_epoch),
            save_model=lambda: model.save_into(out),
            patience=recipe.run.patience,
        )
    )
    _write_outputs(out, text, lines)
    return result


class _Evaluation:
    """Perplexity of held-out lines."""

    def __init__(self, model: Model, lines: Sequence[str]) -> None:
        self._model, self._lines = language_model(model), lines
        self._module = model.module
        flat = [id_ for one in self._model.sequences(lines) for id_ in one] if lines else []
        self.fingerprint = [len(flat), zlib.crc32(np.array(flat, np.int32).tobytes())]

    def __call__(self) -> dict[str, float]:
        with eval_mode(self._module):
            found = score_language(self._model, self._lines)
        loss = -found.log_p / found.tokens
        return {"loss": loss, "perplexity": perplexity(loss), "score": -loss}


def _train_tokenizer(
    lines: Sequence[str], recipe: LanguageRecipe, callbacks: Callbacks
) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return Tokenizer.load(table.folder)
    return train_lm_tokenizer(
        lines,
        kind=table.kind,
        size=table.size,
        min_count=table.min_count,
        lowercase=table.lowercase,
        progress=callbacks.progress,
    )


def _build_model(recipe: LanguageRecipe, tokenizer: Tokenizer, text: RunningText) -> Model:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    config = recipe.config(len(Vocabulary(tokenizer).words))
    made = Model.new(config, tokenizer, rng=rng)
    made.module.init_output_bias(torch.from_numpy(text.frequencies(config.vocab_size)))
    return made


def _batches(text: RunningText, recipe: LanguageRecipe) -> ContextWindows | BPTTBatches:
    run = recipe.run
    if recipe.nnlm is None:
        return BPTTBatches(
            text.ids, batch=run.batch, num_steps=run.length, reset_prob=run.reset, seed=run.seed
        )
    return ContextWindows(
        text.ids, order=recipe.nnlm.order, bos=BOS, end=EOS, batch=run.batch, seed=run.seed
    )


def _write_outputs(out: Path, text: RunningText, lines: Lines) -> None:
    summary = {
        "lines": len(lines.train),
        "tokens": len(text.ids),
        "unknown": int((text.ids == UNK).sum()),
        "held_out_lines": len(lines.dev),
    }
    write_json(out / DATA_FACTS, summary)
    write_report(out)
