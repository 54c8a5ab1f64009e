"""Start a run on raw text: check everything first, then clear its folder."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.contents import read_folder
from cloze.data.corpus import DESCRIPTION
from cloze.data.input_files import find_files
from cloze.data.prepare import check_corpus_folder, resolve_segmenter
from cloze.data.sources import Source, is_stream, read_rows, store_streams
from cloze.errors import ConfigError, InputError
from cloze.files import find_existing_folder
from cloze.make.pretrain.tokenizer import remove_stale_tokenizer
from cloze.make.recipe.pretrain import EncoderRecipe, check_processes, is_fast
from cloze.make.recipe.retro import RetroRecipe, check_retro_base
from cloze.make.run_folder import CORPUS, TOKENIZER, check_separate, clear_run, write_recipe
from cloze.models.build import build_on_meta
from cloze.models.configs.encoder import EncoderConfig
from cloze.nn.encoder import Encoder
from cloze.text.tokenizer import Tokenizer
from cloze.train.distributed import DistributedContext
from cloze.train.loggers import TENSORBOARD
from cloze.train.run_files import (
    CORPUS_FACTS,
    DATABASE,
    METRICS_FILE,
    NEIGHBOR_FOLDER,
    RECIPE,
    RETRIEVAL_FACTS,
    check_run_path,
)

# What a plan leaves for its run, and a run that failed before it saved a state.
REUSABLE = frozenset({RECIPE, TOKENIZER, CORPUS, CORPUS_FACTS, METRICS_FILE, TENSORBOARD}) | {
    DATABASE,
    NEIGHBOR_FOLDER,
    RETRIEVAL_FACTS,
}


@contextmanager
def prepare_run(
    sources: list[Source],
    out: Path,
    recipe: EncoderRecipe,
    distributed: DistributedContext,
    lock: ExitStack,
    *,
    force: bool = False,
    planned: bool = False,
) -> Iterator[list[Source]]:
    """Check a new run, or its plan, and prepare its folder; yields the sources to read.

    Nothing is removed or written before everything has been checked that can be checked without
    reading all of the text. Text that can be read only once is copied to a temporary file that
    exists inside the context. The folder stays locked until `lock` is closed.
    """
    readable = list(sources)
    with ExitStack() as stack:

        def prepare() -> None:
            _check_folder(out, force=force, planned=planned)
            lock.enter_context(lock_folder(out))
            _check_recipe(recipe, out, distributed)
            text = recipe.data
            if not text.skip_bad:
                _check_texts(readable, text.text_column)
            readable[:] = stack.enter_context(
                store_streams(
                    readable,
                    find_existing_folder(out),
                    text_column=text.text_column,
                    skip_broken=text.skip_bad,
                )
            )
            clear_run(out, keep=[TOKENIZER])
            remove_stale_tokenizer(
                readable, out, recipe.vocabulary, recipe.data, init_from=recipe.init_from
            )
            if not planned:
                write_recipe(out, recipe.to_file())

        distributed.run_on_first(prepare)
        yield readable


def _check_folder(out: Path, *, force: bool, planned: bool) -> None:
    """Raise an error if a folder contains other files than a new run may overwrite."""
    inside = {path.name for path in out.glob("[!.]*")} if out.is_dir() else set()
    if planned and not inside <= REUSABLE:
        raise InputError(
            f"{out} contains {min(inside - REUSABLE)}, and a plan overwrites nothing",
            fix="choose a new folder for the plan",
        )
    check_run_path(out, force or inside <= REUSABLE)


def _check_recipe(recipe: EncoderRecipe, out: Path, distributed: DistributedContext) -> None:
    """Check that everything the recipe names exists and is compatible."""
    is_fast(recipe, distributed.device.type, distributed.world_size)
    check_processes(recipe, distributed.world_size)
    resolve_segmenter(recipe.data)
    if recipe.data.folder is not None and not (Path(recipe.data.folder) / DESCRIPTION).exists():
        check_corpus_folder(Path(recipe.data.folder))
    if (start := recipe.init_from) is not None:
        check_separate(out, start)
        base = read_folder(start, kind="encoder")
        module = build_on_meta(base.config, base.task_heads, **base.parts)
        _check_base(recipe, base.config, module)
        if isinstance(recipe, RetroRecipe):
            check_retro_base(recipe, base.config)
    if isinstance(recipe, RetroRecipe) and recipe.retrieval.enabled:
        read_folder(recipe.retrieval.encoder)
    if (folder := recipe.vocabulary.folder) is not None:
        check_separate(out, folder, what="vocabulary")
        Tokenizer.load(folder)


def _check_base(recipe: EncoderRecipe, config: EncoderConfig, module: Encoder) -> None:
    """Check that a recipe can continue a model, or use it as a teacher."""
    kind, pairs = recipe.objective.kind, recipe.sampling.pairs
    length, positions = recipe.sampling.max_length, config.max_positions
    if length > positions:
        raise ConfigError(
            f"sampling.max_length is {length:,}, but the model has only {positions:,} positions "
            "(max_positions)",
            fix=f"use --max-length {positions} or less",
        )
    if pairs != "none" and "nsp" not in module.TASK_HEADS:
        raise ConfigError(
            f"sampling.pairs is {pairs!r}, but {config.family} has no head for sentence pairs",
            fix='set sampling.pairs to "none" (--pairs none)',
        )
    if recipe.objective.is_causal and not module.is_causal:
        raise ConfigError(
            f"objective.kind is {kind!r}, but the model to continue is bidirectional",
            fix="continue a causal model, or train a new one without --init-from",
        )
    if module.is_causal and not recipe.objective.is_causal:
        raise ConfigError(
            f"objective.kind is {kind!r}, but the model to continue is causal",
            fix='set objective.kind to "causal", or continue a bidirectional model',
        )


def _check_texts(sources: list[Source], column: str | None) -> None:
    """Check that every source exists and that the first row of every file can be read."""
    files = [source for source in sources if not is_stream(source)]
    read_rows(files, text_column=column)
    for source in files:
        if isinstance(source, str | os.PathLike):
            for path in find_files(source):
                if path.is_file():
                    next(read_rows(path, text_column=column))
