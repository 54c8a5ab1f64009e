"""The tables of docs/scaling.md are those that bench/scaling_plan.py computes."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scaling.md"


def load_plan():
    spec = importlib.util.spec_from_file_location("plan", ROOT / "bench" / "scaling_plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plan = load_plan()


@pytest.mark.parametrize("name", list(plan.make_tables()))
def test_the_page_has_the_table(name):
    """`python bench/scaling_plan.py --update docs/scaling.md` writes them."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE.read_text("utf-8"), re.S)
    assert found
    assert found[1].strip() == plan.make_tables()[name]


def test_numbers_follow_from_measurements():
    tokens = 1e12 / plan.get("text bytes per token")
    assert tokens == pytest.approx(222e9, rel=0.01)
    alone = tokens / 855e3 / 3600
    assert f"| 1 H200 | {plan.format_number(alone)} |" in plan.plan_text(4, 0.04, 0.08)
    assert "1,536 GB" in plan.plan_vectors(4, 0.04, 0.08)
