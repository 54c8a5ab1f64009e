"""Any text stays text, and any numbers make an axis."""

import math
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from cloze.plot.axes import LARGEST, Scale
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.svg import Element

numbers = st.floats(-LARGEST, LARGEST)


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[str] = []
        self.title: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.title = dict(attrs)["title"]

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@given(
    st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\uffff\ufffe"))
)
def test_what_is_written_is_read_back(text: str) -> None:
    read = Reader(str(Element("p", text, title=text)))
    assert read.tags == ["p"]
    assert "".join(read.found) == text
    assert read.title == text


@given(st.text())
def test_any_text_can_be_written_to_a_file(text: str) -> None:
    str(Element("p", text, title=text)).encode("utf-8")


@given(st.lists(numbers, min_size=1), st.integers(1, 12), st.booleans())
def test_an_axis_holds_its_values_and_few_round_numbers(
    values: list[float], about: int, rounded: bool
) -> None:
    axis = Scale.fit(values, start=0, end=100)
    axis = axis.round_outward(about) if rounded else axis
    ticks = axis.ticks(about)
    assert all(-0.1 <= axis(value) <= 100.1 for value in [*values, *ticks])
    assert len(ticks) <= about + 3
    assert ticks == sorted(set(ticks))


@given(st.lists(st.floats(1e-300, LARGEST), min_size=1), st.integers(1, 12))
def test_a_logarithmic_axis_does_too(values: list[float], about: int) -> None:
    axis = Scale.fit(values, start=0, end=100, log=True)
    ticks = axis.ticks(about)
    assert all(-0.1 <= axis(value) <= 100.1 for value in [*values, *ticks])
    assert len(ticks) <= 6 * about + 3
    assert ticks == sorted(set(ticks))


@given(st.lists(st.tuples(st.floats(), st.none() | st.floats())), st.booleans(), st.booleans())
def test_any_points_make_a_chart(
    points: list[tuple[float, float | None]], log: bool, percent: bool
) -> None:
    series = Series(name="a", x=[x for x, _ in points], y=[y for _, y in points])
    chart = LineChart(title="t", series=[series], log=log, percent=percent)
    assert "nan" not in str(chart.element())
    assert all(math.isfinite(x) for x in chart.data["series"][0]["x"] if x is not None)
