"""Open the model of a view, and check that the view applies to it."""

from cloze.checkpoint.model import Model, not_a_model_error
from cloze.tasks.explain.views import check_view
from cloze.tasks.inputs import resolve_model


def open_model(model: object, view: str) -> Model:
    """Load a model if a folder or a name is given; raise unless the view applies to it."""
    found = resolve_model(model)
    if not isinstance(found, Model):
        raise not_a_model_error(model)
    check_view(found, view)
    return found
