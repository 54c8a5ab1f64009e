"""Tokens colored by saliency: what is drawn, and what the script gets."""

import json
import re

import pytest

from cloze.errors import InputError
from cloze.plot.token_boxes import MAX_OPACITY
from cloze.plot.token_saliency import SaliencyColumn, TokenSaliency
from cloze.plot.view import View
from helpers import raises


def figure(**changes):
    columns = [
        SaliencyColumn(name="cat", values=[0.25, 0.75, 0.0], detail="60%", token=2),
        SaliencyColumn(name="dog", values=[0.5, 0.5, 0.0], detail="20%"),
    ]
    options = {"title": "Saliency", "tokens": ["the", "<b>", "cat"], "columns": columns}
    return TokenSaliency(**{**options, **changes})


def block(page):
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_the_first_output_colors_the_tokens():
    svg = str(figure().svg())
    opacities = re.findall(r'fill-opacity="([\d.]+)"', svg)
    assert [float(one) / MAX_OPACITY for one in opacities] == pytest.approx([1 / 3, 1, 0.0])
    for text in ("25\xa0%", "75\xa0%", "&lt;b&gt;", "60%", "dog"):
        assert text in svg
    assert svg.count('class="token made at"') == 1  # the token that is the output


def test_the_script_gets_all_outputs():
    page = View(title="Saliency", figures=[figure()], data={}).html()
    data = block(page)
    assert data["tokens"] == ["the", "<b>", "cat"]
    assert [one["values"] for one in data["columns"]] == [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]
    assert data["columns"][0]["token"] == 2
    assert "token-saliency" in page
    assert "<b>" not in page


def test_signed_values_have_two_colors():
    column = SaliencyColumn(name="yes", values=[-0.5, 1.0, 0.0])
    svg = str(figure(columns=[column], is_signed=True).svg())
    assert svg.count('class="less"') == 1
    assert "-0.5" in svg
    assert "+1" in svg


def test_groups_have_names():
    svg = str(figure(groups=[("prompt", 2), ("continuation", 1)]).svg())
    assert "prompt" in svg
    assert "continuation" in svg


def test_long_texts_are_several_lines():
    tokens = ["token"] * 200
    column = SaliencyColumn(name="yes", values=[1 / 200] * 200)
    svg = str(figure(tokens=tokens, columns=[column]).svg())
    rows = {float(y) for y in re.findall(r'<rect x="[\d.]+" y="([\d.]+)" width', svg)}
    assert len(rows) > 5


def test_wrong_sizes():
    with raises(InputError, "cat", 1, 3):
        figure(columns=[SaliencyColumn(name="cat", values=[1.0])])
    with raises(InputError, "output"):
        figure(columns=[])
