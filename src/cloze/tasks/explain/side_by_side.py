"""Titles of views that are shown side by side: what differs between them."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cloze.checkpoint.model import Model
from cloze.plot.format import shorten_text
from cloze.plot.view import View

_MAX_TITLE = 80  # characters


def title_views(views: Sequence[View], inputs: Sequence[tuple[Any, ...]]) -> list[View]:
    """The views with their models and texts as titles; what all have in common is left out."""
    models = [_name_model(model) for model, *_ in inputs]
    texts = [" / ".join(text for text in rest if isinstance(text, str)) for _, *rest in inputs]
    columns = [names for names in (models, texts) if len(set(names)) > 1] or [models]
    return [
        replace(view, title=shorten_text(" – ".join(names), _MAX_TITLE))
        for view, names in zip(views, zip(*columns, strict=True), strict=True)
    ]


def _name_model(model: object) -> str:
    if isinstance(model, Model):
        return model.folder.name if model.folder else model.family.name
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    return type(model).__name__
