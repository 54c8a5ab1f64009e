"""A run's folder: held by one process, and free of what an older run or model has left there."""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from cloze.checkpoint.atomic import model_told, whole_files
from cloze.checkpoint.own import CONFIG
from cloze.checkpoint.reader import READER_FILE
from cloze.checkpoint.source import UNPLACED
from cloze.checkpoint.task import TASK_FILE
from cloze.checkpoint.vectors import VOCABULARY as WORDS
from cloze.checkpoint.weights import INDEX, SINGLE
from cloze.data.files import LOCK, PathLike
from cloze.errors import FolderError, InputError
from cloze.files import expanded
from cloze.make.pretrain.tokenizer import ORIGIN, TOKENIZER
from cloze.make.run import (
    CORPUS_FACTS,
    DATA_FACTS,
    FILLS,
    METRICS,
    NEIGHBOURS,
    RECIPE,
    REPORT,
    SAMPLES,
    STATE,
    TRIALS,
    VOCABULARY,
)

# By which a folder is opened as a model, of whatever kind, ours or published by others.
_PIECES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"),
)
_MODEL = (
    *(CONFIG, SINGLE, INDEX, "model-*-of-*.safetensors", TASK_FILE, READER_FILE, WORDS, *_PIECES),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
)
_RUN = (
    *(METRICS, REPORT, CORPUS_FACTS, DATA_FACTS, FILLS, NEIGHBOURS, SAMPLES, TRIALS),
    RECIPE,  # last: what remains of a clearing that was killed is still known as a run
)
_FOLDERS = {
    "1_Pooling": ("config.json",),
    "2_Normalize": (),
    STATE: ("[0-9]*-step-*", ".[0-9]*-step-*"),
    VOCABULARY: _PIECES,
    TOKENIZER: (*_PIECES, ORIGIN),
    "tensorboard": ("events.out.tfevents.*",),
}
_TRIALS = ("seed-[0-9]*", "rate-*-batch-*")  # folders of several runs


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from training in a folder, which is made if need be.

    The kernel ends it with the process, however that ends. Where there are no locks (Windows, some
    disks of a network) nobody is kept out. A folder that stays empty goes again.
    """
    folder = Path(os.path.realpath(folder))  # a link may lead to what is still to be made
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    held = _held(folder)
    try:
        yield
    finally:
        if held is not None:
            (folder / LOCK).unlink(missing_ok=True)  # while it is held
            held.close()
        with suppress(OSError):
            for path in made:
                path.rmdir()


def _held(folder: Path) -> IO[str] | None:
    """The folder's lock; None where there are none."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    while True:
        file = (folder / LOCK).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FolderError(
                f"another process is training in {folder}",
                fix="wait until it has ended, or choose another --out",
            ) from None
        except OSError:  # a disk without locks
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), (folder / LOCK).stat()):
                return file
        file.close()  # of one that has just ended, and took it away


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """A place for a new model, whose files take that of all that an older one has left."""
    with model_told(folder), whole_files(folder) as work:
        yield work
        clear(folder)


def clear(folder: Path, *, but: Collection[str] = ()) -> None:
    """Remove what an older run or model has left, which a new one must neither use nor show.

    What is not of a run or a model stays, and so does a corpus: others may share it, and it is
    never learned from by mistake. `but` names folders of a run that stay too.
    """
    clear_model(folder)
    if (folder / TRIALS).is_file():  # it was one of several runs
        for place in [path for path in _trials(folder) if (path / RECIPE).is_file()]:
            clear(place)
            _drop(place)
    for name in _FOLDERS.keys() - {*but}:
        _drop(folder / name, *_FOLDERS[name])
    _remove(folder, _RUN)


def clear_model(folder: Path) -> None:
    """Remove the files of a model, so that nobody takes what is left for one."""
    shutil.rmtree(folder / UNPLACED, ignore_errors=True)
    _remove(folder, _MODEL)


def check_apart(folder: Path, place: PathLike, *, what: str = "model") -> None:
    """Refuse to begin with what would be removed when the folder is cleared."""
    named, own = expanded(place), folder.resolve()
    if not named.exists():  # such as a model of the hub
        return
    inside = (named.parent if named.is_file() else named).resolve()
    goes = [own / VOCABULARY, own / TOKENIZER, *_trials(own)]
    if inside == own or any(inside.is_relative_to(one) for one in goes):
        raise InputError(
            f"the {what} {place} lies where the run would write its own",
            fix="copy it to another place and name that, or choose another --out",
        )


def _trials(folder: Path) -> list[Path]:
    return [path for pattern in _TRIALS for path in folder.glob(pattern) if path.is_dir()]


def _drop(folder: Path, *patterns: str) -> None:
    """Remove what is ours in a folder, and the folder if nothing else is in it."""
    _remove(folder, patterns, folders=True)
    with suppress(OSError):
        folder.rmdir()


def _remove(folder: Path, patterns: Iterable[str], *, folders: bool = False) -> None:
    for pattern in patterns:
        for path in [*folder.glob(pattern)]:
            if not path.is_dir():
                path.unlink()
            elif folders:
                shutil.rmtree(path)
