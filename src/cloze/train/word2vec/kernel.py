"""The inner loops of word2vec, compiled by numba.

m inputs and n outputs of a window, d vector size.

Every window is one small matrix product (Ji et al. 2016, "Parallelizing word2vec in shared and
distributed memory"): its m inputs (skip-gram: the vectors of the context words; CBOW: one, their
mean) are multiplied with the n outputs of the centre word, and all are updated by the same errors:

    S = I Oᵀ,   G = lr · (labels − σ(S − shifts)),   I += G O,   O += Gᵀ I

Objectives differ only in their outputs: the word and k negatives that the window shares, or the
nodes on the word's path in the Huffman tree; NCE adds a shift. Rows are gathered into a buffer that
fits the L1 cache, and updates are written to the tables by all threads without locks (Hogwild, Niu
et al. 2011). Windows of CBOW, with one input each, could share negatives too and be 1.4 times as
fast, but that costs a fifth of the analogies.

An input that is a mean of rows passes its full error to each of them, as in word2vec.c and
fastText; the exact gradient would be divided by their number.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]
Spans: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]
F = TypeVar("F", bound=Callable[..., Any])

ZERO, ONE, LIMIT = np.float32(0), np.float32(1), np.float32(30)


class Tables(NamedTuple):
    """The parameters, updated by all threads."""

    inputs: Floats  # v d, or v + buckets d: the embeddings, which are kept
    outputs: Floats  # v d: context vectors of words, or of inner nodes of the tree
    shifts: Floats  # v; log(k q(w)) − bias of w for NCE, else zeros


class LookupTables(NamedTuple):
    """Lookup tables by word; those that an objective does not use are empty."""

    keep: NDArray[np.uint32]  # v; a word is kept if 32 random bits are below
    thresholds: NDArray[np.uint32]  # v; of the alias table of the noise distribution
    aliases: NDArray[np.int32]  # v
    path_starts: NDArray[np.int64]  # v + 1; the Huffman tree: nodes and labels of a word's path
    path_nodes: NDArray[np.int32]
    path_labels: Floats
    gram_starts: NDArray[np.int64]  # v + 1; rows of a word's character n-grams
    gram_rows: NDArray[np.int32]


class WindowSettings(NamedTuple):
    """The settings of the windows."""

    window: int
    negatives: int  # 0: the Huffman tree
    max_targets: int  # maximum number of outputs of a window
    cbow: bool
    nce: bool


class Corpus(NamedTuple):
    """A chunk of sentences."""

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]  # where in `ids` each sentence ends


def jit(function: F) -> F:
    """Compile a function with numba; it releases the GIL."""
    made: Any = njit(nogil=True, fastmath=True, cache=True, error_model="numpy")(function)
    return made


@jit
def random_bits(state: Bits) -> np.uint64:
    """The next 64 bits (xorshift64*, Vigna 2016) of a state in an array of length one."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@jit
def random_bits32(state: Bits) -> np.uint64:
    """32 random bits: the upper half of 64, which is of better quality."""
    return random_bits(state) >> np.uint64(32)


@jit
def random_below(state: Bits, count: int) -> int:
    """A random integer from 0 to count − 1."""
    return int((random_bits32(state) * np.uint64(count)) >> np.uint64(32))


@jit
def copy_row(into: Floats, index: int, table: Floats, row: int) -> None:
    for j in range(table.shape[1]):
        into[index, j] = table[row, j]


@jit
def add_row(table: Floats, row: int, weight: np.float32, others: Floats, index: int) -> None:
    for j in range(table.shape[1]):
        table[row, j] += weight * others[index, j]


@jit
def add_weighted(
    table: Floats, row: int, weights: Floats, column: int, others: Floats, count: int
) -> None:
    """A row += Σ weights · others, three at a time: `others` is padded to a multiple of three."""
    for o in range(0, count, 3):
        a, b, c = weights[column, o], weights[column, o + 1], weights[column, o + 2]
        for j in range(table.shape[1]):
            table[row, j] += a * others[o, j] + b * others[o + 1, j] + c * others[o + 2, j]


