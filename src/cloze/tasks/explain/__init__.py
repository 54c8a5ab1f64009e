"""`cloze.explain`: views of a model: attention, saliency, neurons, layers and others.

A view is one file in this package with one function that returns a `View`, one row of `VIEWS`
(`views.py`), one line of `Explain`, and one command in `cli/explain.py`. The function has no
decorator, so that type checkers find its signature here. This module imports no torch.
"""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

from cloze.config import suggest
from cloze.errors import InputError
from cloze.models.registry import resolve
from cloze.tasks.explain.views import VIEWS

if TYPE_CHECKING:
    from cloze.plot.view import View
    from cloze.tasks.explain import ablation as _ablation
    from cloze.tasks.explain import attention as _attention
    from cloze.tasks.explain import backoff as _backoff
    from cloze.tasks.explain import cka as _cka
    from cloze.tasks.explain import embeddings as _embeddings
    from cloze.tasks.explain import gates as _gates
    from cloze.tasks.explain import heads as _heads
    from cloze.tasks.explain import layer_weights as _layer_weights
    from cloze.tasks.explain import layers as _layers
    from cloze.tasks.explain import neighbors as _neighbors
    from cloze.tasks.explain import neurons as _neurons
    from cloze.tasks.explain import occurrences as _occurrences
    from cloze.tasks.explain import patching as _patching
    from cloze.tasks.explain import probe as _probe
    from cloze.tasks.explain import saliency as _saliency


class Explain:
    """`cloze.explain(model, text, view="attention")`, or `cloze.explain.attention(model, text)`."""

    if TYPE_CHECKING:
        ablation = staticmethod(_ablation.ablation)
        attention = staticmethod(_attention.attention)
        heads = staticmethod(_heads.heads)
        cka = staticmethod(_cka.cka)
        layers = staticmethod(_layers.layers)
        patching = staticmethod(_patching.patching)
        probe = staticmethod(_probe.probe)
        neurons = staticmethod(_neurons.neurons)
        saliency = staticmethod(_saliency.saliency)
        embeddings = staticmethod(_embeddings.embeddings)
        occurrences = staticmethod(_occurrences.occurrences)
        neighbors = staticmethod(_neighbors.neighbors)
        layer_weights = staticmethod(_layer_weights.layer_weights)
        gates = staticmethod(_gates.gates)
        backoff = staticmethod(_backoff.backoff)

    def __call__(
        self,
        model: object,
        *inputs: Any,  # noqa: ANN401
        view: str = "attention",
        **options: Any,  # noqa: ANN401
    ) -> "View":
        """Show how a model reads a text.

        Args:
            model: a folder, the name of a built-in model, a loaded model, or a transformers model,
                followed by its tokenizer.
            inputs: the text, and for a pair of texts the second one.
            view: the name of the view; `dir(cloze.explain)` lists them.
            options: the options of the view; see `help(cloze.explain.NAME)`.
        """
        return find_view(view)(model, *inputs, **options)

    def compare(
        self,
        first: tuple[Any, ...],
        second: tuple[Any, ...],
        *others: tuple[Any, ...],
        view: str = "attention",
        **options: Any,  # noqa: ANN401
    ) -> "View":
        """Show the same view of several models or texts side by side.

        Args:
            first: a model and its inputs, such as `("cloze-en", "The cat sat.")`.
            second: the same model or another, and its inputs.
            others: more of them.
            view: the name of the view.
            options: the options of the view, the same for all.
        """
        from cloze.plot.view import put_side_by_side
        from cloze.tasks.explain.side_by_side import find_common_title, title_views

        inputs = [first, second, *others]
        found = [self(*one, view=view, **options) for one in inputs]
        return put_side_by_side(find_common_title(found), title_views(found, inputs))

    def __getattr__(self, name: str) -> Callable[..., "View"]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in VIEWS:
            raise AttributeError(f"cloze.explain has no view {name!r}; {suggest(name, VIEWS)}")
        return find_view(name)

    def __dir__(self) -> list[str]:
        return list(VIEWS)

    def bind_model(self, model: object) -> "ModelExplain":
        """The views of one model: `model.explain.attention(text)`."""
        return ModelExplain(model)

    if TYPE_CHECKING:  # as an attribute of `Model`

        def __get__(self, model: object, owner: type | None = None) -> "ModelExplain": ...


class ModelExplain:
    __doc__ = Explain.__doc__

    def __init__(self, model: object) -> None:
        self._model = model

    def __call__(self, *inputs: Any, view: str = "attention", **options: Any) -> "View":  # noqa: ANN401
        return explain(self._model, *inputs, view=view, **options)

    def __getattr__(self, name: str) -> Callable[..., "View"]:
        return partial(getattr(explain, name), self._model)

    def __dir__(self) -> list[str]:
        return list(VIEWS)


explain: Explain = Explain()


def find_view(name: object) -> Callable[..., "View"]:
    """The function of a view, which also accepts a transformers model and its tokenizer."""
    if name not in VIEWS:
        raise InputError(f"the view {name!r} is unknown", fix=suggest(str(name), VIEWS))
    function: Callable[..., View] = resolve(VIEWS[str(name)].function)

    @wraps(function)
    def show(model: Any, *inputs: Any, **options: Any) -> "View":  # noqa: ANN401
        from cloze.tasks.explain.open_model import adapt_model

        known = signature(function).parameters
        for option in options:
            if option not in known:
                raise InputError(
                    f"the view {name} has no option {option!r}", fix=suggest(option, [*known][2:])
                )
        model, inputs = adapt_model(model, inputs)
        return function(model, *inputs, **options)

    return show


__all__ = ["VIEWS", "Explain", "explain"]
