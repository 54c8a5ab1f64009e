"""Open the model of a view, and check that the view applies to it."""

from typing import Any

from cloze.checkpoint.model import Model, not_a_model_error
from cloze.errors import InputError
from cloze.tasks.explain.views import check_view
from cloze.tasks.inputs import resolve_model


def open_model(model: object, view: str) -> Model:
    """Load a model if a folder or a name is given; raise unless the view applies to it."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    check_view(found, view)
    return found


def adapt_model(model: object, inputs: tuple[Any, ...]) -> tuple[object, tuple[Any, ...]]:
    """Convert a transformers model, whose tokenizer is the first input; other models stay."""
    if isinstance(model, Model) or not hasattr(model, "state_dict"):
        return model, inputs
    from cloze.checkpoint.transformers_model import (
        convert_transformers_model,
        is_transformers_model,
    )

    if not is_transformers_model(model):
        return model, inputs
    if not inputs or isinstance(inputs[0], str):
        raise InputError(
            "a transformers model needs its tokenizer",
            fix="pass it after the model: cloze.explain(model, tokenizer, text)",
        )
    tokenizer, *rest = inputs
    return convert_transformers_model(model, tokenizer), tuple(rest)
