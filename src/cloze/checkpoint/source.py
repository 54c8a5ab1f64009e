"""Find the folder of a model by its path, built-in name or "org/name"."""

import os
import re
from pathlib import Path

from cloze.errors import FolderError, MissingExtraError
from cloze.files import expand_user

# the files to download; pickles and files of other frameworks are left out
_DOWNLOADED = ["*.json", "*.safetensors", "vocab.txt", "*/vocab.txt", "merges.txt", "vocab.bpe"]

# subfolder with a model whose files are not all moved yet (see `cloze.checkpoint.atomic`)
PENDING_MODEL = ".model"

BUILTIN = Path(__file__).resolve().parents[1] / "builtin"  # models that come with the package


def builtin() -> dict[str, Path]:
    """The models that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUILTIN.glob("*/config.json"))}


def find_folder(source: str | os.PathLike[str]) -> Path:
    """The folder of a path, a built-in model, or "org/name" in the local cache or on the hub.

    An existing folder takes precedence over a built-in model of the same name.
    """
    path = find_path(source)
    if path is not None and path.is_dir():
        return find_saved_model(path)
    if path is not None:
        raise FolderError(f"{source} is a file", fix="use the folder that contains config.json")
    known = builtin()
    if str(source) in known:
        return known[str(source)]
    if isinstance(source, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        return _find_in_cache(source) or _download(source)
    raise FolderError(
        f"there is no folder {source}, and no built-in model of that name",
        fix='use the folder of a model, "org/name" on the hub, or a built-in model: '
        + (", ".join(known) or "cloze-en (missing here: install cloze again)"),
    )


def find_saved_model(folder: Path) -> Path:
    """The folder itself, or its `.model` if saving was interrupted before all files were moved."""
    pending = folder / PENDING_MODEL
    return pending if pending.is_dir() else folder


def find_path(source: str | os.PathLike[str]) -> Path | None:
    """The path with ~ expanded; None if nothing exists there."""
    path = expand_user(source)
    try:
        return path if path.exists() else None
    except OSError as error:  # the name is too long, or the folder may not be read
        raise FolderError(
            f"{str(source)[:200]} cannot be opened: {error.strerror}",
            fix="check the path and its permissions",
        ) from error


def _find_in_cache(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    cache = expand_user(os.environ.get("HF_HUB_CACHE", home / "hub"))
    model = cache / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if not os.path.isfile(main):  # noqa: PTH113 - unlike Path.is_file, False for names that are too long
        return None
    snapshot = model / "snapshots" / main.read_text(encoding="utf-8").strip()
    is_complete = any((snapshot / name).exists() for name in ("config.json", "modules.json"))
    return snapshot if is_complete else None


def _download(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(
            f"there is no folder {name}; downloading it from the hub", extra="hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_DOWNLOADED))
    except Exception as error:  # the hub's client raises errors of many types
        raise FolderError(
            f"there is no folder {name}, and it could not be downloaded: {error}",
            fix="check the name and the network, or give the path of a folder",
        ) from error
