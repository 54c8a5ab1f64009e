"""How one kind of model is made: a row of the tables of `pretrain` and `finetune`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

Ended = TypeVar("Ended")


@dataclass(frozen=True, kw_only=True)
class Maker(Generic[Ended]):
    """Its recipe, who makes it and who goes on with it."""

    recipe: type[Any]
    default: str
    make: Callable[..., Ended]
    resume: Callable[..., Ended] | None = None
    base: Mapping[str, Any] = field(default_factory=dict)  # what the name of the kind sets
    names: Mapping[str, str] = field(default_factory=dict)  # of settings that are called otherwise

    def path(self, setting: str) -> str | None:
        """What a setting of other kinds is called here; None: there is none."""
        path = self.names.get(setting, setting)
        return path if has_setting(self.recipe, path) else None


def has_setting(recipe: type[Any], path: str) -> bool:
    """Whether a tree of dataclasses has a setting of this path, such as run.minutes."""
    kind: Any = recipe
    for name in path.split("."):
        if isinstance(kind, UnionType):
            kind = next(one for one in get_args(kind) if one is not type(None))
        if not is_dataclass(kind) or name not in {one.name for one in fields(kind)}:
            return False
        kind = get_type_hints(kind)[name]
    return True
