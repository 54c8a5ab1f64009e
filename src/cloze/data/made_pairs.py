"""Pairs of texts that belong together, made from running text.

| kind | anchor | positive |
|---|---|---|
| title | title of a document | a paragraph of it |
| neighbours | a sentence | the next sentence |
| inverse-cloze | a sentence | the rest of its paragraph |
| random-spans | some words of a paragraph, in a row | other ones, which may overlap |
| word-deletion | a sentence | the same sentence without some of its words |
| simcse | a sentence | the same sentence: dropout makes the two vectors different |

A document is a title and its paragraphs, on a line each; a blank line ends it. A row of a table is
a document, too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from cloze.data.config import PairKind
from cloze.data.labelled.pairs import PairExample
from cloze.data.randomness import Purpose, make_generator
from cloze.data.sources import OnError, Source, read_rows
from cloze.text.sentences import split_sentences

MIN_WORDS = 4  # of a sentence
MIN_PARAGRAPH_WORDS = 8
SPAN_FRACTIONS = (0.05, 0.5)  # of the words of a paragraph, in a random span
DELETE_WORD = 0.3  # probability that a word is deleted
KEEP_SENTENCE = 0.1  # probability that an inverse cloze keeps the sentence in the paragraph

Document = Sequence[str]  # lines: the title, then paragraphs
Draw = Callable[[], float]  # a uniform random number


def read_documents(
    sources: Source | list[Source],
    *,
    text_column: str | int | None = None,
    on_error: OnError = "raise",
) -> Iterator[list[str]]:
    """The lines of each document of running text."""
    lines: list[str] = []
    for row in read_rows(sources, text_column=text_column, on_error=on_error):
        if row.is_document:
            found = [line.strip() for line in row.text.splitlines()]
            yield [line for line in found if line]
        elif row.text.strip():
            lines.append(row.text.strip())
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def make_pair_examples(
    documents: Iterator[list[str]],
    kinds: Sequence[PairKind],
    *,
    seed: int = 0,
    max_per_document: int | None = None,
) -> Iterator[PairExample]:
    """The pairs of each document: of every kind, at most `max_per_document` random ones.

    They are from as many random paragraphs, so that a long document takes no longer.
    """
    for number, document in enumerate(documents):
        rng = make_generator(seed, 0, Purpose.PAIRS, number)
        if max_per_document is not None and len(document) > max_per_document + 1:
            places = sorted(rng.permutation(len(document) - 1)[:max_per_document].tolist())
            document = [document[0], *(document[place + 1] for place in places)]
        for group, kind in enumerate(kinds):
            found = list(_MAKERS[kind](document, rng.random))
            if max_per_document is not None and len(found) > max_per_document:
                chosen = sorted(rng.permutation(len(found))[:max_per_document].tolist())
                found = [found[n] for n in chosen]
            for text, positive in found:
                yield PairExample(text=text, positive=positive, group=group, document=number)


Pairs: TypeAlias = Iterator[tuple[str, str]]


def pair_title(document: Document, _draw: Draw) -> Pairs:
    """The title with each paragraph (used by Wang et al. 2022, E5, for Wikipedia)."""
    title, *paragraphs = document or [""]
    for paragraph in paragraphs:
        if len(paragraph.split()) >= MIN_PARAGRAPH_WORDS:
            yield title, paragraph


def pair_neighbours(document: Document, _draw: Draw) -> Pairs:
    """Sentences that follow each other in a paragraph; no sentence is in two pairs."""
    for paragraph in _paragraphs(document):
        sentences = _sentences(paragraph)
        yield from zip(sentences[::2], sentences[1::2], strict=False)


def pair_inverse_cloze(document: Document, draw: Draw) -> Pairs:
    """A random sentence of each paragraph with the rest of it.

    Lee et al. 2019, §4.1: in a tenth of the pairs the paragraph keeps the sentence.
    """
    for paragraph in _paragraphs(document):
        sentences = _sentences(paragraph)
        if len(sentences) > 1:
            place = int(draw() * len(sentences))
            keeps = draw() < KEEP_SENTENCE
            rest = sentences if keeps else [*sentences[:place], *sentences[place + 1 :]]
            yield sentences[place], " ".join(rest)


def pair_random_spans(document: Document, draw: Draw) -> Pairs:
    """Two random spans of each paragraph, drawn independently (Izacard et al. 2022, Contriever)."""
    for paragraph in _paragraphs(document):
        words = paragraph.split()
        if len(words) >= MIN_PARAGRAPH_WORDS:
            yield _draw_span(words, draw), _draw_span(words, draw)


def pair_without_words(document: Document, draw: Draw) -> Pairs:
    """Every sentence with what remains of it when words are deleted at random.

    Wu et al. 2020 (CLEAR). Unlike a sentence twice, it needs no dropout.
    """
    for paragraph in _paragraphs(document):
        for sentence in _sentences(paragraph):
            kept = [word for word in sentence.split() if draw() >= DELETE_WORD]
            yield sentence, " ".join(kept) or sentence


def pair_with_itself(document: Document, _draw: Draw) -> Pairs:
    """Every sentence with itself (Gao et al. 2021, SimCSE)."""
    for paragraph in _paragraphs(document):
        for sentence in _sentences(paragraph):
            yield sentence, sentence


def _draw_span(words: Sequence[str], draw: Draw) -> str:
    low, high = SPAN_FRACTIONS
    size = max(MIN_WORDS, round((low + draw() * (high - low)) * len(words)))
    start = int(draw() * (len(words) - size + 1))
    return " ".join(words[start : start + size])


def _paragraphs(document: Document) -> Document:
    """Without the title, if there is more than one line."""
    return document[1:] if len(document) > 1 else document


@lru_cache(maxsize=1 << 14)  # several kinds of pairs use the same paragraphs
def _sentences(paragraph: str) -> list[str]:
    return [one for one in split_sentences(paragraph) if len(one.split()) >= MIN_WORDS]


_MAKERS: dict[PairKind, Callable[[Document, Draw], Pairs]] = {
    "title": pair_title,
    "neighbours": pair_neighbours,
    "inverse-cloze": pair_inverse_cloze,
    "random-spans": pair_random_spans,
    "word-deletion": pair_without_words,
    "simcse": pair_with_itself,
}
