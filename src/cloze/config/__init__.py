"""Configurations: frozen dataclasses that declare their ranges and choices, and TOML for them.

The annotation of a field declares the values it accepts, its help and its command-line option:

    @dataclass(frozen=True, kw_only=True)
    class OptimizerConfig(Config):
        lr: Annotated[float, Range(0, 1000), Help("Peak learning rate"), Flag("--lr")] = 1e-4
        name: Literal["adamw", "muon"] = "adamw"

Every object is checked when it is created, from a file or in Python. A rule about several fields
belongs in `__post_init__`, after `super().__post_init__()`. A class whose table in a file is not
simply its fields defines `from_table(values, name)` and `to_table()`.
"""

from cloze.config.fields import (
    Choices,
    Config,
    FieldInfo,
    Flag,
    Help,
    Range,
    check_fields,
    check_value,
    describe_fields,
    in_range,
    number,
    one_of,
    suggest,
    type_error,
)
from cloze.config.mappings import (
    Settings,
    from_mapping,
    merge,
    override,
    parse_settings,
    read_fields,
    read_toml,
    to_mapping,
)

__all__ = [
    "Choices",
    "Config",
    "FieldInfo",
    "Flag",
    "Help",
    "Range",
    "Settings",
    "check_fields",
    "check_value",
    "describe_fields",
    "from_mapping",
    "in_range",
    "merge",
    "number",
    "one_of",
    "override",
    "parse_settings",
    "read_fields",
    "read_toml",
    "suggest",
    "to_mapping",
    "type_error",
]
