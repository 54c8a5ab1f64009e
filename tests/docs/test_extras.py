"""README's table of extras is that of pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def read_table() -> dict[str, str]:
    """The packages that each extra adds, by its name."""
    table = re.search(r"^\| extra \| adds \| for \|\n.*?\n\n", README, re.M | re.S)
    assert table
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table[0], re.M))


def test_every_extra_is_documented():
    named = re.search(r"The extras ((?:`\w+`(?:, | and )?)+)", README)
    assert named
    for_developers = set(re.findall(r"`(\w+)`", named[1]))
    assert {*read_table(), *for_developers} == set(EXTRAS) - {"peers"}  # a part of dev and bench


def test_the_table_names_what_an_extra_installs():
    table = read_table()
    assert table.pop("all") == "all of these"
    for extra, packages in table.items():
        required = [re.match(r"[\w-]+", one)[0] for one in EXTRAS[extra]]
        assert packages.split(", ") == required, extra
    (everything,) = EXTRAS["all"]
    assert set(re.findall(r"[a-z]+", everything.partition("[")[2])) == set(table)
