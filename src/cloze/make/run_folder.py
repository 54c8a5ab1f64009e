"""The folder of a run: its lock, what older runs left there, and the recipe file."""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze import __version__
from cloze.checkpoint.atomic import atomic_files, lock_folder, translate_write_errors
from cloze.checkpoint.source import PENDING_MODEL
from cloze.checkpoint.task import FEATURE_HEAD_FILE, SNAPSHOTS_FILE, TASK_FILE
from cloze.checkpoint.weights import CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE
from cloze.checkpoint.word2vec import VOCABULARY_FILE as WORDS
from cloze.config import to_mapping
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import PathLike, expand_user, write_text
from cloze.train.fit import RunOptions
from cloze.train.loggers import TENSORBOARD, require_tensorboard
from cloze.train.run_files import (
    CORPUS_FACTS,
    DATA_FACTS,
    EXAMPLES,
    FILLS,
    FINISHED,
    METRICS_FILE,
    NEIGHBOURS,
    RECIPE,
    REPORT,
    RETRIEVAL_FACTS,
    SAMPLES,
    STATE,
    TRIALS,
    VOCABULARY,
    check_run_path,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TOKENIZER = "tokenizer"  # folder of the tokenizer of a run on raw text
TOKENIZER_ORIGIN = "origin.json"  # inside it: what the tokenizer was trained on
CORPUS = "corpus"  # folder of the prepared corpus

# The files of a model of any family, ours or published by others.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"),
)
_MODEL = (
    *(
        CONFIG_FILE,
        WEIGHTS_FILE,
        INDEX_FILE,
        "model-*-of-*.safetensors",
        TASK_FILE,
        FEATURE_HEAD_FILE,
        SNAPSHOTS_FILE,
        WORDS,
        *_TOKENIZER_FILES,
    ),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
)
_RUN = (
    *(METRICS_FILE, REPORT, CORPUS_FACTS, DATA_FACTS, FILLS, NEIGHBOURS, SAMPLES),
    *(EXAMPLES, TRIALS, FINISHED, RETRIEVAL_FACTS),
    RECIPE,  # last: if clearing is interrupted, the rest is still recognised as a run
)
_FOLDERS = {
    "1_Pooling": ("config.json",),
    "2_Normalize": (),
    STATE: ("[0-9]*-step-*", ".[0-9]*-step-*"),
    VOCABULARY: _TOKENIZER_FILES,
    TOKENIZER: (*_TOKENIZER_FILES, TOKENIZER_ORIGIN),
    TENSORBOARD: ("events.out.tfevents.*",),
}
_TRIALS = ("seed-[0-9]*", "lr-*-batch-*")  # folders of trials


@contextmanager
def start_run(
    out: PathLike,
    *,
    force: bool = False,
    separate_from: Mapping[str, PathLike | None] | None = None,
) -> Iterator[Path]:
    """Lock the folder of a new run; nothing in it is changed yet.

    What the run is made from is checked and read inside, then `prepare_folder` clears the folder.

    Args:
        out: the run's and the model's folder.
        force: allow a folder that is not empty.
        separate_from: what the run reads and must not overwrite, by what it is ("model").
    """
    folder = check_run_path(out, force)
    for what, path in (separate_from or {}).items():
        if path is not None:
            check_separate(folder, path, what=what)
    with lock_folder(folder):
        yield folder


def prepare_folder(
    folder: Path,
    recipe: "DataclassInstance | Mapping[str, Any]",
    *,
    subfolders: Iterable[str] = (),
) -> None:
    """Remove what older runs left in a locked folder, and write the recipe of the new one."""
    clear_run(folder)
    for name in subfolders:
        clear_run(folder / name)
    write_recipe(folder, recipe)


@contextmanager
def replace_model(folder: Path) -> Iterator[Path]:
    """A temporary folder for a new model, which then replaces what older runs left in `folder`."""
    with translate_write_errors(folder), atomic_files(folder) as work:
        yield work
        clear_run(folder)


