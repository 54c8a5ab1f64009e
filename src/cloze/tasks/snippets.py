"""Snippets: the best sentence of a text for a query, with what is around it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cloze.retrieval.bm25 import find_terms
from cloze.text.sentences import find_sentence_spans

MAX_CHARS = 300  # of a snippet
_MAX_SCORED = 3  # texts whose sentences are scored, which takes longer than the search itself
_FUNCTION_WORDS = {  # they say little about a sentence
    *("a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "did", "do", "does", "for"),
    *("from", "had", "has", "have", "how", "if", "in", "into", "is", "it", "its", "no", "not"),
    *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this"),
    *("to", "was", "were", "what", "when", "where", "which", "who", "why", "will", "with"),
}
ScoreSentences = Callable[[list[str]], Sequence[float]]


class Snippet(NamedTuple):
    """A part of a text, and the characters of its best sentence."""

    text: str
    highlight: tuple[int, int]


def make_snippets(
    texts: Sequence[str], terms: Sequence[str], score: ScoreSentences | None = None
) -> list[Snippet]:
    """The snippet of each text.

    The best sentence shares the rarest terms with the query; rare among the sentences of all texts.
    Of the first texts that share none, `score` compares the sentences with the query; of others the
    first sentence is taken.
    """
    spans = [find_sentence_spans(text) or [(0, len(text))] for text in texts]
    best = [
        max(range(len(some)), key=lambda n: (some[n], -n)) if any(some) else None
        for some in _score_by_terms(texts, spans, {*terms} - _FUNCTION_WORDS or {*terms})
    ]
    missing = [n for n, found in enumerate(best) if found is None and len(spans[n]) > 1]
    missing = missing[:_MAX_SCORED]
    if score is not None and missing:
        sentences = [texts[n][start:end] for n in missing for start, end in spans[n]]
        scores = iter(score(sentences))
        for n in missing:
            of_text = [next(scores) for _ in spans[n]]
            best[n] = max(range(len(of_text)), key=of_text.__getitem__)
    return [
        _cut(text, some[number or 0]) for text, some, number in zip(texts, spans, best, strict=True)
    ]


def _score_by_terms(
    texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]], terms: set[str]
) -> list[list[float]]:
    """Σ ln(1 + S / n_t) over the terms of the query in a sentence; n_t of S sentences have it."""
    shared = [
        [terms.intersection(find_terms(text[start:end])) for start, end in some]
        for text, some in zip(texts, spans, strict=True)
    ]
    count = sum(map(len, shared))
    frequencies = {term: sum(term in one for some in shared for one in some) for term in terms}
    weights = {term: math.log1p(count / n) for term, n in frequencies.items() if n}
    return [[sum(weights[term] for term in one) for one in some] for some in shared]


def _cut(text: str, sentence: tuple[int, int]) -> Snippet:
    """At most `MAX_CHARS` characters around a sentence, cut between words."""
    start, end = sentence
    room = max(0, MAX_CHARS - (end - start))
    low, high = max(0, start - room // 2), min(len(text), end + room // 2)
    if low > 0:
        space = text.find(" ", low, start)
        low = space + 1 if space >= 0 else start
    if high < len(text):
        space = text.rfind(" ", end, high)
        high = space if space >= 0 else end
    before, after = "… " * (low > 0), " …" * (high < len(text))
    shift = len(before) - low
    return Snippet(before + text[low:high] + after, (start + shift, end + shift))
