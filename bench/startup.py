"""Start-up time of every command: wall and CPU time of a process, minus that of `import torch`.

    python bench/startup.py [--repeat 5] [COMMAND …]

The goal: commands that need no torch do not import it, and the others take at most 0.3 s more than
`python -c "import torch"`. The inputs are single short texts and tiny models, so that a process
does little else than start. Best of several runs, interleaved; on a busy machine compare the CPU
times.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import versions

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
MAX_EXTRA = 0.3  # seconds more than `import torch`

MODELS = {
    "bert": "bert_mlm_nsp",
    "films": "bert_sequence",
    "ner": "bert_token",
    "squad": "bert_span",
    "swag": "bert_choice",
    "ngram": "ngram",
    "lstm": "lstm",
    "words": "word2vec",
    "de-en": "transformer_post",
}
TEXT = "the queen paints the happy garden ."
WITHOUT_TORCH = {
    "--help": ["--help"],
    "fill --help": ["fill", "--help"],
    "finetune --help": ["finetune", "--help"],
    "wrong option": ["fill", "cloze-en", "--nonsense"],
    "missing folder": ["fill", "runs/nothing", "a [MASK]"],
    "wrong setting": [
        "finetune",
        "classify",
        "{bert}",
        "--train",
        "{labels}",
        "--out",
        "x",
        "--lr=-1",
    ],
    "info": ["info", "cloze-en"],
    "tokenize": ["tokenize", "cloze-en", TEXT],
    "suggest (n-grams)": ["suggest", "{ngram}", "the queen"],
    "score (n-grams)": ["score", "{ngram}", TEXT],
    "evaluate (n-grams)": ["evaluate", "{ngram}", "{text}"],
    "similar": ["similar", "{words}", "king"],
    "evaluate (word vectors)": ["evaluate", "{words}", "{pairs}"],
    "compare (word vectors)": ["compare", "{words}", "{words2}", "{pairs}"],
    "export (word vectors)": ["export", "word2vec", "{words}", "{out}/words.txt", "--force"],
    "export (n-grams)": ["export", "arpa", "{ngram}", "{out}/ngram.arpa", "--force"],
    "report": ["report", "{out}/run"],
    "vocabulary": ["vocabulary", "{text}", "--out", "{out}/vocabulary", "--size", "100", "--force"],
}
WITH_TORCH = {
    "fill": ["fill", "{bert}", "the [MASK] sat"],
    "fill (cloze-en)": ["fill", "cloze-en", "The capital of France is [MASK]."],
    "embed": ["embed", "{bert}", TEXT],
    "classify": ["classify", "{films}", TEXT],
    "tag": ["tag", "{ner}", TEXT],
    "answer": ["answer", "{squad}", "where is garden ?", TEXT],
    "choose": ["choose", "{swag}", TEXT, "a", "b"],
    "generate": ["generate", "{lstm}", "the queen"],
    "score": ["score", "{bert}", TEXT],
    "translate": ["translate", "{de-en}", TEXT],
    "evaluate": ["evaluate", "{films}", "{labels}"],
    "export": ["export", "huggingface", "{bert}", "{out}/bert", "--force"],
}  # fmt: skip


def measure(*command: str) -> tuple[float, float]:
    """Wall time and CPU time (user and system) of a process, in seconds."""
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, env=ENVIRONMENT)
    wall, after = time.perf_counter() - since, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("commands", nargs="*", help="names in the table (default: all)")
    given = parser.parse_args()
    print(versions("torch", "typer", "tokenizers", "numpy"))
    with tempfile.TemporaryDirectory() as folder:
        places = {name: str(GOLDEN / golden / "model") for name, golden in MODELS.items()}
        places |= {
            "words2": str(GOLDEN / "word2vec_ngrams" / "model"),
            "labels": str(GOLDEN / "data" / "labels.tsv"),
            "text": str(GOLDEN / "data" / "text.txt"),
            "pairs": str(GOLDEN / "data" / "pairs.csv"),
            "out": folder,
        }
        run = Path(folder, "run")
        run.mkdir()
        (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0, "kind": "train"}\n' * 100)
        commands = {"python -c 'import torch'": [sys.executable, "-c", "import torch"]}
        for name, arguments in (WITHOUT_TORCH | WITH_TORCH).items():
            if not given.commands or name in given.commands:
                filled = [one.format_map(places) if "{" in one else one for one in arguments]
                commands[name] = [sys.executable, "-m", "cloze", *filled]
        best = {name: (float("inf"), float("inf")) for name in commands}
        for _ in range(given.repeat):
            for name, command in commands.items():
                times = measure(*command)
                best[name] = (min(best[name][0], times[0]), min(best[name][1], times[1]))
    wall, cpu = next(iter(best.values()))
    print(f"\nbest of {given.repeat}, seconds; goal: at most {MAX_EXTRA} s above `import torch`\n")
    print(f"| {'command':26} | wall | CPU | wall − torch | CPU − torch |\n|---|---|---|---|---|")
    for name, (seconds, used) in best.items():
        mark = " **slow**" if min(seconds - wall, used - cpu) > MAX_EXTRA else ""
        extra = f"{seconds - wall:+.2f} | {used - cpu:+.2f}{mark}"
        print(f"| {name:26} | {seconds:.2f} | {used:.2f} | {extra} |")


if __name__ == "__main__":
    main()
