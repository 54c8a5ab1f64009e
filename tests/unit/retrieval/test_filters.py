import pytest

from cloze.errors import InputError
from cloze.retrieval.filters import parse_filter
from helpers import raises

ROW = {"year": 1995, "lang": "en", "tags": ["a", "b"], "price": "12.5", "open": True, "none": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, True),
        ({"year": 1995, "lang": ["de", "en"]}, True),
        ({"year": {">=": 1990, "<": 1995}}, False),
        ({"tags": "b"}, True),
        ({"tags": {"!=": "a"}}, False),
        ({"price": {">": 9}}, True),
        ({"open": True}, True),
        ({"open": "true"}, True),
        ({"none": None}, True),
        ({"missing": None}, True),
        ({"missing": {"!=": 1}}, True),
        ({"missing": {"<": 1}}, False),
        (["year>=1990", "lang != de"], True),
        ("year = 1995", True),
        (["lang>d"], True),
        (['lang=["de","fr"]'], False),
        (["lang='; DROP TABLE x; --"], False),
    ],
)
def test_conditions(given, expected):
    assert all(one.matches(ROW) for one in parse_filter(given)) == expected


@pytest.mark.parametrize(
    "given",
    ["year", "=1", ["a~b"], {"a": {"like": 1}}, {"a": {"<": [1, 2]}}, {"a": object()}, {1: 2}, 5],
)
def test_wrong_conditions_are_errors(given):
    with raises(InputError):
        parse_filter(given)
