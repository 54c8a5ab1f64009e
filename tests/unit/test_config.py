"""Settings from files and flags."""

import tomllib
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.config import (
    Choices,
    Config,
    Flag,
    Help,
    Range,
    check_fields,
    describe_fields,
    from_mapping,
    merge,
    override,
    read_toml,
    suggest,
)
from cloze.errors import ConfigError
from cloze.make.run_folder import to_toml
from helpers import raises


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    kind: Literal["linear", "cosine"] = "linear"
    split: tuple[float, ...] = (0.8, 0.2)
    pair: tuple[float, float] = (0.0, 1.0)
    mode: Literal["a", "b"] | None = None

    def __post_init__(self):
        check_fields(self)
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
        ({"nmae": "y"}, ("nmae", "name")),
        ({"inner": {"rat": 1}}, ("inner.rat", "rate")),
        ({"inner": {"kind": "cubic"}}, ("inner.kind", "cubic")),
        ({"inner": 3}, ("inner", "3")),
        ({"steps": "many"}, ("steps", "many")),
        ({"steps": 1.5}, ("steps", "1.5")),
        ({"fast": 1}, ("fast", "1")),
        ({"name": 7}, ("name", "7")),
        ({"inner": {"split": 1.0}}, ("inner.split", "1.0")),
        ({"inner": {"split": ["a"]}}, ("inner.split", "a")),
        ({"inner": {"pair": [1.0]}}, ("inner.pair", "1.0", "2")),
        ({"inner": {"pair": [1.0, 2.0, 3.0]}}, ("inner.pair", "2")),
        ({"inner": {"rate": 7}}, ("inner.rate", "7.0")),
        ({"inner": {"rate": 8}}, "rate 8"),
        ({"inner": {"mode": "c"}}, ("inner.mode", "c")),
    ],
)
def test_what_does_not_fit_is_named(values, message):
    with raises(ConfigError, message):
        from_mapping(Outer, values)


def test_objects_made_in_python_have_no_other_choices_either():
    assert Inner(mode="b").mode == "b"
    for name, value in (("kind", "cubic"), ("mode", "c"), ("kind", None), ("kind", ["linear"])):
        with raises(ConfigError, name):
            Inner(**{name: value})


def test_a_whole_number_is_a_number():
    assert from_mapping(Outer, {"inner": {"rate": 1}}).inner.rate == 1.0


@dataclass(frozen=True, kw_only=True)
class Needy:
    hidden_size: int
    inner: Inner


def test_what_is_missing_is_named():
    with raises(ConfigError, "model.hidden_size"):
        from_mapping(Needy, {"inner": {}}, inside="model.")
    with raises(ConfigError, "missing"):
        from_mapping(Needy, {"hidden_size": 1})


def test_a_number_that_no_float_holds():
    with raises(ConfigError, "inner.rate"):
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
    with raises(ConfigError, "inner.rate", fix="table.name"):
        override({}, ["inner.rate"])
    with raises(ConfigError, "name.x"):
        override(values, ["name.x=1"])


def test_merging_keeps_what_the_second_does_not_say():
    merged = merge({"a": 1, "t": {"x": 1, "y": 2}}, {"t": {"y": 3}, "b": 4})
    assert merged == {"a": 1, "b": 4, "t": {"x": 1, "y": 3}}


def test_broken_toml(tmp_path):
    (tmp_path / "r.toml").write_text("a = \n")
    with raises(ConfigError, "r.toml", "TOML", "1"):
        read_toml(tmp_path / "r.toml")


def test_suggestions():
    close = suggest("lenght", ["length", "width"])
    assert close == "did you mean 'length'? Otherwise choose from length, width"
    many = [f"name{number}" for number in range(20)]
    assert suggest("nam3", many) == "did you mean 'name3'?"
    assert suggest("zzz", ["length", "width"]) == "choose from length, width"
    families = ["bert", "openai-gpt", "gpt2", "gpt3"]
    assert suggest("gpt", [*families, *many]) == "did you mean 'openai-gpt' or 'gpt2' or 'gpt3'?"
    assert suggest("name", many) == "did you mean 'name9'?", "too many contain it"


Fraction = Annotated[float, Range(0, below=1)]


@dataclass(frozen=True, kw_only=True)
class Declared(Config):
    lr: Annotated[float, Range(0, 1000), Help("Peak learning rate"), Flag("--lr")] = 1e-4
    layers: Annotated[int | None, Range(1, 512)] = None
    minutes: Annotated[float, Range(above=0)] = 1.0
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    preset: Annotated[str, Choices("tiny", "mini")] = "mini"
    fast: bool = False


@dataclass(frozen=True, kw_only=True)
class Tree(Config):
    optimizer: Declared = field(default_factory=Declared)


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("lr", 1000.5, "a number from 0 to 1,000"),
        ("lr", float("nan"), "a number from 0 to 1,000"),
        ("lr", True, "a number"),
        ("lr", "1", "a number"),
        ("layers", 0, "a whole number from 1 to 512"),
        ("layers", 2.0, "a whole number"),
        ("minutes", 0.0, "above 0"),
        ("betas", (0.9, 1.0), "at least 0 and less than 1"),
        ("betas", (0.9,), "a list of 2"),
        ("betas", 0.9, "a list"),
        ("preset", "minni", "did you mean 'mini'"),
        ("preset", 3, "a string"),
        ("fast", 1, "true or false"),
    ],
)
def test_a_value_outside_its_declaration_is_refused_wherever_it_comes_from(name, value, fix):
    with raises(ConfigError, name) as made:
        Declared(**{name: value})
    assert fix in made.value.fix
    given = list(value) if isinstance(value, tuple) else value
    with raises(ConfigError, name):
        from_mapping(Tree, {"optimizer": {name: given}})


def test_what_a_declaration_allows():
    assert Declared(lr=0, layers=None, minutes=float("inf"), betas=[0.0, 0.5]).lr == 0
    assert from_mapping(Tree, {"optimizer": {"layers": 512}}).optimizer.layers == 512


def test_a_field_describes_itself():
    lr, layers = (describe_fields(Declared)[name] for name in ("lr", "layers"))
    assert (lr.hint, lr.default, lr.help) == (float, 1e-4, "Peak learning rate")
    assert lr.flag == Flag("--lr")
    assert not lr.is_optional
    assert (layers.hint, layers.is_optional, layers.flag) == (int, True, None)


def test_a_long_value_is_not_repeated_in_full():
    with pytest.raises(ConfigError) as made:
        Declared(preset=["x" * 10_000])
    assert len(made.value.problem) < 300
