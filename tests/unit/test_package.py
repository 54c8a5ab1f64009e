"""The package's front door."""

import subprocess
import sys

import cloze
from helpers import raises


def test_every_name_is_there_and_documented():
    for name in cloze.__all__:
        assert getattr(cloze, name).__doc__, name
    assert set(cloze.__all__) <= set(dir(cloze))
    with raises(AttributeError, "fil"):
        cloze.fil  # noqa: B018


def test_importing_costs_nothing():
    heavy = "'torch', 'numpy', 'tokenizers'"
    code = f"import sys, cloze; print([name for name in ({heavy}) if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
