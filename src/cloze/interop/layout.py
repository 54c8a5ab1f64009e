"""How a folder stores a model: names of settings and weights, and rules to translate them.

Nothing here opens a file or imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloze.errors import FolderError
from cloze.models.configs.base import ModelConfig

Shape = tuple[int, ...]
PREPROCESSOR_FILE = "preprocessor_config.json"  # how images are scaled and normalized


@dataclass(frozen=True)
class Rule:
    """How one weight of a module is stored.

    With several names, the weight is the concatenation of the stored tensors along their first
    dimension (query, key and value, which are one matrix in our modules). With `part` (i, n) it is
    the i-th of n equal parts of the stored tensor. With `transpose` the stored matrix is [in, out],
    as in GPT-2; concatenation and splitting then refer to the transposed matrix.
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
"""The entry of a module in a table: one stored module, several to concatenate, or a rule."""


def make_rule(entry: Entry, prefix: str = "", suffix: str = "") -> Rule:
    """The rule of an entry, with prefix (of a block) and suffix (`.weight` or `.bias`) added."""
    if isinstance(entry, str):
        entry = (entry,)
    rule = entry if isinstance(entry, Rule) else Rule(entry)
    names = tuple(f"{prefix}{name}{suffix}" for name in rule.names)
    return Rule(names, rule.transpose, rule.part)


@dataclass(frozen=True, kw_only=True)
class Description:
    """The contents of config.json."""

    config: ModelConfig
    task_heads: tuple[str, ...] = ()
    # unknown settings that do not change the computation, and unknown classes
    ignored: tuple[str, ...] = ()
    format_version: int | None = None  # of our own families


def check_version(version: object, file: str, newest: int) -> int:
    """Check a format version; raise if it is newer than the newest supported one."""
    if not isinstance(version, int) or not 1 <= version <= newest:
        raise FolderError(
            f"{file} has format_version {version!r}; this version of cloze reads 1 to {newest}",
            fix="update cloze, or create the folder again",
        )
    return version


class Layout(ABC):
    """The layout of the folders of one family."""

    strict: ClassVar[bool] = False  # unexpected weights are an error
    token_types: bool = True  # whether the library's model accepts a type for the second text
    # stored names to ignore: buffers, copies of tied weights
    harmless: frozenset[str] = frozenset()

    @abstractmethod
    def read_config(self, values: Mapping[str, Any], stored: Iterable[str]) -> Description:
        """Translate the contents of config.json; `stored` are the names of the weights."""

    @abstractmethod
    def write_config(
        self,
        config: ModelConfig,
        task_heads: Iterable[str],
        *,
        dtype: str,
        special_ids: Mapping[str, int | None],
    ) -> dict[str, Any]:
        """The contents of config.json; `special_ids` are token ids by role (cls, sep)."""

    def add_files(
        self,
        values: Mapping[str, Any],
        read: Callable[[str], Any],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """The contents of config.json with settings from other JSON files of the folder.

        `read` returns the contents of a file by its name; None if there is none.
        """
        return values

    def write_files(self, config: ModelConfig) -> Mapping[str, Any]:  # noqa: ARG002
        """Other JSON files that the folder has beside config.json, by name."""
        return {}

    def map_weights(self, config: ModelConfig, names: Iterable[str]) -> dict[str, Rule]:  # noqa: ARG002
        """The rule of each weight of the module; by default it is stored under its own name."""
        return {name: Rule((name,)) for name in names}

    def find_names(
        self,
        description: Description,  # noqa: ARG002
        stored: Iterable[str],
        wanted: Iterable[str],  # noqa: ARG002
    ) -> dict[str, str]:
        """Current name of each weight -> the name it is stored under, which may be an older one."""
        return {name: name for name in stored}

    def find_copies(self, names: Iterable[str]) -> dict[str, str]:  # noqa: ARG002
        """Names under which other libraries expect a copy of a weight -> the name of the weight."""
        return {}

    def find_parts(self, task_heads: Iterable[str], stored: Iterable[str]) -> dict[str, bool]:  # noqa: ARG002
        """Optional parts of the module, each with whether its weights are stored."""
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
        """The class in transformers of a model with these heads, if there is one."""
        return None


def part_of(name: str) -> str:
    """The part of a module that has a weight: `blocks`, or `task_heads.mlm` of a head."""
    return ".".join(name.split(".")[: 2 if name.startswith("task_heads.") else 1])
