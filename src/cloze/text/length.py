"""What stays of a text that is too long: `head`, `tail`, `head+tail`, or windows over all of it.

Functions on counts of pieces; a kept stretch is a `range` of piece numbers. Special tokens are not
counted here: a model with 512 positions leaves 510 pieces to a single text.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from cloze.config import one_of
from cloze.errors import ConfigError, InputError

Policy = Literal["head", "tail", "head+tail", "window"]
POLICIES: tuple[str, ...] = get_args(Policy)

# Of 510 pieces the first 128 and the last 382 stay; of a text beyond 800 pieces the first 256 and
# the last 254. Sun et al. 2019 measured the first split; the second is for the longest texts.
_FULL, _SHORT_HEAD, _LONG_HEAD, _LONG = 510, 128, 256, 800


def keep(policy: str, count: int, limit: int) -> tuple[range, ...]:
    """Which of `count` pieces stay when only `limit` may, by `head`, `tail` or `head+tail`."""
    if one_of("length policy", policy, POLICIES) == "window":
        raise ConfigError(
            "the policy 'window' makes several encodings of one text",
            fix="call `windows`, or choose head, tail or head+tail for a single one",
        )
    if count <= limit:
        return (range(count),) if count else ()
    head = {"head": limit, "tail": 0, "head+tail": _head(count, limit)}[policy]
    return tuple(part for part in (range(head), range(count - limit + head, count)) if part)


def longest_first(first: int, second: int, limit: int) -> tuple[int, int]:
    """How many pieces each of a pair keeps when pieces go one by one from the longer of the two.

    Once both are equally long they take turns; an odd piece stays with the one that was longer,
    or with the second if none was.
    """
    if first + second <= limit:
        return first, second
    half = limit // 2
    if first <= half:
        return first, limit - first
    if second <= half:
        return limit - second, second
    return (limit - half, half) if first > second else (half, limit - half)


def windows(count: int, limit: int, stride: int) -> list[range]:
    """Stretches of at most `limit` pieces that cover all, each overlapping the next by `stride`."""
    if not 0 <= stride < limit:
        raise InputError(
            f"windows of {limit:,} pieces cannot overlap by {stride:,}",
            fix=f"use a stride from 0 to {limit - 1:,}, or a longer limit",
        )
    step = limit - stride
    last = max(0, -(-(count - limit) // step))  # the first window that reaches the end
    return [range(n * step, min(n * step + limit, count)) for n in range(last + 1)]


def max_context(spans: Sequence[range]) -> list[int]:
    """For every piece the window that shows the most around it (Devlin et al., code for SQuAD).

    The score is min(left, right) + 0.01·length of the window; the earliest of equals wins.
    """
    best: list[tuple[float, int]] = [(-1.0, 0)] * max((span.stop for span in spans), default=0)
    for number, span in enumerate(spans):
        for piece in span:
            score = min(piece - span.start, span.stop - 1 - piece) + 0.01 * len(span)
            if score > best[piece][0]:
                best[piece] = (score, number)
    return [number for _, number in best]


def _head(count: int, limit: int) -> int:
    """The head's share of `limit`, in the proportions that hold for 510."""
    long = count * _FULL > _LONG * limit
    return limit * (_LONG_HEAD if long else _SHORT_HEAD) // _FULL
