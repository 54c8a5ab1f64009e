"""The tokenizer of a run: trained once, and again only if its text or settings have changed."""

import shutil
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.sources import OnError, Source, fingerprint_files, read_rows
from cloze.errors import FolderError
from cloze.files import read_json, write_json
from cloze.make.pretrain.recipe import DistillRecipe, EncoderRecipe
from cloze.make.run_folder import TOKENIZER, TOKENIZER_ORIGIN
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import extend_tokenizer, train_tokenizer
from cloze.train.fit import Callbacks


def prepare_tokenizer(
    sources: list[Source],
    out: Path,
    recipe: EncoderRecipe,
    base: Model | None,
    callbacks: Callbacks,
) -> Tokenizer:
    """The tokenizer in the run's folder; else the base model's, a given one, or a new one."""
    place, table = out / TOKENIZER, recipe.vocabulary
    if place.is_dir():  # of this run before it was resumed, or of its plan
        return Tokenizer.load(place)
    # rows that cannot be read are counted when the corpus is prepared
    on_error: OnError = (lambda _: None) if recipe.data.skip_bad else "raise"
    read = read_rows(sources, column=recipe.data.text_column, on_error=on_error)
    texts = (row.text for row in read)
    if base is not None:
        tokenizer = base.tokenizer
        if table.extra_tokens:
            callbacks.log(f"adding {table.extra_tokens:,} words to the vocabulary")
            tokenizer = extend_tokenizer(
                tokenizer, texts, table.extra_tokens, progress=callbacks.progress
            )
    elif table.folder is not None:
        tokenizer = Tokenizer.load(table.folder)
    else:
        callbacks.log(f"training a tokenizer with {table.size:,} tokens")
        tokenizer = train_tokenizer(
            texts,
            kind=table.kind,
            vocab_size=table.size,
            lowercase=table.lowercase,
            byte_fallback=table.byte_fallback,
            min_count=table.min_count,
            progress=callbacks.progress,
        )
    if base is None:
        assert not isinstance(recipe, DistillRecipe)
        limit = recipe.model.new_config.max_positions
    else:
        limit = base.limit
    origin = _origin(sources, recipe)
    with whole_folder(place) as folder:
        tokenizer.with_max_length(limit).save(folder)
        write_json(folder / TOKENIZER_ORIGIN, origin, indent=None)
    return tokenizer


def remove_stale_tokenizer(sources: list[Source], out: Path, recipe: EncoderRecipe) -> None:
    """Remove the tokenizer in a run's folder unless this run would train the same one."""
    origin = _origin(sources, recipe)
    if origin is None or _read_origin(out) != origin:
        shutil.rmtree(out / TOKENIZER, ignore_errors=True)


def _origin(sources: list[Source], recipe: EncoderRecipe) -> dict[str, Any] | None:
    """What a tokenizer is trained on and how; None if it is not trained or the text is unknown."""
    files = fingerprint_files(sources)
    given = recipe.init_from or recipe.vocabulary.folder
    if given is not None or files is None:
        return None
    table = to_mapping(recipe.vocabulary)
    return {"files": files, "column": recipe.data.text_column, "vocabulary": table}


def _read_origin(out: Path) -> object:
    try:
        return read_json(
            out / TOKENIZER / TOKENIZER_ORIGIN, max_bytes=1 << 28
        )  # it lists all files of text
    except FolderError:
        return "none"
