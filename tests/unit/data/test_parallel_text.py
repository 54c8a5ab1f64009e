"""Aligned lines, and batches of them."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from cloze.data.batch import IGNORE_INDEX
from cloze.data.parallel_text import (
    LOSS_NAME,
    TranslationBatches,
    load_parallel_text,
    read_all_lines,
)
from cloze.errors import InputError
from cloze.objectives.core import ArrayBatch
from cloze.text.joint_bpe import encode_sentences, train_joint_bpe
from helpers import raises


def write(folder, name, lines):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def encoded(count=40, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [[*rng.integers(1, 50, rng.integers(1, 9)).tolist(), 0] for _ in range(count)]
        for _ in range(2)
    ]


def test_lines_of_two_files_are_paired(tmp_path):
    source = write(tmp_path, "train.en", ["a b", "", "c\u2028d", "e"])
    target = tmp_path / "train.de.gz"
    with gzip.open(target, "wt", encoding="utf-8") as file:
        file.write("A B\nX\nC D\n \n")
    found = load_parallel_text(source, target)
    assert list(zip(found.source, found.target, strict=True)) == [
        ("a b", "A B"),
        ("c\u2028d", "C D"),
    ]
    assert (len(found), found.num_blank) == (2, 2)
    assert [row.text for row in read_all_lines(source)] == ["a b", "", "c\u2028d", "e"]


def test_lists_are_accepted():
    found = load_parallel_text(["a"], ["b"])
    assert found.fingerprint == load_parallel_text(["a"], ["b"]).fingerprint
    assert found.fingerprint != load_parallel_text(["b"], ["a"]).fingerprint


def test_invalid_input_is_reported(tmp_path):
    source = write(tmp_path, "a.en", ["one", "two", "three"])
    target = write(tmp_path, "a.de", ["eins", "zwei"])
    with raises(InputError, "a.en", "3", "a.de", "2"):
        load_parallel_text(source, target)
    with raises(InputError, "source", "target", "1", "2"):
        load_parallel_text(["a"], ["b", "c"])
    empty = write(tmp_path, "empty", [])
    with raises(InputError, "pair", "empty", fix="empty"):
        load_parallel_text(empty, empty)
    with raises(InputError, "nowhere"):
        load_parallel_text(tmp_path / "nowhere", target)
    (tmp_path / "latin").write_bytes("schön\n".encode("latin-1"))
    with raises(InputError, "latin:1"):
        load_parallel_text(tmp_path / "latin", ["a"])


def test_every_epoch_has_every_pair_once_in_another_order():
    source, target = encoded()
    pairs = TranslationBatches(source, target, batch_tokens=40, seed=1)
    epochs = [
        [pairs.batch(epoch * pairs.per_epoch + at) for at in range(pairs.per_epoch)]
        for epoch in range(2)
    ]
    orders = [np.concatenate([batch.sample_ids for batch in batches]) for batches in epochs]
    for order in orders:
        assert sorted(order.tolist()) == list(range(40))
    assert orders[0].tolist() != orders[1].tolist()
    for batch in epochs[0]:
        widest = max(batch.source_lengths.max(), batch.target_lengths.max())
        assert len(batch) == 1 or len(batch) * widest <= 40
    again = TranslationBatches(source, target, batch_tokens=40, seed=1)
    assert (
        again.batch(7).sample_ids.tolist()
        == epochs[7 // pairs.per_epoch][7 % pairs.per_epoch].sample_ids.tolist()
    )
    everything = np.concatenate([batch.sample_ids for batch in pairs.batches()])
    assert sorted(everything.tolist()) == list(range(40))


def test_rows_are_padded():
    pairs = TranslationBatches([[5, 6, 0], [7, 0]], [[8, 0], [9, 3, 0]], batch_tokens=100)
    (batch,) = pairs.batches()
    arrays = batch.arrays(1)
    assert arrays["source"].tolist() == [[5, 6, 0], [7, 0, 0]]
    assert arrays["attention_mask"].tolist() == [[True] * 3, [True, True, False]]
    assert arrays["targets"].tolist() == [[8, 0, IGNORE_INDEX], [9, 3, 0]]
    assert batch.counts == {LOSS_NAME: 5}
    assert batch.lengths.tolist() == [5, 5]


def test_arrays_are_padded_to_few_shapes():
    pairs = TranslationBatches([[5, 6, 0], [7, 0]], [[8, 0], [9, 3, 0]], batch_tokens=100)
    arrays = replace(pairs.batch(0), scheduled_sampling_prob=0.5).arrays()
    assert [array.shape for array in arrays.values()] == [(8, 8), (8, 8), (8, 8), ()]
    assert arrays["scheduled_sampling_prob"] == 0.5
    assert (
        arrays["attention_mask"].sum(1).tolist() == [3, 2] + [1] * 6
    )  # who looks at nothing is NaN
    assert (arrays["targets"] != IGNORE_INDEX).sum() == 5
    assert isinstance(pairs.batch(0), ArrayBatch)
    assert "scheduled_sampling_prob" not in pairs.batch(0).arrays()


def test_an_epoch_of_sentences_has_few_shapes():
    """Some 29,000 captions: the lengths of Multi30k, or nearly."""
    rng = np.random.default_rng(0)
    source = np.clip(rng.gamma(8, 1.9, 29_000).astype(int), 3, 60)
    target = np.clip(source + rng.normal(1, 2.5, 29_000).astype(int), 3, 60)
    rows = [[[0] * int(length) for length in side] for side in (source, target)]
    pairs = TranslationBatches(*rows, batch_tokens=4096)
    shapes = [
        [
            tuple(array.shape for array in pairs.batch(step).arrays().values())
            for step in range(epoch * pairs.per_epoch, (epoch + 1) * pairs.per_epoch)
        ]
        for epoch in range(2)
    ]
    assert pairs.per_epoch > 100
    assert len(set(shapes[0])) <= 15
    assert len(set(shapes[0] + shapes[1])) <= 18
    room = sum(b * max(s, t) for ((b, s), _, (_, t)) in shapes[0])
    assert np.maximum(source, target).sum() > 0.7 * room


def test_a_split_batch_has_the_same_pairs():
    source, target = encoded()
    (batch,) = TranslationBatches(source, target, batch_tokens=10_000).batches()
    for parts in (1, 2, 3, 100):
        split = batch.split(parts)
        assert (
            np.concatenate([one.sample_ids for one in split]).tolist() == batch.sample_ids.tolist()
        )
        for side in ("source", "target"):
            whole = np.concatenate([getattr(one, side) for one in split])
            assert whole.tolist() == getattr(batch, side).tolist()
        assert sum(one.counts[LOSS_NAME] for one in split) == batch.counts[LOSS_NAME]
        assert all(len(one) for one in split)


@pytest.mark.data
@pytest.mark.parametrize(("part", "count"), [("val", 1014), ("test_2016_flickr", 1000)])
def test_real_pairs_round_trip(data_dir, part, count):
    found = load_parallel_text(
        data_dir / f"multi30k/{part}.en.gz", data_dir / f"multi30k/{part}.de.gz"
    )
    assert (len(found), found.num_blank) == (count, 0)
    lines = [*found.source, *found.target]
    tokenizer = train_joint_bpe(lines, 1000)
    for line, ids in zip(lines, encode_sentences(tokenizer, lines), strict=True):
        assert tokenizer.decode(ids[:-1]) == f" {line}"


@pytest.mark.data
def test_real_files_of_different_lengths_are_rejected(data_dir):
    with raises(InputError, "val.en.gz", "1,014", "flickr.de.gz", "1,000"):
        load_parallel_text(
            data_dir / "multi30k/val.en.gz", data_dir / "multi30k/test_2016_flickr.de.gz"
        )
