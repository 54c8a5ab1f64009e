"""The commands and the order in which `--help` shows them.

To add one, write `cli/VERB.py` with a function of that name, then import it and `add` it here.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from cloze import __version__
from cloze.cli.common import door
from cloze.cli.demo import demo
from cloze.cli.embed import embed
from cloze.cli.fill import fill
from cloze.cli.info import info
from cloze.cli.pretrain import pretrain
from cloze.cli.tokenize import tokenize
from cloze.cli.vocabulary import vocabulary

USE, MAKE = "Use", "Make"

app = typer.Typer(
    name="cloze",
    help="BERT and everything it grew from and into: train, use, look inside.",
    epilog="`cloze VERB --help` shows a verb's options and an example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # what a user can cause is a ClozeError; the rest is our bug
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add(verb: Callable[..., None], panel: str, *, example: str) -> None:
    """Make a function a command; its docstring is the help."""
    app.command(rich_help_panel=panel, epilog=f"Example: {example}")(door(verb))


add(fill, USE, example='cloze fill runs/bert "The capital of France is [MASK]."')
add(embed, USE, example="cloze embed runs/bert --file reviews.jsonl --out reviews.npy")
add(info, USE, example="cloze info runs/bert")
add(tokenize, USE, example='cloze tokenize runs/bert "The cat sat." --pair "It slept."')
add(pretrain, MAKE, example="cloze pretrain text/*.txt.xz --out runs/my-bert --minutes 30")
add(demo, MAKE, example="cloze demo --out my-demo")
add(vocabulary, MAKE, example="cloze vocabulary texts/ more/*.jsonl.gz --out runs/vocabulary")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cloze {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that come before the verb."""
