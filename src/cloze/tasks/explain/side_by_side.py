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


def find_common_title(views: Sequence[View]) -> str:
    """The title of all views; of "Layers: paris" and "Layers: rome" it is "Layers"."""
    first = views[0].title
    return first if all(view.title == first for view in views) else first.partition(":")[0]


def _name_model(model: object) -> str:
    if isinstance(model, Model):
        folder = model.folder
        if folder is None:
            return model.family.name
        return f"{folder.parent.name}/{folder.name}" if folder.name == "model" else folder.name
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    return type(model).__name__
