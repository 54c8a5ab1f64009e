"""sentence-transformers' files beside a model: how its vectors are pooled, cut and normalised.

Module types are looked up in a fixed table; nothing they name is ever imported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloze.config import in_range, one_of
from cloze.errors import ConfigError

# Their module paths changed over the years; the last word is what counts.
_KINDS = ("Transformer", "Pooling", "Normalize")
_OLD_KEYS = {  # in the order in which several are laid side by side
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = tuple(_OLD_KEYS.values())
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
LENGTHS = "sentence_bert_config.json"  # beside the body
_LONGEST = 60  # characters in a folder's name


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How a folder wants one vector per text made."""

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    limit: int | None = None  # tokens, special ones included
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name, such as query
    default_prompt: str | None = None  # the name of the one that is put before every text
    include_prompt: bool = True  # its tokens are pooled too
    similarity: str = "cosine"  # what the vectors are to be compared by
    lowercase: bool = False  # the text, whatever the tokenizer does

    @property
    def prompt(self) -> str:
        """Put before every text."""
        return "" if self.default_prompt is None else self.prompts.get(self.default_prompt, "")


Read = Callable[[str], Mapping[str, Any] | list[Any] | None]
"""Gives the JSON of a file by its name within the folder, None when it is absent."""


def body_path(read: Read) -> str:
    """The folder within the folder where the body lies, or "" where it is the folder itself."""
    modules = _modules(read)
    return _path(modules[0], "the body", body=True) if modules else ""


def read_pooling(read: Read) -> Pooling | None:
    """The folder's pooling, or None when it is not of sentence-transformers."""
    modules = _modules(read)
    if modules is None:
        return None
    kinds = [_kind(module) for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConfigError(
            f"modules.json chains {' → '.join(kinds)}",
            fix="cloze computes Transformer → Pooling (→ Normalize)",
        )
    settings = _mapping(read(f"{_path(modules[1], 'the pooling')}/config.json"))
    inside = body_path(read)
    lengths = _mapping(read(f"{inside}/{LENGTHS}" if inside else LENGTHS))
    said = _mapping(read("config_sentence_transformers.json"))
    limit, similarity = lengths.get("max_seq_length"), said.get("similarity_fn_name")
    texts = _mapping(said.get("prompts")).items()
    prompts = {name: text for name, text in texts if isinstance(text, str)}
    default = said.get("default_prompt_name")
    made = Pooling(
        modes=_modes(settings),
        normalize=kinds[-1] == "Normalize",
        limit=None if limit is None else in_range("max_seq_length", limit, 1, 1 << 20),
        prompts=prompts,
        default_prompt=default if isinstance(default, str) and default in prompts else None,
        include_prompt=settings.get("include_prompt") is not False,
        similarity=SIMILARITIES[0]
        if similarity is None
        else one_of("similarity_fn_name", str(similarity), SIMILARITIES),
        lowercase=lengths.get("do_lower_case") is True,
    )
    if made.prompt and not made.include_prompt:
        raise ConfigError(
            "the folder leaves its prompt out of the pooling (include_prompt: false)",
            fix="cloze pools over the prompt too; set include_prompt to true if that will do",
        )
    return made


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
            **_named(pooling.modes),
            "include_prompt": pooling.include_prompt,
        },
        LENGTHS: {
            "max_seq_length": pooling.limit or limit,
            "do_lower_case": pooling.lowercase,
        },
        "config_sentence_transformers.json": {
            "prompts": dict(pooling.prompts),
            "default_prompt_name": pooling.default_prompt,
            "similarity_fn_name": pooling.similarity,
        },
    }


def _modules(read: Read) -> list[Any] | None:
    modules = read("modules.json")
    if modules is not None and not isinstance(modules, list):
        raise ConfigError("modules.json is not a list of modules", fix="save the folder anew")
    return modules


def _kind(module: object) -> str:
    kind = str(_mapping(module).get("type", "")).rpartition(".")[2]
    return kind or "nothing"


def _path(module: object, what: str, *, body: bool = False) -> str:
    path = str(_mapping(module).get("path", ""))
    known = 0 < len(path) <= _LONGEST and not any(sign in path for sign in ("/", "\\", ".."))
    if not known and not (body and path == ""):
        raise ConfigError(
            f"modules.json puts {what} at {path[:_LONGEST]!r}",
            fix=f"it belongs in a folder like {'0_Transformer' if body else '1_Pooling'}",
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


def _named(modes: tuple[str, ...]) -> dict[str, Any]:
    """The newer spelling, where the old keys leave something to say.

    Older readers know one name there and stumble over a list, so several modes have one only in an
    order that is not that of the old keys.
    """
    if len(modes) == 1:
        return {"pooling_mode": modes[0]}
    usual = modes == tuple(mode for mode in POOLINGS if mode in modes)
    return {} if usual else {"pooling_mode": list(modes)}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
