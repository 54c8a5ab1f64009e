"""Find the folder of a model by its path, built-in name or "org/name"."""

import os
import re
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path

from cloze.errors import FolderError, MissingExtraError
from cloze.files import expand_user, is_model_folder, list_model_folders

# the files to download; pickles and files of other frameworks are left out
_DOWNLOADED = [
    "*.json",
    "*.safetensors",
    "vocab.txt",
    "*/vocab.txt",
    "merges.txt",
    "vocab.bpe",
    "vocabulary.tsv",
]

# the files of a model that decide what it computes: not its card, nor those of its training
_DECISIVE = (
    *("config.json", "modules.json", "cloze.json", "sentence_bert_config.json", "*_*/config.json"),
    *("config_sentence_transformers.json", "*.safetensors", "*_*/*.safetensors", "*.npy"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt"),
    *("encoder.json", "vocab.bpe", "vocabulary.tsv"),
)

# subfolder with a model whose files are not all moved yet (see `cloze.checkpoint.atomic`)
PENDING_MODEL = ".model"

BUILTIN = Path(__file__).resolve().parents[1] / "builtin"  # models that come with the package

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+).*")
# first parts of paths that are folders by convention, even where they do not exist
_USUAL_FOLDERS = {
    *("runs", "run", "models", "model", "checkpoints", "checkpoint", "out", "output", "outputs"),
    *("results", "experiments", "saved", "data", "tmp", "logs"),
}
_OWNERS = {  # of well-known models whose names once had no organization
    "google-bert": (
        *("bert-base-uncased", "bert-large-uncased", "bert-base-cased", "bert-large-cased"),
        *("bert-base-multilingual-cased", "bert-base-multilingual-uncased", "bert-base-chinese"),
        *("bert-base-german-cased", "bert-large-uncased-whole-word-masking"),
    ),
    "FacebookAI": ("roberta-base", "roberta-large", "xlm-roberta-base", "xlm-roberta-large"),
    "distilbert": (
        *("distilbert-base-uncased", "distilbert-base-cased", "distilroberta-base", "distilgpt2"),
        *("distilbert-base-multilingual-cased", "distilbert-base-uncased-finetuned-sst-2-english"),
    ),
    "openai-community": ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "openai-gpt"),
    "answerdotai": ("ModernBERT-base", "ModernBERT-large"),
    "sentence-transformers": (
        *("all-MiniLM-L6-v2", "all-MiniLM-L12-v2", "all-mpnet-base-v2", "all-distilroberta-v1"),
        *("paraphrase-MiniLM-L6-v2", "multi-qa-MiniLM-L6-cos-v1"),
    ),
}
_HUB_NAMES = {name.lower(): f"{owner}/{name}" for owner, names in _OWNERS.items() for name in names}
_LISTED = 5  # models that an error lists
_SIMILAR, _TYPO = 0.75, 0.9  # ratios of `difflib`
# endings of files with data, which are often given in place of a model
_DATA_ENDINGS = {".txt", ".tsv", ".csv", ".json", ".jsonl", ".parquet", ".conll", ".gz", ".xz"}


