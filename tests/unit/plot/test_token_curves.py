import json
import re

import pytest

from cloze.errors import InputError
from cloze.plot.page import Page, Section
from cloze.plot.token_boxes import MAX_OPACITY
from cloze.plot.token_contexts import TokenContext, TokenContexts
from cloze.plot.token_curves import Curve, TokenCurves
from helpers import raises


def make(**changes) -> TokenCurves:
    settings = {
        "title": "t",
        "tokens": ["one", "<b>", "three"],
        "curves": [
            Curve(name="up", values=[0.0, 1.0, 2.0]),
            Curve(name="down", values=[4.0, 0.5, 0.0], detail="all of it"),
        ],
    }
    return TokenCurves(**(settings | changes))


def test_tokens_have_the_color_and_the_strength_of_their_strongest_curve():
    text = str(make().svg())
    found = re.findall(r'class="f(\d)" fill-opacity="([\d.]+)"', text)
    assert [color for color, _ in found] == ["1", "0", "0"]
    assert [float(opacity) / MAX_OPACITY for _, opacity in found] == pytest.approx([1, 0.5, 1])
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert make().data["curves"][1] == {
        "name": "down",
        "detail": "all of it",
        "values": [4.0, 0.5, 0.0],
    }


def test_a_token_where_every_curve_is_zero_has_no_color():
    text = str(make(curves=[Curve(name="up", values=[0.0, 0.0, 1.0])]).svg())
    assert text.count('class="none"') == 2


def test_the_page_has_the_script_and_its_values():
    html = Page(title="p", sections=[Section(title="s", parts=[make()])]).html()
    assert 'register("token-curves"' in html
    block = re.search(r'<script type="application/json">(.*?)</script>', html)[1]
    assert json.loads(block)["curves"][0]["values"] == [0.0, 1.0, 2.0]


def test_many_tokens_are_wrapped_and_lengths_are_checked():
    figure = make(tokens=["token"] * 100, curves=[Curve(name="c", values=[1.0] * 100)])
    rows = set(
        re.findall(r'<rect x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="34"', str(figure.svg()))
    )
    assert len(rows) > 3
    with raises(InputError, "up", "2", "3"):
        make(curves=[Curve(name="up", values=[0.0, 1.0])])


def test_contexts_are_aligned_at_their_tokens():
    figure = TokenContexts(
        title="t",
        contexts=[
            TokenContext(tokens=["the", "cat"], values=[0.0, 2.0], index=1),
            TokenContext(tokens=["cat", "<i>"], values=[1.0, 0.5], index=0, label="text 7"),
        ],
    )
    text = str(figure.svg())
    middles = re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" class="middle" font-weight="650">cat', text
    )
    assert len(middles) == 2
    assert len(set(middles)) == 1
    shades = [float(one) for one in re.findall(r'fill-opacity="([\d.]+)"', text)]
    assert shades == pytest.approx([0, 0.85, 0.425, 0.2125], abs=1e-3)
    assert "&lt;i&gt;" in text
    assert "text 7" in text
    assert "no values" in str(TokenContexts(title="t", contexts=[]).svg())
