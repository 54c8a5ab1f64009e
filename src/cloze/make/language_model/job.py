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
from cloze.make.init_from import load_or_train_tokenizer, open_base, with_absolute_base
from cloze.make.language_model.text import Lines, RunningText, read_lines
from cloze.make.ngram import train_lm_tokenizer
from cloze.make.recipe.language_models import LanguageModelRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras, lock_folder, prepare_folder, start_run
from cloze.make.sources import check_can_reread, name_sources, resolve_sources
from cloze.metrics.perplexity import perplexity, score_language
from cloze.models.configs.ngram import BOS, EOS, UNK
from cloze.models.language import Vocabulary
from cloze.nn.utils import eval_mode
from cloze.objectives.core import Learner
from cloze.objectives.language_model import (
    RecurrentModel,
    StatefulLSTM,
    language_model_objective,
)
from cloze.report.page import write_report
from cloze.text.tokenizer import Tokenizer
from cloze.train.fit import Callbacks, RunResult, TrainingJob, fit, one_batch_each
from cloze.train.optim import build_optimizer
from cloze.train.run_files import DATA_FACTS, VOCABULARY
from cloze.train.state import TrainState


def pretrain_language(
    sources: Source | list[Source],
    out: PathLike,
    recipe: LanguageModelRecipe,
    *,
    force: bool = False,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Train an NNLM or an LSTM on running text, one sentence per line.

    It is a new model, or continues the recipe's `model.init_from` and keeps its vocabulary and
    configuration. After every epoch the model is evaluated on held-out text, and the folder
    contains the best one at the end. SIGTERM and Ctrl-C save the state and end the run; `resume`
    continues it, bit-exactly if the budget is in epochs, steps or tokens.

    Args:
        sources: what `cloze.data.sources.read_rows` reads; if empty, the recipe's `data.sources`.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        force: overwrite what is in `out`.
        callbacks: for logging and progress.
    """
    check_extras(recipe.run)
    texts = resolve_sources(sources, recipe.data.sources)
    data = replace(recipe.data, sources=name_sources(texts), dev=name_sources(recipe.data.dev))
    base = open_base(recipe)
    made = with_absolute_base(replace(recipe, data=data))
    resolve_device(made.run.device)
    vocabulary = made.vocabulary.folder
    if vocabulary is not None:
        Tokenizer.load(vocabulary)
    separate = {"model": made.model.init_from, "vocabulary": vocabulary}
    with start_run(out, force=force, separate_from=separate) as folder:
        lines = read_lines(texts, made.data)
        prepare_folder(folder, made.to_file())
        return _train(lines, folder, made, base, callbacks or Callbacks())


def resume_language(
    out: PathLike,
    recipe: LanguageModelRecipe,
    *,
    sources: Source | list[Source] = (),
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe.

    `sources` gives the text again where it has moved or the recipe could not name it.
    """
    check_extras(recipe.run)
    texts = resolve_sources(sources, recipe.data.sources)
    check_can_reread(texts)
    base = open_base(recipe)
    with lock_folder(Path(out)):
        lines = read_lines(texts, recipe.data)
        return _train(lines, Path(out), recipe, base, callbacks or Callbacks())


def _train(
    lines: Lines,
    out: Path,
    recipe: LanguageModelRecipe,
    base: Model | None,
    callbacks: Callbacks,
) -> RunResult:
    tokenizer = load_or_train_tokenizer(
        out / VOCABULARY, base, lambda: _train_tokenizer(lines.train, recipe, callbacks)
    )
    text = RunningText.of(lines.train, tokenizer)
    model = base or _build_model(recipe, tokenizer, text)
    model.module.to(resolve_device(recipe.run.device))
    batches = _batches(text, recipe, model)
    callbacks.log(
        f"{len(text.ids):,} training tokens, {model.config.vocab_size:,} words, "
        f"{sum(weight.numel() for weight in model.module.parameters()):,} parameters"
    )
    module, rows = model.module, recipe.run.batch_size
    net = StatefulLSTM(module, rows) if isinstance(module, RecurrentModel) else module
    evaluation = _Evaluation(model, lines.dev)
    result = fit(
        TrainingJob(
            out=out,
            state=TrainState(
                learner=Learner(net, language_model_objective),
                model=net,
                optimizer=build_optimizer(net, recipe.optimizer),
                config=recipe.run,
            ),
            batches=one_batch_each(batches.batch),
            fingerprint={
                "recipe": run_fingerprint(recipe, "data.sources", "data.dev"),
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
        flat = [id_ for one in self._model.encode_texts(lines) for id_ in one] if lines else []
        self.fingerprint = [len(flat), zlib.crc32(np.array(flat, np.int32).tobytes())]

    def __call__(self) -> dict[str, float]:
        with eval_mode(self._module):
            found = score_language(self._model, self._lines)
        loss = -found.log_p / found.tokens
        return {"loss": loss, "perplexity": perplexity(loss), "score": -loss}


def _train_tokenizer(
    lines: Sequence[str], recipe: LanguageModelRecipe, callbacks: Callbacks
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


def _build_model(recipe: LanguageModelRecipe, tokenizer: Tokenizer, text: RunningText) -> Model:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    words = len(Vocabulary(tokenizer).tokens)
    config = replace(recipe.model.new_config, vocab_size=words, bos_id=BOS)
    made = Model.new(config, tokenizer, rng=rng)
    made.module.init_output_bias(torch.from_numpy(text.frequencies(config.vocab_size)))
    return made


def _batches(
    text: RunningText, recipe: LanguageModelRecipe, model: Model
) -> ContextWindows | BPTTBatches:
    run, module = recipe.run, model.module
    if isinstance(module, RecurrentModel):
        sizes = {"batch_size": run.batch_size, "num_steps": run.bptt_length, "seed": run.seed}
        return BPTTBatches(text.ids, reset_prob=run.state_reset_prob, **sizes)
    order = module.config.order
    return ContextWindows(
        text.ids, order=order, bos_id=BOS, eos_id=EOS, batch_size=run.batch_size, seed=run.seed
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
