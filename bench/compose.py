"""Compose MIDI files by rules, to train a Music Transformer on (docs/music.md).

    python bench/compose.py midi --count 500

Each has a key, a tempo and the form AABA: the second A repeats the first exactly, the last one has
another ending. Chords follow a random walk through the key, the accompaniment is one of
three patterns, and the melody varies a motif of one bar. Repetition at a distance is what relative
attention is for.
"""

import argparse
import random
from pathlib import Path

from cloze.data.midi import write_midi
from cloze.text.music import Note, notes_to_text

MAJOR, MINOR = (0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 10)
NEXT_CHORDS = {0: (3, 4, 5), 1: (4,), 3: (0, 4, 1), 4: (0, 5), 5: (3, 1)}  # degrees
RHYTHMS = ((1, 1, 1, 1), (0.5, 0.5, 1, 1, 1), (1.5, 0.5, 1, 1), (2, 1, 1), (0.5,) * 8)  # beats
PATTERNS = ("block", "broken", "bass")
BEATS = 4  # in a bar


class Composer:
    """One composition."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.scale = rng.choice((MAJOR, MINOR))
        self.tonic = rng.randrange(55, 67)
        self.beat = 60 / rng.randrange(80, 141)  # seconds
        self.pattern = rng.choice(PATTERNS)
        self.rhythm = rng.choice(RHYTHMS)
        self.contour = [rng.choice((-2, -1, 0, 1, 1, 2)) for _ in self.rhythm]

    def pitch(self, degree: int) -> int:
        octave, step = divmod(degree, len(self.scale))
        return self.tonic + 12 * octave + self.scale[step]

    def compose(self) -> list[Note]:
        first, second = self.section(), self.section()
        ending = self.bar(0, level=0, is_last=True)
        parts = [*first, *first, *second, *first[:-1], ending]
        notes = []
        for number, bar in enumerate(parts):
            offset = number * BEATS * self.beat
            loudness = self.rng.randrange(-4, 5)
            for start, length, pitch, velocity in bar:
                begin = offset + start * self.beat
                end = begin + 0.95 * length * self.beat
                notes.append(Note(begin, end, pitch, velocity + loudness))
        return notes

    def section(self) -> list[list[tuple[float, float, int, int]]]:
        chords = [0]
        while len(chords) < BEATS - 1:
            chords.append(self.rng.choice(NEXT_CHORDS[chords[-1]]))
        level = 0
        bars = []
        for chord in [*chords, self.rng.choice((0, 4))]:
            bars.append(self.bar(chord, level))
            level = max(-2, min(4, level + self.rng.choice((-1, 0, 1))))
        return bars

    def bar(
        self, chord: int, level: int, *, is_last: bool = False
    ) -> list[tuple[float, float, int, int]]:
        """Start and length in beats, pitch and velocity of each note."""
        tones = [self.pitch(chord + third) - 12 for third in (0, 2, 4)]
        if is_last:
            return [(0.0, 4.0, tone, 60) for tone in (*tones, self.pitch(7))]
        notes = []
        if self.pattern == "block":
            notes += [(beat, 2.0, tone, 52) for beat in (0.0, 2.0) for tone in tones]
        elif self.pattern == "broken":
            order = (0, 2, 1, 2) * 2
            notes += [(n / 2, 0.5, tones[tone], 50) for n, tone in enumerate(order)]
        else:
            notes += [(0.0, 1.0, tones[0] - 12, 56), (2.0, 1.0, tones[2] - 12, 52)]
            notes += [(beat, 0.5, tone, 48) for beat in (1.0, 3.0) for tone in tones]
        at, degree = 0.0, chord + 7 + level
        for length, step in zip(self.rhythm, self.contour, strict=True):
            notes.append((at, length, self.pitch(degree), 76 if at == int(at) else 68))
            at += length
            degree = max(4, min(16, degree + step))
        return notes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the files")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    events = 0
    for number in range(args.count):
        text = notes_to_text(Composer(random.Random(f"{args.seed}/{number}")).compose())
        write_midi(text, args.out / f"{number:05d}.mid")
        events += len(text.split())
    print(f"{args.count:,} compositions, {events:,} events in {args.out}")


if __name__ == "__main__":
    main()
