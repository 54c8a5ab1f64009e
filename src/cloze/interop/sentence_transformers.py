"""Read and write the files of sentence-transformers: pooling, maximum length, prompts.

Module types are looked up in a fixed table; nothing that a file names is imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloze.config import in_range, one_of
from cloze.errors import ConfigError

# The last part of their module types; the package paths differ between versions.
_MODULE_TYPES = ("Transformer", "Pooling", "Normalize")
_OLD_KEYS = {  # in the order in which several are concatenated
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = tuple(_OLD_KEYS.values())
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
LENGTH_FILE = "sentence_bert_config.json"  # in the folder of the body
_MAX_NAME = 60  # characters in the name of a folder


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How the vector of a text is computed from those of its tokens."""

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    max_seq_length: int | None = None  # in tokens, special tokens included
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name, such as "query"
    default_prompt: str | None = None  # the name of the prompt that is prepended to every text
    include_prompt: bool = True  # pool the tokens of the prompt, too
    similarity: str = "cosine"  # the similarity function for the vectors
    lowercase: bool = False  # lowercase the text before tokenization

    @property
    def prompt(self) -> str:
        """The text that is prepended to every text."""
        return "" if self.default_prompt is None else self.prompts.get(self.default_prompt, "")


ReadJson = Callable[[str], Mapping[str, Any] | list[Any] | None]
"""Returns the contents of a JSON file by its path in the folder; None if it does not exist."""


def read_body_path(read: ReadJson) -> str:
    """The subfolder of the body (config.json and weights), or "" for the folder itself."""
    modules = _read_modules(read)
    return _read_module_path(modules[0], is_body=True) if modules else ""


def read_pooling(read: ReadJson) -> Pooling | None:
    """The pooling of a folder; None if it is not a folder of sentence-transformers."""
    modules = _read_modules(read)
    if modules is None:
        return None
    types = [_read_module_type(module) for module in modules]
    if types not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConfigError(
            f"modules.json has the modules {' → '.join(types)}",
            fix="use a model with the modules Transformer → Pooling (→ Normalize)",
        )
    settings = _as_mapping(read(f"{_read_module_path(modules[1])}/config.json"))
    body = read_body_path(read)
    lengths = _as_mapping(read(f"{body}/{LENGTH_FILE}" if body else LENGTH_FILE))
    options = _as_mapping(read("config_sentence_transformers.json"))
    max_length, similarity = lengths.get("max_seq_length"), options.get("similarity_fn_name")
    texts = _as_mapping(options.get("prompts")).items()
    prompts = {name: text for name, text in texts if isinstance(text, str)}
    default = options.get("default_prompt_name")
    pooling = Pooling(
        modes=_read_modes(settings),
        normalize=types[-1] == "Normalize",
        max_seq_length=None
        if max_length is None
        else in_range("max_seq_length", max_length, 1, 1 << 20),
        prompts=prompts,
        default_prompt=default if isinstance(default, str) and default in prompts else None,
        include_prompt=settings.get("include_prompt") is not False,
        similarity=SIMILARITIES[0]
        if similarity is None
        else one_of("similarity_fn_name", str(similarity), SIMILARITIES),
        lowercase=lengths.get("do_lower_case") is True,
    )
    if pooling.prompt and not pooling.include_prompt:
        raise ConfigError(
            "the folder excludes its prompt from the pooling (include_prompt: false)",
            fix="set include_prompt to true if the vectors may differ: cloze pools the prompt, too",
        )
    return pooling


def write_pooling(pooling: Pooling, hidden_size: int, max_seq_length: int) -> dict[str, Any]:
    """The contents of the files to write into a model folder, by path."""
    types = _MODULE_TYPES if pooling.normalize else _MODULE_TYPES[:2]
    paths = ("", "1_Pooling", "2_Normalize")
    return {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
            for n, (name, path) in enumerate(zip(types, paths, strict=False))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden_size,
            **{key: mode in pooling.modes for key, mode in _OLD_KEYS.items()},
            **_write_modes(pooling.modes),
            "include_prompt": pooling.include_prompt,
        },
        LENGTH_FILE: {
            "max_seq_length": pooling.max_seq_length or max_seq_length,
            "do_lower_case": pooling.lowercase,
        },
        "config_sentence_transformers.json": {
            "prompts": dict(pooling.prompts),
            "default_prompt_name": pooling.default_prompt,
            "similarity_fn_name": pooling.similarity,
        },
    }


def _read_modules(read: ReadJson) -> list[Any] | None:
    modules = read("modules.json")
    if modules is not None and not isinstance(modules, list):
        raise ConfigError("modules.json is not a list of modules", fix="save the folder again")
    return modules


def _read_module_type(module: object) -> str:
    name = str(_as_mapping(module).get("type", "")).rpartition(".")[2]
    return name or "(no type)"


def _read_module_path(module: object, *, is_body: bool = False) -> str:
    path = str(_as_mapping(module).get("path", ""))
    is_valid = 0 < len(path) <= _MAX_NAME and not any(part in path for part in ("/", "\\", ".."))
    if not is_valid and not (is_body and path == ""):
        part, example = ("body", "0_Transformer") if is_body else ("pooling", "1_Pooling")
        raise ConfigError(
            f"modules.json has the path {path[:_MAX_NAME]!r} for the {part}",
            fix=f"move it to a subfolder such as {example}",
        )
    return path


def _read_modes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    value = settings.get("pooling_mode")  # the newer key: one name, or a list
    if value is None:
        enabled = [key for key in settings if key.startswith("pooling_mode_") and settings[key]]
        value = [mode for key, mode in _OLD_KEYS.items() if key in enabled]
        value += [key for key in enabled if key not in _OLD_KEYS]
    modes = tuple(str(mode) for mode in (value if isinstance(value, list) else [value]))
    if unknown := [mode for mode in modes if mode not in POOLINGS]:
        raise ConfigError(
            f"the pooling mode {', '.join(unknown)} is not supported",
            fix=f"use one of {', '.join(POOLINGS)}",
        )
    return modes or ("mean",)


def _write_modes(modes: tuple[str, ...]) -> dict[str, Any]:
    """The newer key, if it is needed in addition to the old ones.

    Older versions read a single name there and fail on a list, so several modes are written only if
    their order differs from that of the old keys.
    """
    if len(modes) == 1:
        return {"pooling_mode": modes[0]}
    is_default_order = modes == tuple(mode for mode in POOLINGS if mode in modes)
    return {} if is_default_order else {"pooling_mode": list(modes)}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
