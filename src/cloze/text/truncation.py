"""Truncation of long texts: `head`, `tail`, `head+tail`, overlapping windows, or an error.

These functions work on token counts and return `range`s of token indices. Special tokens are not
counted here: a model with 512 positions has room for 510 tokens of a single text.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from cloze.config import one_of
from cloze.errors import ConfigError, InputError

Truncation = Literal["head", "tail", "head+tail", "window", "error"]
TRUNCATIONS: tuple[str, ...] = get_args(Truncation)
STRATEGIES = TRUNCATIONS[:-1]  # those that are no error

# head+tail keeps the first 128 and the last 382 of 510 tokens, as evaluated by Sun et al. 2019; of
# a text of more than 800 tokens it keeps the first 256 and the last 254.
_FULL, _SHORT_HEAD, _LONG_HEAD, _LONG = 510, 128, 256, 800


def truncate(strategy: str, count: int, max_length: int) -> tuple[range, ...]:
    """Which of `count` tokens are kept if `max_length` fit, by `head`, `tail` or `head+tail`."""
    if one_of("truncation", strategy, STRATEGIES) == "window":
        raise ConfigError(
            "truncation 'window' makes several sequences of one text",
            fix="call `encode_windows`, or use head, tail or head+tail for a single sequence",
        )
    if count <= max_length:
        return (range(count),) if count else ()
    head = {"head": max_length, "tail": 0, "head+tail": _compute_head_length(count, max_length)}[
        strategy
    ]
    return tuple(part for part in (range(head), range(count - max_length + head, count)) if part)


def truncate_longest_first(first: int, second: int, max_length: int) -> tuple[int, int]:
    """How many tokens of each text of a pair are kept if tokens are removed from the longer one.

    Once both are equally long, tokens are removed from both in turn; an odd token is kept in the
    text that was longer, or in the second if neither was.
    """
    if first + second <= max_length:
        return first, second
    half = max_length // 2
    if first <= half:
        return first, max_length - first
    if second <= half:
        return max_length - second, second
    return (max_length - half, half) if first > second else (half, max_length - half)


def split_windows(count: int, max_length: int, overlap: int) -> list[range]:
    """Windows of at most `max_length` tokens that cover all tokens and overlap by `overlap`."""
    if not 0 <= overlap < max_length:
        raise InputError(
            f"windows of {max_length:,} tokens cannot overlap by {overlap:,} tokens",
            fix=f"use an overlap from 0 to {max_length - 1:,}, or longer windows",
        )
    step = max_length - overlap
    last = max(0, -(-(count - max_length) // step))  # the first window that reaches the end
    return [range(n * step, min(n * step + max_length, count)) for n in range(last + 1)]


def find_max_context_windows(windows: Sequence[range]) -> list[int]:
    """For every token the index of the window with the most context (SQuAD code of Devlin et al.).

    The score is min(left, right) + 0.01·length of the window; ties go to the earliest window.
    """
    best: list[tuple[float, int]] = [(-1.0, 0)] * max((span.stop for span in windows), default=0)
    for number, span in enumerate(windows):
        for token, score in _score_context(span):
            if score > best[token][0]:
                best[token] = (score, number)
    return [number for _, number in best]


def iterate_max_context_tokens(windows: Sequence[range]) -> Iterator[list[bool]]:
    """For each window, whether it is the one with the most context for each of its tokens.

    As `find_max_context_windows`, for the windows of `split_windows`: every token belongs to one
    window, in order. Windows are equally long but for the last, so that only the one before, the
    one after and the last can have more context. Most windows overlap alike and are computed once.
    """
    last = len(windows) - 1
    known: dict[tuple[int, ...], list[bool]] = {}
    for number, span in enumerate(windows):
        others = {max(0, number - 1), number, min(number + 1, last), last}
        near = sorted(n for n in others if n <= number or windows[n].start < span.stop)
        key = tuple(edge - span.start for n in near for edge in (windows[n].start, windows[n].stop))
        if key not in known:
            known = {key: _find_own_tokens([windows[n] for n in near], near.index(number))}
        yield known[key]


def _find_own_tokens(windows: Sequence[range], number: int) -> list[bool]:
    """Whether the window `number` has the most context for each of its tokens."""
    best: dict[int, tuple[float, int]] = {}
    for n, span in enumerate(windows):
        for token, score in _score_context(span):
            if score > best.get(token, (-1.0, 0))[0]:
                best[token] = (score, n)
    return [best[token][1] == number for token in windows[number]]


def _score_context(span: range) -> Iterator[tuple[int, float]]:
    """The tokens of a window, each with its score."""
    for token in span:
        yield token, min(token - span.start, span.stop - 1 - token) + 0.01 * len(span)


def _compute_head_length(count: int, max_length: int) -> int:
    """Length of the head, in the proportions that hold for 510 tokens."""
    is_long = count * _FULL > _LONG * max_length
    return max_length * (_LONG_HEAD if is_long else _SHORT_HEAD) // _FULL
