"""Sentences with one masked word, filled before and after training for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cloze.checkpoint.model import Model
from cloze.data.corpus import CorpusSplit
from cloze.files import write_json
from cloze.nn.utils import eval_mode
from cloze.tasks.fill import fill
from cloze.text.detokenize import detokenize
from cloze.text.tokenizer import Tokenizer

Fills: TypeAlias = list[list[tuple[str, float]]]  # words and probabilities, for each text

MIN_TOKENS, MAX_TOKENS = 8, 24  # of a sentence
MAX_TRIED = 10_000  # sentences: some texts contain no suitable word
MIN_LETTERS = 3  # of a masked word


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A text with a mask, and the word that stood there."""

    text: str
    truth: str


def sample_probes(view: CorpusSplit, tokenizer: Tokenizer, count: int, *, seed: int) -> list[Probe]:
    """Sample sentences of held-out documents, each of another document while there are enough."""
    if tokenizer.mask_token is None or not len(view):
        return []
    rng = np.random.default_rng(seed)
    found = (
        _probe(view, tokenizer, sentence, rng) for sentence in _sentences(view, rng)[:MAX_TRIED]
    )
    return list(islice((probe for probe in found if probe is not None), count))


def _sentences(view: CorpusSplit, rng: np.random.Generator) -> list[int]:
    """The sentences of suitable length: one of each document, then all others."""
    sentences = np.concatenate(
        [np.arange(first, last) for first, last in view.sentence_ranges.tolist()]
    )
    documents = np.repeat(np.arange(len(view)), np.diff(view.sentence_ranges)[:, 0])
    begins = view.corpus.sentence_starts
    lengths = begins[sentences + 1].astype(np.int64) - begins[sentences]
    fitting = rng.permutation(np.flatnonzero((lengths >= MIN_TOKENS) & (lengths <= MAX_TOKENS)))
    _, firsts = np.unique(documents[fitting], return_index=True)
    firsts.sort()
    order = np.concatenate([fitting[firsts], np.delete(fitting, firsts)])
    chosen: list[int] = sentences[order].tolist()
    return chosen


def fill_probes(model: Model, probes: Sequence[Probe], top: int = 5) -> Fills:
    """The model's best words for the mask of each text, with their probabilities."""
    with eval_mode(model.module):
        filled = fill(model, [probe.text for probe in probes], top=top)
    return [[(g.word, g.score) for g in one.masks[0].predictions] for one in filled]


def write_fills(path: Path, probes: Sequence[Probe], fills: Mapping[str, Fills]) -> None:
    """Write the predictions before and after training, and of a teacher, for the report."""
    rows = [
        {
            "text": probe.text,
            "truth": probe.truth,
            **{name: rows[n] for name, rows in fills.items()},
        }
        for n, probe in enumerate(probes)
    ]
    write_json(path, rows)


def _probe(
    view: CorpusSplit, tokenizer: Tokenizer, sentence: int, rng: np.random.Generator
) -> Probe | None:
    begin, end = view.corpus.sentence_starts[sentence : sentence + 2].tolist()
    ids, starts = view.corpus.read_tokens(begin, end)
    edges = [*np.flatnonzero(starts).tolist(), len(ids)]
    whole = [position for position, end in pairwise(edges) if end - position == 1]
    words = [(position, tokenizer.decode([int(ids[position])])) for position in whole]
    suitable = [(position, word) for position, word in words if _is_suitable(word)]
    if not suitable:
        return None
    position, truth = suitable[int(rng.integers(len(suitable)))]
    left, right = (
        tokenizer.decode(ids[:position].tolist()),
        tokenizer.decode(ids[position + 1 :].tolist()),
    )
    text = f"{left} {tokenizer.mask_token} {right}".strip()
    return Probe(text=detokenize(text) if tokenizer.kind == "wordpiece" else text, truth=truth)


def _is_suitable(word: str) -> bool:
    return word.isalpha() and (len(word) >= MIN_LETTERS or not word.isascii())
