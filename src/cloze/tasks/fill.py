"""`fill`: words for [MASK].  n tokens of a packed row, m blanks, v vocabulary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from cloze.checkpoint.abilities import can
from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.nn.layout import Packed
from cloze.tasks.door import open_model
from cloze.tasks.texts import check_texts
from cloze.text.alignment import TokenAlignment
from cloze.text.backends import BYTES

_NO_TEXT = frozenset((None, *BYTES))  # ids that no piece has, and the names of single bytes


@dataclass(frozen=True, kw_only=True)
class MaskPrediction:
    """One word for one blank."""

    word: str
    score: float  # its probability in the blank, the other blanks left open
    ids: tuple[int, ...]  # its pieces; more than one only for a candidate the vocabulary splits
    text: str  # the whole text with the word in its place


@dataclass(frozen=True, kw_only=True)
class MaskResult:
    """One [MASK] of the text and the words for it, best first."""

    start: int
    end: int
    predictions: tuple[MaskPrediction, ...]


@dataclass(frozen=True, kw_only=True)
class FillResult:
    """A text and what its blanks may hold."""

    text: str
    masks: tuple[MaskResult, ...]
    truncated: int = 0  # pieces far from the blanks that the model has no room to read

    @property
    def best(self) -> str:
        """The text with the best word in every blank."""
        text = self.text
        for blank in reversed(self.masks):  # from the back, so that the places stay true
            text = insert_word(text, blank.start, blank.end, blank.predictions[0].word)
        return text


@overload
def fill(
    model: Model | PathLike, text: str, *, top: int = 5, candidates: Sequence[str] | None = None
) -> FillResult: ...
@overload
def fill(
    model: Model | PathLike,
    text: list[str],
    *,
    top: int = 5,
    candidates: Sequence[str] | None = None,
) -> list[FillResult]: ...
@torch.inference_mode()
def fill(
    model: Model | PathLike,
    text: str | list[str],
    *,
    top: int = 5,
    candidates: Sequence[str] | None = None,
) -> FillResult | list[FillResult]:
    """The likeliest words for every [MASK] of a text, or of each of several texts.

    With `candidates` only these words are scored. One that the vocabulary splits is scored piece
    by piece from the left, p(w₁)·p(w₂ | w₁)…, with as many masks in the blank as it has pieces.
    Special tokens and pieces that are no whole characters (single bytes) are never guessed, so the
    probabilities of all guesses together may be less than 1.

    Of a text longer than the model reads it sees as much around the blanks as it has room for, and
    `cut` says how many pieces it did not see. That is no error here, as it is in other verbs: what
    lies far from a blank says little about it.
    """
    model = open_model(model, "fill", Model)
    texts = check_texts(text)
    candidates = None if candidates is None else check_texts(candidates, "candidate")
    split = check_fill(model, top=top, candidates=candidates)
    if not isinstance(text, str):
        return [fill(model, one, top=top, candidates=candidates) for one in texts]
    mask = model.tokenizer.mask_token
    encoding = model.tokenizer.encode(text)
    places = [n for n, id_ in enumerate(encoding.ids) if id_ == model.tokenizer.mask_id]
    if mask is None or not places:
        raise InputError(
            f"there is no {mask or '[MASK]'} in {_short(text)!r}",
            fix=f"write {mask or '[MASK]'} where the word is missing",
        )
    longest = max(map(len, split.values()), default=1)
    ids, before = _around(encoding, places, model.limit - (longest - 1))
    spots = [place - before for place in places]
    if candidates is None:
        found = _likeliest(model, ids, spots, top)
    else:
        found = [_scored(model, ids, spot, split)[:top] for spot in spots]
    spans = [encoding.offsets[place] for place in places]
    blanks = [
        MaskResult(
            start=start,
            end=end,
            predictions=tuple(
                MaskPrediction(
                    word=word, score=score, ids=pieces, text=insert_word(text, start, end, word)
                )
                for word, score, pieces in guesses
            ),
        )
        for (start, end), guesses in zip(spans, found, strict=True)
    ]
    return FillResult(text=text, masks=tuple(blanks), truncated=len(encoding) - len(ids))


def check_fill(
    model: Model, *, top: int, candidates: Sequence[str] | None
) -> dict[str, tuple[int, ...]]:
    """The pieces of each candidate; an error where a model or a choice can serve no text."""
    can(model, "fill")
    if "mlm" not in model.heads:
        raise InputError(
            f"this model cannot fill blanks: its head is {model.head or 'missing'}",
            fix="load a folder with a masked-LM head (BertForMaskedLM, BertForPreTraining, …)",
        )
    if model.module.is_causal:
        raise InputError(
            "this model cannot fill blanks: it reads left to right, and sees nothing after them",
            fix="load one that learned masked words (cloze pretrain, objective.kind mlm)",
        )
    in_range("top", top, 1, model.tokenizer.vocab_size)
    return {word: _pieces(model, word) for word in candidates or ()}


_Found = list[tuple[str, float, tuple[int, ...]]]


def insert_word(text: str, start: int, end: int, word: str) -> str:
    """`text` with a word in place of [start, end); a ##continuation joins the word before it."""
    if word.startswith("##"):
        return text[:start].rstrip() + word[2:] + text[end:]
    return text[:start] + word + text[end:]


