"""Encodings of the tokenizers library as alignments: complete, or truncated."""

import tokenizers

from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment, count_removed_chars, make_alignment
from cloze.text.long_texts import ShortText, find_kept_tokens, restore_alignment
from cloze.text.truncation import STRATEGIES, truncate, truncate_longest_first


def count_text_tokens(whole: tokenizers.Encoding) -> tuple[int, int]:
    """The numbers of tokens of both texts of a pair, without special tokens."""
    sequences = whole.sequence_ids
    return sequences.count(0), sequences.count(1)


def restore_whole(whole: tokenizers.Encoding, both: tuple[ShortText, ShortText]) -> TokenAlignment:
    """The alignment of an encoding that is complete but for the letters of long words."""
    found = make_alignment(whole)
    gaps = [one.gaps for one in both]
    return restore_alignment(found, gaps, found.kept_ranges, found.num_truncated)


def truncate_encoding(
    whole: tokenizers.Encoding,
    both: tuple[ShortText, ShortText],
    max_length: int,
    truncation: str | None,
    name: str,
) -> TokenAlignment:
    """The whole encoding if it is short enough, else what truncation leaves of it."""
    counts = count_text_tokens(whole)
    special = len(whole) - sum(counts)
    totals = counts[0] + both[0].removed_tokens, counts[1] + both[1].removed_tokens
    size = special + sum(totals)
    if size <= max_length:
        return restore_whole(whole, both)
    if truncation is None or truncation == "error":
        about = "about " if any(one.is_estimated for one in both) else ""
        count = f"{about}{size:,} tokens"
        raise InputError(
            f"{name} has {count} with special tokens, but at most {max_length:,} fit",
            fix=f"shorten it, or choose a truncation: {', '.join(STRATEGIES)}",
        )
    if special >= max_length:
        raise InputError(
            f"max_length {max_length:,} leaves no room for text and {special:,} special tokens",
            fix="increase max_length",
        )
    lengths = truncate_longest_first(*totals, max_length - special)
    first, second = (truncate(truncation, *both) for both in zip(totals, lengths, strict=True))
    if not any(one.gaps for one in both):
        return make_alignment(whole, (first, second))
    everything, restored = make_alignment(whole), restore_whole(whole, both)
    inside = [everything.token_range(sequence) for sequence in (0, 1)]
    offsets = [everything.offsets[span.start : span.stop] for span in inside]
    gaps = [one.gaps for one in both]
    kept = (
        find_kept_tokens(first, offsets[0], gaps[0]),
        find_kept_tokens(second, offsets[1], gaps[1]),
    )
    removed = totals[0] - lengths[0], totals[1] - lengths[1]
    chars = sum(
        count_removed_chars(restored.offsets[span.start : span.stop], ranges)
        for span, ranges in zip(inside, kept, strict=True)
    )
    return restore_alignment(make_alignment(whole, kept), gaps, (first, second), removed, chars)
