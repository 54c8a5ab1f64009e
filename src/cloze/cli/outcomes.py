"""What a verb made of many examples; the bad ones are told, and do not stop the others."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import typer

from cloze.cli.common import FAILED, Skipped, print_json, progress
from cloze.errors import InputError

# an example, and its prediction or what is wrong with it
Found: TypeAlias = Iterator[tuple[Any, Any]]


@contextmanager
def outcomes_of(
    predict: Callable[..., Sequence[Any]], examples: Iterable[Any], *, name: str, quiet: bool
) -> Iterator[Found]:
    """Each example with its prediction, under a bar; at the end the command fails if any did."""
    from cloze.tasks.scoring import outcomes

    skipped = Skipped()

    def found(show: Callable[[str, int, int | None], None]) -> Found:
        def verb(some: Sequence[Any]) -> Sequence[Any]:
            return predict(some, progress=lambda _, done, of: show(name, done, of))

        for example, outcome in outcomes(verb, examples):
            if isinstance(outcome, InputError):
                skipped(outcome)
            yield example, outcome

    if sys.stdout.isatty():  # where results and the bar would write over each other
        with progress(quiet) as show:
            everything = list(found(show))
        yield iter(everything)
    else:
        with progress(quiet) as show:
            yield found(show)
    if skipped.count:
        skipped.tell()
        raise typer.Exit(FAILED)


def print_json_of(found: Found, plain: Callable[[Any], object]) -> None:
    """A line for each, in order."""
    for _, one in found:
        print_json({"error": one.problem} if isinstance(one, InputError) else plain(one))
