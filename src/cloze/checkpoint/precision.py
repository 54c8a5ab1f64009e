"""`dtype="auto"`: measure which precision is fastest for a model on this machine.

The choices are remembered in a file (`~/.cache/cloze/dtypes.json`), which needs no torch to read.
"""

import json
import os
import platform
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze.files import write_json
from cloze.text.music import EVENT_WORDS

if TYPE_CHECKING:
    import torch

    from cloze.checkpoint.model import Model

MIN_COSINE = 0.999  # mean cosine of the sample's vectors to those in float32
_ROUNDS = 3  # of which the fastest counts
_SAMPLE = (
    "The museum opens at nine and closes at five on weekdays, and an hour later on Saturdays.",
    "She wrote that the results of the second experiment could not be repeated.",
    "Prices rose by three percent in March, more than most economists had expected.",
    "After the storm the river left its banks, and the road to the village was under water.",
    "He bought a used bicycle, repaired the brakes and rode it to work every day.",
    "The committee will meet again in October to decide how the money is spent.",
    "Most birds of this species fly south before the first snow falls in the mountains.",
    "If the light is red, stop; if it is green, look both ways before you cross the street.",
)


@dataclass(frozen=True, kw_only=True)
class DtypeChoice:
    """The dtype that was chosen for a model on a machine, and why."""

    dtype: str
    machine: str
    speedup: float = 1.0  # over float32
    cosine: float = 1.0  # mean cosine to the vectors in float32

    def describe(self) -> str:
        """The choice in one line."""
        if self.dtype == "float32":
            return f"float32: nothing faster is as exact on {self.machine}"
        return (
            f"{self.dtype}: {self.speedup:.1f} times as fast as float32 on {self.machine}, "
            f"mean cosine {self.cosine:.4f}"
        )


def read_choices(folder: Path | None) -> dict[str, DtypeChoice]:
    """The choices that were made for a model folder, by machine."""
    found = _read_file().get(_identify_folder(folder), {})
    try:
        return {name: DtypeChoice(**one) for name, one in found.items()}
    except (TypeError, AttributeError):  # written by another version
        return {}


def choose_dtype(model: "Model") -> DtypeChoice:
    """The remembered choice for a model in float32, or the result of a measurement."""
    machine = _describe_machine(model.device)
    kept = read_choices(model.folder).get(machine)
    if kept is not None:
        return kept
    choice = _measure(model, machine)
    if model.folder is not None:
        _remember(model.folder, choice)
    return choice


def _measure(model: "Model", machine: str) -> DtypeChoice:
    import torch

    from cloze.nn.encoder import Encoder
    from cloze.nn.packed_encoder import can_pack_blocks

    if not isinstance(model.module, Encoder) or model.tokenizer is None:
        return DtypeChoice(dtype="float32", machine=machine)
    on_gpu = model.device.type != "cpu"
    bfloat16 = on_gpu or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    names = (
        ["float32"]
        + ["bfloat16"] * bool(bfloat16)
        + ["int8"] * (not on_gpu and can_pack_blocks(model.module))
    )
    try:
        timed = {name: _time_embedding(model, name) for name in names}
    finally:
        model.to(dtype="float32")  # no longer int8
    exact, seconds = timed["float32"]
    choices = [
        DtypeChoice(
            dtype=name,
            machine=machine,
            speedup=round(seconds / took, 2),
            cosine=round(float(torch.cosine_similarity(exact, found).mean()), 6),
        )
        for name, (found, took) in timed.items()
    ]
    return max((one for one in choices if one.cosine >= MIN_COSINE), key=lambda one: one.speedup)


def _time_embedding(model: "Model", dtype: str) -> "tuple[torch.Tensor, float]":
    """The mean vectors of the sample, and the seconds that they take."""
    import torch

    from cloze.nn.engine import compute_layers
    from cloze.nn.layout import Packed

    # of bfloat16 a copy: converting the weights back would not restore them
    copied = replace(model, module=deepcopy(model.module)) if dtype == "bfloat16" else model
    copied.to(dtype=dtype)
    texts = (" ".join(EVENT_WORDS),) if model.tokenizer.kind == "midi" else _SAMPLE
    ids = [one[: model.max_length] for one in model.tokenizer.encode_ids(texts * 4, limit=1 << 20)]
    ids.sort(key=len, reverse=True)
    packed = Packed.from_lengths(map(len, ids), model.device)
    flat = torch.tensor([one for row in ids for one in row])
    run = partial(compute_layers, copied.module, flat, packed)
    best = float("inf")
    with torch.inference_mode():
        hidden = run()  # packs the weights
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            hidden = run().float().cpu()
            best = min(best, time.perf_counter() - start)
    return torch.stack([part.mean(0) for part in hidden.split([*packed.lengths])]), best


def _describe_machine(device: "torch.device") -> str:
    """Processor or GPU, the threads, and torch."""
    import torch

    torch_version = version("torch")
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch_version}"
    if device.type != "cpu":
        return f"{device.type}, torch {torch_version}"
    return f"{_processor_name()}, {torch.get_num_threads()} threads, torch {torch_version}"


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    # a virtual processor has a general name; family, model and stepping identify it
    numbers = "/".join(named.get(name, "") for name in ("cpu family", "model", "stepping"))
    return f"{named.get('model name', platform.machine())} {numbers}".strip()


def _cache_file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "cloze" / "dtypes.json"


def _read_file() -> dict[str, Any]:
    try:
        found = json.loads(_cache_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _identify_folder(folder: Path | None) -> str:
    """The folder and the state of its weights: another model in the same place is measured."""
    if folder is None:
        return ""
    files = sorted(folder.glob("**/*.safetensors"))
    states = [one.stat() for one in files if one.exists()]
    return f"{folder.resolve()} " + " ".join(f"{s.st_size}@{s.st_mtime_ns}" for s in states)


def _remember(folder: Path, choice: DtypeChoice) -> None:
    found: dict[str, Mapping[str, Any]] = _read_file()
    key = _identify_folder(folder)
    found[key] = {**found.get(key, {}), choice.machine: asdict(choice)}
    file = _cache_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, found)
    except OSError:  # a home folder that cannot be written: it is measured again next time
        return
