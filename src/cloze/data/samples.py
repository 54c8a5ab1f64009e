"""Samples: which stretches of a corpus make up each example of an epoch.

A plan is made from the index alone, without reading a token. It is a function of the corpus, the
settings, the seed and the epoch, and any sample of it is found at once: a run resumes by number.

s sentences, n samples. S[i] is the token that sentence i begins with.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloze.data.batch import IGNORE_INDEX, Bools, Ints, PackedBatch
from cloze.data.config import SamplingConfig
from cloze.data.corpus import CorpusSplit
from cloze.data.randomness import Purpose, make_generator
from cloze.errors import InputError
from cloze.text.tokenizer import Tokenizer

# Documents are walked side by side, a step in all of them at once. Longer ones are cut, at a
# sentence, into parts of this many tokens, or the walk would be as long as the longest book.
PART_TOKENS = 2**15


@dataclass(frozen=True, kw_only=True)
class Sampling(SamplingConfig):
    """How documents are cut into samples, and the seed of the random choices in it."""

    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePlan:
    """The samples of an epoch, in order, as stretches of tokens: first, and one after the last."""

    a: Ints  # n 2
    b: Ints  # n 2, empty stretches where there is no second segment
    labels: Ints  # n, 0 as in the text, 1 not, IGNORE_INDEX where nothing is asked

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each sample with [CLS] and [SEP]."""
        a, b = np.diff(self.a)[:, 0], np.diff(self.b)[:, 0]
        return a + 2 + np.where(b > 0, b + 1, 0)


class Samples:
    """The samples of one epoch, made when asked for."""

    def __init__(
        self, split: CorpusSplit, tokenizer: Tokenizer, sampling: Sampling, *, epoch: int = 0
    ) -> None:
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise InputError(
                "this tokenizer has no [CLS] and [SEP]", fix="use one of BERT's kind (wordpiece)"
            )
        if tokenizer.vocab_size != split.corpus.vocab_size:
            raise InputError(
                f"the corpus was prepared for {split.corpus.vocab_size:,} ids, "
                f"the tokenizer has {tokenizer.vocab_size:,}",
                fix="prepare the corpus with this tokenizer",
            )
        self.plan = plan_samples(split, sampling, epoch=epoch)
        self._corpus = split.corpus
        self._epoch = epoch
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self._special = np.zeros(tokenizer.vocab_size, np.bool_)
        self._special[list(tokenizer.special_ids)] = True

    def __len__(self) -> int:
        return len(self.plan)

    def make_batch(self, numbers: Ints) -> PackedBatch:
        """Some samples one after another."""
        lengths = self.plan.lengths[numbers]
        size = int(lengths.sum())
        ids, types = np.empty(size, np.int64), np.zeros(size, np.int64)
        words = np.ones(size, np.bool_)
        at = 0
        for a, b in zip(self.plan.a[numbers].tolist(), self.plan.b[numbers].tolist(), strict=True):
            ids[at] = self._cls
            at = self._fill(ids, words, at + 1, a)
            if b[0] < b[1]:
                begin = at
                at = self._fill(ids, words, at, b)
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

    def _fill(self, ids: Ints, words: Bools, at: int, stretch: list[int]) -> int:
        """Lay a segment and its [SEP] at a place; where the next thing goes."""
        first, last = stretch
        end = at + last - first
        ids[at:end], words[at:end] = self._corpus.read_tokens(first, last)
        words[at] = True  # a word cut in two at the edge of a segment is a word to us
        ids[end] = self._sep
        return end + 1


def plan_samples(split: CorpusSplit, sampling: Sampling, *, epoch: int) -> SamplePlan:
    """All samples of an epoch, shuffled."""
    if not len(split):
        raise InputError(
            "there are no documents to take samples from", fix="hold out a larger share"
        )
    rng = make_generator(sampling.seed, epoch, Purpose.SAMPLING)
    sentences = split.corpus.sentence_starts.astype(np.int64)
    make = {
        "nsp": _plan_next_sentence_pairs,
        "sop": _plan_sentence_order_pairs,
        "none": _plan_whole_sentences,
    }
    made = make[sampling.pairs](_Documents(split.sentence_ranges, sentences), sampling, rng)
    order = make_generator(sampling.seed, epoch, Purpose.ORDER).permutation(len(made))
    return SamplePlan(a=made.a[order], b=made.b[order], labels=made.labels[order])


