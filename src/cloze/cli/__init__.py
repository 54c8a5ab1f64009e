"""The command line: `cloze VERB …`, one file per verb, each of which parses, calls and prints."""

import io
import sys


def main() -> None:
    """Run the command that the arguments name. Leaves by `SystemExit`, always."""
    from cloze.cli.app import app
    from cloze.cli.common import CLOSED_PIPE, let_go_of_stdout

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # pieces and JSON are UTF-8 under any locale, and no file name is a reason to fail
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        try:
            app(prog_name="cloze")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_stdout()
        sys.exit(CLOSED_PIPE)
