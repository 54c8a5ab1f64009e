"""Music as text: notes as a sequence of events, one word each.

The events of Oore et al. 2018, which the Music Transformer (Huang et al. 2018) uses:

| word | event |
|---|---|
| `on60`, `off60` | the key of a pitch (0–127; 60 is middle C) is pressed, released |
| `wait25` | time passes: 1–100 steps of 10 ms |
| `velocity20` | how hard the next keys are pressed: 1–32 |
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cloze.config import in_range
from cloze.errors import InputError

PITCHES = 128
STEPS_PER_SECOND = 100
MAX_WAIT = 100  # steps of one event
VELOCITIES = 32
MIDI_VELOCITIES = 128
MAX_PAUSE = 10.0  # seconds; a longer pause is shortened
EVENT_WORDS = (
    *(f"on{pitch}" for pitch in range(PITCHES)),
    *(f"off{pitch}" for pitch in range(PITCHES)),
    *(f"wait{steps}" for steps in range(1, MAX_WAIT + 1)),
    *(f"velocity{bin_}" for bin_ in range(1, VELOCITIES + 1)),
)
_EVENTS = frozenset(EVENT_WORDS)
_EVENT = re.compile(r"(on|off|wait|velocity)(\d{1,3})")
_LIMITS = {
    "on": (0, PITCHES - 1),
    "off": (0, PITCHES - 1),
    "wait": (1, MAX_WAIT),
    "velocity": (1, VELOCITIES),
}


@dataclass(frozen=True, order=True)
class Note:
    """A note; times in seconds, velocity as in MIDI files (1–127)."""

    start: float
    end: float
    pitch: int
    velocity: int = 64


def notes_to_text(notes: Iterable[Note]) -> str:
    """The events of notes, as words separated by spaces.

    Times are rounded to steps of 10 ms, velocities to 32 levels; pauses longer than ten seconds are
    shortened. A pitch that is pressed again while it sounds is released first.
    """
    words: list[str] = []
    now, level = 0, 0
    for step, is_on, pitch, velocity in _order_events(notes):
        pause = min(step - now, round(MAX_PAUSE * STEPS_PER_SECOND))
        now = step
        while pause > 0:
            words.append(f"wait{min(pause, MAX_WAIT)}")
            pause -= MAX_WAIT
        if is_on and velocity != level:
            level = velocity
            words.append(f"velocity{level}")
        words.append(f"{'on' if is_on else 'off'}{pitch}")
    return " ".join(words)


def _order_events(notes: Iterable[Note]) -> list[tuple[int, int, int, int]]:
    """Step, 1 for on and 0 for off, pitch, velocity level of every event, in order."""
    by_pitch: dict[int, list[list[int]]] = defaultdict(list)
    for note in sorted(notes):
        in_range("pitch", note.pitch, 0, PITCHES - 1)
        start = round(note.start * STEPS_PER_SECOND)
        end = max(round(note.end * STEPS_PER_SECOND), start + 1)
        level = 1 + in_range("velocity", note.velocity, 1, 127) * VELOCITIES // MIDI_VELOCITIES
        played = by_pitch[note.pitch]
        if played and played[-1][0] == start:  # the same note twice
            played[-1][1] = max(played[-1][1], end)
            continue
        if played:
            played[-1][1] = min(played[-1][1], start)
        played.append([start, end, min(level, VELOCITIES)])
    events = []
    for pitch, played in by_pitch.items():
        for start, end, level in played:
            events += [(start, 1, pitch, level), (end, 0, pitch, 0)]
    return sorted(events)  # at one time releases come before presses


def text_to_notes(text: str) -> list[Note]:
    """The notes of a sequence of events; words that are no events are an error.

    A model may generate events that do not match: a release without a press is ignored, and a note
    that is never released ends with the last event.
    """
    now, velocity = 0, 64
    sounding: dict[int, tuple[int, int]] = {}  # pitch: start, velocity
    notes: list[Note] = []

    def release(pitch: int) -> None:
        start, level = sounding.pop(pitch)
        end = max(now, start + 1)
        notes.append(Note(start / STEPS_PER_SECOND, end / STEPS_PER_SECOND, pitch, level))

    for word in text.split():
        kind, value = _parse_event(word)
        if kind == "wait":
            now += value
        elif kind == "velocity":
            velocity = min(127, (2 * value - 1) * MIDI_VELOCITIES // (2 * VELOCITIES))
        else:
            if value in sounding:
                release(value)
            if kind == "on":
                sounding[value] = now, velocity
    for pitch in sorted(sounding):
        release(pitch)
    return sorted(notes)


def _parse_event(word: str) -> tuple[str, int]:
    found = _EVENT.fullmatch(word)
    value = int(found[2]) if found else -1
    low, high = _LIMITS[found[1]] if found else (0, -1)
    if not low <= value <= high:
        raise _unknown_event_error(word)
    assert found is not None
    return found[1], value


def check_events(text: str, special_tokens: Collection[str] = ()) -> None:
    """Raise if a word is neither an event, in upper or lower case, nor a special token."""
    words = text.split()
    if _EVENTS.issuperset(words):
        return
    for word in words:
        if word.lower() not in _EVENTS and word not in special_tokens:
            raise _unknown_event_error(word)


def _unknown_event_error(word: str) -> InputError:
    return InputError(
        f"{word[:40]!r} is not an event of music",
        fix="use the events on0–on127, off0–off127, wait1–wait100, velocity1–velocity32, such as "
        "in the text that cloze.read_midi returns for a MIDI file",
    )
