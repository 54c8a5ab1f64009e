"""Measure everything of docs/results that needs a GPU for some minutes, in one command.

    python bench/spec_results.py --fill carry               # data and models, 54 MiB
    python bench/spec_results.py --carry carry --out OUT    # 18 minutes on one H200
    python bench/spec_results.py --carry carry --out OUT --rehearse --only limits

Sections: words (whole-word masking of Chinese), dream, squad, distill (and logistic regression on
the student's vectors), translate (fr → en, en → fr, en → zh), features (scalar mix, CNN), phases
(two lengths in one run), limits (bench/limits.py). Each command is a process, `--jobs` of them at a
time. OUT/results.json has all figures as soon as they are known, also those of single runs;
the logs of failed commands are in the work folder.
"""

import argparse
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table
from spec_data import fill, unpack
from spec_runs import Bench, each, finetune, format_scores

from common import print_result, versions

BENCH = Path(__file__).resolve().parent
WORD_RUNS = {"characters": ["--no-whole-word"], "whole words": ["--whole-word"]}
CHINESE_TASKS = {
    # task, train, dev, options
    "ChnSentiCorp accuracy": (
        "classify",
        "chinese/ChnSentiCorp/train.tsv.xz",
        "chinese/ChnSentiCorp/dev.tsv.xz",
        ["--lr", "2e-4", "--max-length", "256", "--epochs", "3"],
    ),
    "TNEWS accuracy": (
        "classify",
        "chinese/tnews/train.tsv.xz",
        "chinese/tnews/dev.tsv.xz",
        ["--lr", "2e-4", "--max-length", "64", "--epochs", "3"],
    ),
    "Resume NER F1": (
        "tag",
        "chinese/ner/resume/train.char.bmes.xz",
        "chinese/ner/resume/dev.char.bmes.xz",
        ["--lr", "5e-4", "--max-length", "256", "--epochs", "10"],
    ),
}
EXAMPLES = {  # what the study notes translate
    "fr-en/transformer": ["Je suis étudiant.", "Un chien court dans la neige."],
    "en-fr/transformer": ["A dog runs in the snow.", "I am a student."],
    "en-zh/transformer": ["Tom chase Jerry", "Tom chases Jerry.", "Hello, how are you?"],
    "en-zh/bahdanau": ["Tom chase Jerry", "Hello, how are you?"],
}  # fmt: skip


def measure_words(bench: Bench) -> None:
    """Two pre-trainings of Chinese on the same budget, with and without whole words."""
    text = str(bench.data / "text/wiki-zh-00.txt.xz")
    size = ["--family", "modernbert", "--preset", "tiny" if bench.args.rehearse else "cloze"]
    seeds = range(1 if bench.args.rehearse else 2)
    size_of_batch = "2048" if bench.args.rehearse else "65536"

    def train(kind: str, seed: int) -> tuple[str, Path, dict[str, float]]:
        out = bench.args.work / "runs" / f"zh-{kind.replace(' ', '-')}-{seed}"
        bench.cloze(
            f"pretrain {kind} {seed}", "pretrain", text, "--out", str(out), "--recipe", "fast",
            "--vocabulary", str(bench.args.work / "chinese"), *size, "--segmenter", "jieba",
            *WORD_RUNS[kind], "--max-length", "256", "--batch-tokens", size_of_batch,
            "--mlm-probability", "0.15", "--set", "objective.kind=mlm", "--seed", str(seed),
            "--set", "run.eval_every=400", "--workers", "4",
            *(["--set", "run.fast=true"] if bench.args.rehearse else ["--dtype", "bf16"]),
            *bench.budget("--tokens", "40000000"),
        )  # fmt: skip
        command = [sys.executable, __file__, "--carry", str(bench.args.carry), "--out", str(out)]
        command += ["--held-out", str(out), *(["--rehearse"] if bench.args.rehearse else [])]
        return kind, out, json.loads(bench.run(f"held out {kind} {seed}", command).splitlines()[-1])

    trained = each([lambda k=k, s=s: train(k, s) for k in WORD_RUNS for s in seeds])
    for kind in WORD_RUNS:
        for masks in ("characters", "words"):
            found = [scores[masks] for name, _, scores in trained if name == kind]
            bench.report(
                "words", f"{kind}: MLM accuracy, masked {masks}", format_scores(found), all=found
            )
    each([lambda task=task: measure_chinese_task(bench, task, trained) for task in CHINESE_TASKS])


