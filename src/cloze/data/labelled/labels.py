"""Labels of texts: a class, a number, or several classes, and how a column stores them."""

import ast
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cloze.data.labelled.columns import is_number
from cloze.errors import InputError

DELIMITERS = ("|", ";", ",")  # of several labels in a string
_SET, _UNSET = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}

Label = str | float | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class LabelFormat:
    """How labels are stored, which the first rows of the first file decide."""

    kind: Literal["class", "number", "several"] = "class"
    delimiter: str | None = None  # of several labels in a string

    def parse(self, value: object, where: str, class_names: Sequence[str] | None) -> Label:
        """The label of a row."""
        if self.kind == "several":
            return self._parse_several(value, where, class_names)
        if is_empty(value):
            raise missing_label_error(where)
        if class_names and isinstance(value, int):
            return class_names[value] if 0 <= value < len(class_names) else None
        return _parse_number(value, where) if self.kind == "number" else _parse_class(value, where)

    def _parse_several(
        self, value: object, where: str, class_names: Sequence[str] | None
    ) -> tuple[str, ...]:
        """The labels of a row; an empty string or list is none, a missing value an error."""
        if value is None:
            raise missing_label_error(where)
        items: Iterable[object] = (value,)
        if isinstance(value, str):
            items = _parse_list(value) if _is_list_string(value) else self._split(value)
        elif isinstance(value, list | tuple):
            items = value
        found: list[str] = []
        for item in items:
            is_named = class_names and isinstance(item, int) and 0 <= item < len(class_names)
            name = class_names[item] if is_named else _parse_class(item, where)  # type: ignore[index, call-overload]
            if not name:
                raise InputError(f"{where}: a label is empty", fix="remove it, or add its name")
            found.append(name)
        return tuple(dict.fromkeys(found))

    def _split(self, value: str) -> list[str]:
        if not value.strip():
            return []
        parts = [value] if self.delimiter is None else value.split(self.delimiter)
        return [part.strip() for part in parts]


def detect_label_format(
    values: Sequence[object],
    *,
    class_names: Sequence[str] | None = None,
    is_regression: bool | None = None,
    delimiter: str | None = None,
    is_multi_label: bool | None = None,
    labels: Collection[str] | None = None,
) -> LabelFormat:
    """How labels are stored, from those of the first rows.

    Args:
        values: the labels, missing ones left out.
        class_names: the names of labels that are class numbers.
        is_regression: whether labels are numbers. Default: if all are, and some have a fractional
            part.
        delimiter: what separates several labels in a string. Default: see `detect_delimiter`.
        is_multi_label: whether an example may have several labels. Default: if some are lists, or
            strings with a delimiter.
        labels: the labels of a model, if they are known.
    """
    if delimiter is not None or any(isinstance(one, list | tuple) for one in values):
        return LabelFormat(kind="several", delimiter=delimiter)
    strings = [one.strip() for one in values if isinstance(one, str) and one.strip()]
    if is_multi_label is not False and strings and all(map(_is_list_string, strings)):
        return LabelFormat(kind="several")
    if is_multi_label:
        return LabelFormat(kind="several", delimiter=detect_delimiter(strings, labels))
    is_numeric = not class_names and bool(values) and all(map(is_number, values))
    if is_regression or (is_regression is None and is_numeric and any(map(_is_fractional, values))):
        return LabelFormat(kind="number")
    found = detect_delimiter(strings, labels) if is_multi_label is None and not is_numeric else None
    return LabelFormat() if found is None else LabelFormat(kind="several", delimiter=found)


def detect_delimiter(values: Sequence[str], labels: Collection[str] | None = None) -> str | None:
    """The delimiter of several labels in a string; None if every string is one label.

    With the labels of a model it is the one that splits all strings into them. Otherwise the parts
    must be fewer than the distinct strings, as combinations of few labels are, and some strings
    must have more parts than others: in `sport|tennis`, `sport|golf` and `arts|film` they do not.
    """
    distinct = set(values)
    for delimiter in DELIMITERS:
        rows = [[part.strip() for part in value.split(delimiter)] for value in distinct]
        sizes, parts = {len(row) for row in rows}, {part for row in rows for part in row}
        if max(sizes, default=1) == 1 or "" in parts or (delimiter == "," and _is_decimal(parts)):
            continue
        if labels is not None:
            if parts <= set(labels):
                return delimiter
        elif len(sizes) > 1 and len(parts) < len(distinct):
            return delimiter
    return None


def parse_indicators(values: Mapping[str, Any], names: Sequence[str], where: str) -> Label:
    """The labels of columns that contain 0 or 1; None if all are empty."""
    if all(is_empty(values.get(name)) for name in names):
        return None
    found: list[str] = []
    for name in names:
        value = values.get(name)
        plain = str(value).strip().lower()
        if plain not in _SET | _UNSET:
            raise InputError(
                f"{where}: column {name!r}: {repr(value)[:40]} is not 0 or 1",
                fix="write 1 if the text has this label, else 0; or name one label column only",
            )
        if plain in _SET:
            found.append(name)
    return tuple(found)


def is_empty(label: object) -> bool:
    """Whether a label is missing."""
    return label is None or (isinstance(label, str) and not label.strip())


def is_minus_one(label: object) -> bool:
    """Whether a label is GLUE's -1, of test files."""
    return str(label).strip() == "-1"


def missing_label_error(where: str) -> InputError:
    """The error for a row without a label."""
    return InputError(f"{where}: the label is missing", fix="add it, or leave the row out")


def _is_list_string(value: str) -> bool:
    """Whether a string is a list, as data frames write it to csv: "['a', 'b']"."""
    plain = value.strip()
    if not (plain.startswith("[") and plain.endswith("]")):
        return False
    found = _parse_list(plain)
    return all(isinstance(item, str | int) for item in found) and (bool(found) or plain == "[]")


def _parse_list(value: str) -> list[object]:
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list):
            return found
    return []


def _is_decimal(parts: Collection[str]) -> bool:
    return all(part.removeprefix("-").isdecimal() for part in parts)


def _is_fractional(label: object) -> bool:
    value = float(label)  # type: ignore[arg-type]  # is_number
    return math.isfinite(value) and not value.is_integer()


def _parse_number(value: object, where: str) -> float:
    if not is_number(value):
        raise InputError(
            f"{where}: the label {repr(value)[:40]} is not a number",
            fix="fix the row, or read labels as class names",
        )
    number = float(value)  # type: ignore[arg-type]  # is_number
    if not math.isfinite(number):
        raise InputError(f"{where}: the label is {number}", fix="write a finite number")
    return number


def _parse_class(value: object, where: str) -> str:
    if isinstance(value, float):
        # a column of whole numbers with missing values contains floats
        number = _parse_number(value, where)
        return str(int(number)) if number.is_integer() else str(number)
    if isinstance(value, str | int):
        return str(value).strip()
    raise InputError(
        f"{where}: the label {repr(value)[:40]} is not a class name",
        fix="use a string or a number, or a list of them",
    )
