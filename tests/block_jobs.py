"""Functions for blocks that workers of Ray can import."""

import os
import signal
import time
from pathlib import Path

from cloze.errors import InputError


class Doubled:
    """Doubles numbers; a worker that finds a block in `fatal` kills itself, once per file."""

    def __init__(self, folder: Path, fatal=(), broken=()) -> None:
        self.folder, self.fatal, self.broken = folder, fatal, broken

    def __call__(self):
        return self.apply

    def apply(self, block):
        (self.folder / f"{block[0]}-{time.monotonic_ns()}").touch()
        if block[0] in self.fatal and not (self.folder / f"died-{block[0]}").exists():
            (self.folder / f"died-{block[0]}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if block[0] in self.broken:
            raise InputError(f"block of {block[0]} is broken", fix="mend it")
        return [2 * number for number in block]


class Dying(Doubled):
    """Every worker dies of the block of 0."""

    def apply(self, _):
        os._exit(1)


class Unloadable:
    """The function cannot be made, as with a model that does not exist."""

    def __call__(self):
        raise InputError("there is no model", fix="make one")
