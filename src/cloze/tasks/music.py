"""`plot_music`: draw events of music as a piano roll."""

from cloze.plot.piano_roll import PianoRoll
from cloze.text.music import text_to_notes


def plot_music(text: str, *, prompt: str = "", title: str = "Piano roll") -> PianoRoll:
    """Draw the notes of events, as `generate` writes them and `read_midi` reads them.

    Args:
        text: the events.
        prompt: the events at its beginning that were given; their notes have another color.
        title: the heading of the figure.
    """
    notes, given = text_to_notes(text), text_to_notes(prompt)
    seconds = max((note.end for note in notes), default=0.0)
    return PianoRoll(
        title=title,
        notes=notes,
        prompt_seconds=max((note.end for note in given), default=0.0),
        detail=f"{len(notes):,} notes in {seconds:.1f} seconds",
    )