@dataclass(frozen=True)
class _Documents:
    """Documents as the sentences they begin and end with, and where sentences begin."""

    sentence_ranges: Ints  # d 2
    sentence_starts: Ints  # s + 1, S above

    def split_long(self) -> tuple[Ints, Ints]:
        """Stretches of sentences of at most about PART tokens, and the document each is from."""
        first, last = self.sentence_ranges.T
        begin = self.sentence_starts[first]
        pieces = -(-(self.sentence_starts[last] - begin) // PART_TOKENS)
        owner = np.repeat(np.arange(len(first)), pieces)
        place = np.arange(len(owner)) - np.repeat(pieces.cumsum() - pieces, pieces)
        cuts = np.searchsorted(self.sentence_starts, begin[owner] + place * PART_TOKENS)
        ends = np.where(np.append(np.diff(owner), 1) > 0, last[owner], np.append(cuts[1:], 0))
        real = cuts < ends  # a sentence longer than a part leaves an empty one
        return np.stack([cuts, ends], 1)[real], owner[real]

    def find_end(self, sentence: Ints, tokens: Ints) -> Ints:
        """The sentence before which at least so many tokens have passed."""
        return np.searchsorted(self.sentence_starts, self.sentence_starts[sentence] + tokens)

    def token_spans(self, first: Ints, last: Ints) -> Ints:
        """Sentences first … last as tokens."""
        return np.stack([self.sentence_starts[first], self.sentence_starts[last]], 1)


@dataclass(frozen=True)
class _SentenceChunks:
    """Runs of sentences to make pairs of: A is begin … middle, the rest is middle … end."""

    owner: Ints  # the document
    target: Ints  # length aimed at
    begin: Ints
    middle: Ints
    end: Ints
    is_negative: Bools  # not to be left as it is in the text


def _draw_target_lengths(
    size: int, room: int, sampling: Sampling, rng: np.random.Generator
) -> Ints:
    """Tokens to aim at in each part: all there is room for, sometimes 2 … room at random."""
    short = rng.random(size) < sampling.short_seq_prob
    return np.where(short, 2 + (rng.random(size) * (room - 1)).astype(np.int64), room)


def _collect_chunks(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator, *, reuse_replaced: bool
) -> _SentenceChunks:
    """Walk the documents as BERT's create_pretraining_data does, all of them at once.

    Sentences are gathered until the target is reached; A ends at a random one of them. The target
    is drawn once a document there, once a part here, so that no book is all short. Departure: where
    one sentence alone reaches the target, the original has no B of its own to give, so that at
    short lengths nearly all pairs are wrong; here the sentence after it is gathered too, and both
    are cut.
    """
    bounds, owner = documents.split_long()
    target = _draw_target_lengths(len(bounds), sampling.max_length - 3, sampling, rng)
    cursor, last = bounds[:, 0].copy(), bounds[:, 1]
    active = np.arange(len(bounds))
    steps = []
    while len(active):
        begin = cursor[active]
        end = np.minimum(documents.find_end(begin, target[active]), last[active])
        flip = rng.random(len(active)) < 0.5  # noqa: PLR2004 - half of the pairs
        follows = (end - begin == 1) & (end < last[active])
        end += follows & ~flip if reuse_replaced else follows  # a random B needs no second sentence
        count = end - begin
        flip |= count == 1
        middle = begin + 1 + (rng.random(len(active)) * (count - 1)).astype(np.int64)
        steps.append((active, begin, middle, end, flip))
        # What a random B displaced is not lost: the next chunk begins with it.
        cursor[active] = np.where(flip, middle, end) if reuse_replaced else end
        active = active[cursor[active] < last[active]]
    part, begin, middle, end, flip = (np.concatenate(column) for column in zip(*steps, strict=True))
    return _SentenceChunks(owner[part], target[part], begin, middle, end, flip)


def _plan_next_sentence_pairs(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """Half of the time B is what follows A, else it is from another document."""
    if len(documents.sentence_ranges) <= 1:
        raise InputError(
            "next sentence prediction takes its wrong pairs from other documents, and there is "
            "only one",
            fix="part the documents by blank lines, or turn the task off: --pairs none",
        )
    chunks = _collect_chunks(documents, sampling, rng, reuse_replaced=True)
    a = documents.token_spans(chunks.begin, chunks.middle)
    size = len(a)
    # Departure: the original tries ten times to draw another document; here it is always another.
    other = (rng.random(size) * (len(documents.sentence_ranges) - 1)).astype(np.int64)
    other += other >= chunks.owner
    first, last = documents.sentence_ranges[other].T
    begin = first + (rng.random(size) * (last - first)).astype(np.int64)
    wanted = np.maximum(chunks.target - np.diff(a)[:, 0], 1)
    end = np.minimum(documents.find_end(begin, wanted), last)
    b = np.where(
        chunks.is_negative[:, None],
        documents.token_spans(begin, end),
        documents.token_spans(chunks.middle, chunks.end),
    )
    return truncate_pairs(a, b, chunks.is_negative.astype(np.int64), sampling.max_length, rng)


def _plan_sentence_order_pairs(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """A and B follow each other in the text; half of the time they are exchanged.

    Departure: where a chunk is a single sentence ALBERT's code takes B from another document, which
    is another task; here such a sample has one segment and no label.
    """
    chunks = _collect_chunks(documents, sampling, rng, reuse_replaced=False)
    a = documents.token_spans(chunks.begin, chunks.middle)
    b = documents.token_spans(chunks.middle, chunks.end)
    alone = chunks.end - chunks.begin == 1
    flip = (chunks.is_negative & ~alone)[:, None]
    labels = np.where(alone, IGNORE_INDEX, chunks.is_negative)
    return truncate_pairs(
        np.where(flip, b, a), np.where(flip, a, b), labels, sampling.max_length, rng
    )


def _plan_whole_sentences(
    documents: _Documents, sampling: Sampling, rng: np.random.Generator
) -> SamplePlan:
    """Sentences of one document as long as they fit; only one too long for a sample is cut."""
    begins = documents.sentence_starts
    bounds, _ = documents.split_long()
    room = sampling.max_length - 2
    target = _draw_target_lengths(len(bounds), room, sampling, rng)
    cursor, last = begins[bounds[:, 0]], begins[bounds[:, 1]]
    active = np.arange(len(bounds))
    steps = []
    while len(active):
        at = cursor[active]
        fitting = begins[np.searchsorted(begins, at + target[active], "right") - 1]
        following = np.minimum(begins[np.searchsorted(begins, at, "right")], at + room)
        end = np.minimum(np.where(fitting > at, fitting, following), last[active])
        steps.append(np.stack([at, end], 1))
        cursor[active] = end
        active = active[end < last[active]]
    a = np.concatenate(steps)
    return SamplePlan(a=a, b=np.zeros_like(a), labels=np.full(len(a), IGNORE_INDEX))


def truncate_pairs(
    a: Ints, b: Ints, labels: Ints, length: int, rng: np.random.Generator
) -> SamplePlan:
    """Cut pairs to length: token by token off the longer one, front or back at random.

    The original does so in a loop. How many go from each is decided by the lengths alone (B where
    they are equal), and that each goes from a random end makes the number off the front binomial.
    """
    size_a, size_b = np.diff(a)[:, 0], np.diff(b)[:, 0]
    excess = np.maximum(size_a + size_b - (length - np.where(size_b > 0, 3, 2)), 0)
    level = np.minimum(excess, abs(size_a - size_b))  # until they are equally long
    rest = excess - level
    off_a = np.where(size_a > size_b, level, 0) + rest // 2
    off_b = excess - off_a
    return SamplePlan(a=_trim_spans(a, off_a, rng), b=_trim_spans(b, off_b, rng), labels=labels)


def _trim_spans(stretch: Ints, off: Ints, rng: np.random.Generator) -> Ints:
    front = rng.binomial(off, 0.5)
    return stretch + np.stack([front, front - off], 1)
