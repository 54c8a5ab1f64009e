import pytest

from cloze.errors import ConfigError, InputError
from cloze.text.truncation import (
    find_max_context_windows,
    split_windows,
    truncate,
    truncate_longest_first,
)
from helpers import raises


@pytest.mark.parametrize(
    ("policy", "count", "limit", "kept"),
    [
        ("head", 600, 510, (range(510),)),
        ("tail", 600, 510, (range(90, 600),)),
        ("head+tail", 600, 510, (range(128), range(218, 600))),
        ("head+tail", 800, 510, (range(128), range(418, 800))),
        ("head+tail", 801, 510, (range(256), range(547, 801))),
        ("head+tail", 5000, 510, (range(256), range(4746, 5000))),
        ("head+tail", 510, 510, (range(510),)),
        ("head+tail", 390, 255, (range(64), range(199, 390))),  # half of everything
        ("head+tail", 401, 255, (range(128), range(274, 401))),
        ("head+tail", 9, 1, (range(8, 9),)),
        ("tail", 0, 5, ()),
        ("head", 5, 0, ()),
    ],
)
def test_truncate(policy: str, count: int, limit: int, kept: tuple[range, ...]):
    assert truncate(policy, count, limit) == kept


def test_truncate_rejects_windows():
    with raises(ConfigError, "window", fix="windows"):
        truncate("window", 9, 5)


def test_an_unknown_truncation_suggests_a_similar_one():
    with raises(ConfigError, "haed", fix="head"):
        truncate("haed", 9, 5)


@pytest.mark.parametrize(
    ("first", "second", "limit", "kept"),
    [
        (3, 4, 10, (3, 4)),
        (3, 40, 10, (3, 7)),
        (40, 3, 10, (7, 3)),
        (40, 50, 10, (5, 5)),
        (40, 50, 11, (5, 6)),
        (50, 40, 11, (6, 5)),
        (40, 40, 11, (5, 6)),
        (0, 40, 11, (0, 11)),
    ],
)
def test_truncate_longest_first(first: int, second: int, limit: int, kept: tuple[int, int]):
    assert truncate_longest_first(first, second, limit) == kept


@pytest.mark.parametrize(
    ("count", "limit", "overlap", "spans"),
    [
        (0, 4, 1, [range(0)]),
        (4, 4, 1, [range(4)]),
        (5, 4, 0, [range(4), range(4, 5)]),
        (7, 4, 1, [range(4), range(3, 7)]),
        (8, 4, 2, [range(4), range(2, 6), range(4, 8)]),
    ],
)
def test_split_windows(count: int, limit: int, overlap: int, spans: list[range]):
    assert split_windows(count, limit, overlap) == spans


@pytest.mark.parametrize("overlap", [-1, 4, 9])
def test_an_overlap_as_long_as_the_window_is_rejected(overlap: int):
    with raises(InputError, overlap, fix=("overlap", "0")):
        split_windows(9, 4, overlap)


def test_a_token_belongs_to_the_window_with_the_most_context():
    spans = split_windows(9, 5, 3)
    assert spans == [range(5), range(2, 7), range(4, 9)]
    # tokens 3 and 5 have one token beside them in either window, and the earlier one wins
    assert find_max_context_windows(spans) == [0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_the_longer_window_wins_a_tie():
    assert find_max_context_windows([range(3), range(2, 9)]) == [0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_no_windows():
    assert find_max_context_windows([]) == []
