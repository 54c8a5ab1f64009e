"""Which tokens are hidden for the masked language model, and behind what.

The rules are those of BERT's create_pretraining_data (Devlin et al. 2018), with two departures:
- masks are drawn afresh in every epoch, where the original wrote ten fixed copies of the text;
- a random replacement is never a special token, where the original draws from the whole vocabulary.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cloze.data.batch import IGNORE_INDEX, Bools, Ints, PackedBatch
from cloze.data.device_corpus import TokenRow
from cloze.data.randomness import Purpose, make_generator
from cloze.errors import InputError
from cloze.objectives.config import MaskingConfig
from cloze.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class Masking(MaskingConfig):
    """The settings with the ids of a vocabulary."""

    mask_id: int
    vocab: Ints = field(repr=False)  # ids that may replace others

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        *,
        mlm_probability: float = 0.15,
        whole_word: bool = False,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
    ) -> "Masking":
        """With the ids of a tokenizer."""
        if tokenizer.mask_id is None:
            raise InputError(
                "this tokenizer has no [MASK]", fix="use one of BERT's kind (wordpiece)"
            )
        ids = sorted(set(tokenizer.backend.get_vocab().values()) - tokenizer.special_ids)
        return cls(
            mask_id=tokenizer.mask_id,
            vocab=np.array(ids),
            mlm_probability=mlm_probability,
            whole_word=whole_word,
            split=split,
        )


def mask(
    ids: Ints, word_starts: Bools, maskable: Bools, rng: np.random.Generator, masking: Masking
) -> tuple[Ints, Ints, Ints]:
    """One sequence with tokens hidden, the positions of the chosen ones, and what stood there.

    round(rate · length) tokens are chosen, at least one, special tokens counted in the length and
    never chosen. With whole words, words are taken as long as all their tokens fit that number; a
    word too long is passed over, so short sequences may end up with fewer, even with none.
    """
    budget = max(1, round(len(ids) * masking.mlm_probability))
    candidates = np.flatnonzero(maskable)
    if masking.whole_word:
        positions = _whole_words(candidates, word_starts, budget, rng)
    else:
        positions = np.sort(rng.permutation(candidates)[:budget])
    targets = ids[positions]
    hide, swap, _ = masking.split
    # Each token of a word has a fate of its own, in whole words too.
    fate, other = rng.random((2, len(positions)))
    others = masking.vocab[(other * len(masking.vocab)).astype(np.int64)]
    masked = ids.copy()
    masked[positions] = np.where(
        fate < hide, masking.mask_id, np.where(fate < hide + swap, others, targets)
    )
    return masked, positions, targets


def mask_batch(batch: PackedBatch, masking: Masking, *, seed: int) -> PackedBatch:
    """A batch with every sequence masked by itself.

    The generator belongs to the sample: it is masked alike in whatever batch and process it is, and
    differently in the next epoch.
    """
    masked, positions, targets = batch.input_ids.copy(), [], []
    starts = batch.starts.tolist()
    for number, begin, end in zip(batch.sample_ids.tolist(), starts, starts[1:], strict=False):
        rng = make_generator(seed, batch.epoch, Purpose.MASKING, number)
        ids, chosen, truth = mask(
            batch.input_ids[begin:end],
            batch.word_starts[begin:end],
            batch.maskable[begin:end],
            rng,
            masking,
        )
        masked[begin:end] = ids
        positions.append(begin + chosen)
        targets.append(truth)
    return batch.with_masks(masked, np.concatenate(positions), np.concatenate(targets))


class HiddenRow(NamedTuple):
    """A row on a device with tokens hidden: m places, and what stood there."""

    ids: Tensor  # n
    places: Tensor  # m
    targets: Tensor  # m, NO_LABEL where a place is not asked about


def mask_row(
    row: TokenRow,
    masking: Masking,
    vocab: Tensor,
    *,
    places: int,
    asked: int,
    rng: torch.Generator | None,
) -> HiddenRow:
    """Hide `asked` tokens of a row where it lies; the other places are there for the shape's sake.

    `vocab` is `masking.vocab` on that device. Departure: the share is of the whole row, not of each
    sequence.
    """
    device = row.ids.device
    keys = torch.rand(row.ids.shape, generator=rng, device=device)
    keys, order = torch.where(row.maskable, keys, torch.inf).sort()
    chosen = order[:places]
    told = row.ids[chosen]
    known = keys[:places].isfinite() & (torch.arange(places, device=device) < asked)
    targets = torch.where(known, told, IGNORE_INDEX)
    hide, swap, _ = masking.split
    fate, other = torch.rand((2, places), generator=rng, device=device)
    others = vocab[(other * len(vocab)).long().clamp(max=len(vocab) - 1)]
    seen = torch.where(fate < hide, masking.mask_id, torch.where(fate < hide + swap, others, told))
    return HiddenRow(row.ids.scatter(0, chosen, torch.where(known, seen, told)), chosen, targets)


def _whole_words(
    candidates: Ints, word_starts: Bools, budget: int, rng: np.random.Generator
) -> Ints:
    """The candidates in random words, as many words as fit the budget."""
    words = np.cumsum(word_starts)[candidates]
    edges = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
    sizes = np.diff(edges)
    room = sizes.tolist()
    taken = np.zeros(len(room), np.bool_)
    for word in rng.permutation(len(room)).tolist():
        if room[word] <= budget:
            taken[word] = True
            budget -= room[word]
            if not budget:
                break
    return candidates[np.repeat(taken, sizes)]
