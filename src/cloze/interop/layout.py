"""How folders store models: the names of settings and weights, and rules between ours and theirs.

Nothing here opens a file or imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloze.errors import FolderError
from cloze.models.configs.base import ModelConfig

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """How one weight of a module is stored.

    With several names, the weight is the stored tensors joined along their first dimension (query,
    key and value, which we keep in one matrix). With `part` (i, n) it is the i-th of n equal parts
    of the stored tensor (the reverse). With `transpose` the stored matrix is [in, out], as in
    GPT-2; joining and splitting then refer to the transposed matrix.
    """

    names: tuple[str, ...]
    transpose: bool = False
    part: tuple[int, int] = (0, 1)

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape of each stored tensor, for a weight of this shape."""
        count = self.part[1]
        if len(self.names) > 1 or count > 1:
            shape = (shape[0] * count // len(self.names), *shape[1:])
        return shape[::-1] if self.transpose else shape


Entry = str | tuple[str, ...] | Rule
"""What a table says of a module's weights: one stored module, several to join, or a rule."""


def make_rule(entry: Entry, prefix: str = "", suffix: str = "") -> Rule:
    """The rule of an entry, with the names completed: of a block, and `.weight` or `.bias`."""
    if isinstance(entry, str):
        entry = (entry,)
    rule = entry if isinstance(entry, Rule) else Rule(entry)
    names = tuple(f"{prefix}{name}{suffix}" for name in rule.names)
    return Rule(names, rule.transpose, rule.part)


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a config.json says."""

    config: ModelConfig
    task_heads: tuple[str, ...] = ()
    # settings that we do not know and that do not change the computation, and unknown classes
    ignored: tuple[str, ...] = ()
    format_version: int | None = None  # of our own families


def check_version(version: object, file: str, newest: int) -> int:
    """A format version that we read; one that a newer cloze wrote is an error."""
    if not isinstance(version, int) or not 1 <= version <= newest:
        raise FolderError(
            f"{file} has format_version {version!r}; this version of cloze reads 1 to {newest}",
            fix="update cloze, or make the folder again",
        )
    return version


class Layout(ABC):
    """How the folders of one family are written."""

    strict: ClassVar[bool] = False  # weights that the configuration does not imply are an error
    harmless: frozenset[str] = frozenset()  # stored names to pass over: buffers, tied copies

    @abstractmethod
    def read_config(self, values: Mapping[str, Any], stored: Iterable[str]) -> Description:
        """The contents of config.json as ours; `stored` are the names of the weights."""

    @abstractmethod
    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str],
        *,
        dtype: str,
        special_ids: Mapping[str, int | None],
    ) -> dict[str, Any]:
        """The contents of config.json; `special_ids` are the tokenizer's by role, cls and sep."""

    def map_weights(self, config: ModelConfig, names: Iterable[str]) -> dict[str, Rule]:  # noqa: ARG002
        """For each weight of the module how it is stored; here under its own name."""
        return {name: Rule((name,)) for name in names}

    def find_names(
        self,
        description: Description,  # noqa: ARG002
        stored: Iterable[str],
        wanted: Iterable[str],  # noqa: ARG002
    ) -> dict[str, str]:
        """The present name of each weight -> the name it is stored under, which may be an older."""
        return {name: name for name in stored}

    def find_copies(self, names: Iterable[str]) -> dict[str, str]:  # noqa: ARG002
        """Names under which other libraries expect a weight once more -> the name that holds it."""
        return {}

    def find_parts(self, task_heads: Iterable[str], stored: Iterable[str]) -> dict[str, bool]:  # noqa: ARG002
        """Optional parts of the module, and whether the stored weights have them."""
        return {}

    def assign_parts(
        self,
        description: Description,  # noqa: ARG002
        stored: Iterable[str],
    ) -> dict[str, str]:
        """For each stored weight of the model the part of the module that has it.

        Parts are `embeddings`, `blocks`, `task_heads.mlm` …; copies and other weights have none.
        """
        return {name: part_of(name) for name in stored}

    def finish_name(self, name: str, task_heads: Iterable[str]) -> str:  # noqa: ARG002
        """The name under which a weight is written."""
        return name

    def describe_architecture(self, task_heads: Iterable[str]) -> str | None:  # noqa: ARG002
        """The class of the reference library for a model with these heads, if there is one."""
        return None


def part_of(name: str) -> str:
    """The part of a module that has a weight: `blocks`, or `task_heads.mlm` of a head."""
    return ".".join(name.split(".")[: 2 if name.startswith("task_heads.") else 1])
