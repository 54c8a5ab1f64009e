"""`cloze report`: the page about a run, drawn again."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Json
from cloze.cli.format import print_json


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a training run.")],
    *,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the page. [the folder's name]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the report of a run again, from the files in its folder: RUN/report.html.

    So a run that was killed, or whose numbers were copied from elsewhere, has one too.
    """
    from cloze.report.page import write_report

    path = str(write_report(run, title=title))
    if as_json:
        print_json({"report": path})
    else:
        typer.echo(path)
