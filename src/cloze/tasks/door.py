"""The first step of every verb: a model from what was given, if it can do what is asked."""

import os
from typing import Any, TypeVar, cast

from cloze.checkpoint.abilities import can, cannot, no_model, verbs_of
from cloze.checkpoint.own import Saved
from cloze.models.language import LanguageModel
from cloze.models.word2vec import WordVectors

# what needs torch is imported where it is used: word vectors start without it

M = TypeVar("M")


def resolve_model(model: object) -> Any:  # noqa: ANN401 (as of `load`)
    """The model itself, or that of the folder that is named."""
    if isinstance(model, str | os.PathLike):
        from cloze.checkpoint.families import load

        return load(model)
    if isinstance(model, Saved | WordVectors) or _is_language(model):
        return model
    raise no_model(model)


def open_model(model: object, verb: str, kind: type[M]) -> M:
    """The same, where a verb works with one kind of model."""
    found = resolve_model(model)
    if not isinstance(found, kind):
        _refuse(found, verb)
    return found


def open_language_model(model: object, verb: str) -> LanguageModel:
    """The same, where any language model will do, one of the user's own too."""
    from cloze.checkpoint.model import Model
    from cloze.tasks.left_to_right import language_model

    found = resolve_model(model)
    if isinstance(found, Model):
        return language_model(found)
    if not _is_language(found):
        _refuse(found, verb)
    return cast(LanguageModel, found)


def _is_language(model: object) -> bool:
    return hasattr(model, "begin") and hasattr(model, "next_log_probs")


def _refuse(model: object, verb: str) -> None:
    can(model, verb)

    from cloze.checkpoint.model import Model

    if isinstance(model, Model):
        raise cannot("an encoder", verb, verbs_of(model.heads, causal=model.module.is_causal))
    raise no_model(model)