def _around(encoding: TokenAlignment, places: list[int], limit: int) -> tuple[list[int], int]:
    """The ids that fit, with the blanks in the middle, and how many were left out before them."""
    if len(encoding) <= limit:
        return encoding.ids, 0
    inside = encoding.token_range()
    room = limit - (len(encoding) - len(inside))
    first, stop = places[0], places[-1] + 1
    if stop - first > room:
        raise InputError(
            f"from the first blank to the last there are {stop - first:,} pieces, "
            f"and the model reads {max(room, 0):,}",
            fix="make a text of each blank and what is around it",
        )
    start = max(inside.start, min((first + stop - room) // 2, inside.stop - room))
    ids = encoding.ids
    kept = [*ids[: inside.start], *ids[start : start + room], *ids[inside.stop :]]
    return kept, start - inside.start


def _likeliest(model: Model, ids: list[int], places: list[int], top: int) -> list[_Found]:
    scores = _log_probabilities(model, [ids], [(0, place) for place in places])  # m v
    return [_words(model, row, top) for row in scores[:, : model.tokenizer.vocab_size]]


def _words(model: Model, scores: Tensor, top: int) -> _Found:
    """The best that are words or parts of words; few are not, so few more are asked for."""
    found: _Found = []
    asked = 0
    while len(found) < top and asked < len(scores):
        asked = min(max(2 * top + len(model.tokenizer.special_ids), 4 * asked), len(scores))
        best = scores.topk(asked)
        found = [
            (word, score, (id_,))
            for id_, score in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
            if (word := _word(model, id_)) is not None
        ]
    return found[:top]


def _scored(
    model: Model, ids: list[int], place: int, split: Mapping[str, tuple[int, ...]]
) -> _Found:
    """The candidates by probability: every piece of every word is one row, all in one pass."""
    mask_id = ids[place]
    rows: list[list[int]] = []
    spots: list[tuple[int, int]] = []
    asked: list[int] = []
    for pieces in split.values():
        for number, piece in enumerate(pieces):
            inside = [*pieces[:number], *[mask_id] * (len(pieces) - number)]
            spots.append((len(rows), place + number))
            rows.append([*ids[:place], *inside, *ids[place + 1 :]])
            asked.append(piece)
    scores = _log_probabilities(model, rows, spots)
    logs = iter(scores[torch.arange(len(asked)), torch.tensor(asked)].double().tolist())
    totals = [sum(next(logs) for _ in pieces) for pieces in split.values()]
    found = [
        (word, float(torch.tensor(total).exp()), pieces)
        for (word, pieces), total in zip(split.items(), totals, strict=True)
    ]
    return sorted(found, key=lambda guess: -guess[1])


def _log_probabilities(model: Model, rows: list[list[int]], spots: list[tuple[int, int]]) -> Tensor:
    """Log p over the vocabulary at (row, token) spots; the head sees these places only."""
    packed = Packed.of(map(len, rows), device=model.device)
    flat = torch.tensor([id_ for row in rows for id_ in row], device=model.device)  # n
    hidden = model.module(flat, packed)  # n d
    starts = packed.starts.tolist()
    chosen = torch.tensor([starts[row] + token for row, token in spots], device=model.device)
    return model.module.logits("mlm", hidden[chosen]).float().log_softmax(-1).cpu()  # m v


def _pieces(model: Model, word: str) -> tuple[int, ...]:
    encoding = model.tokenizer.encode(word)
    pieces = tuple(
        id_
        for id_, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if not special
    )
    if not pieces or model.tokenizer.unk_id in pieces:
        raise InputError(
            f"the vocabulary cannot spell the candidate {word!r}",
            fix="leave it out, or use a model whose vocabulary holds its characters",
        )
    return pieces


def _word(model: Model, id_: int) -> str | None:
    """A piece for a reader; None where there is none, or nothing that a text could be made of."""
    tokenizer = model.tokenizer
    if id_ in tokenizer.special_ids or tokenizer.backend.id_to_token(id_) in _NO_TEXT:
        return None
    word = tokenizer.decode([id_], skip_special_tokens=False).strip()
    return None if "\ufffd" in word else word  # a part of a character


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
