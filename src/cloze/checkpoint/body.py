"""Where the body of a model lies within its folder."""

from pathlib import Path
from typing import Any

from cloze.files import read_json
from cloze.interop.sentence_transformers import body_path


def body_folder(folder: Path) -> Path:
    """Where config.json, weights and tokenizer lie: here, or where sentence-transformers says."""
    return folder / body_path(lambda name: optional_json(folder, name))


def optional_json(folder: Path, name: str) -> Any:  # noqa: ANN401
    """What a file of a folder holds; None where there is none."""
    return read_json(folder / name) if (folder / name).is_file() else None
