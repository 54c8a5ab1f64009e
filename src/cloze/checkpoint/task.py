"""What a fine-tuned folder says about its task beyond config.json: `cloze.json` beside it.

Others' folders have none, and what can be told from the head is told from it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from cloze.config import from_mapping, in_range, one_of, to_mapping
from cloze.errors import ConfigError, FolderError
from cloze.interop.layout import check_version
from cloze.text.truncation import TRUNCATIONS

TASK_FILE = "cloze.json"
NSP_LABELS = ("next", "not next")  # labels 0 and 1 of the next-sentence head
READER_FILE = "reader.safetensors"
READER_KINDS = ("linear", "bilstm")  # the keys of `cloze.nn.heads.READERS`
FORMAT_VERSION = 1
TASK_HEADS = {"classify": "sequence", "tag": "token", "answer": "span", "choose": "choice"}


@dataclass(frozen=True, kw_only=True)
class Features:
    """A frozen body read by a small net of its own: `reader.safetensors` beside the model."""

    width: int  # of the vectors that it reads
    layers: str = "last"
    pooling: str = "cls"  # of texts; tags read the first piece of each word
    kind: str = "linear"  # or bilstm
    hidden: int = 0  # of a bilstm, each way
    depth: int = 0

    def __post_init__(self) -> None:
        one_of("features.kind", self.kind, READER_KINDS)
        some = 1 if self.kind == "bilstm" else 0
        for name, low, high in (
            ("width", 1, 1 << 20),
            ("hidden", some, 1 << 15),
            ("depth", some, 16),
        ):
            in_range(f"features.{name}", getattr(self, name), low, high)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model was fine-tuned for, and how it reads."""

    name: str
    policy: str | None = None  # for texts too long; None: they are an error
    stride: int | None = None  # tokens that windows share; None: a quarter
    context: bool = False  # tags: the neighbours of a sentence in its document are read with it
    none: bool = False  # answers: the context may not tell
    threshold: float = 0.0  # answers: how far "none" must lead to be the answer
    features: Features | None = field(default=None)

    def __post_init__(self) -> None:
        one_of("task", self.name, TASK_HEADS)
        if self.policy is not None:
            one_of("length policy", self.policy, TRUNCATIONS)

    @property
    def head(self) -> str:
        return TASK_HEADS[self.name]


def task_of_head(head: str | None) -> Task | None:
    """What a folder without `cloze.json` can do."""
    names = {theirs: ours for ours, theirs in TASK_HEADS.items()}
    if head not in names:
        return None
    return Task(name=names[head], policy="window" if head == "span" else None)


def read_task(values: object) -> Task:
    """The task of a `cloze.json`, of which nothing is trusted."""
    if not isinstance(values, dict):
        raise FolderError(f"{TASK_FILE} holds no JSON object", fix="fetch the folder again")
    check_version(values.get("format_version"), TASK_FILE, FORMAT_VERSION)
    try:
        return from_mapping(Task, {k: v for k, v in values.items() if k != "format_version"})
    except ConfigError as error:
        raise FolderError(f"{TASK_FILE}: {error.problem}", fix=error.fix) from None


def write_task(task: Task) -> dict[str, Any]:
    """The same as JSON."""
    return {"format_version": FORMAT_VERSION, **to_mapping(task)}


def with_policy(task: Task, policy: str | None, stride: int | None) -> Task:
    """The task with another way to read long texts, where one is asked for."""
    return replace(
        task,
        policy=task.policy if policy is None else policy,
        stride=task.stride if stride is None else stride,
    )
