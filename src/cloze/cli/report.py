"""`cloze report`: write the report page of a run again."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Json
from cloze.cli.format import print_json, print_text


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a training run.")],
    *,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Title of the page (default: name of the folder)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report page of a training run again: RUN/report.html.

    It is built from the files in the folder, so it also works for a run that was killed.
    """
    from cloze.report.page import write_report

    path = str(write_report(run, title=title))
    if as_json:
        print_json({"report": path})
    else:
        print_text(path)
