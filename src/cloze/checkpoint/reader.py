"""The small net that reads a frozen body's vectors, on disk: `reader.safetensors`."""

from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from cloze.checkpoint.task import Features, Task
from cloze.checkpoint.weights import check, file_weights, read_weights
from cloze.errors import FolderError
from cloze.nn.heads import READERS
from cloze.nn.utils import skip_allocation

READER_FILE = "reader.safetensors"


def new_reader(features: Features, outputs: int) -> nn.Module:
    """A reader with weights still to be learned or loaded."""
    deep = features.kind == "bilstm"
    shape = {"hidden": features.hidden, "depth": features.depth} if deep else {}
    return READERS[features.kind](features.width, outputs, **shape)


def write_reader(reader: nn.Module, folder: Path) -> None:
    """Beside the model's weights."""
    tensors = {name: weight.cpu().contiguous() for name, weight in reader.state_dict().items()}
    save_file(tensors, folder / READER_FILE, metadata={"format": "pt"})


def read_reader(folder: Path, task: Task | None, outputs: int) -> nn.Module | None:
    """The reader of a folder whose task has one, its shapes held against what the task says."""
    if task is None or task.features is None:
        return None
    if not (folder / READER_FILE).is_file():
        raise FolderError(f"{folder} lacks {READER_FILE}", fix="fetch the folder again")
    with skip_allocation():
        reader = new_reader(task.features, outputs)
    stored, ours = file_weights(folder / READER_FILE), reader.state_dict()
    if stored.keys() != ours.keys():
        raise FolderError(
            f"{READER_FILE} holds {', '.join(sorted(stored)) or 'nothing'}",
            fix=f"a {task.features.kind} reader has {', '.join(sorted(ours))}; fine-tune again",
        )
    for name, weight in ours.items():
        check(name, stored[name], weight.shape)
    reader.load_state_dict(read_weights(stored), assign=True)
    return reader.eval()
