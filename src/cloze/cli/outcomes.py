"""What a verb made of many examples; the bad ones are told, and do not stop the others."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import typer

from cloze.cli.common import FAILED, Skipped, print_json, progress
from cloze.errors import InputError

# an example, and its prediction or what is wrong with it
Found: TypeAlias = Iterator[tuple[Any, Any]]


class Outcomes:
    """Counts of what a command did, told on standard error at its end.

    A row that cannot be read, or of which the model can make nothing, is told and counted. With
    `skip_bad` it is passed over; without, the first kind ends the command, and the second has
    an empty place in the output and makes it fail when the others are done.
    """

    def __init__(self, name: str, *, skip_bad: bool) -> None:
        self.name = name  # of what is counted: texts, questions
        self.skip_bad = skip_bad
        self.skipped = Skipped()
        self.count = 0
        self.cut = 0

    @property
    def on_error(self) -> Literal["raise"] | Callable[[InputError], object]:
        """What readers are to do with a row that cannot be read."""
        return self.skipped if self.skip_bad else "raise"

    def shown(self, outcome: object, cut: int = 0) -> bool:
        """Count one, of which so much was left out; whether it has a place in the output."""
        self.count += 1
        self.cut += bool(cut)
        if isinstance(outcome, InputError):
            self.skipped(outcome)
            return not self.skip_bad
        return True

    def tell(self, how: str = "cut") -> None:
        """Say what was cut, and how, and what was bad; the command fails if that matters."""
        if self.cut:
            typer.echo(f"{self.cut:,} of {self.count:,} {self.name} were {how}", err=True)
        if self.count > 1 or self.skip_bad:  # of one the error says it all
            self.skipped.tell(passed_over=self.skip_bad)
        if self.skipped.count and not self.skip_bad:
            raise typer.Exit(FAILED)


@contextmanager
def outcomes_of(
    predict: Callable[..., Sequence[Any]],
    examples: Iterable[Any],
    outcomes: Outcomes,
    *,
    cut: str,
    how: str,
    quiet: bool,
) -> Iterator[Found]:
    """Each example with its prediction, under a bar; `cut` is where that says what was left out."""
    from cloze.tasks.inputs import predict_each as outcomes_by

    def found(show: Callable[[str, int, int | None], None]) -> Found:
        def verb(some: Sequence[Any]) -> Sequence[Any]:
            return predict(some, progress=lambda _, done, of: show(outcomes.name, done, of))

        for example, outcome in outcomes_by(verb, examples):
            if outcomes.shown(outcome, getattr(outcome, cut, 0)):
                yield example, outcome

    if sys.stdout.isatty():  # where results and the bar would write over each other
        with progress(quiet) as show:
            everything = list(found(show))
        yield iter(everything)
    else:
        with progress(quiet) as show:
            every = found(show)
            first = list(islice(every, 1))  # what fails at once does so before there is a header
            yield chain(first, every)
    outcomes.tell(how)


def print_line(asked: Mapping[str, object], found: Mapping[str, object] | InputError) -> None:
    """A line of `--json`, alike in every verb: an input, then what was found or is wrong with it.

    The names, which docs/json.md lists, are the same whatever was found.
    """
    told = {"error": found.problem} if isinstance(found, InputError) else found
    assert not asked.keys() & told.keys()
    print_json({**asked, **told})


def print_lines(
    found: Found, asked: Sequence[str], plain: Callable[[Any, Any], Mapping[str, object]]
) -> None:
    """A line for each, in order; `asked` names what of an example is its input."""
    for example, one in found:
        given = {name: getattr(example, name) for name in asked}
        print_line(given, one if isinstance(one, InputError) else plain(example, one))


def format_probability(value: float) -> str:
    """A probability with four decimals; a small one with two digits of its own."""
    return f"{value:.4f}" if value >= 0.001 or not value else f"{value:.1e}"  # noqa: PLR2004
