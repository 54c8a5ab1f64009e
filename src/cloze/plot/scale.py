"""From values to places along an axis, and the round numbers to write there."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

# Values beyond are not measurements of anything, and leave no room to round up; spans below are
# no spans in floating point.
LARGEST = 1e300
SMALLEST = 1e-300
_SAME = 1e-9  # values closer than this, relative to their size, are one value


def drawable(value: float | None, *, log: bool = False) -> bool:
    """Whether an axis has a place for it."""
    return (
        value is not None
        and math.isfinite(value)
        and abs(value) <= LARGEST
        and (value >= SMALLEST or not log)
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Values low … high lie at pixels start … end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # what it counts has no halves

    @classmethod
    def of(
        cls,
        values: Iterable[float],
        *,
        start: float,
        end: float,
        log: bool = False,
        whole: bool = False,
    ) -> Self:
        """All of `values`, which must be drawable; one value alone is put in the middle."""
        known = list(values) or [1.0]
        low, high = min(known), max(known)
        if high - low <= max(_SAME * max(abs(low), abs(high)), SMALLEST):
            low, high = _around(low, log=log)
        return cls(low=low, high=high, start=start, end=end, log=log, whole=whole)

    def rounded(self, about: int) -> Self:
        """The same axis, reaching to the round numbers outside its values."""
        if self.log:
            return self
        step = _round_step(self.high - self.low, about)
        low, high = math.floor(self.low / step + _SAME), math.ceil(self.high / step - _SAME)
        return type(self)(low=low * step, high=high * step, start=self.start, end=self.end)

    def __call__(self, value: float) -> float:
        """The place of a value."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        return self.start + (self.end - self.start) * ((value - low) / (high - low))

    def ticks(self, about: int) -> list[float]:
        """Some `about` round numbers from low to high, in order."""
        if not self.log:
            step = _round_step(self.high - self.low, about)
            return list(_even(self.low, self.high, max(step, 1.0) if self.whole else step))
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        stride = math.ceil(len(exponents) / (2 * about))
        for digits in ((1,), (1, 2, 5)):
            ticks = [digit * 10.0**power for power in exponents[::stride] for digit in digits]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) >= 3:  # noqa: PLR2004 - fewer do not show that the axis is logarithmic
                return inside
        step = _round_step(self.high - self.low, about)
        return [tick for tick in _even(self.low, self.high, step) if tick > 0]


def _around(value: float, *, log: bool) -> tuple[float, float]:
    if log:
        return value / 2, value * 2
    if abs(value) <= SMALLEST:
        return 0.0, 1.0
    return value - abs(value) / 2, value + abs(value) / 2


def _even(low: float, high: float, step: float) -> Iterator[float]:
    for count in range(math.ceil(low / step - _SAME), math.floor(high / step + _SAME) + 1):
        yield count * step


def _round_step(span: float, about: int) -> float:
    """1, 2 or 5 times a power of ten: the smallest that needs no more than `about` steps."""
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * (1 - _SAME))