def clear_run(folder: Path, *, keep: Collection[str] = ()) -> None:
    """Remove the files of older runs and models, which a new run must neither use nor show.

    Other files stay, and so does a prepared corpus: several runs may share it, and its digest is
    checked before it is used. `keep` names sub-folders of a run that stay as well.
    """
    clear_model(folder)
    if (folder / TRIALS).is_file():  # a run of several trials
        for trial in [path for path in _trial_folders(folder) if (path / RECIPE).is_file()]:
            clear_run(trial)
            _remove_folder(trial)
    for name in _FOLDERS.keys() - {*keep}:
        _remove_folder(folder / name, *_FOLDERS[name])
    _remove_files(folder, _RUN)


def clear_model(folder: Path) -> None:
    """Remove the files of a model, so that an incomplete model is never opened."""
    shutil.rmtree(folder / PENDING_MODEL, ignore_errors=True)
    _remove_files(folder, _MODEL)


def check_separate(folder: Path, path: PathLike, *, what: str = "model") -> None:
    """Raise an error if a model or vocabulary would be removed when the run's folder is cleared."""
    named, own = expand_user(path), folder.resolve()
    if not named.exists():  # such as the name of a model on the hub
        return
    inside = (named.parent if named.is_file() else named).resolve()
    cleared = [own / VOCABULARY, own / TOKENIZER, *_trial_folders(own)]
    if inside == own or any(inside.is_relative_to(one) for one in cleared):
        raise InputError(
            f"--out {folder} would overwrite the {what} {path} that the run starts from",
            fix="choose another --out",
        )


def check_extras(options: RunOptions) -> None:
    """Check that optional packages are installed before anything is read or overwritten."""
    if options.tensorboard:
        require_tensorboard()


def check_one_process() -> None:
    """Raise if torchrun has started several processes of a run that trains in one."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise ConfigError(
            f"this kind of run trains in one process, and torchrun has started {processes}",
            fix="start it without torchrun; several processes can pre-train and distill encoders, "
            "pre-train GPT, CLIP and diffusion models, and train sentence embeddings (finetune "
            "embed)",
        )


def write_recipe(folder: Path, recipe: "DataclassInstance | Mapping[str, Any]") -> None:
    """Write the complete recipe of a run into its folder."""
    comment = f"# The complete recipe of this run, written by cloze {__version__}.\n\n"
    write_text(folder / RECIPE, comment + to_toml(recipe))


def find_run_recipe(out: PathLike) -> Path:
    """The recipe file of the run in a folder."""
    path = Path(out) / RECIPE
    if not path.is_file():
        raise FolderError(
            f"{out} does not contain a run to resume",
            fix=f"give the folder of a run (--out): it contains {RECIPE}",
        )
    return path


def _trial_folders(folder: Path) -> list[Path]:
    return [path for pattern in _TRIALS for path in folder.glob(pattern) if path.is_dir()]


def _remove_folder(folder: Path, *patterns: str) -> None:
    """Remove our files from a folder, and the folder if it is empty then."""
    _remove_files(folder, patterns, folders=True)
    with suppress(OSError):
        folder.rmdir()


def _remove_files(folder: Path, patterns: Iterable[str], *, folders: bool = False) -> None:
    for pattern in patterns:
        for path in [*folder.glob(pattern)]:
            if not path.is_dir():
                path.unlink()
            elif folders:
                shutil.rmtree(path)


def to_toml(config: "DataclassInstance | Mapping[str, Any]") -> str:
    """The text of a TOML file that `read_toml` and `from_mapping` turn back."""
    values = config if isinstance(config, Mapping) else to_mapping(config, from_data=False)
    return _format_table(values, "").lstrip("\n")


def _format_table(values: Mapping[str, Any], table: str) -> str:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    text = f"\n[{table}]\n" if table and plain else ""
    text += "".join(f"{key} = {_format_value(value)}\n" for key, value in plain.items())
    for key, value in values.items():
        if isinstance(value, Mapping):
            text += _format_table(value, f"{table}.{key}" if table else key)
    return text


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_escape(character) for character in value)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return repr(value)


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
