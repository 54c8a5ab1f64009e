"""The type of functions that report how far a long operation has come."""

from collections.abc import Callable
from typing import TypeAlias

# called with the stage ("counting"), the number of items done, and their total (None: unknown)
ProgressCallback: TypeAlias = Callable[[str, int, int | None], object]
