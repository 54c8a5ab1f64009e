"""The text of generated tokens: stop strings, and chunks for streaming."""

from collections.abc import Sequence

from cloze.errors import ConfigError
from cloze.models.language import LanguageModel

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # stands for the bytes of an incomplete character


def continuation_of(
    model: LanguageModel, text: str, context: Sequence[int], ids: Sequence[int]
) -> str:
    """The text that the new ids add to the prompt, with a space where a new word begins."""
    before, whole = model.decode(list(context)), model.decode([*context, *ids])
    if not text.strip() or not whole.startswith(before):
        written = model.decode(ids)
        return written if not text or text[-1].isspace() else f" {written}"
    written = whole.removeprefix(before)
    return written.lstrip() if text[-1].isspace() else written


def check_stop_strings(stop_strings: Sequence[str]) -> tuple[str, ...]:
    """The strings as a tuple; an empty one, or something else, is an error."""
    if isinstance(stop_strings, str):
        raise ConfigError(
            f"stop_strings is {stop_strings!r}", fix=f"give a list: [{stop_strings!r}]"
        )
    for one in stop_strings:
        if not isinstance(one, str):
            raise ConfigError(f"a stop string is {one!r}", fix="use a list of str")
        if not one:
            raise ConfigError("a stop string is empty", fix="leave it out")
    return tuple(stop_strings)


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
        self._model, self._text, self._context = model, text, context
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
        return continuation_of(self._model, self._text, self._context, ids)

    def _find_stop_string(self, written: str) -> tuple[int, int] | None:
        """Start and end of the stop string that begins first; of several, the shortest."""
        found = [(written.find(one), len(one)) for one in self._stop_strings if one in written]
        return min(((start, start + size) for start, size in found), default=None)
