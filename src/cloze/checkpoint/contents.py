"""Read and check everything in a model folder but the weights, without torch."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze.checkpoint.source import builtin, describe_models, find_folder
from cloze.checkpoint.task import TASK_FILE, Task, infer_task, list_heads, read_task
from cloze.checkpoint.weights import CONFIG_FILE, StoredTensor, list_stored_weights
from cloze.errors import ClozeError, FolderError, InputError
from cloze.files import read_json
from cloze.interop.layout import Description, Layout
from cloze.models.capabilities import Contents
from cloze.models.registry import Family, Kind, find_family, list_families, resolve
from cloze.text.tokenizer import Tokenizer
from cloze.text.word_characters import load_tokenizer

if TYPE_CHECKING:
    from cloze.interop.sentence_transformers import Pooling

TOKENIZER_FILE = "tokenizer.json"
MODULES_FILE = "modules.json"  # folders of sentence-transformers have it


@dataclass(frozen=True, kw_only=True)
class FolderContents:
    """The contents of a model folder, without its weights."""

    folder: Path
    body: Path  # the folder of config.json, weights and tokenizer
    family: Family
    description: Description
    stored: Mapping[str, StoredTensor]
    tokenizer: Tokenizer | None = None
    pooling: "Pooling | None" = None
    task: Task | None = None

    @property
    def config(self) -> Any:  # noqa: ANN401 (of any family)
        return self.description.config

    @property
    def task_heads(self) -> tuple[str, ...]:
        return self.description.task_heads

    @property
    def labels(self) -> tuple[str, ...]:
        return find_labels(self.config, self.task)[0]

    @property
    def layout(self) -> Layout:
        found: Layout = resolve(self.family.layout)
        return found

    @property
    def parts(self) -> dict[str, bool]:
        """Optional parts of the module, and whether the folder has them."""
        return self.layout.find_parts(self.task_heads, self.stored)

    @property
    def capabilities(self) -> dict[str, str]:
        """The functions that the model supports, each with a phrase that says what it returns."""
        return dict(self.family.capabilities(_make_contents(self.description, self.task)))


def _make_contents(description: Description, task: Task | None) -> Contents:
    """What decides about the functions of a folder."""
    return Contents(
        task_heads=list_heads(description.task_heads, task),
        is_causal=bool(getattr(description.config, "is_causal", False)),
        task=task.name if task else None,
    )


def find_labels(config: Any, task: Task | None) -> tuple[tuple[str, ...], str | None]:  # noqa: ANN401
    """The labels and the problem type: of the configuration, or of the task if it has none."""
    if hasattr(config, "labels"):
        return config.labels, config.problem_type
    return (task.labels, task.problem_type) if task else ((), None)


def read_folder(source: str | os.PathLike[str], *, kind: Kind | None = None) -> FolderContents:
    """Read and check everything but the weights; raise if the model is not of this `kind`."""
    folder = find_folder(source)
    body = find_body(folder)
    values = read_optional_json(body, CONFIG_FILE)
    if not isinstance(values, dict):
        raise _not_a_model_error(folder)
    family = find_family(values.get("model_type"))
    if family is None:
        raise FolderError(
            f"{folder} has the model_type {values.get('model_type')!r}, which is not supported",
            fix=f"use a model of the type {', '.join(list_families())}",
        )
    if kind is not None and family.kind != kind:
        raise _wrong_kind_error(folder, family, kind, values)
    stored = list_stored_weights(body)
    layout: Layout = resolve(family.layout)
    values = layout.add_files(values, lambda name: read_optional_json(body, name))
    description = layout.read_config(values, stored)
    has_tokenizer = family.vocabulary != "none" and description.config.reads_text
    tokenizer = None
    if has_tokenizer:
        tokenizer = load_tokenizer(_find_tokenizer_folder(body, description.config))
    if tokenizer is not None:
        _check_tokenizer(tokenizer, family, description.config)
    pooling = _read_pooling(folder)
    if pooling and pooling.lowercase and tokenizer and not tokenizer.lowercase:
        tokenizer = tokenizer.to_lowercase()
    return FolderContents(
        folder=folder,
        body=body,
        family=family,
        description=description,
        stored=stored,
        tokenizer=tokenizer,
        pooling=pooling,
        task=_read_task(folder, description),
    )


def _find_tokenizer_folder(folder: Path, config: object) -> Path:
    """The folder itself, or that of the built-in model whose text encoder it shares."""
    name = getattr(getattr(config, "text", None), "builtin", "")
    if not name or (folder / TOKENIZER_FILE).is_file():
        return folder
    return builtin().get(name, folder)


def _read_task(folder: Path, description: Description) -> Task | None:
    """The task of `cloze.json`, or that of the first head."""
    if (folder / TASK_FILE).is_file():
        return read_task(read_json(folder / TASK_FILE))
    return infer_task(next(iter(description.task_heads), None))


def _not_a_model_error(folder: Path) -> FolderError:
    if inside := describe_models(folder):
        return FolderError(
            f"{folder} is not a model, but contains models", fix=f"use one of them: {inside}"
        )
    weights = sorted(path.name for path in folder.glob("*.hdf5"))
    if len(weights) > 1:
        return FolderError(
            f"{folder} contains the weights of {len(weights)} published models: "
            f"{', '.join(weights[:3])}{' …' if len(weights) > 3 else ''}",  # noqa: PLR2004
            fix=f"give one of these files: {folder / weights[0]}",
        )
    if not weights and any(folder.glob("*options.json")):
        return FolderError(
            f"{folder} contains the options of a published ELMo, but not its weights",
            fix="put its HDF5 file (NAME_weights.hdf5 or weights.hdf5) into the same folder",
        )
    problem = f"{folder} is not a model: it has no config.json"
    if (folder / "recipe.toml").is_file():
        return FolderError(
            f"{problem}; a training run has not saved its model there yet",
            fix=f"finish the run (--resume --out {folder}), or use another model",
        )
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.txt").is_file():
        problem += ", only a tokenizer"
    return FolderError(problem, fix="use a model folder of cloze or in the Hugging Face layout")


_KINDS: dict[Kind, str] = {
    "encoder": "an encoder",
    "language_model": "a language model",
    "translator": "a translator",
    "word_vectors": "word vectors",
    "image_generator": "a diffusion model of images",
    "dual_encoder": "a CLIP",
}


def _wrong_kind_error(
    folder: Path, family: Family, kind: Kind, values: Mapping[str, Any]
) -> InputError:
    contents = Contents()
    with suppress(ClozeError):  # task heads and task, if config.json and cloze.json are valid
        description = resolve(family.layout).read_config(values, ())
        contents = _make_contents(description, _read_task(folder, description))
    return InputError(
        f"{folder} is {family.description}, not {_KINDS[kind]}",
        fix=f"use {_KINDS[kind]}; this model works with {', '.join(family.capabilities(contents))}",
    )


def read_family(folder: Path) -> Family | None:
    """The family of a folder by its config.json; None if there is none that cloze supports."""
    values = read_optional_json(folder, CONFIG_FILE)
    return find_family(values.get("model_type")) if isinstance(values, dict) else None


def read_causality(folder: Path) -> bool:
    """Whether a folder's config.json is that of a causal model; False if it is not valid."""
    family, values = read_family(folder), read_optional_json(folder, CONFIG_FILE)
    if family is None:
        return False
    config = None
    with suppress(ClozeError):  # reported when the model is loaded
        config = resolve(family.layout).read_config(values, ()).config
    return bool(getattr(config, "is_causal", False))