def builtin() -> dict[str, Path]:
    """The models that come with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUILTIN.glob("*/config.json"))}


def find_folder(source: str | os.PathLike[str]) -> Path:
    """The folder of a path, a built-in model, or "org/name" in the local cache or on the hub.

    An existing folder takes precedence over a built-in model of the same name.
    """
    found = find_local_folder(source)
    if found is not None:
        return found
    name = os.fspath(source)
    path = find_path(source) if name else None
    if path is not None:
        raise _file_error(name, path)
    if _is_hub_name(source) and not _is_path(name) and not _find_close_folders(name, _TYPO):
        return _download(name)
    raise _missing_error(name)


def find_local_folder(source: str | os.PathLike[str]) -> Path | None:
    """Like `find_folder`, but None if the folder is not on this machine."""
    name = os.fspath(source)
    path = find_path(source) if name else None
    if path is not None:
        return find_saved_model(path) if path.is_dir() else None
    known = builtin()
    if name in known:
        return known[name]
    return _find_in_cache(name) if _is_hub_name(source) else None


def name_source(folder: Path) -> str:
    """What names a model folder in files: the name of a built-in model, or an absolute path."""
    known = {path: name for name, path in builtin().items()}
    return known.get(folder.resolve()) or str(folder.resolve())


def fingerprint_folder(folder: Path) -> str:
    """A hash of the files of a model that decide what it computes; a file is a model, too."""
    digest = blake2b(digest_size=16)
    inside = {path for pattern in _DECISIVE for path in folder.glob(pattern) if path.is_file()}
    for path in sorted(inside) if folder.is_dir() else [folder]:
        digest.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


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


def describe_models(folder: Path) -> str:
    """The models below a folder that is not one itself, for the fix of an error; "" if none."""
    inside = [str(path) for path in list_model_folders(folder)]
    more = f" and {len(inside) - _LISTED} more" if len(inside) > _LISTED else ""
    return ", ".join(inside[:_LISTED]) + more


def _is_hub_name(source: str | os.PathLike[str]) -> bool:
    """Whether a source has the form of a name on the hub."""
    return isinstance(source, str) and _HUB_NAME.fullmatch(source) is not None


def _is_path(name: str) -> bool:
    """Whether "a/b" is a path rather than the name of a model on the hub."""
    first = name.partition("/")[0]
    return first in {".", ".."} or first.lower() in _USUAL_FOLDERS or Path(first).is_dir()


def _find_close_folders(name: str, cutoff: float) -> list[str]:
    """Model folders whose paths are like the name, the closest first."""
    path = expand_user(name.replace("\\", "/"))
    above = next(folder for folder in (path.parent, *path.parent.parents) if folder.is_dir())
    inside = [str(folder) for folder in list_model_folders(above)]
    close = get_close_matches(str(path), inside, _LISTED, cutoff=cutoff)
    same = [one for one in inside if Path(one).name == path.name and cutoff < _TYPO]
    return list(dict.fromkeys([*close, *same]))


def _file_error(name: str, path: Path) -> FolderError:
    if is_model_folder(path.parent):
        return FolderError(
            f"{name} is one file of a model", fix=f"give the whole folder: {Path(name).parent}"
        )
    if path.suffix.lower() in _DATA_ENDINGS:
        return FolderError(
            f"{name} is a file with data, not a model",
            fix="give the model first, then the data; a model is a folder with config.json, a "
            f'built-in model ({", ".join(builtin())}) or "org/name" on the Hugging Face Hub',
        )
    return FolderError(f"{name} is a file, not a model", fix="use the folder with config.json")


def _missing_error(name: str) -> FolderError:
    known = builtin()
    built_in = ", ".join(known) or "cloze-en is missing here: install cloze again"
    kinds = (
        f'use a model folder, a built-in model ({built_in}) or "org/name" on the Hugging Face Hub'
    )
    if not name.strip():
        return FolderError("the name of the model is empty", fix=kinds)
    if address := _HUB_ADDRESS.fullmatch(name):
        return FolderError(
            f"{name} is an address, not the name of a model", fix=f"use {address[1]}"
        )
    if any(char.isspace() for char in name.strip()) and "/" not in name:
        return FolderError(
            f"there is no model {name[:200]!r}",
            fix=f"give the model first, then the text: {kinds}",
        )
    if hub_name := _HUB_NAMES.get(name.lower()):
        return FolderError(
            f"there is no folder {name}, and no built-in model of that name",
            fix=f"use its name on the Hugging Face Hub: {hub_name}",
        )
    close = _find_close_folders(name, _SIMILAR)
    close += get_close_matches(name.lower().replace("_", "-"), known, 1, cutoff=0.6)
    near_hub_names = get_close_matches(name.lower(), _HUB_NAMES, 1, cutoff=_TYPO)
    close += [_HUB_NAMES[one] for one in near_hub_names]
    first = name.partition("/")[0]
    if close:
        kinds = f"did you mean {' or '.join(close[:3])}?"
    elif _HUB_NAME.fullmatch(name) and first not in {".", ".."} and Path(first).is_dir():
        kinds += f" (if it is such a name, rename the local folder {first})"
    is_path = "/" in name or "\\" in name
    other = "" if is_path else ", and no built-in model of that name"
    return FolderError(f"there is no folder {name}{other}", fix=kinds)


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
            f"there is no folder {name}; downloading it from the Hugging Face Hub", extra="hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_DOWNLOADED))
    except Exception as error:  # the hub's client raises errors of many types
        raise _download_error(name, error) from error


def _download_error(name: str, error: Exception) -> FolderError:
    """One sentence instead of the messages of the hub's client, which are long."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    reason = f"downloading it failed: {(str(error) or type(error).__name__).splitlines()[0][:200]}"
    fix = "try again later, or give the path of a model folder"
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "ON", "YES", "TRUE"}:
        reason = "it cannot be downloaded from the Hugging Face Hub: HF_HUB_OFFLINE is set"
        fix = "unset HF_HUB_OFFLINE, or give the path of a model folder"
    elif "GatedRepoError" in kinds:
        reason = "on the Hugging Face Hub it is open only to those who have accepted its terms"
        fix = f"accept them on https://huggingface.co/{name}, and log in: hf auth login"
    elif "RepositoryNotFoundError" in kinds:
        reason = "the Hugging Face Hub has no public model of that name"
        fix = "check the name; for a private model, log in: hf auth login"
    elif kinds & {"LocalEntryNotFoundError", "ConnectionError", "ConnectError", "TimeoutException"}:
        reason = "the Hugging Face Hub cannot be reached"
        fix = "check the network, or give the path of a model folder"
    return FolderError(f"there is no folder {name} here, and {reason}", fix=fix)
