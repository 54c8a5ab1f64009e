"""The vocabulary of a run: learned once, and learned again only where that is due."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.streams import OnError, Source, inventory, rows
from cloze.errors import FolderError
from cloze.files import read_json, write_json
from cloze.make.pretrain.recipe import Recipe
from cloze.make.run import Say
from cloze.text.extend import extend
from cloze.text.learn import learn
from cloze.text.tokenizer import Tokenizer

TOKENIZER = "tokenizer"  # its place in a run's folder
ORIGIN = "origin.json"  # beside it: what it was learned from


def run_vocabulary(
    sources: list[Source], out: Path, recipe: Recipe, base: Model | None, say: Say
) -> Tokenizer:
    """Of a run on raw text: that in its folder; else the base model's, a named or a new one."""
    place, table = out / TOKENIZER, recipe.vocabulary
    if place.is_dir():  # of an earlier sitting of this run, or of its plan
        return Tokenizer.load(place)
    # what cannot be read is counted when the corpus is prepared
    on_error: OnError = (lambda _: None) if recipe.corpus.skip_broken else "raise"
    read = rows(sources, column=recipe.corpus.column, on_error=on_error)
    texts = (row.text for row in read)
    if base is not None:
        tokenizer = base.tokenizer
        if table.extra_pieces:
            say.text(f"looking for {table.extra_pieces:,} words to add to the vocabulary")
            tokenizer = extend(tokenizer, texts, table.extra_pieces, progress=say.progress)
    elif table.folder is not None:
        tokenizer = Tokenizer.load(table.folder)
    else:
        say.text(f"learning a vocabulary of {table.size:,} pieces")
        tokenizer = learn(
            texts,
            kind=table.kind,
            size=table.size,
            lowercase=table.lowercase,
            byte_fallback=table.byte_fallback,
            min_count=table.min_count,
            progress=say.progress,
        )
    limit = recipe.model.max_positions if base is None else base.limit
    origin = _origin(sources, recipe)
    with whole_folder(place) as folder:
        tokenizer.with_limit(limit).save(folder)
        write_json(folder / ORIGIN, origin, indent=None)
    return tokenizer


def kept_vocabulary(place: Path, make: Callable[[], Tokenizer]) -> Tokenizer:
    """The vocabulary that lies in a run's folder; else one that is made and put there."""
    if place.is_dir():  # of the same run, which is resumed
        return Tokenizer.load(place)
    tokenizer = make()
    with whole_folder(place) as folder:
        tokenizer.save(folder)
    return tokenizer


def drop_stale_vocabulary(sources: list[Source], out: Path, recipe: Recipe) -> None:
    """Let the vocabulary that lies in a run's folder go, unless this run would learn the same."""
    origin = _origin(sources, recipe)
    if origin is None or _read_origin(out) != origin:
        shutil.rmtree(out / TOKENIZER, ignore_errors=True)


def _origin(sources: list[Source], recipe: Recipe) -> dict[str, Any] | None:
    """What a vocabulary is learned from and how; None where that cannot be told from outside."""
    files = inventory(sources)
    brought = recipe.start or recipe.vocabulary.folder
    if brought is not None or files is None:
        return None
    table = to_mapping(recipe.vocabulary)
    return {"files": files, "column": recipe.corpus.column, "vocabulary": table}


def _read_origin(out: Path) -> object:
    try:
        return read_json(out / TOKENIZER / ORIGIN, cap=1 << 28)  # it lists all files of text
    except FolderError:
        return "none"