def measure_chinese_task(bench: Bench, task: str, trained: list[tuple[str, Path, Any]]) -> None:
    name, train, dev, options = CHINESE_TASKS[task]
    jobs = [(k, out, s) for k, out, _ in trained for s in range(1 if bench.args.rehearse else 2)]

    def one(kind: str, out: Path, seed: int) -> tuple[str, float]:
        run = f"{task} {out.name}"
        found, _ = finetune(bench, run, name, str(out), (train, dev), options, seed=seed)
        return kind, found["score"]

    scores = each([lambda job=job: one(*job) for job in jobs])
    for kind in WORD_RUNS:
        found = [score for k, score in scores if k == kind]
        bench.report("words", f"{kind}: {task}", format_scores(found), all=found)


def evaluate_masks(run: Path, device: str) -> dict[str, float]:
    """MLM accuracy on the held-out documents of a run, for masked characters and masked words."""
    from dataclasses import replace

    import cloze
    from cloze.data.config import Batching
    from cloze.data.corpus import Corpus
    from cloze.data.samples import Sampling
    from cloze.metrics.pretraining import (
        EVALUATION_SEED,
        compute_pretraining_scores,
        make_evaluation_epoch,
        make_evaluation_masking,
    )
    from cloze.objectives.masking import Masking, mask_batch

    model, corpus = cloze.load(run, device=device), Corpus.open(run / "corpus")
    epoch = make_evaluation_epoch(
        corpus.held_out,
        model.tokenizer,
        Sampling(pairs="none", max_length=256),
        Batching(tokens=16_384),
    )
    masking = make_evaluation_masking(Masking.from_tokenizer(model.tokenizer))
    found = {}
    for name, is_whole in (("characters", False), ("words", True)):
        settings = replace(masking, whole_word=is_whole)
        batches = [
            mask_batch(epoch[n], settings, seed=EVALUATION_SEED) for n in range(min(len(epoch), 12))
        ]
        found[name] = compute_pretraining_scores(model.module, batches)["mlm.accuracy"]
    return found


def measure_dream(bench: Bench) -> None:
    files = ("dream/train.json.xz", "dream/dev.json.xz")
    options = ["--lr", "1e-4", "--epochs", "4", "--max-length", "384", "--layer-decay", "0.9"]
    options += ["--truncation", "head", "--batch-size", "16"]

    def one(name: str, seed: int) -> tuple[str, float, float]:
        found, out = finetune(
            bench,
            f"dream {name}",
            "choose",
            bench.model(name),
            files,
            options,
            seed=seed,
            keep=True,
        )
        test = bench.cloze(
            f"dream test {name} {seed}",
            "evaluate",
            str(out),
            str(bench.data / "dream/test.json.xz"),
        )
        return name, found["score"], test["scores"]["accuracy"]

    seeds = range(1 if bench.args.rehearse else 3)
    done = each([lambda n=n, s=s: one(n, s) for n in bench.args.models for s in seeds])
    for name in bench.args.models:
        for part, column in (("dev", 1), ("test", 2)):
            found = [row[column] for row in done if row[0] == name]
            bench.report("dream", f"{name}, {part} accuracy", format_scores(found), all=found)


def measure_squad(bench: Bench) -> None:
    """The SQuAD splits: as bench/tasks.py (five epochs, 1e-4) and with the recipe's settings."""
    long = ["--max-length", "384", "--overlap", "128"]
    tasks = ["--lr", "1e-4", "--epochs", "5", "--layer-decay", "0.9", *long]
    recipe = ["--epochs", "3", *long]
    settings = {"tasks.py": tasks, "recipe finetune": recipe}
    jobs = [
        (model, version, kind)
        for model in bench.args.models
        for version in ("v1.1", "v2.0")
        for kind in (settings if model != "cloze-en" else ["tasks.py"])
    ]
    seeds = range(1 if bench.args.rehearse else 3)

    def one(model: str, version: str, kind: str, seed: int) -> tuple[Any, dict[str, float]]:
        files = (f"squad/train-{version}.json.xz", f"squad/dev-{version}.json.xz")
        found, _ = finetune(
            bench, f"squad {version} {model} {kind}", "answer", bench.model(model), files,
            settings[kind], seed=seed,
        )  # fmt: skip
        return (model, version, kind), found["scores"]

    done = each([lambda j=j, s=s: one(*j, s) for j in jobs for s in seeds])
    for job in jobs:
        for metric in ("f1", "exact_match"):
            found = [scores[metric] for name, scores in done if name == job]
            model, version, kind = job
            text = f"{version}, {model}, {kind}: {metric}"
            bench.report("squad", text, format_scores(found), all=found)


