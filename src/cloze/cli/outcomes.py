"""Run a function over many inputs; an input that fails is reported and does not stop the others."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Literal

import typer

from cloze.cli.common import FAILED, Skipped, print_note, progress
from cloze.errors import InputError, TruncationWarning
from cloze.progress import ProgressCallback


class Outcomes:
    """Counts results, failures and truncated inputs, and reports them on standard error.

    A row that cannot be read, or that the model cannot process, is reported and counted. With
    `skip_bad` both are skipped. Without it, a row that cannot be read ends the command; a row that
    the model cannot process has an empty row in the output, and the exit code is 1 in the end.
    """

    def __init__(self, name: str, *, skip_bad: bool) -> None:
        self.name = name  # plural noun of the inputs: texts, questions
        self.skip_bad = skip_bad
        self.skipped = Skipped()
        self.count = 0
        self.truncated = 0  # inputs
        self.truncated_chars = 0

    @property
    def on_error(self) -> Literal["raise"] | Callable[[InputError], object]:
        """Value of the `on_error` parameter of readers."""
        return self.skipped if self.skip_bad else "raise"

    @property
    def num_succeeded(self) -> int:
        """Inputs that have a result."""
        return self.count - self.skipped.count

    def add(self, error: InputError | None = None, truncated_chars: int = 0) -> bool:
        """Count one input, and return whether it has a row in the output."""
        self.count += 1
        self.truncated += bool(truncated_chars)
        self.truncated_chars += truncated_chars
        if error is not None:
            self.skipped(error)
            return not self.skip_bad
        return True

    def count_rows(self, rows: int, failed: int, truncated: int, truncated_chars: int) -> None:
        """Count inputs whose errors were reported already, at least the first ones."""
        self.count += rows
        self.skipped.count = failed
        self.truncated += truncated
        self.truncated_chars += truncated_chars

    def finish(self, how: str = "truncated") -> None:
        """Print how many inputs were truncated (`how`) and failed; exit with 1 if any failed."""
        if self.truncated:
            unread = f"{self.truncated_chars:,} characters were not read"
            print_note(f"{self.truncated:,} of {self.count:,} {self.name} were {how}: {unread}")
        if self.count > 1 or self.skip_bad:  # the error of a single one was printed
            self.skipped.print_count(skipped=self.skip_bad)
        if self.skipped.count and not self.skip_bad:
            raise typer.Exit(FAILED)

    def summary(self, out: object) -> dict[str, object]:
        """The JSON object of a command that wrote a file."""
        return {
            "out": str(out),
            "count": self.num_succeeded,
            "truncated": self.truncated,
            "failed": self.skipped.count,
        }

    @contextmanager
    def predict(
        self,
        function: Callable[..., Sequence[Any]],
        inputs: Iterable[Any],
        fields: Sequence[str] | Mapping[str, str],
        *,
        how: str = "truncated",
        quiet: bool = False,
    ) -> Iterator[Iterator[Any]]:
        """The results of the inputs, in order, while a progress bar is shown.

        `function` maps a sequence of inputs, and `progress`, to as many results. An input that
        fails has a `Failure` with its `fields`: attributes of the input, or names for them.
        """
        if sys.stdout.isatty():  # where results and the bar would overwrite each other
            with progress(quiet) as show:
                found = list(self._results(function, inputs, fields, show))
            yield iter(found)
        else:
            with progress(quiet) as show:
                results = self._results(function, inputs, fields, show)
                yield chain(list(islice(results, 1)), results)  # so that errors precede a header
        self.finish(how)

    def _results(
        self,
        function: Callable[..., Sequence[Any]],
        inputs: Iterable[Any],
        fields: Sequence[str] | Mapping[str, str],
        show: ProgressCallback,
    ) -> Iterator[Any]:
        from cloze.tasks.inputs import Failure, add_location, predict_each

        def call(some: Sequence[Any]) -> Sequence[Any]:
            with ignore_truncation():
                return function(some, progress=lambda _, done, total: show(self.name, done, total))

        named = fields if isinstance(fields, Mapping) else {name: name for name in fields}
        for one, found in predict_each(call, inputs):
            if isinstance(found, InputError):
                error = add_location(found, one)
                if self.add(error):
                    given = {name: getattr(one, attribute) for name, attribute in named.items()}
                    yield Failure(inputs=given, error=error)
            else:
                self.add(truncated_chars=getattr(found, "truncated_chars", 0))
                yield found


@contextmanager
def ignore_truncation() -> Iterator[None]:
    """Ignore warnings of truncated texts: `Outcomes.finish` prints one line for all inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        yield
