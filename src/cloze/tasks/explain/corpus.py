"""Vectors of the words of many texts, layer by layer: for similarity of layers and for probes.

n words of a batch, t tokens of a packed batch, d width.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.data.batch import batch_by_tokens
from cloze.data.sources import Source, read_rows
from cloze.errors import InputError
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode
from cloze.tasks.features import make_id_tensor
from cloze.tasks.inference import BATCH_TOKENS
from cloze.tasks.inputs import check_texts
from cloze.tasks.text_encoding import encode_texts
from cloze.text.alignment import TokenAlignment

Span: TypeAlias = tuple[int, int]  # start and end characters
_CHUNK = 512  # texts that are sorted by length and computed together


def read_corpus(
    data: Source | Sequence[str], *, limit: int | None = None, text_column: str | int | None = None
) -> Iterator[str]:
    """The texts of a file (a line or row each), folder, glob or table, or those of a list.

    Blank ones are left out.
    """
    if isinstance(data, str | os.PathLike):
        rows = read_rows(data, text_column=text_column)
        texts: Iterable[str] = (row.text for row in rows)
    else:
        texts = check_texts(data, text_column=text_column)
    return islice((text for text in texts if text.strip()), limit)


def iterate_word_vectors(
    model: Model, texts: Iterable[tuple[str, Sequence[Span] | None]]
) -> Iterator[tuple[list[list[bool]], list[Tensor]]]:
    """For chunks of texts, in order: which of their words have a vector, and their vectors.

    A text comes with the characters of its words, or None for all of its tokens. The vectors of
    each layer (n d) are those of the words that have one, text after text: the mean of their
    tokens. A word without one is beyond the maximum length of the model, or has no tokens. Only one
    chunk is in memory.
    """
    waiting = iter(texts)
    while chunk := list(islice(waiting, _CHUNK)):
        encoded = encode_texts(model, [text for text, _ in chunk], aligned=True)
        alignments = [_get_alignment(encoded[n].encoding) for n in range(len(chunk))]
        ranges = [
            find_tokens(alignment, spans)
            for alignment, (_, spans) in zip(alignments, chunk, strict=True)
        ]
        yield (
            [[len(one) > 0 for one in some] for some in ranges],
            _average_tokens(model, alignments, [[one for one in some if one] for some in ranges]),
        )


def _get_alignment(alignment: TokenAlignment | None) -> TokenAlignment:
    assert alignment is not None
    return alignment


def find_tokens(alignment: TokenAlignment, spans: Sequence[Span] | None) -> list[range]:
    """The tokens of each word; those of a text itself, one by one, if no words are given."""
    if spans is None:
        return [range(token, token + 1) for token in alignment.token_range()]
    return [alignment.tokens_in_span(*span) for span in spans]


@torch.inference_mode()
def _average_tokens(
    model: Model, alignments: Sequence[TokenAlignment], ranges: Sequence[Sequence[range]]
) -> list[Tensor]:
    """The mean vectors of the tokens of each word, of all texts in order: n d of each layer."""
    found: dict[int, list[Tensor]] = {}  # by text
    with eval_mode(model.module):
        for batch in batch_by_tokens([len(one) for one in alignments], BATCH_TOKENS):
            packed = Packed.from_lengths((len(alignments[n]) for n in batch), model.device)
            ids = make_id_tensor([alignments[n].ids for n in batch], model.device)
            layers = [x.float() for x in model.module.hidden_states(ids, packed)]  # t d each
            starts = packed.starts.tolist()
            for n, start in zip(batch, starts, strict=True):
                found[n] = [_mean_ranges(layer, start, ranges[n]).cpu() for layer in layers]
    count = len(next(iter(found.values())))
    return [torch.cat([found[n][layer] for n in range(len(alignments))]) for layer in range(count)]


def _mean_ranges(layer: Tensor, start: int, ranges: Sequence[range]) -> Tensor:
    """The mean of each range of tokens: t d -> n d."""
    if not ranges:
        return layer.new_empty(0, layer.shape[-1])
    tokens = [start + token for one in ranges for token in one]
    owners = [n for n, one in enumerate(ranges) for _ in one]
    sums = layer.new_zeros(len(ranges), layer.shape[-1])
    sums.index_add_(0, torch.tensor(owners, device=layer.device), layer[tokens])
    return sums / torch.tensor([[len(one)] for one in ranges], device=layer.device)


def check_corpus_size(count: int, needed: int, what: str) -> None:
    """Raise if there are too few examples for an estimate."""
    if count < needed:
        raise InputError(
            f"there are {count:,} {what}, but {needed:,} are needed", fix="use more text"
        )
