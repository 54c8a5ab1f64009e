"""The demo, with a built-in model and without one, on a little text."""

import pytest

import cloze
from cloze.checkpoint import source
from cloze.cli.demo import demo as command
from cloze.make import demo as module
from cloze.make.demo import QUERIES
from helpers import tiny_model

DOCUMENT = "\n\n".join(
    f"The {thing} of the file is read before the {other} and returned to the one who asked for it."
    for thing in ("name", "size", "owner", "date", "text")
    for other in ("end", "list", "error", "value")
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "BUILTIN", tmp_path / "builtin")
    monkeypatch.setattr(module, "read_documents", lambda: iter([DOCUMENT] * 20))
    return tmp_path


def test_with_a_built_in_model(place, capsys):
    tiny_model("mlm").save(place / "builtin" / "cloze-en")
    command(out=place / "out", minutes=0.005, quiet=True)
    said = capsys.readouterr().out
    for fact in (
        "sentence\twords\nIn winter the lake is covered with [MASK].\t",
        f"{QUERIES[0]}\tcosine\n",
        f"of 12 new sentences; try: cloze classify {place / 'out' / 'topics'} ",
        "trained\t",
        "sentence\toriginal word\tbefore training\tafter training",
    ):
        assert fact in said
    assert cloze.load(place / "out" / "topics").labels == ("journey", "kitchen")
    assert cloze.load(place / "out").task_heads == ("mlm", "nsp")
    # again, over what lies there
    assert module.demo(place / "out", minutes=0.005, force=True).preview is not None


def test_without_one(place, capsys):
    command(out=place / "out", minutes=0.005, quiet=True)
    said = capsys.readouterr().out
    assert said.startswith("trained\t")
    assert "new sentences right" not in said
    assert not (place / "out" / "topics").exists()


def test_ctrl_c_before_training_is_explained(place, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "read_documents", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"before training .*--force"):
        command(out=place / "out", quiet=True)


def test_sentences_to_look_among(monkeypatch):
    monkeypatch.setattr(module, "NUM_CANDIDATES", 5)
    fit = [f"{number} is a number that is neither short nor long" for number in range(20)]
    among = [*fit, *fit, "short", "long " * 30, module.DOCUMENTATION_QUERIES[0]]
    found = module.sample_sentences(among, seed=0)
    assert len(found) == len({*found}) == 5
    assert {*found} < {*fit}
    assert (
        found
        == module.sample_sentences(reversed(among), seed=0)
        != module.sample_sentences(among, seed=1)
    )
