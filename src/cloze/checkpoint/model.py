"""A model as everyone holds it: the net, its tokenizer, and what a folder says about them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cloze.checkpoint.own import CONFIG, Saved
from cloze.checkpoint.reader import READER_FILE, write_reader
from cloze.checkpoint.task import TASK_FILE, Task, task_of_head, write_task
from cloze.checkpoint.weights import SINGLE
from cloze.files import write_json
from cloze.interop.huggingface import copies, weight_names, write_config
from cloze.interop.sentence_transformers import Pooling, write_pooling
from cloze.models.build import build
from cloze.models.configs.encoder import EncoderConfig
from cloze.nn.encoder import Encoder
from cloze.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadReport:
    """What did not match when a folder was opened, by their names."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # settings of config.json, or a class it names, we do not know

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.ignored)


@dataclass(frozen=True, kw_only=True, repr=False)
class Model(Saved):
    """What `cloze.load` gives and every verb takes; saved in the layout `transformers` opens."""

    # without modules.json what else there is about pooling says nothing
    _optional: ClassVar[tuple[str, ...]] = (TASK_FILE, READER_FILE, "modules.json")

    module: Encoder
    tokenizer: Tokenizer
    config: EncoderConfig
    pooling: Pooling | None = None
    task: Task | None = None  # what it was fine-tuned for
    reader: nn.Module | None = None  # a net that reads the frozen body in place of a head
    report: LoadReport = field(default_factory=LoadReport)

    @classmethod
    def new(
        cls,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        heads: Iterable[str] = (),
        *,
        rng: torch.Generator,
    ) -> "Model":
        """A model with fresh random weights."""
        module = build(config, heads, rng=rng).eval()
        return cls(module=module, tokenizer=tokenizer, config=config)

    @property
    def heads(self) -> tuple[str, ...]:
        return tuple(self.module.task_heads)

    @property
    def head(self) -> str | None:
        """What it was trained to do last."""
        return next(iter(self.heads), None)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.config.labels

    @property
    def limit(self) -> int:
        """The most tokens one text may have, special ones included."""
        return token_limit(self.config, self.tokenizer, self.pooling)

    @property
    def device(self) -> torch.device:
        return self.module.embeddings.word.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.embeddings.word.weight.dtype

    def _write(self, work: Path) -> None:
        self._write_weights(work / SINGLE)
        write_json(work / CONFIG, self._config_json(), indent=2)
        self.tokenizer.save(work)
        if self.task and self.task != task_of_head(self.head):  # else the head says it all
            write_json(work / TASK_FILE, write_task(self.task), indent=2)
        if self.reader is not None:
            write_reader(self.reader, work)
        if self.pooling:
            files = write_pooling(self.pooling, self.config.hidden_size, self.limit)
            for name, content in files.items():
                write_json(work / name, content, indent=2)

    def _config_json(self) -> dict[str, object]:
        dtype = str(self.dtype).removeprefix("torch.")
        special = {"cls": self.tokenizer.cls_id, "sep": self.tokenizer.sep_id}
        return write_config(self.config, self.heads, dtype, special)

    def _write_weights(self, file: Path) -> None:
        ours = self.module.state_dict()
        tensors: dict[str, Tensor] = {}
        for name, theirs in weight_names(self.config, ours).items():
            parts = ours[name].cpu().chunk(len(theirs))
            tensors.update(zip(theirs, (part.contiguous() for part in parts), strict=True))
        for copy, name in copies(self.config, tensors).items():
            tensors[copy] = tensors[name].clone()
        if not self.heads:  # the bare body goes without its prefix, as transformers writes it
            tensors = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
        save_file(tensors, file, metadata={"format": "pt"})


def token_limit(config: EncoderConfig, tokenizer: Tokenizer, pooling: Pooling | None) -> int:
    """The least of what the positions and the pooling allow; if it says nothing, the tokenizer."""
    told = (pooling and pooling.limit) or tokenizer.max_length
    return min(limit for limit in (config.max_positions, told) if limit)
