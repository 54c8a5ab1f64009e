"""Samples: the token spans of a corpus that form each training example of an epoch.

The samples of an epoch are planned from the index of the corpus, without reading tokens. The plan
depends on the corpus, the settings, the seed and the epoch alone, and its samples can be accessed
in any order, so that a run can be resumed at any step.

s sentences, d documents, n samples.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloze.data.batch import IGNORE_INDEX, Bools, Ints, PackedBatch
from cloze.data.chunks import plan_chunk_spans
from cloze.data.config import SamplingConfig
from cloze.data.corpus import CorpusSplit
from cloze.data.randomness import Purpose, make_generator
from cloze.errors import InputError
from cloze.text.tokenizer import Tokenizer

# All documents are processed in parallel, one sample of each at a time. Long documents are split at
# a sentence into parts of this many tokens; otherwise the longest book would determine the time.
PART_TOKENS = 2**15


@dataclass(frozen=True, kw_only=True)
class Sampling(SamplingConfig):
    """How documents are split into samples, and the seed of the random choices."""

    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePlan:
    """The samples of an epoch, in order, as token spans (first token, token after the last)."""

    a: Ints  # n 2
    b: Ints  # n 2, empty if there is no second segment
    labels: Ints  # n, 0 in order, 1 not, IGNORE_INDEX if there is no label

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each sample, including [CLS] and [SEP]."""
        a, b = np.diff(self.a)[:, 0], np.diff(self.b)[:, 0]
        return a + 2 + np.where(b > 0, b + 1, 0)


class Samples:
    """The samples of one epoch, read from the corpus on access."""

    def __init__(
        self, split: CorpusSplit, tokenizer: Tokenizer, sampling: Sampling, *, epoch: int = 0
    ) -> None:
        if tokenizer.start_id is None or tokenizer.end_id is None:
            raise InputError(
                "this tokenizer has no tokens that begin and end a sequence, such as [CLS] and "
                "[SEP]",
                fix="use a WordPiece or a byte-level BPE tokenizer",
            )
        if tokenizer.vocab_size != split.corpus.vocab_size:
            raise InputError(
                f"the corpus was prepared with {split.corpus.vocab_size:,} token ids, "
                f"but the tokenizer has {tokenizer.vocab_size:,}",
                fix="prepare the corpus with this tokenizer",
            )
        self.plan = plan_samples(split, sampling, epoch=epoch)
        self._corpus = split.corpus
        self._epoch = epoch
        self._cls, self._sep = tokenizer.start_id, tokenizer.end_id
        self._special = np.zeros(tokenizer.vocab_size, np.bool_)
        self._special[list(tokenizer.special_ids)] = True

    def __len__(self) -> int:
        return len(self.plan)

    def make_batch(self, numbers: Ints) -> PackedBatch:
        """A packed batch of the samples with these numbers."""
        lengths = self.plan.lengths[numbers]
        size = int(lengths.sum())
        ids, types = np.empty(size, np.int64), np.zeros(size, np.int64)
        words = np.ones(size, np.bool_)
        at = 0
        for a, b in zip(self.plan.a[numbers].tolist(), self.plan.b[numbers].tolist(), strict=True):
            ids[at] = self._cls
            at = self._write_segment(ids, words, at + 1, a)
            if b[0] < b[1]:
                begin = at
                at = self._write_segment(ids, words, at, b)
                types[begin:at] = 1
        return PackedBatch(
            input_ids=ids,
            token_type_ids=types,
            lengths=lengths,
            word_starts=words,
            maskable=~self._special[ids],
            labels=self.plan.labels[numbers],
            sample_ids=numbers,
            epoch=self._epoch,
        )

    def _write_segment(self, ids: Ints, words: Bools, at: int, span: list[int]) -> int:
        """Write a segment and its [SEP] at position `at`; return the position after it."""
        first, last = span
        end = at + last - first
        ids[at:end], words[at:end] = self._corpus.read_tokens(first, last)
        words[at] = True  # even if the segment begins inside a word
        ids[end] = self._sep
        return end + 1


def plan_samples(split: CorpusSplit, sampling: Sampling, *, epoch: int) -> SamplePlan:
    """Plan the samples of an epoch, in random order."""
    if not len(split):
        raise InputError("this part of the corpus has no documents", fix="increase hold_out")
    rng = make_generator(sampling.seed, epoch, Purpose.SAMPLING)
    sentences = split.corpus.sentence_starts.astype(np.int64)
    planners = {
        "nsp": _plan_next_sentence_pairs,
        "sop": _plan_sentence_order_pairs,
        "none": _plan_whole_sentences,
    }
    planned = planners[sampling.pairs](_Documents(split.sentence_ranges, sentences), sampling, rng)
    order = make_generator(sampling.seed, epoch, Purpose.ORDER).permutation(len(planned))
    return SamplePlan(a=planned.a[order], b=planned.b[order], labels=planned.labels[order])


