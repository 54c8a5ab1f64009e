"""How many examples hypothesis generates: a third in `make test`, all of them in `make stress`."""

import os

from hypothesis import settings

ALL = os.environ.get("CLOZE_EXAMPLES") == "all"
LEAST = 8


def count_examples(count: int) -> int:
    return count if ALL else min(count, max(LEAST, count // 3))


def examples(count: int, **options) -> settings:
    """The setting of a test that generates `count` examples in `make stress`."""
    return settings(max_examples=count_examples(count), **options)
