"""A loaded model: module, tokenizer, configuration and task.

n-gram models and word vectors need no torch, so it is imported where it is used.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloze.checkpoint.contents import MODULES_FILE
from cloze.checkpoint.task import FEATURE_HEAD_FILE, TASK_FILE, Task, infer_task, write_task
from cloze.checkpoint.weights import CONFIG_FILE, LoadReport
from cloze.errors import InputError
from cloze.files import write_json
from cloze.interop.layout import Layout
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import Contents, Family, get_family, resolve
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_files import ROLES

if TYPE_CHECKING:
    import torch
    from torch import nn
    from typing_extensions import TypeVar as DefaultTypeVar

    from cloze.interop.sentence_transformers import Pooling

    M = DefaultTypeVar("M", default=Any)
    C = DefaultTypeVar("C", bound=ModelConfig, default=Any)
else:
    M, C = TypeVar("M"), TypeVar("C")

# Files that not every model has. Without modules.json other pooling files have no effect.
OPTIONAL_FILES = (TASK_FILE, FEATURE_HEAD_FILE, MODULES_FILE)
_SHOWN = ("order", "num_layers", "hidden_size", "intermediate_size")  # if the family has them


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Model(Generic[M, C]):
    """A model of any family: returned by `cloze.load`, accepted by every function.

    `module` is the network (or the tables of an n-gram model or of word vectors), `config` its
    hyperparameters. BERT, DistilBERT and ModernBERT are saved in Hugging Face's layout, which
    `transformers` loads.
    """

    module: M
    config: C
    tokenizer: Tokenizer = None  # type: ignore[assignment]  # None for word vectors
    pooling: "Pooling | None" = None
    task: Task | None = None  # that it was fine-tuned for
    feature_head: "nn.Module | None" = None  # a network on frozen features, instead of a task head
    report: LoadReport = field(default_factory=LoadReport)

    @classmethod
    def from_config(
        cls,
        config: ModelConfig,
        tokenizer: Tokenizer,
        task_heads: Iterable[str] = (),
        *,
        rng: "torch.Generator",
    ) -> "Model[Any, Any]":
        """A model with random weights, drawn from `rng` only."""
        from cloze.models.build import build

        module = build(config, task_heads, rng=rng).eval()
        return Model(module=module, tokenizer=tokenizer, config=config)

    def __repr__(self) -> str:
        """A single line, also for large models."""
        shown: dict[str, object] = {"family": self.family.name}
        shown |= {name: getattr(self.config, name, None) for name in _SHOWN}
        shown |= {
            "task_heads": self.task_heads or None,
            "vocab_size": self.config.vocab_size,
            "labels": self.labels if self.task else None,
            "parameters": self.num_parameters,
        }
        parts = (f"{name}={shorten(value)}" for name, value in shown.items() if value is not None)
        return f"Model({', '.join(parts)})"

    @property
    def family(self) -> Family:
        return get_family(self.config.family)

    @property
    def task_heads(self) -> tuple[str, ...]:
        """The names of the task heads."""
        return tuple(getattr(self.module, "task_heads", ()))

    @property
    def head(self) -> str | None:
        """The first task head."""
        return next(iter(self.task_heads), None)

    @property
    def labels(self) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self.config, "labels", ())
        return found

    @property
    def is_causal(self) -> bool:
        return bool(getattr(self.config, "is_causal", False))

    @property
    def capabilities(self) -> dict[str, str]:
        """The functions that support this model, each with a phrase that says what it returns."""
        contents = Contents(task_heads=self.task_heads, is_causal=self.is_causal)
        return dict(self.family.capabilities(contents))

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of one text, special tokens included."""
        return compute_max_length(self.config, self.tokenizer, self.pooling)

    @property
    def num_parameters(self) -> int:
        """The number of weights, or of the n-grams of an n-gram model."""
        if (counted := getattr(self.module, "num_parameters", None)) is not None:
            return int(counted)
        modules: list[Any] = [self.module]
        if self.feature_head is not None:
            modules.append(self.feature_head)
        return sum(weight.numel() for module in modules for weight in module.parameters())

    @property
    def device(self) -> "torch.device":
        return self._tensor.device

    @property
    def dtype(self) -> "torch.dtype":
        return self._tensor.dtype

    @property
    def _tensor(self) -> "torch.Tensor":
        """One of the weights."""
        import torch

        if isinstance(self.module, torch.nn.Module):
            return next(self.module.parameters())
        return torch.empty(0)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a model folder atomically.

        An existing folder that is not empty is replaced only with `overwrite`.
        """
        from cloze.checkpoint.atomic import atomic_folder, translate_write_errors

        target = Path(folder)
        with translate_write_errors(target), atomic_folder(target, overwrite=overwrite) as work:
            self._write(work)
        return target

    def save_into(self, folder: Path) -> None:
        """Write the model atomically into a folder that has other files, too."""
        from cloze.checkpoint.atomic import atomic_files, translate_write_errors

        with translate_write_errors(folder), atomic_files(folder, OPTIONAL_FILES) as work:
            self._write(work)

    def _write(self, work: Path) -> None:
        layout: Layout = resolve(self.family.layout)
        if self.family.write is not None:
            resolve(self.family.write)(self, work)
            dtype = "float32"
        else:
            from cloze.checkpoint.modules import write_module

            write_module(
                self.module,  # type: ignore[arg-type]
                self.config,
                layout,
                work,
                task_heads=self.task_heads,
                feature_head=self.feature_head,
            )
            dtype = str(self.dtype).removeprefix("torch.")
        special = {role: getattr(self.tokenizer, f"{role}_id", None) for role in ROLES}
        values = layout.write_config(self.config, self.task_heads, dtype=dtype, special_ids=special)
        write_json(work / CONFIG_FILE, values, indent=2)
        if self.tokenizer is not None:
            self.tokenizer.save(work, token_types=layout.token_types)
        if self.task and self.task != infer_task(self.head):  # else the head implies it
            write_json(work / TASK_FILE, write_task(self.task), indent=2)
        if self.pooling:
            from cloze.interop.sentence_transformers import write_pooling

            size = int(self.config.hidden_size)  # type: ignore[attr-defined]
            files = write_pooling(self.pooling, size, self.max_length)
            for name, content in files.items():
                write_json(work / name, content, indent=2)


def compute_max_length(config: Any, tokenizer: Tokenizer, pooling: "Pooling | None") -> int:  # noqa: ANN401
    """The smaller of the model's number of positions and of the maximum of pooling or tokenizer.

    Models without positions, such as n-grams and recurrent networks, read texts of any length.
    """
    setting = (pooling and pooling.max_seq_length) or getattr(tokenizer, "max_length", None)
    lengths = (getattr(config, "max_positions", None), setting)
    return min((length for length in lengths if length), default=sys.maxsize)


def check_capability(model: Model, function: str) -> None:
    """Raise unless the family of a model supports a function; its task heads are not checked."""
    if model.family.kind != "encoder" and function not in model.capabilities:
        raise unsupported_function_error(model, function)


def unsupported_function_error(model: Model, function: str) -> InputError:
    """The error for a function that a model does not support."""
    family = model.family
    name = "an encoder" if family.kind == "encoder" else family.description
    return InputError(
        f"{name} cannot be used with `{function}`",
        fix=f"use another model; this one works with {', '.join(model.capabilities)}",
    )


def not_a_model_error(given: object) -> InputError:
    """The error for an argument that is not a model."""
    if isinstance(given, type):
        what = f"the class {given.__name__}"
    else:
        what = f"{shorten(given)}, an object of type {type(given).__name__}"
    return InputError(
        f"a model is needed, but the argument is {what}",
        fix="pass the path of a model folder, or a model from cloze.load",
    )
