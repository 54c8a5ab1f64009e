"""The command line: `cloze COMMAND …`, one file per command, which parses, calls and prints."""

import io
import os
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name; it always ends with `SystemExit`."""
    from cloze.cli.app import app
    from cloze.cli.common import (
        CLOSED_PIPE,
        FAILED,
        describe_os_error,
        discard_stdout,
        print_error,
        show_warning,
        wrap_stdout,
    )

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = wrap_stdout(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    # the calling process may have closed them
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    warnings.showwarning = show_warning(warnings.showwarning)
    try:
        try:
            app(prog_name="cloze")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        sys.exit(CLOSED_PIPE)
    except OSError as error:  # such as a full disk that standard output is redirected to
        print_error(describe_os_error(error))
        sys.exit(FAILED)