@jit
def score(inputs: Floats, outputs: Floats, m: int, n: int, scores: Floats) -> None:
    """S = I Oᵀ, a tile of 2 × 3 at a time, so that loaded values are reused."""
    for i in range(0, m, 2):
        for o in range(0, n, 3):
            a0 = a1 = a2 = b0 = b1 = b2 = ZERO
            for j in range(inputs.shape[1]):
                a, b = inputs[i, j], inputs[i + 1, j]
                x, y, z = outputs[o, j], outputs[o + 1, j], outputs[o + 2, j]
                a0 += a * x
                a1 += a * y
                a2 += a * z
                b0 += b * x
                b1 += b * y
                b2 += b * z
            scores[i, o], scores[i, o + 1], scores[i, o + 2] = a0, a1, a2
            scores[i + 1, o], scores[i + 1, o + 1], scores[i + 1, o + 2] = b0, b1, b2


@jit
def score_one(inputs: Floats, table: Floats, targets: Ints, n: int, scores: Floats) -> None:
    """S = I Oᵀ for a single input, whose outputs are rows of a table, three at a time."""
    for o in range(0, n, 3):
        p, q, r = targets[o], targets[o + 1], targets[o + 2]
        a = b = c = ZERO
        for j in range(inputs.shape[1]):
            x = inputs[0, j]
            a += x * table[p, j]
            b += x * table[q, j]
            c += x * table[r, j]
        scores[0, o], scores[0, o + 1], scores[0, o + 2] = a, b, c


@jit
def update_one(step: Floats, scores: Floats, table: Floats, targets: Ints, n: int) -> None:
    """The update G O of a single input."""
    for j in range(step.shape[1]):
        step[0, j] = ZERO
    for o in range(0, n, 3):
        p, q, r = targets[o], targets[o + 1], targets[o + 2]
        a, b, c = scores[0, o], scores[0, o + 1], scores[0, o + 2]
        for j in range(step.shape[1]):
            step[0, j] += a * table[p, j] + b * table[q, j] + c * table[r, j]


@jit
def error(score: np.float32, label: np.float32, lr: np.float32) -> np.float32:
    """Lr · (label − σ(score)); beyond ±30 σ is 0 or 1 in float32."""
    bounded = min(max(score, -LIMIT), LIMIT)
    return lr * (label - ONE / (ONE + np.float32(math.exp(-bounded))))


@jit
def average_rows(
    into: Floats, index: int, table: Floats, kept: Ints, span: Spans, starts: Spans, grams: Ints
) -> None:
    """Compute an input: the mean of the rows of its words and of their n-grams."""
    count = 0
    for at in range(span[index, 0], span[index, 1]):
        if at == span[index, 2]:
            continue
        word = kept[at]
        if count:
            add_row(into, index, ONE, table, word)
        else:
            copy_row(into, index, table, word)
        count += 1
        if len(grams):
            for g in range(starts[word], starts[word + 1]):
                add_row(into, index, ONE, table, grams[g])
            count += starts[word + 1] - starts[word]
    if count > 1:
        scale = ONE / np.float32(count)
        for j in range(into.shape[1]):
            into[index, j] *= scale


@jit
def update_rows(
    steps: Floats, index: int, table: Floats, kept: Ints, span: Spans, starts: Spans, grams: Ints
) -> None:
    """Add the update of an input to every row that it consists of."""
    for at in range(span[index, 0], span[index, 1]):
        if at == span[index, 2]:
            continue
        word = kept[at]
        add_row(table, word, ONE, steps, index)
        if len(grams):
            for g in range(starts[word], starts[word + 1]):
                add_row(table, grams[g], ONE, steps, index)


@jit
def draw_negatives(
    state: Bits, thresholds: NDArray[np.uint32], aliases: Ints, targets: Ints, first: int, last: int
) -> None:
    """Draw negatives from the noise distribution by Walker's alias table."""
    for o in range(first, last):
        word = random_below(state, len(thresholds))
        targets[o] = word if random_bits32(state) < thresholds[word] else aliases[word]


@jit
def subsample(
    state: Bits, ids: Ints, start: int, end: int, keep: NDArray[np.uint32], kept: Ints
) -> int:
    """Drop frequent words at random (Mikolov et al. 2013, §2.3, by word2vec.c's formula)."""
    length = 0
    for at in range(start, end):
        if random_bits32(state) < keep[ids[at]]:
            kept[length] = ids[at]
            length += 1
    return length


