"""Texts with masks as sequences of tokens, and words in place of the masks."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment, count_removed_chars
from cloze.text.backends import BYTES
from cloze.text.long_texts import LONG, is_long

MAX_CHARS_PER_TOKEN = 64  # masks that are further apart do not fit into one sequence
_NO_TEXT = frozenset((None, *BYTES))  # ids without a token, and tokens that are single bytes


@dataclass(frozen=True, kw_only=True)
class MaskedText:
    """The token ids of a text, and the positions of its masks."""

    ids: list[int]
    positions: list[int]  # of the masks in `ids`
    spans: list[tuple[int, int]]  # of the masks in the text
    truncated_chars: int

    def item(self, position: int, inserted: Sequence[int], target: int) -> EncodedExample:
        """The sequence with a mask replaced by other tokens, to predict the token at `target`."""
        ids = [*self.ids[:position], *inserted, *self.ids[position + 1 :]]
        return make_item(ids, [target])


def make_item(ids: list[int], positions: list[int]) -> EncodedExample:
    return EncodedExample(ids=ids, type_ids=[0] * len(ids), positions=positions)


def encode_masked(model: Model, text: str, longest: int, *, crop: bool) -> MaskedText:
    """Encode a text with masks, so that candidates of `longest` tokens fit."""
    start, part = _take_part(model, text, longest)
    encoding = model.tokenizer.encode(part)
    positions = [n for n, id_ in enumerate(encoding.ids) if id_ == model.tokenizer.mask_id]
    mask = model.tokenizer.mask_token
    if mask is None or not positions:
        raise InputError(
            f"there is no {mask or '[MASK]'} in {_shorten(text)!r}",
            fix=f"write {mask or '[MASK]'} in place of the word to predict",
        )
    ids, inside = encoding.ids, encoding.token_range()
    limit = model.max_length - (longest - 1)
    if len(ids) > limit and not crop:
        raise InputError(
            f"the text has {'more than ' * (len(part) < len(text))}{len(ids):,} tokens with "
            f"special tokens, but at most {limit:,} fit",
            fix="shorten it, or use truncation window, to read the text around the masks",
        )
    kept = _find_window(encoding, positions, limit) if len(ids) > limit else inside
    return MaskedText(
        ids=[*ids[: inside.start], *ids[kept.start : kept.stop], *ids[inside.stop :]],
        positions=[position - (kept.start - inside.start) for position in positions],
        spans=[
            # some tokenizers count the space before a mask as part of it
            (start + end - len(part[first:end].lstrip()), start + end)
            for first, end in (encoding.offsets[position] for position in positions)
        ],
        truncated_chars=len(text)
        - len(part)
        + count_removed_chars(
            encoding.offsets[inside.start : inside.stop],
            [range(kept.start - inside.start, kept.stop - inside.start)],
        ),
    )


def _take_part(model: Model, text: str, longest: int) -> tuple[int, str]:
    """The part of a long text that is needed, and where it starts."""
    mask = model.tokenizer.mask_token
    if mask is None or not is_long(text) or mask not in text:
        return 0, text[:LONG] if mask is None or mask not in text else text
    first, stop = text.find(mask), text.rfind(mask) + len(mask)
    most = model.max_length + longest
    if stop - first > MAX_CHARS_PER_TOKEN * most:
        raise InputError(
            f"the masks are {stop - first:,} characters apart, but the model's maximum length is "
            f"{model.max_length:,} tokens",
            fix="split the text into parts with one mask each",
        )
    start, end = model.tokenizer.find_context(text, first, stop, most)
    return start, text[start:end]


def _find_window(encoding: TokenAlignment, positions: list[int], limit: int) -> range:
    """The tokens of the text that fit, with the masks in the middle."""
    inside = encoding.token_range()
    room = limit - (len(encoding) - len(inside))
    first, stop = positions[0], positions[-1] + 1
    if stop - first > room:
        raise InputError(
            f"the masks are {stop - first:,} tokens apart, but the model's maximum length leaves "
            f"room for {max(room, 0):,} tokens",
            fix="split the text into parts with one mask each",
        )
    start = max(inside.start, min((first + stop - room) // 2, inside.stop - room))
    return range(start, start + room)


def top_tokens(model: Model, scores: Tensor, count: int) -> list[tuple[int, float]]:
    """The best tokens that are text (no special tokens, no single bytes), with their scores (v)."""
    found: list[tuple[int, float]] = []
    taken = 0
    while len(found) < count and taken < len(scores):  # some of those taken are no text
        taken = min(max(2 * count + len(model.tokenizer.special_ids), 4 * taken), len(scores))
        best = scores.topk(taken)
        found = [
            (id_, score)
            for id_, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            if decode_token(model, id_) is not None
        ]
    return found[:count]


def decode_token(model: Model, id_: int) -> str | None:
    """The text of a token; None for special tokens and incomplete characters."""
    tokenizer = model.tokenizer
    if id_ in tokenizer.special_ids or tokenizer.backend.id_to_token(id_) in _NO_TEXT:
        return None
    word = tokenizer.decode([id_], skip_special_tokens=False).strip()
    return None if "\ufffd" in word else word


def insert_word(text: str, start: int, end: int, word: str) -> str:
    """Replace [start, end) of a text by a word; a ## token is joined to the word before it."""
    if word.startswith("##"):
        return text[:start].rstrip() + word[2:] + text[end:]
    return text[:start] + word + text[end:]


def insert_into_long(text: str, start: int, end: int, word: str) -> str:
    """Like `insert_word`, but of a long text only the part around the mask."""
    first, last = crop_long(text, start, end)
    return insert_word(text[first:last], start - first, end - first, word)


def crop_long(text: str, start: int, end: int) -> tuple[int, int]:
    """The part around a span that is shown of a long text; of others, the whole text."""
    if not is_long(text):
        return 0, len(text)
    return max(0, start - LONG // 2), min(len(text), end + LONG // 2)


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
