"""What every run's folder has."""

from cloze.make import run
from cloze.make.run import clear


def test_nothing_of_a_run_before_is_left(tmp_path):
    names = [
        *("recipe.toml", "metrics.jsonl", "report.html", "corpus.json", "data.json"),
        *("fills.json", "neighbours.json", "samples.json", "trials.json"),
    ]
    for name in (*names, "mine.txt", "state/000001-step-1/facts.json", "vocabulary/vocab.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    clear(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "vocabulary"}
    clear(tmp_path, run.VOCABULARY)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    clear(tmp_path / "nowhere")
