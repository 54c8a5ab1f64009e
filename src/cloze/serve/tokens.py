"""The tokens that a request costs, and what happens to texts that are too long."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cloze.checkpoint.model import Model
from cloze.decode.image_generation import DEFAULT_STEPS
from cloze.errors import InputError
from cloze.serve.batcher import run_isolated
from cloze.serve.config import MAX_TEXTS
from cloze.serve.failures import refuse
from cloze.serve.functions import Function
from cloze.serve.images import IMAGE_TOKENS, count_images
from cloze.tasks.classify_images import TEMPLATE

CHARS_PER_TOKEN = 4  # an estimate, before a text is tokenized
# where the setting of the model does not apply; `fill` reads a window around the masks
_OWN_TRUNCATION = {"generate": "tail", "suggest": "tail", "fill": "window"}
_ALL_TOKENS = ("score",)  # functions that read texts of any length


def restore_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options from JSON, in which the keys of a mapping are texts."""
    layers = options.get("layers")
    if isinstance(layers, dict):
        options["layers"] = {int(number): weight for number, weight in layers.items()}
    return options


def resolve_truncation(
    model: Model, function: Function, values: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options, with an explicit truncation: error unless it is asked for.

    Models that read long texts in windows leave nothing out.
    """
    resolved = dict(options)
    if "truncation" not in function.options or resolved.get("truncation") is not None:
        return resolved
    own = model.task.truncation_strategy if model.task else "head"
    if model.task is None or model.task.name != function.name:
        own = "window" if function.name == "answer" else "head"
    own = _OWN_TRUNCATION.get(function.name, own)
    reads_all = own == "window" and function.name != "fill"
    resolved["truncation"] = own if values.get("truncate") or reads_all else "error"
    return resolved


def check_truncated(result: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The result; an error in its place if something was left out that nobody asked for."""
    is_asked = values.get("truncate") or values.get("truncation") is not None
    chars = getattr(result, "truncated_chars", 0)
    if not chars or is_asked:
        return result
    return InputError(
        f"the input is too long: {chars:,} characters would not be read",
        fix="shorten it, or ask for truncation (truncate)",
    )


def estimate_tokens(
    function: Function, inputs: Sequence[tuple[Any, ...]], options: Mapping[str, Any]
) -> int:
    """The tokens of a request before they are counted."""
    chars = sum(len(text) for one in inputs for text in function.list_texts(one))
    generated = 0
    if function.name == "generate":
        generated = options.get("max_new_tokens", 50) * options.get("samples", 1) * len(inputs)
    if function.name == "draw":
        generated = _count_denoised(options) * len(inputs)
    if function.reads_images:
        generated = IMAGE_TOKENS * sum(map(count_images, inputs))
        generated += sum(map(len, list_prompts(options))) // CHARS_PER_TOKEN
    return len(inputs) + chars // CHARS_PER_TOKEN + max(0, generated)


def list_prompts(options: Mapping[str, Any]) -> list[str]:
    """The texts of the labels of a request that classifies images."""
    template = options.get("template", TEMPLATE)
    templates = [template] if isinstance(template, str) else template
    labels = options.get("labels") or ()
    if len(labels) * len(templates) > MAX_TEXTS:
        raise refuse(
            413,
            "too_many_tokens",
            f"there are {len(labels):,} labels and {len(templates):,} templates",
            fix=f"send at most {MAX_TEXTS:,} texts: labels times templates",
        )
    return [one.replace("{}", label) for label in labels for one in templates]


def _count_denoised(options: Mapping[str, Any]) -> int:
    """How often an image is denoised for each text of a request; each costs about a token."""
    steps, samples = options.get("steps", DEFAULT_STEPS), options.get("samples", 1)
    return max(1, steps) * max(1, samples)


def count_tokens(
    model: Model,
    function: Function,
    inputs: Sequence[tuple[Any, ...]],
    options: Mapping[str, Any],
) -> list[int]:
    """The number of tokens that each input costs; what is truncated does not count."""
    groups = [function.list_texts(one) for one in inputs]
    texts = [text for group in groups for text in group]
    limit: int | None = model.max_length
    if (
        limit == sys.maxsize
        or function.name in _ALL_TOKENS
        or options.get("truncation") == "window"
        or not function.computes
    ):
        limit = None
    found = run_isolated(lambda some: model.tokenizer.encode_ids(some, limit=limit), texts)
    counts = [
        1 if isinstance(ids, BaseException) else min(len(ids), limit or len(ids)) for ids in found
    ]
    numbers = iter(counts)
    if function.reads_images:
        shared = sum(map(len, model.tokenizer.encode_ids(list_prompts(options), limit=limit)))
        images = [IMAGE_TOKENS * count_images(one) for one in inputs]
        return [
            max(1, sum(next(numbers) for _ in group) + cost + (shared if n == 0 else 0))
            for n, (group, cost) in enumerate(zip(groups, images, strict=True))
        ]
    factor = max(1, options.get("beam") or 1)
    if function.name == "draw":
        factor = _count_denoised(options)
    return [max(1, factor * sum(next(numbers) for _ in group)) for group in groups]
