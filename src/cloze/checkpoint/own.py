"""What the folders of our own families of nets share: config.json, model.safetensors, tokenizer."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from cloze.checkpoint.atomic import whole_files, whole_folder
from cloze.checkpoint.weights import SINGLE, check, read_weights, stored_weights
from cloze.config import to_mapping
from cloze.errors import FolderError
from cloze.text.tokenizer import Tokenizer

FORMAT_VERSION = 1


class Saved:
    """A record of a net that can be written to a folder."""

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the folder, whole or not at all."""
        target = Path(folder)
        with whole_folder(target, overwrite=overwrite) as work:
            self._write(work)
        return target

    def save_into(self, folder: Path) -> None:
        """Put the model's files into a folder that holds other things too, each of them whole."""
        with whole_files(folder) as work:
            self._write(work)

    def _write(self, work: Path) -> None:
        raise NotImplementedError


def write_own(
    work: Path,
    module: nn.Module,
    config: Any,  # noqa: ANN401 (of any family of ours)
    tokenizer: Tokenizer,
    **facts: int,
) -> None:
    """The three files; `facts` stand in config.json beside the configuration."""
    tensors = {name: one.cpu().contiguous() for name, one in module.state_dict().items()}
    save_file(tensors, work / SINGLE, metadata={"format": "pt"})
    described = {
        "model_type": config.family,
        "format_version": FORMAT_VERSION,
        **facts,
        **to_mapping(config),
    }
    text = json.dumps(described, indent=2) + "\n"
    (work / "config.json").write_text(text, encoding="utf-8")
    tokenizer.save(work)


def check_version(version: object) -> None:
    """Refuse a folder that another version of cloze writes otherwise."""
    if version != FORMAT_VERSION:
        raise FolderError(
            f"config.json has format_version {version!r}, this version reads {FORMAT_VERSION}",
            fix="update cloze, or train again",
        )


def put_weights(module: nn.Module, folder: Path) -> None:
    """A folder's weights into a net without memory; names and shapes are checked before."""
    stored, ours = stored_weights(folder), module.state_dict()
    if stored.keys() != ours.keys():
        odd = sorted(stored.keys() ^ ours.keys())
        raise FolderError(
            f"{SINGLE} lacks or has more than config.json implies: {', '.join(odd[:4])}",
            fix="config.json and the weights are not of one model; take both from one folder",
        )
    for name, weight in ours.items():
        check(name, stored[name], weight.shape)
    module.load_state_dict(read_weights(stored), assign=True)
