import pytest

from cloze.errors import InputError
from cloze.plot.svg import Element, format_coordinate, json_script
from helpers import raises


def test_text_is_escaped_wherever_it_stands() -> None:
    made = Element("text", 'a < b & "c"', Element("b", "</b>"), title="\"'><i>")
    assert str(made) == (
        '<text title="&quot;&#x27;&gt;&lt;i&gt;">a &lt; b &amp; "c"<b>&lt;/b&gt;</b></text>'
    )


def test_names_of_attributes_are_spelled_as_python_allows() -> None:
    made = Element("path", class_="grid", stroke_width=1.25, viewBox="0 0 1 1", x=None)
    assert str(made) == '<path class="grid" stroke-width="1.2" viewBox="0 0 1 1"></path>'


def test_elements_without_end_have_none() -> None:
    assert str(Element("meta", charset="utf-8")) == '<meta charset="utf-8">'


def test_characters_that_no_file_can_hold_are_replaced() -> None:
    assert str(Element("p", "a\x00b\ud800c\uffffd\te\n", id="\x1b")) == (
        '<p id="�">a�b�c�d\te\n</p>'
    )


@pytest.mark.parametrize("name", ["onclick", "ONLOAD", "src", "href", "xlink:href"])
def test_nothing_can_run_or_load(name: str) -> None:
    with raises(InputError, name, fix="#"):
        Element("a", **{name: "https://example.org"})


def test_a_link_within_the_page_is_allowed() -> None:
    assert str(Element("a", href="#top")) == '<a href="#top"></a>'


@pytest.mark.parametrize("name", ["", "a b", "a>", "1", "a=b"])
def test_names_are_names(name: str) -> None:
    with raises(InputError, "element"):
        Element(name)
    with raises(InputError, "attribute"):
        Element("p", **{name: "x"})


@pytest.mark.parametrize("text", ["a</script>b", "<!-- x"])
def test_a_script_cannot_be_left(text: str) -> None:
    with raises(InputError, "script"):
        str(Element("script", text))


def test_data_holds_any_text_and_ends_no_script() -> None:
    made = str(json_script({"a": "</script><!--", "b": [1.5, None]}))
    assert made == (
        '<script type="application/json">{"a":"\\u003c/script>\\u003c!--","b":[1.5,null]}</script>'
    )


@pytest.mark.parametrize(
    ("value", "text"), [(12, "12"), (0.5, "0.5"), (-0.01, "0"), (1.25, "1.2"), (-3.0, "-3")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_coordinate(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_place(value: float) -> None:
    with raises(InputError, value):
        format_coordinate(value)
