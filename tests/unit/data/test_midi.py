"""MIDI files: written and read again, pedals, drums, and files that are broken."""

import gzip
import io
from contextlib import suppress

import mido
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import cloze
from cloze.data import midi
from cloze.data.input_files import UnreadableFileError
from cloze.data.midi import read_midi, read_notes, write_midi
from cloze.errors import ClozeError, InputError, MissingExtraError
from cloze.text.music import Note, notes_to_text
from generated_examples import examples
from helpers import raises

NOTES = [Note(0.0, 0.5, 60, 66), Note(0.25, 1.0, 64, 90), Note(1.0, 1.5, 60, 66)]


def messages(*given, **options):
    file = mido.MidiFile(ticks_per_beat=500, **options)  # 120 beats per minute: a tick is 1 ms
    track = mido.MidiTrack()
    file.tracks.append(track)
    for kind, time, values in given:
        track.append(mido.Message(kind, time=time, **values))
    return file


def saved(file, tmp_path):
    file.save(tmp_path / "a.mid")
    return tmp_path / "a.mid"


def test_a_written_file_is_read_again(tmp_path):
    text = notes_to_text(NOTES)
    path = cloze.write_midi(text, tmp_path / "new" / "a.mid")
    assert cloze.read_midi(path) == text
    assert mido.MidiFile(path).length == pytest.approx(1.5)


def test_a_compressed_file(tmp_path):
    write_midi(notes_to_text(NOTES), tmp_path / "a.mid")
    (tmp_path / "a.mid.gz").write_bytes(gzip.compress((tmp_path / "a.mid").read_bytes()))
    assert read_midi(tmp_path / "a.mid.gz") == notes_to_text(NOTES)


def test_the_pedal_holds_notes_and_drums_are_left_out(tmp_path):
    file = messages(
        ("control_change", 0, {"control": 64, "value": 127}),
        ("note_on", 0, {"note": 60, "velocity": 80}),
        ("note_on", 0, {"note": 38, "velocity": 80, "channel": 9}),
        ("note_off", 100, {"note": 60}),  # held by the pedal
        ("note_on", 400, {"note": 60, "velocity": 70}),  # ends the held one
        ("note_on", 100, {"note": 60, "velocity": 0}),  # another way to release
        ("control_change", 400, {"control": 64, "value": 0}),
        ("note_on", 0, {"note": 62, "velocity": 60}),
    )
    found = read_notes(saved(file, tmp_path))
    expected = [(0.0, 0.5, 60, 80), (0.5, 1.0, 60, 70), (1.0, 1.0, 62, 60)]
    assert [tuple(map(float, vars(note).values())) for note in found] == [
        pytest.approx(one) for one in expected
    ]


def test_tempo_and_several_tracks(tmp_path):
    file = messages(("note_on", 500, {"note": 60, "velocity": 64}), ("note_off", 500, {"note": 60}))
    file.tracks.insert(0, mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=1_000_000, time=0)]))
    assert read_notes(saved(file, tmp_path)) == [Note(1.0, 2.0, 60, 64)]


@pytest.mark.parametrize(
    ("frames", "ticks", "seconds"), [(25, 40, 1.0), (24, 125, 1 / 3), (29, 100, 1.001 / 3)]
)
def test_smpte_time_division(tmp_path, frames, ticks, seconds):
    """Ticks are fractions of a frame, whatever the tempo."""
    file = messages(("note_on", 0, {"note": 60}), ("note_off", 1000, {"note": 60}))
    file.tracks[0].insert(0, mido.MetaMessage("set_tempo", tempo=1_000_000, time=0))
    file.ticks_per_beat = -frames * 256 + ticks
    assert read_notes(saved(file, tmp_path)) == [Note(0.0, pytest.approx(seconds), 60, 64)]


def test_a_file_that_is_too_long(tmp_path):
    file = messages(("note_on", 0, {"note": 60}), ("note_off", 86_400_001, {"note": 60}))
    with raises(UnreadableFileError, "a.mid", "24 hours"):
        read_midi(saved(file, tmp_path))


def test_a_truncated_compressed_file(tmp_path):
    (tmp_path / "a.mid.gz").write_bytes(gzip.compress(valid_bytes())[:30])
    with raises(UnreadableFileError, "a.mid.gz", "truncated"):
        read_midi(tmp_path / "a.mid.gz")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "MIDI"),
        (b"RIFF....", "MIDI"),
        (b"MThd\0\0\0\6\0\1\0\1\1\xf4MTrk\xff\xff\xff\xff\0", "MIDI"),  # a track of 4 GB
        (b"MThd\0\0\0\6\0\1\0\0\1\xf4", "no notes"),
        (b"MThd\0\0\0\6\0\1\0\1\0\0MTrk\0\0\0\x04\0\xff/\0", ""),  # no ticks in a beat
        (b"MThd" + bytes(2**20), "MiB"),
    ],
)
def test_broken_files_are_errors(content, word, tmp_path):
    (tmp_path / "a.mid").write_bytes(content)
    with raises(InputError, "a.mid", word):
        read_midi(tmp_path / "a.mid")


def valid_bytes():
    stream = io.BytesIO()
    messages(("note_on", 5, {"note": 60}), ("note_off", 200, {"note": 60})).save(file=stream)
    return stream.getvalue()


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_never_raises_anything_else(tmp_path, data):
    content = bytearray(valid_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "a.mid"
    path.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    with suppress(ClozeError):
        assert read_midi(path)


def test_without_the_library(monkeypatch, tmp_path):
    write_midi("on60 wait10 off60", tmp_path / "a.mid")
    monkeypatch.setitem(__import__("sys").modules, "mido", None)
    with raises(MissingExtraError, "MIDI", fix="music"):
        midi.read_midi(tmp_path / "a.mid")


def test_nothing_to_write(tmp_path):
    with raises(InputError, "notes"):
        write_midi("wait10", tmp_path / "a.mid")
    assert not (tmp_path / "a.mid").exists()


def test_a_folder_cannot_be_written(tmp_path):
    with raises(InputError, str(tmp_path), "is a folder", fix="another name"):
        write_midi("on60 wait10 off60", tmp_path)
