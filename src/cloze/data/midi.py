"""MIDI files: read as the text of their events, and written from it (extra `music`)."""

import io
from pathlib import Path
from typing import Any

from cloze.data.input_files import UnreadableFileError, open_binary
from cloze.errors import InputError, MissingExtraError
from cloze.files import PathLike, atomic_file, check_output_path
from cloze.text.music import Note, notes_to_text, text_to_notes

MAX_BYTES = 2**20  # of a MIDI file, of which mido makes up to 400 MB of objects
MAX_SECONDS = 24 * 3600
DRUMS = 9  # channel whose pitches are drums
SUSTAIN = 64  # control of the sustain pedal
PRESSED = 64  # values of the pedal from which it is pressed
TICKS_PER_SECOND = 1000  # of the files that are written
DEFAULT_TEMPO = 500_000  # microseconds per beat
DROP_FRAME = 29  # SMPTE code of 29.97 frames per second


def read_midi(path: PathLike) -> str:
    """The events of a MIDI file as text (`cloze.text.music`).

    All tracks are merged. Notes that are held by the sustain pedal last until it is released or
    the key is pressed again. Drums are left out. A compressed file (.mid.gz …) is decompressed.
    """
    text = notes_to_text(read_notes(path))
    if not text:
        raise UnreadableFileError(f"{path}: the MIDI file contains no notes", fix="leave it out")
    return text


def read_notes(path: PathLike) -> list[Note]:
    """The notes of a MIDI file."""
    mido = _import_mido("reading MIDI files")
    try:
        with open_binary(Path(path)) as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UnreadableFileError(
                f"{path}: the MIDI file is larger than {MAX_BYTES >> 20} MiB",
                fix="split it, or leave it out",
            )
        notes, seconds = _collect_notes(mido.MidiFile(file=io.BytesIO(content)))
    except InputError:  # it names the file
        raise
    except Exception as error:  # the library raises many kinds, among them IndexError
        reason = str(error) or type(error).__name__
        raise UnreadableFileError(
            f"{path}: not a valid MIDI file: {reason[:200]}", fix="write or download it again"
        ) from error
    if seconds > MAX_SECONDS:
        raise UnreadableFileError(
            f"{path}: the MIDI file lasts more than {MAX_SECONDS // 3600} hours",
            fix="split it, or leave it out",
        )
    return notes


def _collect_notes(file: Any) -> tuple[list[Note], float]:  # noqa: ANN401 (a mido.MidiFile)
    """The notes of a file, and its length in seconds."""
    keyboard = _Keyboard()
    seconds_per_tick = _get_seconds_per_tick(file.ticks_per_beat, DEFAULT_TEMPO)
    for message in file.merged_track:  # of all tracks, in order; `time` is in ticks
        keyboard.now += message.time * seconds_per_tick
        if message.type == "set_tempo":
            seconds_per_tick = _get_seconds_per_tick(file.ticks_per_beat, message.tempo)
        if getattr(message, "channel", DRUMS) == DRUMS:
            continue
        if message.type in ("note_on", "note_off"):
            velocity = message.velocity if message.type == "note_on" else 0
            keyboard.move_key((message.channel, message.note), velocity)
        elif message.type == "control_change" and message.control == SUSTAIN:
            keyboard.move_pedal(message.channel, is_pressed=message.value >= PRESSED)
    keyboard.release_all()
    return sorted(keyboard.notes), keyboard.now


def _get_seconds_per_tick(division: int, tempo: int) -> float:
    """A positive division is ticks per beat; a negative one is SMPTE frames and ticks per frame."""
    if division >= 0:
        return tempo / 1e6 / division
    frames, ticks = -(division >> 8), division & 0xFF
    return 1 / ((30 / 1.001 if frames == DROP_FRAME else frames) * ticks)


_Key = tuple[int, int]  # channel and pitch


class _Keyboard:
    """Which keys sound, and which are held by the pedal."""

    def __init__(self) -> None:
        self.now = 0.0
        self.notes: list[Note] = []  # that have ended
        self._sounding: dict[_Key, tuple[float, int]] = {}  # start and velocity
        self._held: dict[_Key, tuple[float, int]] = {}
        self._pedals: dict[int, bool] = {}  # of each channel

    def move_key(self, key: _Key, velocity: int) -> None:
        """Press a key, or release it with velocity 0."""
        if key in self._held:
            self._end(key, self._held.pop(key))
        if key in self._sounding and not velocity and self._pedals.get(key[0]):
            self._held[key] = self._sounding.pop(key)
        elif key in self._sounding:
            self._end(key, self._sounding.pop(key))
        if velocity:
            self._sounding[key] = self.now, velocity

    def move_pedal(self, channel: int, *, is_pressed: bool) -> None:
        self._pedals[channel] = is_pressed
        if not is_pressed:
            for key in [key for key in self._held if key[0] == channel]:
                self._end(key, self._held.pop(key))

    def release_all(self) -> None:
        for key, started in [*self._sounding.items(), *self._held.items()]:
            self._end(key, started)

    def _end(self, key: _Key, started: tuple[float, int]) -> None:
        self.notes.append(Note(started[0], self.now, key[1], started[1]))


def write_midi(text: str, path: PathLike) -> Path:
    """Write events (`cloze.text.music`) to a MIDI file, as a piano; any player opens it."""
    mido = _import_mido("writing MIDI files")
    target = check_output_path(path, force=True, file=True)
    notes = text_to_notes(text)
    if not notes:
        raise InputError("there are no notes to write", fix="generate more events")
    changes: list[tuple[int, int, int, int]] = []  # ticks, 1 for on, pitch, velocity
    for note in notes:
        start, end = (round(time * TICKS_PER_SECOND) for time in (note.start, note.end))
        changes += [(start, 1, note.pitch, note.velocity), (end, 0, note.pitch, 0)]
    # with 500 ticks per beat and 120 beats per minute a tick is a millisecond
    file = mido.MidiFile(type=0, ticks_per_beat=TICKS_PER_SECOND // 2)
    track = mido.MidiTrack()
    file.tracks.append(track)
    track.append(mido.MetaMessage("set_tempo", tempo=DEFAULT_TEMPO, time=0))
    track.append(mido.Message("program_change", program=0, time=0))
    now = 0
    for ticks, is_on, pitch, velocity in sorted(changes):
        kind = "note_on" if is_on else "note_off"
        track.append(mido.Message(kind, note=pitch, velocity=velocity, time=ticks - now))
        now = ticks
    with atomic_file(target) as stream:
        file.save(file=stream)
    return target


def _import_mido(feature: str) -> Any:  # noqa: ANN401 (a module without types)
    try:
        import mido
    except ImportError as error:
        raise MissingExtraError(feature, extra="music") from error
    return mido
