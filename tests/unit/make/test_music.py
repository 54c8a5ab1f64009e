"""From MIDI files to a model, and from the model to a MIDI file."""

import pytest
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.errors import ConfigError, InputError
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


TEXT = "on60 wait20 Hello off60"
NO_EVENT = {"fix": "cloze.read_midi"}


@pytest.mark.parametrize(
    "call",
    [
        lambda model: cloze.generate(model, TEXT, max_new_tokens=1),
        lambda model: cloze.suggest(model, TEXT),
        lambda model: cloze.score(model, [TEXT]),
        lambda model: cloze.embed(model, ["on60", TEXT]),
        lambda model: cloze.embed(model, f"{'on60 ' * 9000} {TEXT}", truncation="window"),
        lambda model: cloze.tokenize(model, TEXT),
    ],
)
def test_a_word_that_is_no_event(model, call):
    with raises(InputError, "'Hello' is not an event of music", **NO_EVENT):
        call(model)


def test_events_in_capital_letters_and_special_tokens(model):
    (found,) = cloze.tokenize(model, ["ON60 [MASK] off60"])
    assert found.tokens[1:-1] == ["on60", "[MASK]", "off60"]


def test_functions_that_encode_a_word_of_their_own(model):
    opened = cloze.load(model, dtype="auto")  # measured with events
    assert cloze.embed(opened, "on60 wait20 off60 " * 3000, truncation="window").shape == (16,)
    assert cloze.explain.saliency(model, "velocity20 on60", target="wait20").data


def test_text_is_no_music(tmp_path):
    (tmp_path / "a.txt").write_text("on60 wait10 off60\nIt is not music.\n")
    out = tmp_path / "out"
    with raises(InputError, "a.txt:2: 'It' is not an event of music", **NO_EVENT):
        cloze.pretrain(tmp_path / "a.txt", out, "music", settings=SMALL, steps=1, progress=False)


def test_text_is_no_music_of_a_translator(model, tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("one two\nthree four\n" * 4)
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    with raises(InputError, "'one' is not an event of music"):
        cloze.finetune("translate", model, files, tmp_path / "out", steps=1, progress=False)


@pytest.mark.parametrize(
    "options", [{"vocabulary_size": 100}, {"settings": ["vocabulary.lowercase=false"]}]
)
def test_options_of_a_learned_vocabulary(files, tmp_path, options):
    with raises(ConfigError, "vocabulary.", "no effect", fix="leave it out"):
        cloze.pretrain(files, tmp_path / "out", "music", steps=1, progress=False, **options)


def test_info_shows_that_positions_are_relative(model):
    config = cloze.info(model).config
    assert (config["position_encoding"], config["max_distance"]) == ("relative", 8)


def test_a_recipe_of_another_family(files, tmp_path):
    with raises(ConfigError, "model.max_distance", "gpt2", "music-transformer", fix="such as gpt"):
        cloze.pretrain(files, tmp_path / "out", "music", family="gpt2", progress=False)
