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

from cloze.checkpoint.contents import MODULES_FILE, FolderContents, find_labels
from cloze.checkpoint.methods import ModelMethods
from cloze.checkpoint.task import (
    FEATURE_HEAD_FILE,
    FEATURE_WORDS_FILE,
    SNAPSHOTS_FILE,
    TASK_FILE,
    TASK_HEADS,
    Task,
    infer_task,
    list_heads,
    write_task,
)
from cloze.checkpoint.weights import CONFIG_FILE, LoadReport
from cloze.errors import InputError
from cloze.files import write_json
from cloze.interop.layout import PREPROCESSOR_FILE, Layout
from cloze.models.capabilities import Contents, describe_needed_model
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import Family, get_family, resolve
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_files import ROLES

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar as DefaultTypeVar

    from cloze.interop.sentence_transformers import Pooling
    from cloze.nn.feature_heads import FeatureHead

    M = DefaultTypeVar("M", default=Any)
    C = DefaultTypeVar("C", bound=ModelConfig, default=Any)
else:
    M, C = TypeVar("M"), TypeVar("C")

# Files that not every model has. Without modules.json other pooling files have no effect.
OPTIONAL_FILES = (
    TASK_FILE,
    FEATURE_HEAD_FILE,
    FEATURE_WORDS_FILE,
    MODULES_FILE,
    SNAPSHOTS_FILE,
    PREPROCESSOR_FILE,
)
_MAX_SHOWN = 20  # labels of a model in a notebook
_SHOWN = ("order", "num_layers", "hidden_size", "intermediate_size")  # if the family has them


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Model(ModelMethods, Generic[M, C]):
    """A model of any family: returned by `cloze.load`, accepted by every function.

    `module` is the network (or the tables of an n-gram model or of word vectors), `config` its
    hyperparameters. The functions of `cloze` that take a model are also its methods:
    `model.fill(text)` is `cloze.fill(model, text)`. A method that the model does not support raises
    an error that lists those it does support (`capabilities`). BERT, DistilBERT and ModernBERT are
    saved in Hugging Face's layout, which `transformers` loads.
    """

    module: M
    config: C
    tokenizer: Tokenizer = None  # type: ignore[assignment]
    pooling: "Pooling | None" = None
    task: Task | None = None  # that it was fine-tuned for
    feature_head: "FeatureHead | None" = (
        None  # a network on frozen features, instead of a task head
    )
    report: LoadReport = field(default_factory=LoadReport)
    folder: Path | None = None  # that it was loaded from

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
        parts = (f"{name}={shorten(value)}" for name, value in self._describe().items())
        return f"Model({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        from html import escape

        described = self._describe() | {"functions": ", ".join(self.capabilities)}
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(_format_value(value))}</td></tr>'
            for name, value in described.items()
        )
        return f"<table>{rows}</table>"

    def _describe(self) -> dict[str, object]:
        """What the model consists of, by name; what it does not have is left out."""
        described: dict[str, object] = {"family": self.family.name}
        described |= {name: getattr(self.config, name, None) for name in _SHOWN}
        described |= {
            "vocab_size": self.config.vocab_size,
            "parameters": self.num_parameters,
            "task_heads": self.task_heads if self.task_heads and not self.task else None,
            "task": self.task.name if self.task else None,
            "labels": self.labels if self.task and self.task.name in TASK_HEADS else None,
        }
        if self._is_network:
            described |= {"device": str(self.device), "dtype": self.inference_dtype}
        return {name: value for name, value in described.items() if value is not None}

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
        return find_labels(self.config, self.task)[0]

    @property
    def problem_type(self) -> str | None:
        """What the labels are: classes, several of them per text, or numbers (regression)."""
        return find_labels(self.config, self.task)[1]

    @property
    def is_causal(self) -> bool:
        return bool(getattr(self.config, "is_causal", False))

    @property
    def capabilities(self) -> dict[str, str]:
        """The functions that support this model, each with a phrase that says what it returns."""
        heads = list_heads(self.task_heads, self.task)
        task = self.task.name if self.task else None
        contents = Contents(task_heads=heads, is_causal=self.is_causal, task=task)
        return dict(self.family.capabilities(contents))

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of one text, special tokens included."""
        return compute_max_length(self.config, self.tokenizer, self.pooling)

    @property
    def num_parameters(self) -> int:
        """The number of weights, or of the n-grams of an n-gram model."""
        counted = getattr(self.module, "num_parameters", None)
        modules: list[Any] = [self.module] if counted is None else []
        if self.feature_head is not None:
            modules.append(self.feature_head)
        weights = (weight for module in modules for weight in module.parameters())
        return int(counted or 0) + sum(weight.numel() for weight in weights)

    @property
    def device(self) -> "torch.device":
        return self._tensor.device

    @property
    def dtype(self) -> "torch.dtype":
        return self._tensor.dtype

    @property
    def inference_dtype(self) -> str:
        """The name of the dtype that inference computes with: that of the weights, or int8."""
        is_quantized = getattr(self.module, "__dict__", {}).get("_is_quantized", False)
        return "int8" if is_quantized else str(self.dtype).removeprefix("torch.")

    @property
    def _is_network(self) -> bool:
        """Whether the module is a torch module; n-grams and word vectors are not."""
        return hasattr(self.module, "parameters")

    @property
    def _tensor(self) -> "torch.Tensor":
        """One of the weights."""
        if self._is_network:
            return next(self.module.parameters())  # type: ignore[attr-defined]
        import torch

        return torch.empty(0)

    def to(
        self,
        device: "str | torch.device | torch.dtype | None" = None,
        dtype: "str | torch.dtype | None" = None,
    ) -> "Model[M, C]":
        """Move the weights to a device, convert them to a dtype, and return the model itself.

        As with `torch.nn.Module.to`, the model is changed in place: `model.to("cuda")` is enough,
        and `model = cloze.load(folder).to("cuda", "bfloat16")` works, too. n-gram models and word
        vectors stay in main memory, in float32.

        Args:
            device: cpu, cuda, cuda:1, mps or a `torch.device`; None keeps the device. A
                `torch.dtype` is accepted, too.
            dtype: float32, bfloat16, float16 or a `torch.dtype`; int8 (encoders on a CPU) or auto
                (measured: see `cloze.load`); None keeps the dtype.
        """
        import torch

        from cloze.device import resolve_device, resolve_dtype

        if isinstance(device, torch.dtype):
            device, dtype = None, device
        to_device = None if device is None else resolve_device(device)
        if isinstance(dtype, str) and dtype in ("int8", "auto"):
            return self._quantize(to_device, is_measured=dtype == "auto")
        to_dtype = None if dtype is None else resolve_dtype(dtype)
        if not self._is_network:
            check_table_dtype(self.family, to_dtype)
            if self.feature_head is not None and to_device is not None:
                self.feature_head.to(to_device)
            return self
        from cloze.nn.engine import quantize
        from cloze.nn.fuse import move_to_device

        target = self.device if to_device is None else to_device
        move_to_device(self.module, target, to_dtype)  # type: ignore[type-var]
        if to_dtype is not None or target.type != "cpu":
            quantize(self.module, False)
        if self.feature_head is not None:  # in float32, as `load` leaves it
            self.feature_head.to(target)
        return self

    def _quantize(self, device: "torch.device | None", *, is_measured: bool) -> "Model[M, C]":
        """Use int8, or the dtype that a measurement chooses."""
        if not self._is_network:
            check_table_dtype(self.family, None if is_measured else "int8")
            return self
        self.to(device, "float32")
        if not is_measured:
            from cloze.nn.engine import quantize

            quantize(self.module, True)
            return self
        from cloze.checkpoint.precision import choose_dtype

        return self.to(dtype=choose_dtype(self).dtype)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write a model folder atomically.

        An existing folder that is not empty is replaced only with `force`.
        """
        from cloze.checkpoint.atomic import atomic_folder, translate_write_errors

        target = Path(folder)
        with translate_write_errors(target), atomic_folder(target, force=force) as work:
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
            if self.feature_head is not None:
                from cloze.checkpoint.modules import write_feature_head

                write_feature_head(self.feature_head, work)
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
        for name, content in {CONFIG_FILE: values, **layout.write_files(self.config)}.items():
            write_json(work / name, content, indent=2)
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


