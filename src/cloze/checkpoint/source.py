"""From what a user names to a folder on disk."""

import os
import re
from pathlib import Path

from cloze.errors import FolderError, MissingExtraError
from cloze.files import expand_user

# what a model folder needs; pickles and other frameworks' files stay where they are
_NEEDED = ["*.json", "*.safetensors", "vocab.txt", "*/vocab.txt", "merges.txt", "vocab.bpe"]

# in a folder that holds other things too: a model whose files do not all have their places yet
UNPLACED = ".model"

BUILTIN = Path(__file__).resolve().parents[1] / "builtin"  # models that come with the package


def builtin() -> dict[str, Path]:
    """The models that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUILTIN.glob("*/config.json"))}


def find_folder(source: str | os.PathLike[str]) -> Path:
    """A folder as it is; a built-in model by name; "org/name" from the local cache or the hub.

    A folder that is there has the first word: what a path means does not change with the package.
    """
    place = existing(source)
    if place is not None and place.is_dir():
        return model_in(place)
    if place is not None:
        raise FolderError(f"{source} is a file", fix="name the folder that holds config.json")
    known = builtin()
    if str(source) in known:
        return known[str(source)]
    if isinstance(source, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        return _cached(source) or _download(source)
    raise FolderError(
        f"there is no folder {source}, and no built-in model of that name",
        fix='name a model\'s folder, "org/name" on the hub, or a built-in model: '
        + (", ".join(known) or "none has come with this copy of cloze"),
    )


def model_in(folder: Path) -> Path:
    """Where the model of a folder is to be read: in `.model` while not all of it has its place."""
    unplaced = folder / UNPLACED
    return unplaced if unplaced.is_dir() else folder


def existing(source: str | os.PathLike[str]) -> Path | None:
    """What is at a path, ~ being the home folder; None where nothing is."""
    place = expand_user(source)
    try:
        return place if place.exists() else None
    except OSError as error:  # a name too long to be one, a folder we may not look into
        raise FolderError(
            f"{str(source)[:200]} cannot be opened: {error.strerror}",
            fix="check the path and who may read it",
        ) from error


def _cached(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    cache = expand_user(os.environ.get("HF_HUB_CACHE", home / "hub"))
    model = cache / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if not os.path.isfile(main):  # noqa: PTH113 - of a name too long it is just not true
        return None
    snapshot = model / "snapshots" / main.read_text(encoding="utf-8").strip()
    whole = any((snapshot / name).exists() for name in ("config.json", "modules.json"))
    return snapshot if whole else None


def _download(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(
            f"there is no folder {name}, and fetching it from the hub", extra="hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_NEEDED))
    except Exception as error:  # the hub's client raises many kinds, offline among them
        raise FolderError(
            f"{name} is neither a folder here nor could it be fetched: {error}",
            fix="check the name and the network, or give the path of a folder",
        ) from error
