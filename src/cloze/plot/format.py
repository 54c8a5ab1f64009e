"""Format numbers, fractions, sizes and durations for people."""

import math
import unicodedata
from collections.abc import Sequence

_SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_HUGE = 1e15  # above, and below _TINY, powers of ten are easier to read
_TINY = 1e-3


def format_number(value: float) -> str:
    """Three or four significant digits: 2.345, 1,234, 12.3k, 3.1e-4."""
    size = abs(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}∞"
    if value == 0:
        return "0"
    if size >= _HUGE or size < _TINY:
        return _shorten_exponent(f"{value:.2e}")
    if size < 999.5:  # noqa: PLR2004 - rounds to 1,000 with four digits or fewer
        return f"{value:.4g}"
    if size < 9_999.5:  # noqa: PLR2004
        return f"{value:,.0f}"
    unit, suffix = next(pair for pair in _SUFFIXES if size >= 0.9995 * pair[0])
    return f"{_format_three_digits(value / unit)}{suffix}"


def format_percent(fraction: float, decimals: int = 1) -> str:
    """0.4123 as 41.2 %; small positive fractions are written as < 0.1 %, not as 0."""
    if not math.isfinite(fraction):
        return "–"
    smallest = 10.0**-decimals
    if 0 < 100 * fraction < smallest / 2:
        return f"<{smallest:.{decimals}f}\N{NO-BREAK SPACE}%"
    return f"{100 * fraction:.{decimals}f}\N{NO-BREAK SPACE}%"


def format_bytes(count: float) -> str:
    """67.1 MB, 512 bytes."""
    if count < _SUFFIXES[-1][0]:
        return f"{count:.0f} bytes"
    unit, suffix = next(pair for pair in _SUFFIXES if count >= pair[0])
    return f"{_format_three_digits(count / unit)}\N{NO-BREAK SPACE}{suffix}B"


def format_duration(seconds: float) -> str:
    """4:05, 1:02:03, 2 d 3:04:05."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_ticks(ticks: Sequence[float], *, percents: bool = False) -> list[str]:
    """Labels of evenly spaced ticks with the same unit and number of decimals."""
    if len(ticks) <= 1:
        return [format_percent(tick) if percents else format_number(tick) for tick in ticks]
    step, largest = ticks[1] - ticks[0], max(map(abs, ticks))
    if percents:
        return [format_percent(tick, _num_decimals(100 * step)) for tick in ticks]
    if largest >= _HUGE or largest <= 10 * _TINY:
        return ["0" if abs(tick) < step / 2 else _shorten_exponent(f"{tick:.2e}") for tick in ticks]
    unit, suffix = next((pair for pair in _SUFFIXES if largest >= max(10_000, pair[0])), (1, ""))
    decimals = _num_decimals(step / unit)
    return [
        "0" if abs(tick) < step / 2 else f"{tick / unit:,.{decimals}f}{suffix}" for tick in ticks
    ]


def _num_decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _format_three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"  # noqa: PLR2004


def shorten_text(text: str, longest: int) -> str:
    """The beginning of a text of more than `longest` characters; wide characters count twice."""
    room = longest
    for number, letter in enumerate(text):
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return f"{text[: max(number - 1, 1)]}…"
    return text


def _shorten_exponent(text: str) -> str:
    """2.00e-05 as 2e-5."""
    digits, power = text.split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
