"""Batches by token count from length-sorted sequences."""

from collections.abc import Iterator, Sequence


def batch_by_tokens(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of sequences, longest first, in batches of at most `most` tokens (one at least).

    Neighbours have nearly one length, so that a packed batch falls into few runs; the longest come
    first, so that a batch that does not fit into memory fails at once and not at the end.
    """
    batch: list[int] = []
    room = most
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if batch and lengths[number] > room:
            yield batch
            batch, room = [], most
        batch.append(number)
        room -= lengths[number]
    if batch:
        yield batch
