"""The figure of attention weights, and their compact form."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import InputError
from cloze.plot.attention import AttentionFigure, AttentionMap, TokenSide, color_head
from cloze.plot.attention_data import (
    MAX_PRECISE,
    HeadVectors,
    decode_weights,
    encode_pictures,
    select_weights,
)
from cloze.plot.format import format_percent
from helpers import raises


def random_weights(*shape, sharpness=0.1, seed=0):
    rows = np.random.default_rng(seed).gamma(sharpness, size=shape) + 1e-30
    return (rows / rows.sum(-1, keepdims=True)).astype(np.float32)


def make_map(queries=5, keys=5, layers=2, heads=3, name="self-attention", **options):
    return AttentionMap(
        name=name,
        queries=TokenSide(tokens=[f"q{n}" for n in range(queries)]),
        keys=TokenSide(tokens=[f"k{n}" for n in range(keys)]),
        weights=random_weights(layers, heads, queries, keys),
        layers=list(range(1, layers + 1)),
        heads=list(range(1, heads + 1)),
        **options,
    )


@given(st.integers(1, 3), st.integers(1, 700), st.integers(0, 9), st.sampled_from([1.0, 0.02]))
def test_what_a_page_decodes_are_the_weights(queries, keys, seed, fraction):
    weights = random_weights(1, 2, queries, keys, seed=seed)
    limit = max(1, int(fraction * weights.size))
    selection = select_weights(weights, limit)
    found = decode_weights(selection, weights.shape)
    kept = found > 0
    assert kept.sum() <= max(limit, 2 * queries)
    assert kept.any(-1).all()  # each query has a key
    np.testing.assert_allclose(found[kept], weights[kept], atol=2e-5)
    assert weights[~kept].max(initial=0) <= max(selection.threshold, 1e-9) * 1.001
    mass = np.where(kept, weights, 0).sum((-2, -1)) / queries
    np.testing.assert_allclose(selection.retained, mass, atol=1e-5)
    assert selection.total_retained == pytest.approx(mass.mean(), abs=1e-5)


def test_pictures_have_the_largest_weights():
    weights = random_weights(2, 3, 40, 100)
    stored = encode_pictures(weights, size=20)
    assert (stored["rows"], stored["columns"]) == (20, 20)
    codes = np.frombuffer(base64.b64decode(stored["codes"]), np.uint8).reshape(2, 3, 20, 20)
    expected = weights.reshape(2, 3, 20, 2, 20, 5).max((3, 5))
    np.testing.assert_allclose(codes / 255, np.sqrt(expected), atol=0.003)


def test_many_weights_need_two_bytes_each():
    weights = random_weights(2, 4, 300, 300, sharpness=2)
    selection = select_weights(weights, MAX_PRECISE + 50_000)
    assert selection.codes.itemsize == 1
    found = decode_weights(selection, weights.shape)
    kept = found > 0
    np.testing.assert_allclose(np.sqrt(found[kept]), np.sqrt(weights[kept]), atol=0.5 / 255 + 1e-6)
    size = sum(len(value) for value in selection.to_dict().values() if isinstance(value, str))
    assert size < 2.2 * 4 / 3 * kept.sum() + 4 * weights.size / 300


def test_nothing_is_left_out_of_a_short_text():
    figure = AttentionFigure(title="A", maps=[make_map()])
    assert figure.retained_attention == pytest.approx(1)
    assert "left out" not in str(figure.element())
    assert figure.data["maps"][0]["weights"] == figure.maps[0].weights.tolist()
    assert figure.data["maps"][0]["retained"] == 1.0


def test_the_retained_attention_is_stated():
    figure = AttentionFigure(title="A", maps=[make_map(40, 40)], max_weights=300)
    assert 0.3 < figure.retained_attention < 0.95
    text = re.sub(r"\s", " ", str(figure.element()))
    assert f"{100 * figure.retained_attention:.1f} % of the attention" in text


def test_the_data_of_a_long_text_are_its_largest_weights():
    one = make_map(600, 600, layers=1, heads=3)
    found = one.data
    assert "weights" not in found
    rows = np.array(found["largest"])
    layer, head, query, key = rows[:, :4].astype(int).T
    np.testing.assert_array_equal(one.weights[layer - 1, head - 1, query, key], rows[:, 4])
    rest = one.weights.copy()
    rest[layer - 1, head - 1, query, key] = 0
    assert rest.max() <= rows[:, 4].min()
    assert found["retained"] == pytest.approx(rows[:, 4].sum() / (3 * 600), abs=1e-3)


def test_the_page_of_512_tokens_is_smaller_than_10_megabytes():
    one = make_map(512, 512, layers=1, heads=1)
    weights = np.tile(one.weights, (12, 12, 1, 1))
    numbers = list(range(1, 13))
    vectors = np.zeros((12, 12, 512, 64), np.float32)
    whole = replace(
        one,
        weights=weights,
        layers=numbers,
        heads=numbers,
        vectors=HeadVectors(queries=vectors, keys=vectors),
    )
    figure = AttentionFigure(title="A", maps=[whole], layer=3)
    text = str(figure.element())
    assert len(text) < 9_500_000
    assert figure.retained_attention > 0.6
    assert '"vectors":null' in text  # too many even of one layer
    fewer = HeadVectors(queries=vectors[..., :32], keys=vectors[..., :32])
    assert fewer.to_dict(700_000, 2)["layer"] == 2


def read_script_data(figure):
    (block,) = re.findall(r'<script type="application/json">(.*?)</script>', str(figure.element()))
    return json.loads(block)


def test_queries_and_keys_are_part_of_a_page():
    vectors = HeadVectors(
        queries=np.random.default_rng(0).normal(size=(2, 3, 5, 8)).astype(np.float32),
        keys=np.random.default_rng(1).normal(size=(2, 3, 5, 8)).astype(np.float32),
    )
    figure = AttentionFigure(title="A", maps=[make_map(vectors=vectors)], layer=2, head=3, token=4)
    data = read_script_data(figure)
    assert (data["layer"], data["head"], data["token"]) == (1, 2, 4)
    stored = data["maps"][0]["vectors"]["keys"]
    values = np.frombuffer(base64.b64decode(stored["values"]), "<i2").reshape(2, 3, 5, 8)
    units = np.array(stored["units"])[..., None, None]
    np.testing.assert_allclose(values * units, vectors.keys, atol=1e-4)


def test_the_drawing_has_tokens_lines_and_all_heads(tmp_path):
    figure = AttentionFigure(title="Attention of <b>", maps=[make_map()], layer=1, head=2)
    tree = ET.parse(figure.save(tmp_path / "a.svg"))
    svg = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in tree.iter(f"{svg}text")]
    assert {f"q{n}" for n in range(5)} | {f"k{n}" for n in range(5)} <= set(texts)
    titles = [title.text for title in tree.iter(f"{svg}title")]
    assert {f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)} <= set(titles)
    largest = figure.maps[0].weights[0, 1].max()
    lines = [title for title in titles if "→" in title]
    assert any(f"{100 * largest:.1f}" in title for title in lines)
    assert all("head 2" in title for title in lines)
    assert {color_head(n, 12) for n in range(12)} == {color_head(n, 12) for n in range(12)}
    assert len({color_head(n, 16) for n in range(16)}) == 16


def test_the_weights_of_a_selected_token_are_written_beside_the_keys():
    one = make_map()
    weights = one.weights[1, 2, 4]
    figure = AttentionFigure(title="A", maps=[one], layer=2, head=3, token=4)
    texts = [text.text for text in ET.fromstring(str(figure.svg())).iter("text")]
    expected = [format_percent(float(weight), 0) for weight in weights if weight >= 0.045]
    assert expected
    assert [text for text in texts if text and text.endswith("%")] == expected


def test_shapes_must_agree():
    with raises(InputError, "self-attention", "2 × 3 × 5 × 5"):
        AttentionMap(
            name="self-attention",
            queries=TokenSide(tokens=list("abcde")),
            keys=TokenSide(tokens=list("abcde")),
            weights=random_weights(2, 3, 5, 4),
            layers=[1, 2],
            heads=[1, 2, 3],
        )
