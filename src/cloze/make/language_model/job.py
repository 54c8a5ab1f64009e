"""`pretrain --model nnlm | lstm`: running text to a neural language model.

The run's folder is the model's folder, and the model in it is the best so far by the perplexity of
text it does not learn from. Beside it lie what it ran with, how it went, and what a resumed run
goes on from:

    config.json model.safetensors tokenizer.json …     what `cloze.load` opens
    recipe.toml metrics.jsonl data.json report.html vocabulary/ state/
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cloze.checkpoint.language import NeuralModel, open_language
from cloze.checkpoint.words import Vocabulary
from cloze.data.files import PathLike, fresh_path
from cloze.data.running import Strips, Windows
from cloze.data.streams import Source
from cloze.device import resolve_device
from cloze.files import write_json
from cloze.make.course import Course, exact, take
from cloze.make.folder import alone, check_apart, clear
from cloze.make.init_from import base_of, fitted, said
from cloze.make.language_model.recipe import LanguageRecipe, language_recipe
from cloze.make.language_model.text import Lines, RunningText, read_lines
from cloze.make.ngram import learn_words
from cloze.make.pretrain.tokenizer import kept_vocabulary
from cloze.make.run import (
    DATA_FACTS,
    VOCABULARY,
    Pretrained,
    Watch,
    check_extras,
    check_named,
    named,
    recipe_in,
    texts_of,
    write_recipe,
)
from cloze.metrics.language import score_language
from cloze.metrics.perplexity import perplexity
from cloze.models.configs.ngram import BOS, EOS, UNK
from cloze.models.nnlm import NNLM
from cloze.nn.modes import eval_mode
from cloze.objectives.core import Learner
from cloze.objectives.language import Carried, language
from cloze.report.page import write_report
from cloze.text.tokenizer import Tokenizer
from cloze.train.optim import build_optimizer
from cloze.train.state import TrainState


def pretrain_language(
    sources: Source | list[Source],
    out: PathLike,
    recipe: LanguageRecipe | PathLike,
    *,
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Pretrained:
    """Learn an NNLM or an LSTM from running text, a sentence to a line.

    It is a new one, or goes on from the recipe's `model.init_from`, whose words and shape it keeps.
    Every epoch the model is judged by text it does not learn from, and the folder holds the best in
    the end. SIGTERM and Ctrl-C save and end it; `resume` goes on, exactly where the budget is in
    epochs, steps or tokens.

    Args:
        sources: what `cloze.data.streams.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the run's and the model's folder.
        recipe: a `LanguageRecipe`, the name of one (nnlm, lstm), or its file.
        settings: such as "lstm.hidden_size=200", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    made = language_recipe(recipe, settings=settings)
    check_extras(made.run)
    texts = texts_of(sources, made.corpus.sources)
    dev = named(made.corpus.dev)
    made = replace(made, corpus=replace(made.corpus, sources=named(texts), dev=dev))
    base = base_of(made, open_language)
    made = fitted(made, base, Path(out))
    # whether all is there that is named, before anything is overwritten
    resolve_device(made.run.device)
    if made.vocabulary.folder is not None:
        Tokenizer.load(made.vocabulary.folder)
        check_apart(Path(out), made.vocabulary.folder, what="vocabulary")
    lines = read_lines(texts, made.corpus)
    folder = fresh_path(out, force)
    with alone(folder):
        clear(folder)
        write_recipe(folder, said(made))
        return _train(lines, folder, made, base, watch or Watch())


def resume_language(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    settings: Sequence[str] = (),
    watch: Watch | None = None,
) -> Pretrained:
    """Go on with the run in a folder, by the recipe that lies there.

    The text is named again where it has moved, or where the recipe could not name it.
    """
    made = language_recipe(recipe_in(out), settings=settings)
    check_extras(made.run)
    texts = texts_of(sources, made.corpus.sources)
    check_named(texts)
    base = base_of(made, open_language)
    with alone(Path(out)):
        return _train(read_lines(texts, made.corpus), Path(out), made, base, watch or Watch())


def _train(
    lines: Lines, out: Path, recipe: LanguageRecipe, base: NeuralModel | None, watch: Watch
) -> Pretrained:
    place = out / VOCABULARY
    tokenizer = (
        base.tokenizer
        if base
        else kept_vocabulary(place, lambda: _tokenizer(lines.train, recipe, watch))
    )
    text = RunningText.of(lines.train, tokenizer)
    model = base or _model(recipe, tokenizer, text)
    model.module.to(resolve_device(recipe.run.device))
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
        optimizer=build_optimizer(net, recipe.optimizer),
        config=recipe.run,
    )
    judge = _Judge(model, lines.dev)
    taken = take(
        state,
        batches.batch,
        Course(
            out=out,
            identity={
                "recipe": exact(recipe, "corpus.sources", "corpus.dev"),
                "text": text.fingerprint,
                "dev": judge.fingerprint,
            },
            budget=recipe.run.budget(batches.per_epoch),
            schedule=recipe.schedule,
            options=recipe.run,
            watch=watch,
            every=recipe.run.eval_interval(lambda: batches.per_epoch),
            judge=judge if judge else None,
            keep=lambda: model.save_into(out),
        ),
    )
    _tell(out, text, lines)
    return Pretrained(
        folder=out,
        steps=state.progress.step,
        tokens=state.progress.tokens,
        seconds=state.progress.seconds,
        scores=taken.scores,
        stopped=taken.stopped,
    )


class _Judge:
    """The perplexity of lines that the model does not learn from."""

    def __init__(self, model: NeuralModel, lines: Sequence[str]) -> None:
        self._model, self._lines = model, lines
        flat = [id_ for one in model.sequences(lines) for id_ in one] if lines else []
        self.fingerprint = [len(flat), zlib.crc32(np.array(flat, np.int32).tobytes())]

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __call__(self) -> dict[str, float]:
        with eval_mode(self._model.module):
            found = score_language(self._model, self._lines)
        loss = -found.log_p / found.tokens
        return {"loss": loss, "perplexity": perplexity(loss), "score": -loss}


def _tokenizer(lines: Sequence[str], recipe: LanguageRecipe, watch: Watch) -> Tokenizer:
    table = recipe.vocabulary
    if table.folder is not None:
        return Tokenizer.load(table.folder)
    return learn_words(
        lines,
        kind=table.kind,
        size=table.size,
        min_count=table.min_count,
        lowercase=table.lowercase,
        progress=watch.say.progress,
    )


def _model(recipe: LanguageRecipe, tokenizer: Tokenizer, text: RunningText) -> NeuralModel:
    rng = torch.Generator().manual_seed(recipe.run.seed)
    config = recipe.config(len(Vocabulary(tokenizer).words))
    made = NeuralModel.new(config, tokenizer, rng=rng)
    made.module.expect(torch.from_numpy(text.frequencies(config.vocab_size)))
    return made


def _batches(text: RunningText, recipe: LanguageRecipe) -> Windows | Strips:
    table = recipe.run
    if recipe.nnlm is None:
        sizes = {"batch": table.batch, "length": table.length, "seed": table.seed}
        return Strips(text.ids, reset=table.reset, **sizes)
    return Windows(
        text.ids, order=recipe.nnlm.order, bos=BOS, end=EOS, batch=table.batch, seed=table.seed
    )


def _tell(out: Path, text: RunningText, lines: Lines) -> None:
    summary = {
        "lines": len(lines.train),
        "tokens": len(text.ids),
        "unknown": int((text.ids == UNK).sum()),
        "held_out_lines": len(lines.dev),
    }
    write_json(out / DATA_FACTS, summary)
    write_report(out)
