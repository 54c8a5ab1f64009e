"""`cloze pretrain --family modernbert`, as a user runs it."""

import json


def test_the_family_is_a_setting(run, tmp_path):
    text = tmp_path / "a.txt"
    stories = [f"the cat number {n} sat.\nit saw a dog.\nthe dog ran." for n in range(120)]
    text.write_text("\n\n".join(stories))
    settings = [
        "model.family=modernbert",
        "model.num_layers=2",
        "model.hidden_size=16",
        "model.max_positions=32",
        "run.eval_every=1000",
    ]
    asked = [f"--set={setting}" for setting in settings]
    asked += ["--preset=tiny", "--vocabulary-size=120", "--steps=3", "--workers=1", "--threads=1"]
    ran = run("pretrain", text, "--out", tmp_path / "m", "--pairs=none", *asked)
    assert ran.returncode == 0, ran.stderr
    said = json.loads((tmp_path / "m" / "config.json").read_text())
    assert said["architectures"] == ["ModernBertForMaskedLM"]