def measure_distillation(bench: Bench) -> None:
    """A student of cloze-en with all three losses, then logistic regression on its vectors."""
    out = bench.args.work / "runs" / "student"
    small = bench.args.rehearse
    found = bench.cloze(
        "distill", "distill", "cloze-en", str(bench.data / "text/wiki-short-01.txt.xz"),
        "--out", str(out), "--batch-tokens", "512" if small else "32768", "--workers", "4",
        *([] if small else ["--dtype", "bf16"]), *bench.budget("--minutes", "3"),
    )  # fmt: skip
    bench.report(
        "distill", "student of cloze-en, held out", found["scores"], tokens=found["tokens"]
    )
    for line in (out / "metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "eval" and row["step"] == 0:
            bench.report(
                "distill", "before the first step", {k: v for k, v in row.items() if k != "kind"}
            )
    file = bench.args.work / "lr.json"
    command = [sys.executable, str(BENCH / "distilbert_lr.py"), "cloze-en", str(out)]
    command += ["--data", str(bench.data / "sst2/train.tsv.xz"), "--json", str(file)]
    command += ["--device", "cpu" if small else "cuda", *(["--sentences", "100"] if small else [])]
    bench.run("logistic regression", command)
    for row in json.loads(file.read_text("utf-8")):
        name = "student" if "student" in row["model"] else row["model"]
        score = f"{100 * row['accuracy']:.1f} ± {100 * row['error']:.1f}"
        bench.report("distill", f"logistic regression, {name} {row['pooling']}", score, **row)


def measure_translation(bench: Bench) -> None:
    place, small = bench.args.work / "translate", bench.args.rehearse
    command = [sys.executable, str(BENCH / "multi30k.py"), "--data", str(bench.data)]
    command += ["--out", str(place), "--jobs", "2" if small else "4", "--only", *EXAMPLES]
    command += ["--eval-epochs", "4"]
    command += (
        ["--examples", "100", "--steps", "2", "--tiny", "--cpu", "--vocabulary", "400"]
        if small
        else ["--minutes", "3"]
    )
    bench.run("translate", command)
    output = bench.args.out / "translations.txt"
    with output.open("w", encoding="utf-8") as file:
        for row in json.loads((place / "results.json").read_text("utf-8")):
            if "failed" in row:
                bench.report("translate", row["run"], f"failed: {row['failed']}")
                continue
            name, options = row["run"], row["search"]
            keys = ("val", "steps", "best_step", "train_seconds", "parameters")
            more = {key: row[key] for key in keys}
            bench.report("translate", f"{name}: BLEU", f"{row['test']:.2f}", **more)
            for text in EXAMPLES[name]:
                text_found = translate_example(bench, place / "runs" / name, name, text, options)
                print(f"{name}\t{text}\t{text_found}", file=file)
                bench.report("translate", f"{name}: {text}", text_found)


def translate_example(
    bench: Bench, model: Path, name: str, text: str, options: dict[str, Any]
) -> str:
    """A translation and, of the first example of each model, its alignment as pictures."""
    import cloze
    from cloze.plot.alignment import AlignmentLines, alignment_heatmap

    found = cloze.translate(str(model), text, beam=4, align=True, **options).candidates[0]
    if text == EXAMPLES[name][0] and found.alignment is not None:
        words = {"source": found.alignment.source, "target": found.alignment.target}
        weights = found.alignment.weights.tolist()
        file = bench.args.out / f"alignment-{name.replace('/', '-')}"
        picture = alignment_heatmap(**words, weights=weights, title=f"{text} → {found.text}")
        picture.save(file.with_suffix(".svg"))
        lines = AlignmentLines(title=f"{text} → {found.text}", **words, weights=weights)
        if name == "en-zh/bahdanau":
            lines.save(file.with_name(f"{file.name}-lines.svg"))
        bench.report("translate", f"{name}: alignment of {text}", words | {"weights": weights})
    return found.text


def measure_features(bench: Bench) -> None:
    """The seventh choice of layers for NER, and a CNN on static vectors for sentiment."""
    ner = ("conll2003/eng.train.xz", "conll2003/eng.testa.xz")
    sst2 = ("sst2/train.tsv.xz", "sst2/dev.tsv.xz")
    base = ["--recipe", "features", "--epochs", "5"]
    jobs = [
        (f"NER F1, {name}, {layers}", "tag", name, ner, [*base, "--layers", layers])
        for name in bench.args.models
        for layers in ("scalar-mix", "sum-last-4", "last")
    ]
    jobs += [
        (
            f"sst2 accuracy, cloze-en embeddings, cnn of {depth} layers",
            "classify",
            "cloze-en",
            sst2,
            [*base, "--layers", "embeddings", "--classifier", "cnn",
             "--set", f"transfer.num_layers={depth}", "--set", "transfer.hidden_size=256"],
        )
        for depth in (1, 2, 4)
    ]  # fmt: skip
    jobs += [
        (
            f"sst2 accuracy, cloze-en, linear, mean of {layers}",
            "classify",
            "cloze-en",
            sst2,
            ["--recipe", "features", "--layers", layers, "--pooling", "mean"],
        )
        for layers in ("embeddings", "last", "scalar-mix")
    ]

    def one(what: str, task: str, model: str, files: tuple[str, str], options: list[str]) -> None:
        found, out = finetune(
            bench, f"features {what}", task, bench.model(model), files, options, seed=0, keep=True
        )
        more = {}
        if "scalar-mix" in what:
            import cloze

            features = cloze.info(str(out)).features or {}
            more = {key: features[key] for key in ("layer_weights", "scale")}
        bench.report("features", what, format_scores([found["score"]]), **more)

    each([lambda job=job: one(*job) for job in jobs])


def measure_phases(bench: Bench) -> None:
    """BERT's recipe with its two lengths, in one run."""
    out, small = bench.args.work / "runs" / "phases", bench.args.rehearse
    shrunk = ["--batch-tokens", "1024", "--set", "run.fast=true", "--dtype", "float32"] * small
    found = bench.cloze(
        "phases", "pretrain", str(bench.data / "text/wiki-short-01.txt.xz"), "--out", str(out),
        "--recipe", "bert-original", "--preset", "tiny" if small else "small", *shrunk,
        "--vocabulary-size", "8000", "--set", "run.eval_every=200", "--workers", "4",
        *bench.budget("--minutes", "2"),
    )  # fmt: skip
    bench.report(
        "phases", "held out", found["scores"], tokens=found["tokens"], steps=found["steps"]
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    for row in rows:
        if row["kind"] == "eval":
            bench.report("phases", f"step {row['step']}", {k: row[k] for k in row if "_" in k})


def measure_limits(bench: Bench) -> None:
    file = bench.args.work / "limits.json"
    small = ["--device", "cpu", "--steps", "2", "--strings", "10", "--examples", "200"]
    command = [sys.executable, str(BENCH / "limits.py"), "--json", str(file)]
    print(bench.run("limits", [*command, *(small if bench.args.rehearse else [])]))
    for part, rows in json.loads(file.read_text("utf-8")).items():
        bench.report("limits", part, rows)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "squad": measure_squad,
    "words": measure_words,
    "dream": measure_dream,
    "distill": measure_distillation,
    "translate": measure_translation,
    "phases": measure_phases,
    "features": measure_features,
    "limits": measure_limits,
}


def measure(name: str, bench: Bench) -> None:
    try:
        SECTIONS[name](bench)
    except Exception as error:  # the other sections go on
        bench.report(name, "failed", str(error)[-600:])
        traceback.print_exc()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--fill", type=Path, help="folder to fill with data and models")
    parser.add_argument("--carry", type=Path, help="folder that was filled")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--work", type=Path, help="folder of models (default: OUT/../spec-work)")
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--jobs", type=int, default=12, help="processes at a time")
    parser.add_argument("--rehearse", action="store_true", help="two steps on a CPU")
    parser.add_argument("--held-out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill:
        fill(args.fill)
        return
    if args.held_out:
        device = "cpu" if args.rehearse else "cuda"
        print(json.dumps(evaluate_masks(args.held_out, device)))
        return
    args.carry, args.out = args.carry.resolve(), args.out.resolve()
    args.work = (args.work or args.out.parent / "spec-work").resolve()
    args.models = ["cloze-en", "all-MiniLM-L6-v2"][: 1 if args.rehearse else None]
    unpack(args)
    paths = [str(BENCH.parent / "src"), str(args.work), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TMPDIR": str(args.work)}
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    bench = Bench(args=args, slots=threading.Semaphore(2 if args.rehearse else args.jobs))
    each([lambda name=name: measure(name, bench) for name in args.only])
    table = Table("section", "what", "value", title="spec results")
    rows = [row for row in bench.rows if row["section"] in SECTIONS]
    for row in sorted(rows, key=lambda one: list(SECTIONS).index(one["section"])):
        table.add_row(row["section"], row["what"], str(row["value"])[:90])
    end = f"{time.perf_counter() - began:.0f} s, {versions('torch', 'tokenizers', 'scikit-learn')}"
    print_result(table, end)


if __name__ == "__main__":
    main()
