"""Run README.md and the tutorials as they are written, in a new environment with the built wheel.

python tools/wheel_documents.py [DOCUMENT ...]     (make wheel-docs)

The environment has the wheel and, when a document is run, the extras and packages that its `pip
install` lines name; nothing of this checkout but the documents and the script that runs them.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch>=2.11,<2.14"
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorials/*.md"))]


def read_requirements(text: str, wheel: Path) -> list[str]:
    """What the `pip install` lines of a document name, with the wheel instead of the checkout."""
    extras: set[str] = set()
    packages: list[str] = []
    for line in re.findall(r"pip install ('?\.[^`\n#]*)", text):
        first, *others = re.sub(r"['\"]", "", line).split()
        extras |= set(re.findall(r"\w+", first))
        packages += others
    return [f"{wheel}[{','.join(sorted(extras))}]" if extras else str(wheel), *packages]


def main(documents: list[Path]) -> int:
    """Run the documents, those with the fewest requirements first."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (wheel,) = Path(folder).glob("*.whl")
        venv.create(Path(folder, "env"), with_pip=True)
        python = Path(folder, "env", "bin", "python")
        wanted = {one: read_requirements(one.read_text("utf-8"), wheel) for one in documents}
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        variables |= {"HF_HUB_OFFLINE": "1"}
        failed = []
        for document in sorted(wanted, key=lambda one: len("".join(wanted[one]))):
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", TORCH, *wanted[document]],
                check=True, env=variables,
            )  # fmt: skip
            print(*wanted[document], flush=True)
            script = ROOT / "tests" / "document_examples.py"
            # numpy comes with cloze; README's data files need nothing else
            done = subprocess.run([python, script, document], env=variables, cwd=folder)
            failed += [document.name] if done.returncode else []
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(documents)} documents run")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main([Path(one).resolve() for one in sys.argv[1:]] or DOCUMENTS))
