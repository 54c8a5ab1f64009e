"""Callbacks: what a run reports while it is prepared and trained.

class StopAtLoss(cloze.Callback):
def on_train_begin(self, run):
self.run = run

def on_step(self, metrics):
if metrics["loss"] < 0.1:
self.run.request_stop()

cloze.finetune(…, callbacks=[StopAtLoss()])
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cloze.errors import ConfigError
from cloze.train.result import RunResult

STOPPED = "callback"  # `RunResult.stopped` of a run that a callback stopped


class TrainingRun:
    """A run, as its callbacks see it."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        step: int = 0,
        log_every: int = 1,
        stop: Callable[[], object] = lambda: None,
    ) -> None:
        self.folder = folder
        self.settings = settings  # the complete recipe, by its tables: settings["run"]["seed"]
        self.step = step  # the step after which it starts; above 0 if it is resumed
        self.log_every = log_every
        self._stop = stop

    def request_stop(self) -> None:
        """End the run after the current step: its state is saved, and `resume` continues it.

        Models that are trained in one pass (n-grams, word vectors, a classifier on features)
        cannot be stopped.
        """
        self._stop()


class Callback:
    """Base class of callbacks; override the methods that you need.

    Models with trials (several seeds, a search) and tasks (`glue`) are several runs, which call
    `on_train_begin` and `on_train_end` one after another. With several processes only the first
    calls the callbacks.

    An exception in a callback ends the run: during training after the current step, with its state
    saved as after Ctrl-C. The function that trains then raises the exception, and `resume`
    continues the run.
    """

    # `on_step` is called after every so many steps; None: as often as `run.log_every` says
    every: int | None = 1

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**options)
        hooks = [name for name in vars(Callback) if name.startswith("on_")]
        for name, value in vars(cls).items():
            is_hook = name in hooks or hasattr(super(cls, cls), name)
            if name.startswith("on_") and callable(value) and not is_hook:
                near = get_close_matches(name, hooks, n=1)
                raise ConfigError(
                    f"{cls.__name__}.{name} is never called: a callback has no method {name}",
                    fix=f"did you mean {near[0]}?" if near else f"choose from {', '.join(hooks)}",
                )

    def on_train_begin(self, run: TrainingRun) -> None:
        """Everything is prepared, and the first step follows."""

    def on_log(self, message: str) -> None:
        """A log line, such as a summary of the training data."""

    def on_progress(self, stage: str, done: int, total: int | None) -> None:
        """How far a stage of the preparation has come; `total` is None if it is unknown."""

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        """The metrics of a training step: step, loss, lr …, as in metrics.jsonl.

        On a GPU they arrive some steps later.
        """

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        """The scores on the dev data, or on held-out text, after a step."""

    def on_save(self, folder: Path) -> None:
        """The model was saved in the folder of the run, or the training state in a folder of it."""

    def on_train_end(self, result: RunResult) -> None:
        """The run has ended, and its files are written."""

    def close(self) -> None:
        """Release resources; called once at the end, also after an error."""


class CallbackList(Callback):
    """Calls several callbacks, in order."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)
        self._run: TrainingRun | None = None  # while it trains
        self._error: Exception | None = None
        for one in self._callbacks:
            if not isinstance(one, Callback):
                raise ConfigError(
                    f"{one!r} is not a callback",
                    fix="pass objects of subclasses of cloze.Callback",
                )

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    @contextmanager
    def training(self, run: TrainingRun, *others: Callback) -> Iterator[None]:
        """The part of a run that can be stopped: after an exception its state is saved.

        `others` are called too, and closed at the end of it.
        """
        own, self._run = self._callbacks, run
        self._callbacks = (*own, *others)
        try:
            with closing(CallbackList(others)):
                self.on_train_begin(run)
                yield
        finally:
            self._callbacks = own
            self._run, error, self._error = None, self._error, None
        if error is not None:
            error.add_note(f"the run was stopped; to resume: cloze.resume({str(run.folder)!r})")
            raise error

    def call(self, callback: Callback, method: str, *arguments: object) -> None:
        """Call a method of one of the callbacks."""
        if self._error is not None:
            return  # the run is being stopped
        try:
            getattr(callback, method)(*arguments)
        except Exception as error:
            error.add_note(f"raised by the callback {type(callback).__name__}.{method}")
            if self._run is None:
                raise
            self._error = error
            self._run.request_stop()

    def report_row(self, callback: Callback, row: Mapping[str, Any]) -> None:
        """Pass a row of metrics to one of the callbacks."""
        values = {name: value for name, value in row.items() if name != "kind"}
        if row["kind"] == "train":
            self.call(callback, "on_step", values)
        else:
            self.call(callback, "on_evaluate", values.pop("step"), values)

    def _call_all(self, method: str, *arguments: object) -> None:
        for callback in self._callbacks:
            self.call(callback, method, *arguments)

    def on_train_begin(self, run: TrainingRun) -> None:
        self._call_all("on_train_begin", run)

    def on_log(self, message: str) -> None:
        self._call_all("on_log", message)

    def on_progress(self, stage: str, done: int, total: int | None) -> None:
        self._call_all("on_progress", stage, done, total)

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        self._call_all("on_step", metrics)

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        self._call_all("on_evaluate", step, scores)

    def on_save(self, folder: Path) -> None:
        self._call_all("on_save", folder)

    def on_train_end(self, result: RunResult) -> None:
        self._call_all("on_train_end", result)

    def close(self) -> None:
        with ExitStack() as stack:  # one that fails does not keep the others open
            for callback in reversed(self._callbacks):
                stack.callback(callback.close)