def _format_value(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, tuple):
        return str(value)
    more = f" and {len(value) - _MAX_SHOWN:,} more" if len(value) > _MAX_SHOWN else ""
    return ", ".join(value[:_MAX_SHOWN]) + more


def check_table_dtype(family: Family, dtype: object) -> None:
    """Raise unless the dtype of an n-gram model or of word vectors is float32 or not given."""
    name = str(dtype).removeprefix("torch.")
    if dtype is not None and name != "float32":
        raise InputError(
            f"{family.description} cannot be used in {name}",
            fix="omit the dtype: these models are float32",
        )


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


def unsupported_function_error(
    model: Model | FolderContents, function: str, reason: str = ""
) -> InputError:
    """The error for a function that a model does not support; the fix says which it supports."""
    return InputError(
        f"this model ({model.family.description}) cannot be used with `{function}`"
        + (f": {reason}" if reason else ""),
        fix=f"use {describe_needed_model(function)}; "
        f"this model works with {', '.join(model.capabilities)}",
    )


def not_a_model_error(
    given: object, fix: str = "pass the path of a model folder, or a model from cloze.load"
) -> InputError:
    """The error for an argument that is not a model."""
    if isinstance(given, type):
        what = f"the class {given.__name__}"
    else:
        what = f"{shorten(given)}, an object of type {type(given).__name__}"
    return InputError(f"a model is needed, but the argument is {what}", fix=fix)