@dataclass(frozen=True)
class _Documents:
    """The sentences of each document, and the first token of each sentence."""

    sentence_ranges: Ints  # d 2
    sentence_starts: Ints  # s + 1

    def split_long(self) -> tuple[Ints, Ints]:
        """Split long documents: the sentence range of each part (n 2), and its document."""
        first, last = self.sentence_ranges.T
        begin = self.sentence_starts[first]
        counts = -(-(self.sentence_starts[last] - begin) // PART_TOKENS)  # parts of each document
        document = np.repeat(np.arange(len(first)), counts)
        number = np.arange(len(document)) - np.repeat(counts.cumsum() - counts, counts)
        starts = np.searchsorted(self.sentence_starts, begin[document] + number * PART_TOKENS)
        is_last = np.append(np.diff(document), 1) > 0
        ends = np.where(is_last, last[document], np.append(starts[1:], 0))
        has_sentences = starts < ends  # a part is empty after a sentence that is longer than a part
        return np.stack([starts, ends], 1)[has_sentences], document[has_sentences]

    def find_end(self, sentence: Ints, tokens: Ints) -> Ints:
        """The first sentence that begins at least so many tokens after the given one."""
        return np.searchsorted(self.sentence_starts, self.sentence_starts[sentence] + tokens)

    def token_spans(self, first: Ints, last: Ints) -> Ints:
        """The tokens of the sentences from `first` up to `last`: n 2."""
        return np.stack([self.sentence_starts[first], self.sentence_starts[last]], 1)


@dataclass(frozen=True)
class _SentenceChunks:
    """Consecutive sentences that form a pair: A is begin … middle, B is middle … end."""

    document: Ints
    target: Ints  # target length in tokens
    begin: Ints
    middle: Ints
    end: Ints
    is_negative: Bools  # B is replaced (NSP), or A and B are exchanged (SOP)


def _draw_target_lengths(
    size: int, max_tokens: int, sampling: Sampling, rng: np.random.Generator
) -> Ints:
    """The target length of each part: `max_tokens`, or a random length from 2 to `max_tokens`."""
    short = rng.random(size) < sampling.short_seq_prob
    return np.where(short, 2 + (rng.random(size) * (max_tokens - 1)).astype(np.int64), max_tokens)


def _collect_chunks(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator, *, reuse_replaced: bool
) -> _SentenceChunks:
    """Collect sentences into chunks like BERT's create_pretraining_data, for all documents at once.

    A chunk takes sentences until it reaches the target length; A ends after a random one of them.
    With `reuse_replaced`, sentences that a random B replaces begin the next chunk.

    Deviations: the target length is drawn for each part, not for each document, so that a long book
    is not split into short samples only. If a single sentence reaches the target length, the
    original always takes a random B, so that nearly all pairs are negative if samples are short;
    here the chunk also takes the next sentence, and both are truncated.
    """
    bounds, document = documents.split_long()
    target = _draw_target_lengths(len(bounds), sampling.max_length - 3, sampling, rng)
    cursor, last = bounds[:, 0].copy(), bounds[:, 1]
    active = np.arange(len(bounds))
    steps = []
    while len(active):
        begin = cursor[active]
        end = np.minimum(documents.find_end(begin, target[active]), last[active])
        is_negative = rng.random(len(active)) < 0.5  # noqa: PLR2004 - half of the pairs
        can_extend = (end - begin == 1) & (end < last[active])
        # a random B does not need a second sentence
        end += can_extend & ~is_negative if reuse_replaced else can_extend
        count = end - begin
        is_negative |= count == 1
        middle = begin + 1 + (rng.random(len(active)) * (count - 1)).astype(np.int64)
        steps.append((active, begin, middle, end, is_negative))
        cursor[active] = np.where(is_negative, middle, end) if reuse_replaced else end
        active = active[cursor[active] < last[active]]
    part, begin, middle, end, is_negative = (
        np.concatenate(column) for column in zip(*steps, strict=True)
    )
    return _SentenceChunks(document[part], target[part], begin, middle, end, is_negative)


def _plan_next_sentence_pairs(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """In half of the pairs B follows A in the text, in the others it is from another document."""
    if len(documents.sentence_ranges) <= 1:
        raise InputError(
            "next sentence prediction needs at least two documents for its negative pairs, but "
            "there is only one",
            fix="separate documents by blank lines, or turn the task off: --pairs none",
        )
    chunks = _collect_chunks(documents, sampling, rng, reuse_replaced=True)
    a = documents.token_spans(chunks.begin, chunks.middle)
    size = len(a)
    # Deviation: the original tries ten times to draw another document; here it always is another.
    other = (rng.random(size) * (len(documents.sentence_ranges) - 1)).astype(np.int64)
    other += other >= chunks.document
    first, last = documents.sentence_ranges[other].T
    begin = first + (rng.random(size) * (last - first)).astype(np.int64)
    length = np.maximum(chunks.target - np.diff(a)[:, 0], 1)
    end = np.minimum(documents.find_end(begin, length), last)
    b = np.where(
        chunks.is_negative[:, None],
        documents.token_spans(begin, end),
        documents.token_spans(chunks.middle, chunks.end),
    )
    return truncate_pairs(a, b, chunks.is_negative.astype(np.int64), sampling.max_length, rng)


def _plan_sentence_order_pairs(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """B follows A in the text; in half of the pairs they are exchanged.

    Deviation: if a chunk is a single sentence, ALBERT's code takes B from another document, which
    is a different task; here such a sample has one segment and no label.
    """
    chunks = _collect_chunks(documents, sampling, rng, reuse_replaced=False)
    a = documents.token_spans(chunks.begin, chunks.middle)
    b = documents.token_spans(chunks.middle, chunks.end)
    is_single = chunks.end - chunks.begin == 1
    swap = (chunks.is_negative & ~is_single)[:, None]
    labels = np.where(is_single, IGNORE_INDEX, chunks.is_negative)
    return truncate_pairs(
        np.where(swap, b, a), np.where(swap, a, b), labels, sampling.max_length, rng
    )


def _plan_whole_sentences(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """As many sentences of one document as fit; only a sentence longer than a sample is split.

    With a `chunk_length` samples begin with a chunk instead of a sentence.
    """
    starts = documents.sentence_starts
    max_tokens = sampling.max_length - 2
    if sampling.chunk_length is not None:
        spans, chunk_length = starts[documents.sentence_ranges], sampling.chunk_length
        a = plan_chunk_spans(spans, chunk_length=chunk_length, max_tokens=max_tokens, rng=rng)
        return SamplePlan(a=a, b=np.zeros_like(a), labels=np.full(len(a), IGNORE_INDEX))
    bounds, _ = documents.split_long()
    target = _draw_target_lengths(len(bounds), max_tokens, sampling, rng)
    cursor, last = starts[bounds[:, 0]], starts[bounds[:, 1]]
    active = np.arange(len(bounds))
    steps = []
    while len(active):
        begin = cursor[active]
        fitting = starts[np.searchsorted(starts, begin + target[active], "right") - 1]
        # if not even one sentence fits: the end of that sentence, or as much as fits
        partial = np.minimum(starts[np.searchsorted(starts, begin, "right")], begin + max_tokens)
        end = np.minimum(np.where(fitting > begin, fitting, partial), last[active])
        steps.append(np.stack([begin, end], 1))
        cursor[active] = end
        active = active[end < last[active]]
    a = np.concatenate(steps)
    return SamplePlan(a=a, b=np.zeros_like(a), labels=np.full(len(a), IGNORE_INDEX))


def truncate_pairs(
    a: Ints, b: Ints, labels: Ints, length: int, rng: np.random.Generator
) -> SamplePlan:
    """Truncate pairs to a length: tokens are removed from the longer segment, at a random end.

    The original removes them one by one. How many are removed from each segment follows from their
    lengths (from B if both are equally long), and the number removed at the front is binomial.
    """
    size_a, size_b = np.diff(a)[:, 0], np.diff(b)[:, 0]
    excess = np.maximum(size_a + size_b - (length - np.where(size_b > 0, 3, 2)), 0)
    difference = np.minimum(excess, abs(size_a - size_b))  # removed from the longer one
    rest = excess - difference  # removed from both in turn
    removed_a = np.where(size_a > size_b, difference, 0) + rest // 2
    removed_b = excess - removed_a
    return SamplePlan(
        a=_trim_spans(a, removed_a, rng), b=_trim_spans(b, removed_b, rng), labels=labels
    )


def _trim_spans(spans: Ints, removed: Ints, rng: np.random.Generator) -> Ints:
    front = rng.binomial(removed, 0.5)
    return spans + np.stack([front, front - removed], 1)
