"""Which tests `make check` runs: those of what changed, or else a selection that takes a minute.

    pytest $(python tests/changed.py)

What changed is what git sees between here and main, uncommitted and new files included. A file
`src/cloze/PACKAGE/NAME.py` is tested by `tests/unit/PACKAGE/test_NAME*.py`, or by all of
`tests/unit/PACKAGE` where that is quick. `make test` runs everything.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ["tests/common", "tests/unit/test_config.py", "tests/unit/test_package.py"]
QUICK = [
    "text",
    "nn",
    "models",
    "objectives",
    "decode",
    "interop",
    "plot",
    "draw",
    "metrics",
    "evaluate",
]
MOST = 15  # test files beyond which the quick selection says as much


def git(*command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def changed() -> list[str]:
    bases = (git("merge-base", "HEAD", name) for name in ("origin/main", "main", "HEAD"))
    base = next((found[0] for found in bases if found), "HEAD")
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def tests_of(name: str) -> list[str]:
    """The tests of one file, if there are any of its own."""
    path = Path(name)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [name] if (ROOT / path).is_file() else []
    if path.parts[0] in ("bench", "docs"):
        return ["tests/unit/test_bench.py"]
    if path.parts[:2] != ("src", "cloze") or path.suffix != ".py":
        return []
    folder = ROOT / "tests" / "unit" / Path(*path.parts[2:3] if len(path.parts) > 3 else ())
    own = sorted(folder.glob(f"test_{path.stem}*.py"))
    if not own and folder.name in QUICK:
        own = [folder] if folder.is_dir() else []
    return [str(one.relative_to(ROOT)) for one in own]


def selection(names: list[str]) -> list[str]:
    found = sorted({test for name in names for test in tests_of(name)})
    if not found or len(found) > MOST:
        folders = [f"tests/unit/{name}" for name in QUICK]
        found = [folder for folder in folders if (ROOT / folder).is_dir()]
    always = [path for path in ALWAYS if (ROOT / path).exists()]
    return [*always, *(one for one in found if not one.startswith(tuple(always)))]


if __name__ == "__main__":
    sys.stdout.write(" ".join(selection(changed())) + "\n")
