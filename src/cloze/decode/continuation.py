"""The text of generated tokens: stop strings, and chunks for streaming."""

from collections.abc import Sequence
from functools import cached_property

from cloze.models.language import LanguageModel

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # stands for the bytes of an incomplete character


class ContinuationText:
    """The text of a continuation of one prompt, up to the first stop string."""

    def __init__(
        self,
        model: LanguageModel,
        text: str,
        context: Sequence[int],
        stop_strings: Sequence[str] = (),
        *,
        include_stop_string: bool = False,
    ) -> None:
        self._model, self._text, self._context = model, text, list(context)
        self._stop_strings = stop_strings
        self._include_stop_string = include_stop_string

    def has_stop_string(self, ids: Sequence[int]) -> bool:
        """Whether a stop string is in the text; it may begin and end inside tokens."""
        return self._find_stop_string(self._decode(ids)) is not None

    def decode(self, ids: Sequence[int]) -> str:
        """The text, without the stop string and what follows it, or with the stop string."""
        written = self._decode(ids)
        found = self._find_stop_string(written)
        return written if found is None else written[: found[self._include_stop_string]]

    def decode_stable(self, ids: Sequence[int]) -> str:
        """The part of the text of an unfinished continuation that later tokens do not change.

        The bytes of an incomplete character are left out, and what may begin a stop string.
        """
        written = self._decode(ids)
        if self._find_stop_string(written) is not None:
            return self.decode(ids)
        stable = written.rstrip(_REPLACEMENT)
        starts = (
            start
            for stop_string in self._stop_strings
            for start in range(max(0, len(stable) - len(stop_string) + 1), len(stable))
            if stop_string.startswith(stable[start:])
        )
        return stable[: min(starts, default=len(stable))]

    def _decode(self, ids: Sequence[int]) -> str:
        """The text that the ids add to the prompt, with a space where a new word begins."""
        text, whole = self._text, self._model.decode([*self._context, *ids])
        if not text.strip() or not whole.startswith(self._prompt):
            written = self._model.decode(ids)
            return written if not text or text[-1].isspace() else f" {written}"
        written = whole.removeprefix(self._prompt)
        return written.lstrip() if text[-1].isspace() else written

    @cached_property
    def _prompt(self) -> str:
        return self._model.decode(self._context)

    def _find_stop_string(self, written: str) -> tuple[int, int] | None:
        """Start and end of the stop string that begins first; of several, the shortest."""
        found = [(written.find(one), len(one)) for one in self._stop_strings if one in written]
        return min(((start, start + size) for start, size in found), default=None)


class TextChunks:
    """Splits a continuation that grows into chunks, which joined are its text."""

    def __init__(self, continuation: ContinuationText) -> None:
        self._continuation, self._sent = continuation, ""

    def read(self, ids: Sequence[int], *, is_last: bool = False) -> str:
        """What is known of the text and was not returned before; with `is_last` all of it."""
        decode = self._continuation.decode if is_last else self._continuation.decode_stable
        known = decode(ids)
        if len(known) <= len(self._sent) or not known.startswith(self._sent):
            return ""
        chunk, self._sent = known[len(self._sent) :], known
        return chunk
