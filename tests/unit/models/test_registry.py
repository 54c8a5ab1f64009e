"""The registry of families: read without torch, extended by plugins."""

import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from cloze.errors import ConfigError
from cloze.models import registry
from cloze.models.capabilities import Contents, encoder_capabilities
from cloze.models.configs.base import ACTIVATIONS, ModelConfig
from cloze.models.registry import (
    FAMILIES,
    Family,
    find_family,
    get_family,
    list_families,
    register,
    resolve,
)
from helpers import raises


@pytest.fixture
def clean(monkeypatch):
    """The registry as it is, and after the test again."""
    monkeypatch.setattr(registry, "FAMILIES", dict(FAMILIES))
    registry._load_plugins.cache_clear()
    yield
    registry._load_plugins.cache_clear()


def add_plugins(monkeypatch, *entries):
    found = [EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in entries]
    monkeypatch.setattr(registry, "entry_points", lambda **_: found)


def test_the_registry_imports_no_torch():
    program = (
        "import sys; from cloze.models.registry import list_families;"
        "found = [one.config_class for one in list_families().values()];"
        "[one.capabilities for one in list_families().values()];"
        "from cloze.models.registry import resolve;"
        "[resolve(one.layout) for one in list_families().values()];"
        "print(len(found), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(len(FAMILIES)), "False"], done.stderr


@pytest.mark.parametrize("name", FAMILIES)
def test_every_record_names_existing_objects(name):
    family = get_family(name)
    assert family.name == name
    assert issubclass(family.config_class, ModelConfig)
    assert family.config_class.family == name
    for named in (family.module, family.layout, family.open, family.write, family.language_model):
        assert named is None or resolve(named) is not None
    for named in family.files.values():
        assert callable(resolve(named))
    assert (family.open is None) == (family.write is None)
    without_heads = ("lm",) if family.kind == "language_model" else ()  # it is all they predict
    heads = getattr(family.module_class, "TASK_HEADS", without_heads)
    can_continue = "suggest" in family.capabilities(Contents(task_heads=heads, is_causal=True))
    assert can_continue == (family.language_model is not None)
    assert family.description[0].islower()


def test_activation_names_are_those_of_nn():
    from cloze.nn.layers import ACTIVATIONS as FUNCTIONS

    assert set(ACTIVATIONS) == set(FUNCTIONS)


def test_unknown_names():
    with raises(ConfigError, "brt", fix="bert"):
        get_family("brt")
    assert find_family("brt") is None
    for odd in (None, 5, ["bert"], {}):
        assert find_family(odd) is None


def test_a_duplicate_name_is_an_error(clean):
    with raises(ConfigError, "bert"):
        register(FAMILIES["bert"])
    register(replace(FAMILIES["bert"], name="my-bert"))
    assert get_family("my-bert").module_class is get_family("bert").module_class


def test_the_capabilities_of_encoders():
    def able(*heads, is_causal=False):
        contents = Contents(task_heads=heads, is_causal=is_causal)
        found = set(encoder_capabilities(contents))
        assert found >= every
        return found - every

    every = {"embed", "similarity", "rerank", "index", "evaluate", "compare", "export", "tokenize"}
    assert able() == set()
    assert able("mlm", "nsp") == {"fill", "score", "classify"}
    assert able("sequence") == {"classify"}
    assert able("mlm", is_causal=True) == {"suggest", "generate", "score"}
    assert able("span", is_causal=True) == {"answer"}
    assert "NSP" not in encoder_capabilities(Contents(task_heads=("mlm",)))["evaluate"]
    assert "NSP" in encoder_capabilities(Contents(task_heads=("mlm", "nsp")))["evaluate"]


PLUGIN = Family(
    name="plugged",
    description="a plugged model",
    kind="encoder",
    config="cloze.models.configs.bert:BertConfig",
    module="cloze.models.bert:Bert",
    layout="cloze.interop.encoders:BERT",
    capabilities=encoder_capabilities,
)
NOT_A_FAMILY = 7


def test_another_package_adds_a_family(clean, monkeypatch):
    add_plugins(monkeypatch, ("plugged", f"{__name__}:PLUGIN"))
    assert find_family("plugged") is PLUGIN
    assert list(list_families())[-1] == "plugged"


@pytest.mark.parametrize("value", ["no.such.module:X", f"{__name__}:NOT_A_FAMILY"])
def test_a_broken_plugin_is_reported_and_others_work(value, clean, monkeypatch):
    add_plugins(monkeypatch, ("broken", value), ("plugged", f"{__name__}:PLUGIN"))
    with pytest.warns(UserWarning, match="broken"):
        assert get_family("plugged") is PLUGIN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_family("bert").name == "bert"  # once is enough
