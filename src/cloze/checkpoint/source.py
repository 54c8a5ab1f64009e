"""From what a user names to a folder on disk."""

import os
import re
from pathlib import Path

from cloze.errors import FolderError, MissingExtraError

# what a model folder needs; pickles and other frameworks' files stay where they are
_NEEDED = ["*.json", "*.safetensors", "vocab.txt", "merges.txt", "vocab.bpe", "1_Pooling/*"]


def find_folder(source: str | os.PathLike[str]) -> Path:
    """A folder as it is; "org/name" from the local Hugging Face cache, else from the hub."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise FolderError(f"{source} is a file", fix="name the folder that holds config.json")
    if isinstance(source, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        return _cached(source) or _download(source)
    raise FolderError(
        f"there is no folder {source}", fix='name a model\'s folder, or "org/name" on the hub'
    )


def _cached(name: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    model = cache / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if not main.is_file():
        return None
    snapshot = model / "snapshots" / main.read_text(encoding="utf-8").strip()
    return snapshot if (snapshot / "config.json").exists() else None


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
