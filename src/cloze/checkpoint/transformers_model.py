"""A model of the transformers library, in memory, as a `Model`.

The library is not imported: its models have `config.to_dict()` and `state_dict()`, its tokenizers
a `backend_tokenizer`.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.modules import convert_weights
from cloze.checkpoint.task import infer_task
from cloze.errors import InputError
from cloze.interop.huggingface import HuggingFaceLayout
from cloze.models.build import build_on_meta
from cloze.models.registry import find_family, list_families, resolve
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_files import find_special_tokens

_MAX_LENGTH = 1 << 20  # larger values mean that a tokenizer has no limit


def is_transformers_model(model: object) -> bool:
    """Whether an object looks like a model of transformers."""
    config = getattr(model, "config", None)
    return hasattr(config, "to_dict") and hasattr(model, "state_dict")


def convert_transformers_model(model: Any, tokenizer: object) -> Model:  # noqa: ANN401
    """A model of transformers and its tokenizer as a `Model`, in evaluation mode.

    Both share the weights that need no conversion (all but query, key and value, and the matrices
    that GPT-2 stores transposed).
    """
    values = _read_config(model)
    family = find_family(values.get("model_type"))
    layout = None if family is None else resolve(family.layout)
    if family is None or not isinstance(layout, HuggingFaceLayout):
        known = [
            name
            for name, one in list_families().items()
            if isinstance(resolve(one.layout), HuggingFaceLayout)
        ]
        raise InputError(
            f"a transformers model of the type {values.get('model_type')!r} is not supported",
            fix=f"use a model of the type {', '.join(known)}",
        )
    tensors: Mapping[str, Tensor] = model.state_dict()
    description = layout.read_config(values, tensors)
    parts = layout.find_parts(description.task_heads, tensors)
    module = build_on_meta(description.config, description.task_heads, **parts)
    weights = module.state_dict()
    rules = layout.map_weights(description.config, weights)
    wanted = {name for rule in rules.values() for name in rule.names}
    names = layout.find_names(description, tensors, wanted)
    for name, rule in rules.items():
        shape = rule.stored_shape(tuple(weights[name].shape))
        for stored in rule.names:
            found = tensors[names[stored]].shape if stored in names else None
            if found != shape:
                raise InputError(
                    f"{stored} of the transformers model has the shape {found}, but its "
                    f"configuration implies {shape}",
                    fix="use a model that was not changed, such as one without adapters",
                )
    module.load_state_dict(convert_weights(rules, names, tensors), strict=False, assign=True)
    return Model(
        module=module.eval().requires_grad_(True),
        config=description.config,
        tokenizer=convert_tokenizer(tokenizer),
        task=infer_task(next(iter(description.task_heads), None)),
    )


def convert_tokenizer(tokenizer: object) -> Tokenizer:
    """A fast tokenizer of transformers, or one of the tokenizers library, as a `Tokenizer`."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise InputError(
            "a transformers model needs its fast tokenizer after it, but the argument is of type "
            f"{type(tokenizer).__name__}",
            fix="pass AutoTokenizer.from_pretrained(…) of the same model",
        )
    own = tokenizers.Tokenizer.from_str(backend.to_str())  # theirs may pad and truncate
    own.no_padding()
    own.no_truncation()
    settings = dict(getattr(tokenizer, "special_tokens_map", {}))
    length = getattr(tokenizer, "model_max_length", None)
    is_limited = isinstance(length, int) and 0 < length <= _MAX_LENGTH
    return Tokenizer(
        own,
        special_tokens=find_special_tokens(own, settings),
        max_length=length if is_limited else None,
    )


def _read_config(model: Any) -> dict[str, Any]:  # noqa: ANN401
    """The configuration as config.json has it."""
    values = dict(model.config.to_dict())
    values["architectures"] = [type(model).__name__]
    labels = values.get("id2label")
    if isinstance(labels, dict):
        values["id2label"] = {str(number): label for number, label in labels.items()}
    return values
