"""Settings from files and flags."""

import tomllib
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.config import check_choices, from_mapping, merge, override, read_toml, suggest, to_toml
from cloze.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    kind: Literal["linear", "cosine"] = "linear"
    split: tuple[float, ...] = (0.8, 0.2)
    pair: tuple[float, float] = (0.0, 1.0)
    mode: Literal["a", "b"] | None = None

    def __post_init__(self):
        check_choices(self)
        if self.rate == 7:
            raise ConfigError(f"rate is {self.rate}", fix="use less")
        if self.rate == 8:
            raise ConfigError("nothing has rate 8", fix="use less")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = "x"
    steps: int | None = None
    fast: bool = False
    inner: Inner = field(default_factory=Inner)


floats = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.builds(
        Outer,
        name=st.text(),
        steps=st.none() | st.integers(-(2**60), 2**60),
        fast=st.booleans(),
        inner=st.builds(
            Inner,
            rate=floats.filter(lambda rate: rate not in (7, 8)),
            kind=st.sampled_from(["linear", "cosine"]),
            split=st.lists(floats).map(tuple),
        ),
    )
)
def test_a_written_file_reads_back_the_same(config):
    assert from_mapping(Outer, tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nmae": "y"}, "no setting nmae\n.*did you mean 'name'"),
        ({"inner": {"rat": 1}}, "no setting inner.rat\n.*did you mean 'rate'"),
        ({"inner": {"kind": "cubic"}}, "inner.kind 'cubic' is unknown\n.*linear, cosine"),
        ({"inner": 3}, "inner is 3\n.*table of settings"),
        ({"steps": "many"}, "steps is 'many'\n.*whole number"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"fast": 1}, "fast is 1\n.*true or false"),
        ({"name": 7}, "name is 7\n.*text"),
        ({"inner": {"split": 1.0}}, "inner.split is 1.0\n.*list"),
        ({"inner": {"split": ["a"]}}, "inner.split is 'a'\n.*a number"),
        ({"inner": {"pair": [1.0]}}, r"inner.pair is \[1.0\]\n.*a list of 2"),
        ({"inner": {"pair": [1.0, 2.0, 3.0]}}, "inner.pair is .*\n.*a list of 2"),
        ({"inner": {"rate": 7}}, "^inner.rate is 7.0\n.*use less"),
        ({"inner": {"rate": 8}}, "^nothing has rate 8\n"),
        ({"inner": {"mode": "c"}}, "^inner.mode 'c' is unknown\n.*a, b"),
    ],
)
def test_what_does_not_fit_is_named(values, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping(Outer, values)


def test_objects_made_in_python_have_no_other_choices_either():
    assert Inner(mode="b").mode == "b"
    for name, value in (("kind", "cubic"), ("mode", "c"), ("kind", None), ("kind", ["linear"])):
        with pytest.raises(ConfigError, match=f"^{name} .* is unknown\n"):
            Inner(**{name: value})


def test_a_whole_number_is_a_number():
    assert from_mapping(Outer, {"inner": {"rate": 1}}).inner.rate == 1.0


@dataclass(frozen=True, kw_only=True)
class Needy:
    width: int
    inner: Inner


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match="model.hidden_size is missing\n.*add it"):
        from_mapping(Needy, {"inner": {}}, inside="model.")
    with pytest.raises(ConfigError, match="inner is missing"):
        from_mapping(Needy, {"hidden_size": 1})


def test_a_number_that_no_float_holds():
    with pytest.raises(ConfigError, match="inner.rate is far too large"):
        from_mapping(Outer, {"inner": {"rate": 10**400}})


def test_overrides():
    values = {"name": "x", "inner": {"rate": 0.1}}
    settings = ["inner.rate=1e-4", "inner.split=[1, 0]", "name=plain word", "fast=true"]
    changed = override(values, settings)
    assert changed == {
        "name": "plain word",
        "fast": True,
        "inner": {"rate": 1e-4, "split": [1, 0]},
    }
    assert values == {"name": "x", "inner": {"rate": 0.1}}
    with pytest.raises(ConfigError, match="'inner.rate' sets nothing\n.*table.name=value"):
        override({}, ["inner.rate"])
    with pytest.raises(ConfigError, match="name in name.x is not a table"):
        override(values, ["name.x=1"])


def test_merging_keeps_what_the_second_does_not_say():
    merged = merge({"a": 1, "t": {"x": 1, "y": 2}}, {"t": {"y": 3}, "b": 4})
    assert merged == {"a": 1, "b": 4, "t": {"x": 1, "y": 3}}


def test_broken_toml(tmp_path):
    (tmp_path / "r.toml").write_text("a = \n")
    with pytest.raises(ConfigError, match="r.toml is not valid TOML: .*line 1"):
        read_toml(tmp_path / "r.toml")


def test_suggestions():
    assert suggest("lenght", ["length", "width"]) == "did you mean 'length'?"
    assert suggest("zzz", ["length", "width"]) == "choose from length, width"
