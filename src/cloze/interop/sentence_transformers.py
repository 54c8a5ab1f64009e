"""sentence-transformers' files beside a model: how its vectors are pooled, cut and normalised.

Module types are looked up in a fixed table; nothing they name is ever imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloze.config import in_range
from cloze.errors import ConfigError

# Their module paths changed over the years; the last word is what counts.
_KINDS = ("Transformer", "Pooling", "Normalize")
_OLD_KEYS = {  # in the order in which several are laid side by side
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
POOLINGS = tuple(_OLD_KEYS.values())
_LONGEST = 60  # characters in a folder's name


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How a folder wants one vector per text made."""

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    limit: int | None = None  # tokens, special ones included
    prompt: str = ""  # put before every text
    lowercase: bool = False  # the text, whatever the tokenizer does


def read_pooling(read: Callable[[str], Mapping[str, Any] | list[Any] | None]) -> Pooling | None:
    """The folder's pooling, or None when it is not of sentence-transformers.

    `read` gives the JSON of a file by its name within the folder, None when it is absent.
    """
    modules = read("modules.json")
    if modules is None:
        return None
    if not isinstance(modules, list):
        raise ConfigError("modules.json is not a list of modules", fix="save the folder anew")
    kinds = [_kind(module) for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConfigError(
            f"modules.json chains {' → '.join(kinds)}",
            fix="cloze computes Transformer → Pooling (→ Normalize)",
        )
    settings = _mapping(read(f"{_path(modules[1])}/config.json"))
    lengths = _mapping(read("sentence_bert_config.json"))
    prompts = _mapping(read("config_sentence_transformers.json"))
    limit = lengths.get("max_seq_length")
    return Pooling(
        modes=_modes(settings),
        normalize=kinds[-1] == "Normalize",
        limit=None if limit is None else in_range("max_seq_length", limit, 1, 1 << 20),
        prompt=_prompt(prompts, settings),
        lowercase=lengths.get("do_lower_case") is True,
    )


def write_pooling(pooling: Pooling, width: int, limit: int) -> dict[str, Any]:
    """Files to write beside the model, by name."""
    kinds = _KINDS if pooling.normalize else _KINDS[:2]
    paths = ("", "1_Pooling", "2_Normalize")
    return {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (kind, path) in enumerate(zip(kinds, paths, strict=False))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            **{key: mode in pooling.modes for key, mode in _OLD_KEYS.items()},
            "include_prompt": True,
        },
        "sentence_bert_config.json": {
            "max_seq_length": pooling.limit or limit,
            "do_lower_case": pooling.lowercase,
        },
        "config_sentence_transformers.json": {
            "prompts": {"default": pooling.prompt} if pooling.prompt else {},
            "default_prompt_name": "default" if pooling.prompt else None,
            "similarity_fn_name": "cosine",
        },
    }


def _kind(module: object) -> str:
    kind = str(_mapping(module).get("type", "")).rpartition(".")[2]
    return kind or "nothing"


def _path(module: object) -> str:
    path = str(_mapping(module).get("path", ""))
    if not 0 < len(path) <= _LONGEST or any(sign in path for sign in ("/", "\\", "..")):
        raise ConfigError(
            f"modules.json puts the pooling at {path!r}",
            fix="it belongs in a folder like 1_Pooling",
        )
    return path


def _modes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    named = settings.get("pooling_mode")  # the newer spelling: one name, or several in order
    if named is None:
        on = [key for key in settings if key.startswith("pooling_mode_") and settings[key]]
        named = [mode for key, mode in _OLD_KEYS.items() if key in on]
        named += [key for key in on if key not in _OLD_KEYS]
    modes = tuple(str(mode) for mode in (named if isinstance(named, list) else [named]))
    if unknown := [mode for mode in modes if mode not in POOLINGS]:
        raise ConfigError(
            f"the folder pools by {', '.join(unknown)}",
            fix=f"cloze pools by {', '.join(POOLINGS)}",
        )
    return modes or ("mean",)


def _prompt(prompts: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    name = prompts.get("default_prompt_name")
    if name is None:
        return ""
    text = str(_mapping(prompts.get("prompts")).get(str(name), ""))
    if text and settings.get("include_prompt") is False:
        raise ConfigError(
            "the folder leaves its prompt out of the pooling (include_prompt: false)",
            fix="cloze pools over the prompt too; set include_prompt to true if that will do",
        )
    return text


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
