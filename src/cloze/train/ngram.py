"""Interpolated modified Kneser–Ney with bounded memory.  v vocabulary, c n-grams, t tokens.

    p(w | h) = (a(hw) − D(a(hw))) / Σ_u a(hu)  +  γ(h)·p(w | h′)
    γ(h)     = Σ_u D(a(hu)) / Σ_u a(hu)

Chen and Goodman 1998 (TR-10-98), eq. 26 and section 3. h′ is h without its first word. a is the
count at the highest order and for n-grams that begin with <s>; at lower orders it is the number of
distinct words seen before (Kneser and Ney 1995). The empty context is interpolated with 1/|V| over
all words that can be predicted, including <unk> and </s> but not <s>. So every context sums to one.
These are also the conventions of KenLM (Heafield et al. 2013).

Only files grow with the text: n-grams are counted in sorted runs that are merged, and each order is
built from the one below, so that a key is one integer for every order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cloze.config import in_range
from cloze.errors import InputError
from cloze.models.configs.ngram import BOS, EOS, MAX_ORDER, NGramConfig
from cloze.models.ngram import Floats, Ints, Level, NGram, find_ranks
from cloze.progress import ProgressCallback
from cloze.train.external_counting import KeyCounts, ScratchFolder, add_grouped, count_keys

MEMORY = 1 << 30  # bytes
FALLBACK = (0.5, 1.0, 1.5)  # KenLM's --discount_fallback
_KEY_BITS = 63
_BATCH = 1 << 16  # tokens written at once

Discounts = tuple[float, float, float]


def estimate_ngram(
    sentences: Iterable[Sequence[int]],
    *,
    vocab_size: int,
    order: int,
    folder: Path,
    memory: int = MEMORY,
    progress: ProgressCallback | None = None,
) -> NGram:
    """Estimate a model from sentences of word ids, without <s> and </s>.

    `folder` holds temporary files, and the large arrays of the model until they are saved
    elsewhere. `memory` is the number of bytes that may be used besides.
    """
    in_range("order", order, 1, MAX_ORDER)
    in_range("memory", memory, 1 << 10, 1 << 50)
    config = NGramConfig(order=order, vocab_size=vocab_size)
    scratch = ScratchFolder(folder, memory)
    ids = scratch.write_array(np.int32, _batches(sentences, vocab_size))
    if not len(ids):
        raise InputError("there is no text to train on", fix="check that the files are not empty")
    if len(ids).bit_length() + config.bits > _KEY_BITS:
        raise InputError(
            f"{len(ids):,} tokens with {vocab_size:,} words have too many n-grams for 63-bit keys",
            fix="use a smaller vocabulary or less text",
        )
    tables = _count(ids, config, scratch, progress)
    return _estimate(tables, config, scratch, progress)


def estimate_discounts(counts_of_counts: Sequence[int]) -> Discounts | None:
    """D₁, D₂, D₃₊ from the numbers of n-grams seen once, twice, three and four times.

    Y = n₁/(n₁ + 2n₂),  Dᵢ = i − (i+1)·Y·nᵢ₊₁/nᵢ.  Chen and Goodman 1998, eq. 26. None if there is
    too little text: they are undefined, or not in (0, i].
    """
    n = counts_of_counts
    if not all(n[:3]):
        return None
    y = n[0] / (n[0] + 2 * n[1])
    first, second, third = (i - (i + 1) * y * n[i] / n[i - 1] for i in (1, 2, 3))
    if not (0 < first <= 1 and 0 < second <= 2 and 0 < third <= 3):  # noqa: PLR2004
        return None
    return first, second, third


def _batches(sentences: Iterable[Sequence[int]], vocab_size: int) -> Iterator[Ints]:
    """The ids of all sentences, each with <s> and </s>."""
    pending: list[int] = []
    for sentence in sentences:
        pending.append(BOS)
        pending.extend(sentence)
        pending.append(EOS)
        if len(pending) >= _BATCH:
            yield _check_ids(pending, vocab_size)
            pending = []
    if pending:
        yield _check_ids(pending, vocab_size)


def _check_ids(ids: list[int], vocab_size: int) -> Ints:
    found = np.array(ids, dtype=np.int64)
    if found.min() < 0 or found.max() >= vocab_size:
        wrong = found[(found < 0) | (found >= vocab_size)][0]
        raise InputError(f"word id {wrong:,} is out of range", fix=f"use ids below {vocab_size:,}")
    return found


# Counting.


def _count(
    ids: Ints, config: NGramConfig, scratch: ScratchFolder, progress: ProgressCallback | None
) -> list[KeyCounts]:
    """Count the n-grams of every order. None crosses a <s>, so each is within one sentence."""
    counts = scratch.zeros(np.int64, config.vocab_size)
    for span in scratch.chunks(len(ids)):
        counts += np.bincount(ids[span], minlength=config.vocab_size)
    tables = [KeyCounts(np.arange(config.vocab_size), counts)]
    ranks: Ints = ids  # of the n-gram that ends at each token; −1 if it would cross a <s>
    for order in range(2, config.order + 1):
        if progress:
            progress("orders counted", order - 1, config.order)
        keys = partial(_keys, ids, ranks, bits=config.bits)
        spans = list(scratch.chunks(len(ids)))
        table = count_keys((key[key >= 0] for key in map(keys, spans)), scratch)
        tables.append(table)
        if order < config.order:
            found = scratch.zeros(np.int32 if len(ids) < 1 << 31 else np.int64, len(ids))
            for span in spans:
                found[span] = find_ranks(table.keys, keys(span))
            ranks = found
    return tables


def _keys(ids: Ints, ranks: Ints, span: slice, *, bits: int) -> Ints:
    """The keys of the n-grams that end in a span of the text; −1 where there is none."""
    words = ids[span].astype(np.int64)
    context = np.empty(len(words), dtype=np.int64)
    context[1:] = ranks[span][:-1]
    context[0] = ranks[span.start - 1] if span.start else -1
    return np.where((context >= 0) & (words != BOS), context << bits | words, -1)


# Estimating.


@dataclass(frozen=True)
class _Order:
    """The n-grams of one order, and the index of each one's suffix."""

    table: KeyCounts
    suffix: Ints  # c: the rank of w₂…wₙ among the (n−1)-grams


