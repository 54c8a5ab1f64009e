"""From what a user names to a folder on disk."""

import os
import re
from pathlib import Path

from cloze.errors import FolderError, MissingExtraError

# what a model folder needs; pickles and other frameworks' files stay where they are
_NEEDED = ["*.json", "*.safetensors", "vocab.txt", "*/vocab.txt", "merges.txt", "vocab.bpe"]

BUILTIN = Path(__file__).resolve().parents[1] / "builtin"  # models that come with the package


def builtin() -> dict[str, Path]:
    """The models that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUILTIN.glob("*/config.json"))}


def find_folder(source: str | os.PathLike[str]) -> Path:
    """A folder as it is; a built-in model by name; "org/name" from the local cache or the hub.

    A folder that is there has the first word: what a path means does not change with the package.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
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


def _cached(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    model = cache / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if not main.is_file():
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
