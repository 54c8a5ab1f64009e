"""Notes as words and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import ConfigError, InputError
from cloze.text.music import EVENT_WORDS, Note, notes_to_text, text_to_notes
from helpers import raises

STEPS = st.integers(0, 3000).map(lambda steps: steps / 100)
NOTES = st.builds(
    lambda start, length, pitch, velocity: Note(start, start + length, pitch, velocity),
    STEPS,
    st.integers(1, 400).map(lambda steps: steps / 100),
    st.integers(0, 127),
    st.integers(1, 127),
)


def test_the_example_of_oore():
    """A chord that is built up note by note, and released (Oore et al. 2018, fig. 1)."""
    notes = [Note(0.0, 2.0, 60, 80), Note(0.5, 2.0, 64, 80), Note(1.0, 2.0, 67, 80)]
    assert notes_to_text([*notes, Note(2.5, 3.0, 65, 100)]).split() == [
        *("velocity21", "on60", "wait50", "on64", "wait50", "on67", "wait100"),
        *("off60", "off64", "off67", "wait50", "velocity26", "on65", "wait50", "off65"),
    ]


def test_there_are_388_events():
    assert len(set(EVENT_WORDS)) == 388


@given(st.lists(NOTES, max_size=30))
def test_text_becomes_the_same_notes(notes):
    text = notes_to_text(notes)
    assert set(text.split()) <= set(EVENT_WORDS)
    again = text_to_notes(text)
    assert notes_to_text(again) == text
    assert len(again) == len({(round(note.start * 100), note.pitch) for note in notes})


@given(st.lists(st.sampled_from(EVENT_WORDS), max_size=200))
def test_any_events_are_notes(words):
    """What a model generates need not be consistent."""
    notes = text_to_notes(" ".join(words))
    assert all(note.end > note.start for note in notes)
    assert len(notes) == sum(word.startswith("on") for word in words)


def test_a_pitch_that_is_pressed_again_is_released_first():
    assert notes_to_text([Note(0, 2, 60), Note(1, 3, 60)]).split() == [
        *("velocity17", "on60", "wait100", "off60", "on60", "wait100", "wait100", "off60"),
    ]


def test_long_pauses_are_shortened():
    text = notes_to_text([Note(0, 1, 60), Note(5000, 5001, 60)])
    assert text.split().count("wait100") == 12


@pytest.mark.parametrize("word", ["on128", "off-1", "wait0", "wait101", "velocity33", "cat", "on"])
def test_other_words_are_an_error(word):
    with raises(InputError, word, fix="wait100"):
        text_to_notes(f"on60 {word}")


def test_a_pitch_that_does_not_exist():
    with raises(ConfigError, "pitch"):
        notes_to_text([Note(0, 1, 128)])
