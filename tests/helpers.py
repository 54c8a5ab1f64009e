"""Small things to test with."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from cloze.checkpoint.model import Model
from cloze.checkpoint.word2vec import make_vector_model
from cloze.errors import ClozeError
from cloze.metrics.names import METRICS
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from cloze.models.word2vec import WordVectors
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import Callback

# those of Transformer blocks, which have the layout of transformers
ENCODERS = [
    name
    for name, family in FAMILIES.items()
    if family.kind == "encoder" and hasattr(family.config_class, "num_heads")
]
MASKED = [name for name in ENCODERS if "mlm" in FAMILIES[name].module_class.TASK_HEADS]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *"abcdefghij", "##a", "##b", "##c", "the", "cat", "sat", "##s", ".", ",", "猫"]


def tiny_tokenizer(pieces=PIECES, **options) -> Tokenizer:
    """A WordPiece tokenizer of a few pieces."""
    return Tokenizer.from_vocab(list(pieces), **options)


def scramble(module: nn.Module, seed: int = 0, scale: float = 0.2) -> nn.Module:
    """Every weight random, biases and norms too, so that a mistake in any of them shows."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(module.named_parameters()):
            weight.copy_(torch.randn(weight.shape, generator=rng) * scale)
            if "norm" in name.lower() and name.endswith("weight"):
                weight.add_(1.0)
    return module


@contextmanager
def raises(kind: type[BaseException], *names, fix=()) -> Iterator[pytest.ExceptionInfo]:
    """The block raises `kind`; its message mentions every name, and its fix every item of `fix`.

    Messages can be reworded freely: only settings, files, values, flags and commands are compared.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    for name in _flat(names):
        assert mentions(str(error), name), f"{name!r} is not mentioned in: {error}"
    if isinstance(error, ClozeError):
        assert error.fix.strip(), f"no fix in: {error}"
    for item in _flat((fix,)):
        assert mentions(error.fix, item), f"{item!r} is not mentioned in the fix: {error.fix}"


def check_mentions(text: str, *names) -> None:
    """The text (of a command's output, say) has every name in it."""
    plain = " ".join(text.replace("│", " ").split())
    for name in _flat(names):
        assert mentions(plain, name), f"{name!r} is not mentioned in: {plain}"


def check_scores(output: str, *metrics: str) -> None:
    """The table that a run prints has a row with a number for each of these metrics."""
    rows = dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)
    for name in metrics:
        label = METRICS[name].result or METRICS[name].label
        assert re.match(r"\d", rows.get(label, "")), f"no value of {label!r} in {rows}"


class Watch(Callback):
    """Calls functions with the log lines and with the numbers of the steps, and stops a run."""

    def __init__(self, *, log=None, step=None, stop_at=None) -> None:
        self._log, self._step, self._stop_at = log, step, stop_at

    def on_train_begin(self, run):
        self._run = run

    def on_log(self, message):
        if self._log:
            self._log(message)

    def on_step(self, metrics):
        if self._step:
            self._step(metrics["step"])
        if metrics["step"] == self._stop_at:
            self._run.request_stop()


class Mentions:
    """Equals every text that has these names in it."""

    __hash__ = None

    def __init__(self, *names) -> None:
        self.names = names

    def __eq__(self, text: object) -> bool:
        return isinstance(text, str) and all(mentions(text, name) for name in _flat(self.names))

    def __repr__(self) -> str:
        return f"Mentions{self.names}"


def mentions(text: str, name: object) -> bool:
    """Whether the text has the name in it: in any case, numbers as whole numbers."""
    words = [re.escape(word) for word in str(name).split()]
    pattern = r"\s+".join(words)
    before = r"(?<![\d.,])" if str(name)[:1].isdigit() else ""
    after = r"(?!\d|[.,]\d)" if str(name)[-1:].isdigit() else ""
    return re.search(before + pattern + after, text, re.IGNORECASE) is not None


def _flat(names) -> Iterator[object]:
    for name in names:
        yield from _flat(name) if isinstance(name, tuple | list) else (name,)


def split_group(command) -> list:
    """The commands of a group (`cloze explain …`); any other command alone."""
    return list(getattr(command, "commands", {"": command}).values())


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def change_weights(folder: Path, change) -> None:
    """Write the weights of a folder again, after a change to the dictionary of them."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file(change(tensors) or tensors, file, metadata={"format": "pt"})


def tiny_model(
    *heads: str,
    family: str = "bert",
    labels=("no", "yes"),
    problem: str | None = None,
    positions: int = 24,
    task=None,
    tokenizer=None,
    **changes,
) -> Model:
    """A scrambled model of a few pieces with the heads named, its shape but for `changes`."""
    shape = {
        "vocab_size": len(PIECES),
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 64 if family == "openai-gpt" else 32,
        "max_positions": positions,
        "labels": tuple(labels),
        "problem_type": problem,
    }
    if "roberta" in family:  # the peer counts positions from it
        shape["pad_id"] = PIECES.index("[PAD]")
    config = FAMILIES[family].config_class(**(shape | changes))
    module = scramble(build(config, heads, rng=torch.Generator()), scale=0.5).eval()
    return Model(module=module, config=config, tokenizer=tokenizer or tiny_tokenizer(), task=task)


def word_model(training=None, **fields) -> Model:
    """Word vectors as a model."""
    return make_vector_model(WordVectors(**fields), training)


def peak_memory() -> int:
    """The peak of this process's memory in bytes.

    Unlike `ru_maxrss` it does not include the memory of the parent before the program started.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