@jit
def train_sentences(
    corpus: Corpus,
    tables: Tables,
    lookup: LookupTables,
    settings: WindowSettings,
    lr: np.float32,
    seed: np.uint64,
) -> int:
    """Train on sentences, and return the number of words that were not dropped."""
    # unpacked once: unpacking in the loop would update reference counts each time
    table, outs, shifts = tables.inputs, tables.outputs, tables.shifts
    thresholds, aliases = lookup.thresholds, lookup.aliases
    starts, grams = lookup.gram_starts, lookup.gram_rows
    path_starts, path_nodes, path_labels = lookup.path_starts, lookup.path_nodes, lookup.path_labels
    ids, ends, keep = corpus.ids, corpus.ends, lookup.keep
    window, negatives, cbow, nce = settings.window, settings.negatives, settings.cbow, settings.nce
    width, max_inputs, max_outputs = table.shape[1], 2 * window + 3, settings.max_targets + 3
    has_plain_inputs = not cbow and len(grams) == 0

    state = np.array([seed], np.uint64)
    kept = np.zeros(len(ids), np.int32)
    # words of an input: first, last, and the excluded one
    span = np.zeros((max_inputs, 3), np.int64)
    inputs = np.zeros((max_inputs, width), np.float32)  # m d
    steps = np.zeros((max_inputs, width), np.float32)  # m d
    outputs = np.zeros((max_outputs, width), np.float32)  # n d
    scores = np.zeros((max_inputs, max_outputs), np.float32)  # m n
    transposed = np.zeros((1, max_inputs), np.float32)
    targets = np.zeros(max_outputs, np.int32)
    labels = np.zeros(max_outputs, np.float32)
    trained, start = 0, 0

    for end in ends:
        length = subsample(state, ids, start, end, keep, kept)
        trained += length
        start = end
        for at in range(length):
            word = kept[at]
            radius = window - random_below(state, window)
            low, high = max(at - radius, 0), min(at + radius + 1, length)
            if high - low == 1:
                continue
            # Inputs: each word of the context, or their mean.
            m = 0
            if cbow:
                span[0, 0], span[0, 1], span[0, 2] = low, high, at
                m = 1
            else:
                for other in range(low, high):
                    if other != at:
                        span[m, 0], span[m, 1], span[m, 2] = other, other + 1, -1
                        m += 1
            for i in range(m):
                average_rows(inputs, i, table, kept, span, starts, grams)

            # Outputs: the word and negatives, or its path in the tree.
            if negatives:
                n = negatives + 1
                targets[0], labels[0] = word, ONE
                draw_negatives(state, thresholds, aliases, targets, 1, n)
            else:
                first = path_starts[word]
                n = path_starts[word + 1] - first
                for o in range(n):
                    targets[o], labels[o] = path_nodes[first + o], path_labels[first + o]
            if m == 1:
                targets[n] = targets[n + 1] = word
                score_one(inputs, outs, targets, n, scores)
            else:
                for o in range(n):
                    copy_row(outputs, o, outs, targets[o])
                score(inputs, outputs, m, n, scores)
            for i in range(m):
                for o in range(n):
                    x = scores[i, o] - shifts[targets[o]]
                    # as in word2vec.c: a negative that equals the word is ignored
                    same = negatives > 0 and o > 0 and targets[o] == word
                    scores[i, o] = ZERO if same else error(x, labels[o], lr)
                for o in range(n, n + 2):  # padding of the last tile
                    scores[i, o] = ZERO

            if m == 1:
                update_one(steps, scores, outs, targets, n)
                update_rows(steps, 0, table, kept, span, starts, grams)
                for o in range(n):
                    add_row(outs, targets[o], scores[0, o], inputs, 0)
            else:
                for i in range(m):
                    if has_plain_inputs:
                        add_weighted(table, kept[span[i, 0]], scores, i, outputs, n)
                        continue
                    for j in range(width):
                        steps[i, j] = ZERO
                    add_weighted(steps, i, scores, i, outputs, n)
                    update_rows(steps, i, table, kept, span, starts, grams)
                for o in range(n):
                    for i in range(m):
                        transposed[0, i] = scores[i, o]
                    for i in range(m, m + 2):
                        transposed[0, i] = ZERO
                    add_weighted(outs, targets[o], transposed, 0, inputs, m)
            if nce:
                for o in range(n):
                    for i in range(m):
                        shifts[targets[o]] -= scores[i, o]
    return trained
