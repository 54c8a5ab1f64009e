"""`cloze pretrain` of a causal encoder, and a classifier that is fine-tuned from it."""

import json

from cloze.metrics.names import METRICS
from helpers import check_mentions, check_scores

ASKED = [
    *("--pairs=none", "--preset=tiny", "--vocabulary-size=120", "--max-length=32", "--steps=6"),
    *("--batch-tokens=256", "--workers=1", "--threads=1", "--device=cpu"),
]
SETTINGS = [
    "objective.kind=causal",
    "run.fast=true",
    "run.log_every=1",
    "model.hidden_size=16",
    "model.max_positions=32",
    "data.hold_out=0.2",
]


def test_it_is_learned_refused_by_fill_and_fine_tuned(run, tmp_path):
    text, out, labelled = tmp_path / "a.txt", tmp_path / "m", tmp_path / "t.tsv"
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(120)]
    text.write_text("\n\n".join(stories))
    ran = run("pretrain", text, "--out", out, *ASKED, *(f"--set={one}" for one in SETTINGS))
    assert ran.returncode == 0, ran.stderr
    check_scores(ran.stdout, "loss", "perplexity", "lm_accuracy", "unigram_baseline")
    check_mentions(ran.stderr, METRICS["lm_accuracy"].label)
    assert json.loads((out / "config.json").read_text())["is_decoder"] is True

    ran = run("fill", out, "the [MASK] sat.")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "causal")

    ran = run("suggest", out, "the dog", "--top", "5", "--json")
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)["suggestions"]) == 5
    ran = run("generate", out, "the dog", "--max-new-tokens", "40", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["continuations"][0]["tokens"]

    rows = [f"it saw a {'cat' if n % 2 else 'dog'}.\t{'c' if n % 2 else 'd'}" for n in range(64)]
    labelled.write_text("\n".join(["text\tlabel", *rows]))
    ran = run(
        *("finetune", "classify", out, "--train", labelled, "--dev", labelled),
        *("--out", tmp_path / "c", "--epochs=12", "--lr=0.02", "--batch-size=16", "--json"),
        *("--quiet", "--threads=1", "--device=cpu"),
    )
    assert ran.returncode == 0, ran.stderr
    # the words differ after [CLS]: who read that one alone could not tell them apart
    assert json.loads(ran.stdout)["score"] == 1.0
    ran = run("classify", tmp_path / "c", "it saw a cat.", "--json")
    assert json.loads(ran.stdout)["labels"][0]["label"] == "c"
