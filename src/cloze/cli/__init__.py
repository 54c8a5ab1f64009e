"""The command line: `cloze VERB …`, one file per verb, each of which parses, calls and prints."""

import io
import os
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name. Leaves by `SystemExit`, always."""
    from cloze.cli.app import app
    from cloze.cli.common import CLOSED_PIPE, FAILED, complain, let_go_of_stdout, refused, warned

    # who called us may have closed them
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # pieces and JSON are UTF-8 under any locale, and no file name is a reason to fail
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    warnings.showwarning = warned(warnings.showwarning)
    try:
        try:
            app(prog_name="cloze")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_stdout()
        sys.exit(CLOSED_PIPE)
    except OSError as error:  # a full disk behind standard output
        let_go_of_stdout()
        complain(refused(error))
        sys.exit(FAILED)
