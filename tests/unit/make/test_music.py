"""From MIDI files to a model, and from the model to a MIDI file."""

import pytest
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.errors import InputError
from cloze.text.music import EVENT_WORDS, Note, notes_to_text, text_to_notes
from helpers import raises

SMALL = ["model.hidden_size=16", "model.num_heads=2", "model.num_layers=1", "model.max_distance=8"]
SMALL += ["sampling.max_length=32", "run.batch_tokens=128", "data.workers=1", "run.device=cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("midi")
    for key in range(12):
        notes = [Note(n / 4, n / 4 + 0.2, 60 + key + n % 5, 70) for n in range(24)]
        cloze.write_midi(notes_to_text(notes), folder / f"{key}.mid")
    return folder


@pytest.fixture(scope="module")
def model(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "music"
    settings = [*SMALL, "run.steps=40", "optimizer.lr=1e-2", "data.hold_out=0.1"]
    found = cloze.pretrain(files, out, "music", settings=settings, progress=False)
    assert found.scores["perplexity"] < 60  # of 393 words
    return out


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_vocabulary_is_that_of_events(model, files):
    loaded = cloze.load(model)
    assert set(EVENT_WORDS) <= set(loaded.tokenizer.backend.get_vocab())
    text = cloze.read_midi(files / "0.mid")
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(text).ids) == text


def test_it_generates_a_file_that_can_be_read(model, tmp_path):
    out, roll = tmp_path / "a.mid", tmp_path / "a.svg"
    done = run(
        *("generate", model, "velocity18 on60", "--max-new-tokens", 60, "--seed", 1),
        *("--midi", out, "--piano-roll", roll, "--no-stop"),
    )
    assert done.exit_code == 0, done.output
    notes = text_to_notes(cloze.read_midi(out))
    assert f"{len(notes)} notes" in done.output
    assert roll.read_text("utf-8").startswith("<svg")


def test_a_midi_file_is_a_prompt(model, files):
    done = run("generate", model, "--file", files / "3.mid", "--max-new-tokens", 5, "--no-stop")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(cloze.read_midi(files / "3.mid"))
    assert len(done.output.split()) == len(cloze.read_midi(files / "3.mid").split()) + 5


def test_one_file_holds_one_composition(model, tmp_path):
    done = run("generate", model, "on60", "on61", "--midi", tmp_path / "a.mid")
    assert done.exit_code == 1
    assert "--midi" in done.output


def test_no_notes_to_draw():
    with raises(InputError, "notes"):
        cloze.plot_music("wait10")


def test_the_piano_roll_shows_every_note():
    figure = cloze.plot_music("velocity20 on60 wait50 off60 on64 wait10", prompt="on60 wait50")
    assert "2 notes" in str(figure.svg())
    assert figure.data["notes"] == [[0.0, 0.5, 60, 78], [0.5, 0.6, 64, 78]]
