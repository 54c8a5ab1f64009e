import numpy as np
import pytest

from cloze.data.batch import IGNORE_INDEX, PackedBatch


def batch(lengths: list[int], *, first: int = 0) -> PackedBatch:
    """Tokens are numbered; every third is chosen and replaced by 0."""
    size = sum(lengths)
    ids = np.arange(1, size + 1)
    plain = PackedBatch(
        input_ids=ids,
        token_type_ids=ids % 2,
        lengths=np.array(lengths),
        word_starts=ids % 3 == 1,
        maskable=ids % 5 > 0,
        labels=np.array([IGNORE_INDEX, *[1] * (len(lengths) - 1)]),
        sample_ids=first + np.arange(len(lengths)),
        epoch=4,
    )
    positions = np.arange(0, size, 3)
    hidden = ids.copy()
    hidden[positions] = 0
    return plain.with_masks(hidden, positions, ids[positions])


def test_targets_are_counted():
    assert batch([4, 5, 3]).counts == {"mlm": 4, "nsp": 2}
    assert len(batch([4, 5, 3])) == 3


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_the_parts_of_a_split_batch_have_the_same_contents(parts):
    whole = batch([7, 2, 2, 9, 4, 4])
    split = whole.split(parts)
    assert 1 <= len(split) <= parts
    for name in ("input_ids", "token_type_ids", "lengths", "word_starts", "maskable", "labels"):
        joined = np.concatenate([getattr(part, name) for part in split])
        assert np.array_equal(joined, getattr(whole, name))
    assert {part.epoch for part in split} == {4}
    begin = 0
    for part in split:
        assert np.array_equal(part.masked_positions + begin, part.targets - 1)
        assert (part.input_ids[part.masked_positions] == 0).all()
        begin += len(part.input_ids)
    assert sum(part.counts["mlm"] for part in split) == whole.counts["mlm"]


def test_parts_have_about_the_same_number_of_tokens():
    left, right = batch([10, 2, 2, 2, 2, 2]).split(2)
    assert (left.lengths.tolist(), right.lengths.tolist()) == ([10], [2, 2, 2, 2, 2])


def test_one_sequence_cannot_be_split():
    assert len(batch([5]).split(2)) == 1