def _estimate(
    tables: list[KeyCounts],
    config: NGramConfig,
    scratch: ScratchFolder,
    progress: ProgressCallback | None,
) -> NGram:
    orders = [_Order(tables[0], scratch.zeros(np.int64, config.vocab_size))]
    for table in tables[1:]:
        orders.append(_Order(table, _suffixes(table, orders, config.bits, scratch)))
    used: list[Discounts] = []
    fallback: list[int] = []
    levels: list[Level] = []
    lower = np.full(1, 1 / (config.vocab_size - 1))  # uniform over all words but <s>
    for number, order in enumerate(orders, 1):
        if progress:
            progress("orders estimated", number, config.order)
        adjusted = _adjust_counts(orders, number, scratch)
        found = estimate_discounts(_counts_of_counts(adjusted, scratch))
        if found is None:
            fallback.append(number)
        used.append(found or FALLBACK)
        backoff, lower = _interpolate(order, adjusted, used[-1], lower, (config.bits, scratch))
        if levels:
            levels[-1] = Level(keys=levels[-1].keys, log_p=levels[-1].log_p, backoff=backoff)
        if number == 1:
            lower[BOS] = 0.0
        levels.append(
            Level(keys=order.table.keys, log_p=_log_ratios(lower, scratch), backoff=np.zeros(0))
        )
    made = NGramConfig(
        order=config.order,
        vocab_size=config.vocab_size,
        discounts=tuple(used),
        fallback_discounts=tuple(fallback),
    )
    return NGram(made, levels)


def _suffixes(table: KeyCounts, below: list[_Order], bits: int, scratch: ScratchFolder) -> Ints:
    """The index of w₂…wₙ, from the suffix of the context (one order below) and the last word."""
    found = scratch.zeros(np.int64, len(table.keys))
    last = (1 << bits) - 1
    for span in scratch.chunks(len(found)):
        keys = table.keys[span]
        context = below[-1].suffix[keys >> bits]  # of a single word: 0, the empty context
        found[span] = find_ranks(below[-1].table.keys, context << bits | keys & last)
    return found


def _adjust_counts(orders: list[_Order], number: int, scratch: ScratchFolder) -> Ints:
    """a: counts at the highest order, below it the number of distinct preceding words.

    Nothing precedes <s>: n-grams that begin with it keep their count, and <s> itself has none.
    """
    counts = orders[number - 1].table.counts
    found = scratch.zeros(np.int64, len(counts))
    if number == len(orders):
        found[:] = counts
    else:
        for span in scratch.chunks(len(orders[number].suffix)):
            index = np.sort(orders[number].suffix[span])
            add_grouped(found, index, np.ones(len(index), dtype=np.int64))
        if number > 1:
            for span in scratch.chunks(len(found)):
                found[span] = np.where(found[span] > 0, found[span], counts[span])
    if number == 1:
        found[BOS] = 0
    return found


def _counts_of_counts(adjusted: Ints, scratch: ScratchFolder) -> list[int]:
    found = np.zeros(6, dtype=np.int64)
    for span in scratch.chunks(len(adjusted)):
        found += np.bincount(np.minimum(adjusted[span], 5), minlength=6)
    return [int(n) for n in found[1:5]]


def _interpolate(
    order: _Order, adjusted: Ints, used: Discounts, lower: Floats, work: tuple[int, ScratchFolder]
) -> tuple[Floats, Floats]:
    """Log γ of every context, and p of every n-gram; `lower` is p one order below."""
    bits, scratch = work
    discount = np.array([0.0, *used])  # by count; the last for 3 and more
    keys = order.table.keys
    total = scratch.zeros(np.float64, len(lower))
    discounted = scratch.zeros(np.float64, len(lower))
    for span in scratch.chunks(len(keys)):
        context = keys[span] >> bits
        add_grouped(total, context, adjusted[span].astype(np.float64))
        add_grouped(discounted, context, discount[np.minimum(adjusted[span], 3)])
    p = scratch.zeros(np.float64, len(keys))
    for span in scratch.chunks(len(keys)):
        context, a = keys[span] >> bits, adjusted[span]
        rest = discounted[context] * lower[order.suffix[span]]
        p[span] = (a - discount[np.minimum(a, 3)] + rest) / total[context]
    for span in scratch.chunks(len(total)):
        ends = total[span] == 0  # nothing follows: all of p comes from the order below
        total[span] = np.where(ends, 1, total[span])
        discounted[span] = np.where(ends, 1, discounted[span])
    return _log_ratios(discounted, scratch, total), p


def _log_ratios(values: Floats, scratch: ScratchFolder, divisors: Floats | None = None) -> Floats:
    found: Floats = scratch.zeros(np.float32, len(values))
    with np.errstate(divide="ignore"):  # p(<s>) = 0
        for span in scratch.chunks(len(values)):
            found[span] = np.log(values[span] / (1 if divisors is None else divisors[span]))
    return found