def find_body(folder: Path) -> Path:
    """The folder of config.json and weights: this one, or the one that modules.json names."""
    if not (folder / MODULES_FILE).is_file():
        return folder
    from cloze.interop.sentence_transformers import read_body_path

    return folder / read_body_path(lambda name: read_optional_json(folder, name))


def _read_pooling(folder: Path) -> "Pooling | None":
    if not (folder / MODULES_FILE).is_file():
        return None
    from cloze.interop.sentence_transformers import read_pooling

    return read_pooling(lambda name: read_optional_json(folder, name))


def read_optional_json(folder: Path, name: str) -> Any:  # noqa: ANN401
    """The contents of a JSON file; None if it does not exist."""
    return read_json(folder / name) if (folder / name).is_file() else None


def _check_tokenizer(tokenizer: Tokenizer, family: Family, config: Any) -> None:  # noqa: ANN401
    """Raise unless the tokenizer and the configuration have the same vocabulary."""
    words = family.vocabulary == "words"
    if words:
        from cloze.models.language import Vocabulary

        size = len(Vocabulary(tokenizer).tokens)
    else:
        size = tokenizer.vocab_size
    if size > config.vocab_size or (words and size < config.vocab_size):
        raise FolderError(
            f"the tokenizer has {size:,} tokens, config.json says {config.vocab_size:,}",
            fix="use tokenizer and config.json of the same model",
        )
    eos_id = getattr(config, "eos_id", None)
    if eos_id is not None and eos_id != tokenizer.eos_id:
        raise FolderError(
            f"the tokenizer's end-of-sequence id is {tokenizer.eos_id}, config.json says {eos_id}",
            fix="use tokenizer and config.json of the same model",
        )
