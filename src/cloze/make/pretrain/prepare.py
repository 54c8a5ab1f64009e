"""How a run on raw text begins: what can be wrong is told first, then its folder is made ready."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cloze.checkpoint.load import open_folder
from cloze.data.corpus import DESCRIPTION
from cloze.data.files import find, fresh_path, nearest_folder
from cloze.data.prepare import check_place
from cloze.data.streams import Source, is_stream, rereadable, rows
from cloze.errors import ConfigError, InputError
from cloze.make.folder import alone, check_apart, clear
from cloze.make.pretrain.recipe import Recipe
from cloze.make.pretrain.setup import CORPUS
from cloze.make.pretrain.tokenizer import TOKENIZER, drop_stale_vocabulary
from cloze.make.run import CORPUS_FACTS, METRICS, RECIPE, write_recipe
from cloze.models.configs.encoder import EncoderConfig
from cloze.nn.encoder import Encoder
from cloze.text.tokenizer import Tokenizer
from cloze.train.parallel import Team

# What a plan leaves for its run, and a run that failed before it saved a state.
LEFT = frozenset({RECIPE, TOKENIZER, CORPUS, CORPUS_FACTS, METRICS, "tensorboard"})


@contextmanager
def begun(
    sources: list[Source],
    out: Path,
    recipe: Recipe,
    team: Team,
    held: ExitStack,
    *,
    force: bool = False,
    planned: bool = False,
) -> Iterator[list[Source]]:
    """The text of a new run, or only of its plan, whose folder is then ready for it.

    Nothing is removed or written there before all is checked that can be without reading all of
    the text. Text that can be read only once lies in a file as long as this lasts. The folder is
    kept from other processes as long as `held` is.
    """
    readable = list(sources)
    with ExitStack() as stack:

        def begin() -> None:
            _check_folder(out, force=force, planned=planned)
            held.enter_context(alone(out))
            _check_recipe(recipe, out, team)
            text = recipe.corpus
            if not text.skip_broken:
                _check_texts(readable, text.column)
            readable[:] = stack.enter_context(
                rereadable(
                    readable,
                    nearest_folder(out),
                    column=text.column,
                    skip_broken=text.skip_broken,
                )
            )
            clear(out, but=[TOKENIZER])
            drop_stale_vocabulary(readable, out, recipe)
            if not planned:
                write_recipe(out, recipe.said())

        team.ahead(begin)
        yield readable


def _check_folder(out: Path, *, force: bool, planned: bool) -> None:
    """Whether a run may have the folder; a plan never overwrites one."""
    inside = {path.name for path in out.glob("[!.]*")} if out.is_dir() else set()
    if planned and not inside <= LEFT:
        raise InputError(
            f"{out} holds more than a plan ({min(inside - LEFT)})",
            fix="plan in a new folder: a plan overwrites nothing",
        )
    fresh_path(out, force or inside <= LEFT)


def _check_recipe(recipe: Recipe, out: Path, team: Team) -> None:
    """Whether all that the recipe names is there, and fits."""
    recipe.is_fast(team.device.type, team.world)
    recipe.check_processes(team.world)
    recipe.corpus.options().words()
    if recipe.corpus.folder is not None and not (Path(recipe.corpus.folder) / DESCRIPTION).exists():
        check_place(Path(recipe.corpus.folder))
    if (start := recipe.start) is not None:
        check_apart(out, start)
        base = open_folder(start)
        _check_base(recipe, base.published.config, base.module)
    if (folder := recipe.vocabulary.folder) is not None:
        check_apart(out, folder, what="vocabulary")
        Tokenizer.load(folder)


def _check_base(recipe: Recipe, config: EncoderConfig, module: Encoder) -> None:
    """Whether a model can go on by a recipe, or teach by it."""
    kind, pairs = recipe.objective.kind, recipe.samples.pairs
    length, positions = recipe.samples.length, config.max_positions
    if length > positions:
        raise ConfigError(
            f"samples.length is {length:,}, and the model has {positions:,} positions "
            "(model.positions)",
            fix=f"use --length {positions} or less",
        )
    if pairs != "none" and "nsp" not in module.HEADS:
        raise ConfigError(
            f"samples.pairs is {pairs!r}, and a {config.family} has no head for pairs",
            fix='set samples.pairs to "none" (--pairs none)',
        )
    if recipe.objective.causal and not module.is_causal:
        raise ConfigError(
            f"objective.kind is {kind!r}, and the model to go on from sees what comes next",
            fix="go on from one that learned left to right, or begin a new one without --from",
        )
    if module.is_causal and not recipe.objective.causal:
        raise ConfigError(
            f"objective.kind is {kind!r}, and the model to go on from reads left to right",
            fix='set objective.kind to "left-to-right", or take a model that sees both sides',
        )


def _check_texts(sources: list[Source], column: str | None) -> None:
    """Whether every source is there, and the first row of every file can be read."""
    lasting = [source for source in sources if not is_stream(source)]
    rows(lasting, column=column)
    for source in lasting:
        if isinstance(source, str | os.PathLike):
            for path in find(source):
                if path.is_file():
                    next(rows(path, column=column))
