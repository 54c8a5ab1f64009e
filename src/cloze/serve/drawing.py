"""Images for many requests: every drawing advances by one step at a time, between batches.

A drawing takes seconds. Other requests are computed between its steps, each of which can be sent
to the client, and it ends when the client leaves.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.checkpoint.model import Model
from cloze.serve.fair_queue import Entry
from cloze.serve.images import decode_base64_image
from cloze.serve.model_store import ServedModel
from cloze.tasks.draw import collect_results, make_draw_request
from cloze.tasks.image_batches import DrawRequest, DrawStep
from cloze.tasks.pictures import Picture

_MAX_RUNNING = 4  # drawings that advance in turn; others wait
_IMAGES = ("image", "mask")


@dataclass(frozen=True)
class DrawingKey:
    """The key of images that a model draws; their options may differ."""

    model: ServedModel


@dataclass(eq=False, kw_only=True)
class Drawing:
    """The images of a request, as an input of a job."""

    texts: list[str]
    request: DrawRequest
    # called from the thread after each step that is shown
    on_step: Callable[[DrawStep], None] | None = None
    pictures: list[Picture] = field(default_factory=list)
    _steps: Iterator[DrawStep] | None = None

    def advance(self) -> bool:
        """Compute one step; False if there is none left."""
        if self._steps is None:
            self._steps = self.request.run()
        step = next(self._steps, None)
        if step is None:
            return False
        self.pictures += step.pictures
        if self.on_step is not None and step.images:
            self.on_step(step)
        return True

    def make_results(self) -> list[Any]:
        """What `draw` returns for each text."""
        return list(collect_results(self.texts, self.pictures))

    def describe_step(self, step: DrawStep) -> dict[str, Any]:
        """The event of a step: the images of its batch as predicted so far."""
        wanted = self.request.wanted[step.first :]
        return {
            "step": step.number,
            "steps": step.total,
            "first": step.first,
            "pictures": [
                Picture(one.seed, pixels).to_dict()
                for one, pixels in zip(wanted, step.images, strict=False)
            ],
        }


def make_drawing(
    model: Model,
    texts: list[str],
    options: Mapping[str, Any],
    on_step: Callable[[DrawStep], None] | None = None,
) -> Drawing:
    """Check the options of a request, and decode its images."""
    given = {name: value for name, value in options.items() if name != "stream"}
    for name in _IMAGES:
        if given.get(name) is not None:
            given[name] = decode_base64_image(given[name], name, model.config.image_size)
    every = given.pop("preview_every", 1)
    request = make_draw_request(
        model, texts, **given, preview_every=every if on_step is not None else None
    )
    return Drawing(texts=texts, request=request, on_step=on_step)


class DrawingSteps:
    """The drawings that are under way."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def accepts(self, key: Hashable) -> bool:
        """Whether inputs with this key are drawings."""
        return isinstance(key, DrawingKey)

    def room(self, key: Hashable) -> int:  # noqa: ARG002
        """Drawings that may start now; each of them counts as one, whatever it costs."""
        return max(0, _MAX_RUNNING - len(self._entries))

    def start(self, entries: Sequence[Entry]) -> None:
        """Begin with drawings."""
        self._entries += entries

    def step(self) -> list[tuple[Entry, Any]]:
        """One more step of every drawing; returns those that are finished or have failed."""
        self._entries = [entry for entry in self._entries if not entry.job.is_cancelled]
        done: list[tuple[Entry, Any]] = []
        for entry in self._entries:
            try:
                if not entry.value.advance():
                    done.append((entry, entry.value.make_results()))
            except Exception as error:  # only this one fails
                done.append((entry, error))
        ended = {id(entry) for entry, _ in done}
        self._entries = [entry for entry in self._entries if id(entry) not in ended]
        return done

    def clear(self) -> list[Entry]:
        """Forget all drawings, and return them."""
        found, self._entries = self._entries, []
        return found
