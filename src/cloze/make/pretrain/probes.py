"""Sentences with one word hidden, to see what a model makes of them before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cloze.checkpoint.model import Model
from cloze.data.corpus import View
from cloze.files import write_json
from cloze.nn.utils import eval_mode
from cloze.tasks.fill import fill
from cloze.text.tokenizer import Tokenizer

Fills: TypeAlias = list[list[tuple[str, float]]]  # words and probabilities, for each text

SHORTEST, LONGEST = 8, 24  # tokens of a sentence worth showing
TRIED = 10_000  # sentences, at most: of some texts none has a word worth asking for
FEWEST_LETTERS = 3  # of a word worth asking for


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A text with a blank, and the word that stood there."""

    text: str
    truth: str


def sample_probes(view: View, tokenizer: Tokenizer, count: int, *, seed: int) -> list[Probe]:
    """Sentences from documents the model does not learn from, in random order.

    Each is of another document as long as there are enough of these.
    """
    if tokenizer.mask_token is None or not len(view):
        return []
    rng = np.random.default_rng(seed)
    found = (_probe(view, tokenizer, sentence, rng) for sentence in _sentences(view, rng)[:TRIED])
    return list(islice((probe for probe in found if probe is not None), count))


def _sentences(view: View, rng: np.random.Generator) -> list[int]:
    """The sentences of a fitting length: one of each document, then all the others."""
    sentences = np.concatenate([np.arange(first, last) for first, last in view.bounds.tolist()])
    documents = np.repeat(np.arange(len(view)), np.diff(view.bounds)[:, 0])
    begins = view.corpus.sentences
    lengths = begins[sentences + 1].astype(np.int64) - begins[sentences]
    fitting = rng.permutation(np.flatnonzero((lengths >= SHORTEST) & (lengths <= LONGEST)))
    _, firsts = np.unique(documents[fitting], return_index=True)
    firsts.sort()
    order = np.concatenate([fitting[firsts], np.delete(fitting, firsts)])
    chosen: list[int] = sentences[order].tolist()
    return chosen


def fill_probes(model: Model, asked: Sequence[Probe], top: int = 5) -> Fills:
    """The model's best words for each text's blank, with their probabilities."""
    with eval_mode(model.module):
        filled = fill(model, [probe.text for probe in asked], top=top)
    return [[(g.word, g.score) for g in one.masks[0].predictions] for one in filled]


def write_fills(
    path: Path,
    asked: Sequence[Probe],
    answers: Mapping[str, Fills],
) -> None:
    """What the report shows side by side: the answers before, after, and of a teacher."""
    rows = [
        {
            "text": probe.text,
            "truth": probe.truth,
            **{who: all_[n] for who, all_ in answers.items()},
        }
        for n, probe in enumerate(asked)
    ]
    write_json(path, rows)


def _probe(
    view: View, tokenizer: Tokenizer, sentence: int, rng: np.random.Generator
) -> Probe | None:
    begin, end = view.corpus.sentences[sentence : sentence + 2].tolist()
    ids, starts = view.corpus.read(begin, end)
    edges = [*np.flatnonzero(starts).tolist(), len(ids)]
    whole = [place for place, end in pairwise(edges) if end - place == 1]
    words = [(place, tokenizer.decode([int(ids[place])])) for place in whole]
    worth = [(place, word) for place, word in words if _worth(word)]
    if not worth:
        return None
    place, truth = worth[int(rng.integers(len(worth)))]
    left, right = (
        tokenizer.decode(ids[:place].tolist()),
        tokenizer.decode(ids[place + 1 :].tolist()),
    )
    return Probe(text=f"{left} {tokenizer.mask_token} {right}".strip(), truth=truth)


def _worth(word: str) -> bool:
    return word.isalpha() and (len(word) >= FEWEST_LETTERS or not word.isascii())
