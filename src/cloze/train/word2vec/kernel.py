"""The inner loops of word2vec, compiled.  m inputs and n outputs of a window, d vector size.

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


class Rules(NamedTuple):
    """Lookup tables by word; those that an objective does not use are empty."""

    keep: NDArray[np.uint32]  # v; a word is kept if 32 random bits are below
    bars: NDArray[np.uint32]  # v; the alias table of the noise distribution
    aliases: NDArray[np.int32]  # v
    path_starts: NDArray[np.int64]  # v + 1; the Huffman tree: nodes and labels of a word's path
    path_nodes: NDArray[np.int32]
    path_labels: Floats
    gram_starts: NDArray[np.int64]  # v + 1; rows of a word's character n-grams
    gram_rows: NDArray[np.int32]


class Shape(NamedTuple):
    """The settings of a window."""

    window: int
    negatives: int  # 0: the Huffman tree
    longest: int  # maximum number of outputs of a window
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
def half(state: Bits) -> np.uint64:
    """32 random bits, from the better half of 64."""
    return random_bits(state) >> np.uint64(32)


@jit
def below(state: Bits, count: int) -> int:
    """A random integer from 0 to count − 1."""
    return int((half(state) * np.uint64(count)) >> np.uint64(32))


@jit
def gather(into: Floats, place: int, table: Floats, row: int) -> None:
    for j in range(table.shape[1]):
        into[place, j] = table[row, j]


@jit
def add(table: Floats, row: int, weight: np.float32, others: Floats, place: int) -> None:
    for j in range(table.shape[1]):
        table[row, j] += weight * others[place, j]


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
    """The same for a single input, with rows of the table, three at a time."""
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
def step_one(step: Floats, scores: Floats, table: Floats, targets: Ints, n: int) -> None:
    """G O for a single input."""
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
def compose(
    into: Floats, place: int, table: Floats, kept: Ints, span: Spans, starts: Spans, grams: Ints
) -> None:
    """An input: the mean of the rows of its words and of their n-grams."""
    count = 0
    for at in range(span[place, 0], span[place, 1]):
        if at == span[place, 2]:
            continue
        word = kept[at]
        if count:
            add(into, place, ONE, table, word)
        else:
            gather(into, place, table, word)
        count += 1
        if len(grams):
            for g in range(starts[word], starts[word + 1]):
                add(into, place, ONE, table, grams[g])
            count += starts[word + 1] - starts[word]
    if count > 1:
        share = ONE / np.float32(count)
        for j in range(into.shape[1]):
            into[place, j] *= share


@jit
def spread(
    steps: Floats, place: int, table: Floats, kept: Ints, span: Spans, starts: Spans, grams: Ints
) -> None:
    """Add the update of an input to every row that it consists of."""
    for at in range(span[place, 0], span[place, 1]):
        if at == span[place, 2]:
            continue
        word = kept[at]
        add(table, word, ONE, steps, place)
        if len(grams):
            for g in range(starts[word], starts[word + 1]):
                add(table, grams[g], ONE, steps, place)


@jit
def negatives_of(
    state: Bits, bars: NDArray[np.uint32], aliases: Ints, targets: Ints, first: int, last: int
) -> None:
    """Draw negatives from the noise distribution by Walker's alias table."""
    for o in range(first, last):
        word = below(state, len(bars))
        targets[o] = word if half(state) < bars[word] else aliases[word]


@jit
def subsample(
    state: Bits, ids: Ints, start: int, end: int, keep: NDArray[np.uint32], kept: Ints
) -> int:
    """Drop frequent words at random (Mikolov et al. 2013, §2.3, by word2vec.c's formula)."""
    length = 0
    for at in range(start, end):
        if half(state) < keep[ids[at]]:
            kept[length] = ids[at]
            length += 1
    return length


@jit
def train(
    corpus: Corpus, tables: Tables, rules: Rules, shape: Shape, lr: np.float32, seed: np.uint64
) -> int:
    """Train on sentences, and return the number of words that were not dropped."""
    # unpacked once: unpacking in the loop would update reference counts each time
    table, outs, shifts = tables.inputs, tables.outputs, tables.shifts
    bars, aliases, starts, grams = rules.bars, rules.aliases, rules.gram_starts, rules.gram_rows
    path_starts, path_nodes, path_labels = rules.path_starts, rules.path_nodes, rules.path_labels
    ids, ends, keep = corpus.ids, corpus.ends, rules.keep
    window, negatives, cbow, nce = shape.window, shape.negatives, shape.cbow, shape.nce
    width, most, deepest = table.shape[1], 2 * window + 3, shape.longest + 3
    direct = not cbow and len(grams) == 0

    state = np.array([seed], np.uint64)
    kept = np.zeros(len(ids), np.int32)
    span = np.zeros((most, 3), np.int64)  # words of an input: first, last, and the excluded one
    inputs = np.zeros((most, width), np.float32)  # m d
    steps = np.zeros((most, width), np.float32)  # m d
    outputs = np.zeros((deepest, width), np.float32)  # n d
    scores = np.zeros((most, deepest), np.float32)  # m n
    turned = np.zeros((1, most), np.float32)
    targets = np.zeros(deepest, np.int32)
    labels = np.zeros(deepest, np.float32)
    trained, start = 0, 0

    for end in ends:
        length = subsample(state, ids, start, end, keep, kept)
        trained += length
        start = end
        for at in range(length):
            word = kept[at]
            reach = window - below(state, window)
            low, high = max(at - reach, 0), min(at + reach + 1, length)
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
                compose(inputs, i, table, kept, span, starts, grams)

            # Outputs: the word and negatives, or its path in the tree.
            if negatives:
                n = negatives + 1
                targets[0], labels[0] = word, ONE
                negatives_of(state, bars, aliases, targets, 1, n)
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
                    gather(outputs, o, outs, targets[o])
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
                step_one(steps, scores, outs, targets, n)
                spread(steps, 0, table, kept, span, starts, grams)
                for o in range(n):
                    add(outs, targets[o], scores[0, o], inputs, 0)
            else:
                for i in range(m):
                    if direct:
                        add_weighted(table, kept[span[i, 0]], scores, i, outputs, n)
                        continue
                    for j in range(width):
                        steps[i, j] = ZERO
                    add_weighted(steps, i, scores, i, outputs, n)
                    spread(steps, i, table, kept, span, starts, grams)
                for o in range(n):
                    for i in range(m):
                        turned[0, i] = scores[i, o]
                    for i in range(m, m + 2):
                        turned[0, i] = ZERO
                    add_weighted(outs, targets[o], turned, 0, inputs, m)
            if nce:
                for o in range(n):
                    for i in range(m):
                        shifts[targets[o]] -= scores[i, o]
    return trained
