"""What runs of language models and translators share: a new model, or one to continue.

A model to continue keeps its configuration and its vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.load import find_source, load
from cloze.checkpoint.model import Model
from cloze.device import resolve_device
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.make.recipe.language_models import SequenceModelRecipe
from cloze.make.recipe.model import detect_family
from cloze.make.run_folder import check_one_process, start_run
from cloze.make.sources import resolve_model_name
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import load_tokenizer

R = TypeVar("R", bound=SequenceModelRecipe)


@contextmanager
def start_sequence_model(
    out: PathLike,
    recipe: R,
    *,
    force: bool,
    load_vocabulary: Callable[[str], Tokenizer] = Tokenizer.load,
) -> Iterator[tuple[Path, R, Model | None]]:
    """Check a recipe and lock the folder of its run; nothing in the folder is changed yet.

    Yields the folder, the recipe with absolute paths, and the model to continue.
    """
    base = open_base(recipe)
    if recipe.model.init_from is not None:
        model = replace(recipe.model, init_from=resolve_model_name(recipe.model.init_from))
        recipe = replace(recipe, model=model)
    resolve_device(recipe.run.device)
    vocabulary = recipe.vocabulary.folder
    if vocabulary is not None:
        load_vocabulary(vocabulary)
    separate = {"model": recipe.model.init_from, "vocabulary": vocabulary}
    check_one_process()
    with start_run(out, force=force, separate_from=separate) as folder:
        yield folder, recipe, base


def open_base(recipe: SequenceModelRecipe) -> Model | None:
    """The model that a recipe continues, on the CPU; its family must be that of the recipe."""
    init_from = recipe.model.init_from
    if init_from is None:
        return None
    source = find_source(init_from)
    family = detect_family(source)
    if family is None or family.name != recipe.model.family:
        found = "no such model" if family is None else family.description
        raise ConfigError(
            f"the recipe is for the family {recipe.model.family}, but {init_from} contains {found}",
            fix="use the recipe of its family, or train a new model",
        )
    return load(source, device="cpu")


def load_or_train_tokenizer(
    folder: Path, base: Model | None, train: Callable[[], Tokenizer]
) -> Tokenizer:
    """The tokenizer of the base model, or that in the run's folder, or a new one stored there."""
    if base is not None:
        return base.tokenizer
    if folder.is_dir():  # of the same run before it was resumed
        return load_tokenizer(folder)
    tokenizer = train()
    with atomic_folder(folder) as work:
        tokenizer.save(work)
    return tokenizer
