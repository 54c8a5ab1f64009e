"""The functions that take a model, as methods of `Model`: `model.fill(text)`.

The functions are in packages above this one, so they are looked up in `cloze` when a method is
used. Type checkers and editors see their signatures.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import cloze

if TYPE_CHECKING:
    from pathlib import Path

    from cloze.files import PathLike

F = TypeVar("F", bound=Callable[..., Any])


class _Method:
    """A descriptor that finds a function and binds it to the model."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self.find = find

    def __get__(self, model: object, owner: type) -> Callable[..., Any]:
        found = self.find()
        bind = getattr(found, "bind_model", None)  # of `cloze.explain`, which has functions
        bound: Callable[..., Any] = bind(model) if bind else found.__get__(model, owner)
        return bound


def _method(find: Callable[[], F]) -> F:
    return cast("F", _Method(find))


class ModelMethods:
    """Base of `Model`: `model.NAME(...)` is `cloze.NAME(model, ...)`."""

    analogy = _method(lambda: cloze.analogy)
    build_database = _method(lambda: cloze.build_database)
    answer = _method(lambda: cloze.answer)
    choose = _method(lambda: cloze.choose)
    classify = _method(lambda: cloze.classify)
    combine = _method(lambda: cloze.combine)
    cosine = _method(lambda: cloze.cosine)
    embed = _method(lambda: cloze.embed)
    evaluate = _method(lambda: cloze.evaluate)
    explain = _method(lambda: cloze.explain)
    fill = _method(lambda: cloze.fill)
    generate = _method(lambda: cloze.generate)
    index = _method(lambda: cloze.index)
    info = _method(lambda: cloze.info)
    odd_one_out = _method(lambda: cloze.odd_one_out)
    plot_vectors = _method(lambda: cloze.plot_vectors)
    plot_words = _method(lambda: cloze.plot_words)
    push_to_hub = _method(lambda: cloze.push_to_hub)
    rerank = _method(lambda: cloze.rerank)
    score = _method(lambda: cloze.score)
    score_pairs = _method(lambda: cloze.score_pairs)
    similar = _method(lambda: cloze.similar)
    similarity = _method(lambda: cloze.similarity)
    suggest = _method(lambda: cloze.suggest)
    draw = _method(lambda: cloze.draw)
    interpolate_images = _method(lambda: cloze.interpolate_images)
    summarize = _method(lambda: cloze.summarize)
    tag = _method(lambda: cloze.tag)
    tokenize = _method(lambda: cloze.tokenize)
    translate = _method(lambda: cloze.translate)

    def export(
        self,
        format: str,
        out: "PathLike",
        *,
        header: bool = True,
        task: str | None = None,
        dtype: str | None = None,
        force: bool = False,
    ) -> "Path":
        """Write the model in another format: `cloze.export`."""
        options = {"header": header, "task": task, "dtype": dtype, "force": force}
        return cloze.export(format, self, out, **options)  # type: ignore[arg-type]
