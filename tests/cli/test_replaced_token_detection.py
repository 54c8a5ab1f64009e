"""`cloze pretrain` finds replaced tokens and fills masks: to the end, resumed, and used."""

import json
import shutil

import cloze
from cloze.metrics.names import METRICS
from helpers import check_mentions, check_scores

ASKED = [
    *("--pairs=none", "--preset=tiny", "--vocabulary-size=120", "--max-length=32", "--steps=6"),
    *("--batch-tokens=256", "--save-every=3", "--workers=1", "--threads=1", "--device=cpu"),
]
SETTINGS = [
    "objective.kind=both",
    "objective.generator_hidden_size=8",
    "run.fast=true",
    "run.eval_every=1000",
    "run.log_every=1",
    "model.family=modernbert",
    "model.num_layers=2",
    "model.hidden_size=16",
    "model.max_positions=32",
    "model.num_heads=4",
    "data.hold_out=0.2",
]


def test_the_pair_of_tasks_is_learned_resumed_and_filled_with(run, tmp_path):
    text, out = tmp_path / "a.txt", tmp_path / "m"
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(120)]
    text.write_text("\n\n".join(stories))
    ran = run("pretrain", text, "--out", out, *ASKED, *(f"--set={one}" for one in SETTINGS))
    assert ran.returncode == 0, ran.stderr
    check_scores(ran.stdout, "mlm_accuracy", "detection_accuracy", "all_original_baseline")
    check_mentions(ran.stderr, METRICS["detection_accuracy"].label)
    said = json.loads((out / "config.json").read_text())
    assert said["architectures"] == ["ModernBertForMaskedLM"]
    assert not cloze.load(out).report
    straight = (out / "model.safetensors").read_bytes()

    *_, last = sorted((out / "state").iterdir())
    assert last.name.endswith("-step-6")
    shutil.rmtree(last)
    (out / "model.safetensors").unlink()
    ran = run("pretrain", "--resume", "--out", out)
    assert ran.returncode == 0, ran.stderr
    assert (out / "model.safetensors").read_bytes() == straight
    assert len(cloze.fill(cloze.load(out), "the [MASK] sat.", top=3).masks[0].predictions) == 3
