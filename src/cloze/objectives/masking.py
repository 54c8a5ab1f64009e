"""Which tokens the masked language model predicts, and what replaces them.

The rules are those of BERT's create_pretraining_data (Devlin et al. 2018), with two deviations:
- masks are drawn again in every epoch; the original writes ten copies of the text with fixed masks;
- a random replacement is never a special token; the original draws from the whole vocabulary.
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
    """The settings of masking, with the token ids of a vocabulary."""

    mask_id: int
    replacement_ids: Ints = field(repr=False)  # ids that may replace others

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Tokenizer,
        *,
        mlm_probability: float = 0.15,
        whole_word: bool = False,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
    ) -> "Masking":
        """The settings with the token ids of a tokenizer."""
        if tokenizer.mask_id is None:
            raise InputError("this tokenizer has no [MASK]", fix="use a BERT tokenizer (wordpiece)")
        ids = sorted(set(tokenizer.backend.get_vocab().values()) - tokenizer.special_ids)
        return cls(
            mask_id=tokenizer.mask_id,
            replacement_ids=np.array(ids),
            mlm_probability=mlm_probability,
            whole_word=whole_word,
            split=split,
        )


def mask_sequence(
    ids: Ints, word_starts: Bools, maskable: Bools, rng: np.random.Generator, masking: Masking
) -> tuple[Ints, Ints, Ints]:
    """A masked sequence, the positions of the selected tokens, and the original tokens there.

    round(mlm_probability · length) tokens are selected, at least one; special tokens count in the
    length and are never selected. With whole words, random words are selected while all their
    tokens fit that number; longer ones are skipped, so short sequences may get fewer, or none.
    """
    budget = max(1, round(len(ids) * masking.mlm_probability))
    candidates = np.flatnonzero(maskable)
    if masking.whole_word:
        positions = _select_whole_words(candidates, word_starts, budget, rng)
    else:
        positions = np.sort(rng.permutation(candidates)[:budget])
    targets = ids[positions]
    mask_prob, random_prob, _ = masking.split
    # drawn for each token separately, even with whole words
    action, other = rng.random((2, len(positions)))
    others = masking.replacement_ids[(other * len(masking.replacement_ids)).astype(np.int64)]
    masked = ids.copy()
    masked[positions] = np.where(
        action < mask_prob,
        masking.mask_id,
        np.where(action < mask_prob + random_prob, others, targets),
    )
    return masked, positions, targets


def mask_batch(batch: PackedBatch, masking: Masking, *, seed: int) -> PackedBatch:
    """Mask every sequence of a batch.

    The random generator depends on the sample and the epoch: the mask of a sample is the same in
    any batch and process, and different in the next epoch.
    """
    masked, positions, targets = batch.input_ids.copy(), [], []
    starts = batch.starts.tolist()
    for number, begin, end in zip(batch.sample_ids.tolist(), starts, starts[1:], strict=False):
        rng = make_generator(seed, batch.epoch, Purpose.MASKING, number)
        ids, selected, original = mask_sequence(
            batch.input_ids[begin:end],
            batch.word_starts[begin:end],
            batch.maskable[begin:end],
            rng,
            masking,
        )
        masked[begin:end] = ids
        positions.append(begin + selected)
        targets.append(original)
    return batch.with_masks(masked, np.concatenate(positions), np.concatenate(targets))


class MaskedRow(NamedTuple):
    """A masked row on a device: m positions, and the original tokens there."""

    ids: Tensor  # n
    positions: Tensor  # m
    targets: Tensor  # m, IGNORE_INDEX at padding positions


def mask_row(
    row: TokenRow,
    masking: Masking,
    replacement_ids: Tensor,
    *,
    max_masked: int,
    num_masked: int,
    rng: torch.Generator | None,
) -> MaskedRow:
    """Mask `num_masked` tokens of a row on its device; positions are padded to `max_masked`.

    `replacement_ids` are those of `masking` on that device. Deviation: tokens are selected from the
    whole row, not from each sequence.
    """
    device = row.ids.device
    keys = torch.rand(row.ids.shape, generator=rng, device=device)
    if masking.whole_word:
        chosen = _select_whole_words_of_row(row, keys, num_masked)
        order = chosen.byte().sort(descending=True, stable=True).indices
        selected = order[:max_masked]
        is_target = chosen[selected]
    else:
        keys, order = torch.where(row.maskable, keys, torch.inf).sort()
        selected = order[:max_masked]
        is_target = keys[:max_masked].isfinite() & (
            torch.arange(max_masked, device=device) < num_masked
        )
    original = row.ids[selected]
    targets = torch.where(is_target, original, IGNORE_INDEX)
    mask_prob, random_prob, _ = masking.split
    action, other = torch.rand((2, max_masked), generator=rng, device=device)
    size = len(replacement_ids)
    others = replacement_ids[(other * size).long().clamp(max=size - 1)]
    replaced = torch.where(action < mask_prob + random_prob, others, original)
    replaced = torch.where(action < mask_prob, masking.mask_id, replaced)
    ids = row.ids.scatter(0, selected, torch.where(is_target, replaced, original))
    return MaskedRow(ids, selected, targets)


def _select_whole_words_of_row(row: TokenRow, keys: Tensor, budget: int) -> Tensor:
    """Which tokens belong to the selected words (n): as many random words as fit the budget.

    Words are taken in random order until one does not fit; words of a single token, which always
    fit, are taken for what remains. So the number of tokens is known before the device has chosen.
    The first of `keys` (n, random) are those of the words.
    """
    if not len(row.word_starts):
        raise InputError(
            "whole words cannot be masked: the corpus on the device has no word starts",
            fix="use DeviceCorpus(…, with_words=True)",
        )
    word = row.word_starts.cumsum(0) - 1  # n: the number of each token's word
    sizes = torch.zeros_like(word).scatter_add_(0, word, row.maskable.long())
    keys, order = torch.where(sizes > 0, keys, torch.inf).sort()
    ordered = sizes[order]
    ends = ordered.cumsum(0)
    fits = keys.isfinite() & (ends <= budget)  # the words before the first one that does not fit
    rest = budget - (ordered * fits).sum()
    is_single = (ordered == 1) & ~fits
    is_chosen = fits | (is_single & (is_single.cumsum(0) <= rest))
    return torch.zeros_like(is_chosen).scatter_(0, order, is_chosen)[word] & row.maskable


def _select_whole_words(
    candidates: Ints, word_starts: Bools, budget: int, rng: np.random.Generator
) -> Ints:
    """The candidates of random words, as many words as fit the budget."""
    words = np.cumsum(word_starts)[candidates]
    edges = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
    sizes = np.diff(edges)
    counts = sizes.tolist()
    is_selected = np.zeros(len(counts), np.bool_)
    for word in rng.permutation(len(counts)).tolist():
        if counts[word] <= budget:
            is_selected[word] = True
            budget -= counts[word]
            if not budget:
                break
    return candidates[np.repeat(is_selected, sizes)]
