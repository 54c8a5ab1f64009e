"""Joint filling: beam search over all masks of a text, each filled given those before it.

The score of a completion is log p(w₁) + log p(w₂ | w₁) + …, in the order in which its masks are
filled; it depends on the order, because a masked language model defines no joint distribution.
m masks of a text, p of them not yet filled, v tokens of the vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, one_of
from cloze.errors import InputError
from cloze.tasks.inference import iterate_logits
from cloze.tasks.masked_text import (
    MaskedText,
    crop_long,
    decode_token,
    insert_word,
    make_item,
    top_tokens,
)

FillOrder = Literal["confidence", "left-to-right"]
ORDERS = {
    "confidence": "the mask whose best word is most probable first",
    "left-to-right": "from left to right",
}
BEAM_SIZE = 8


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A text with words in place of all its masks."""

    text: str
    words: tuple[str, ...]  # one for each mask, or run of adjacent masks
    ids: tuple[int, ...]  # the token of each mask
    log_probability: float  # of all tokens, each given those that were filled before it


@dataclass(frozen=True, kw_only=True)
class _Hypothesis:
    """Tokens for some of the masks; None where a mask is not yet filled."""

    ids: tuple[int | None, ...]
    log_probability: float = 0.0

    def list_empty(self) -> list[int]:
        """The numbers of the masks that are not yet filled."""
        return [n for n, id_ in enumerate(self.ids) if id_ is None]

    def extend(self, mask: int, id_: int, log_probability: float) -> "_Hypothesis":
        ids = (*self.ids[:mask], id_, *self.ids[mask + 1 :])
        return _Hypothesis(ids=ids, log_probability=self.log_probability + log_probability)


def check_joint_options(
    *,
    joint: bool,
    beam_size: int | None,
    order: str | None,
    has_candidates: bool,
) -> tuple[int, str]:
    """The beam size and the order, after checking them."""
    if not joint:
        for name, value in (("beam_size", beam_size), ("order", order)):
            if value is not None:
                raise InputError(
                    f"{name} has no effect without joint filling",
                    fix=f"use joint=True (command line: --joint), or leave out {name}",
                )
    elif has_candidates:
        raise InputError(
            "joint filling cannot be combined with candidates", fix="leave out one of the two"
        )
    size = BEAM_SIZE if beam_size is None else beam_size
    in_range("beam_size", size, 1, 1 << 20)
    return size, one_of("order", "confidence" if order is None else order, ORDERS)


def fill_jointly(
    model: Model,
    texts: Sequence[str],
    encoded: Mapping[int, MaskedText],
    *,
    beam_size: int,
    order: str,
    options: Mapping[str, Any],
) -> dict[int, list[Completion]]:
    """The best completions of each text, by its index; each completed text once.

    Every step fills one more mask of every hypothesis of every text, in batches. The hypotheses of
    a text are compared after each step, also if they have filled different masks.
    """
    beams = {
        number: [_Hypothesis(ids=(None,) * len(one.positions))] for number, one in encoded.items()
    }
    while rows := [
        (number, hypothesis)
        for number, beam in beams.items()
        for hypothesis in beam
        if hypothesis.list_empty()
    ]:
        extended: dict[int, dict[tuple[int | None, ...], _Hypothesis]] = {}
        for n, found in _extend_all(model, rows, encoded, beam_size, order, options):
            same = extended.setdefault(rows[n][0], {})
            for one in found:  # several orders may lead to the same tokens
                if one.ids not in same or one.log_probability > same[one.ids].log_probability:
                    same[one.ids] = one
        for number, same in extended.items():
            ranked = sorted(same.values(), key=lambda one: (-one.log_probability, str(one.ids)))
            beams[number] = ranked[:beam_size]
    return {
        number: _make_completions(model, texts[number], encoded[number], beam)
        for number, beam in beams.items()
    }


def _extend_all(
    model: Model,
    rows: Sequence[tuple[int, _Hypothesis]],
    encoded: Mapping[int, MaskedText],
    beam_size: int,
    order: str,
    options: Mapping[str, Any],
) -> Iterator[tuple[int, list[_Hypothesis]]]:
    """The index of each row, and its hypothesis with one more mask filled in different ways."""
    items = []
    for number, hypothesis in rows:
        masked = encoded[number]
        ids = list(masked.ids)
        for position, id_ in zip(masked.positions, hypothesis.ids, strict=True):
            ids[position] = ids[position] if id_ is None else id_
        empty = hypothesis.list_empty()
        wanted = empty if order == "confidence" else empty[:1]
        items.append(make_item(ids, [masked.positions[mask] for mask in wanted]))
    for batch, logits in iterate_logits(model, items, head="mlm", **options):
        for n, part in zip(batch, logits, strict=True):
            hypothesis = rows[n][1]
            mask, scores = _choose_mask(model, hypothesis.list_empty(), part)
            best = top_tokens(model, scores, beam_size)
            yield n, [hypothesis.extend(mask, id_, score) for id_, score in best]


def _choose_mask(model: Model, empty: Sequence[int], logits: Tensor) -> tuple[int, Tensor]:
    """The mask with the most probable token, and the log-probabilities of its tokens (v)."""
    scores = logits.log_softmax(-1)[:, : model.tokenizer.vocab_size].double()  # p v
    best = [top_tokens(model, row, 1)[0][1] for row in scores]
    chosen = max(range(len(best)), key=best.__getitem__)  # the first of equal ones
    return empty[chosen], scores[chosen]


def _make_completions(
    model: Model, text: str, masked: MaskedText, beam: Sequence[_Hypothesis]
) -> list[Completion]:
    """The completed texts of a beam, each once: different tokens may be the same word."""
    found: dict[str, Completion] = {}
    runs = _group_adjacent(masked.positions)
    for hypothesis in beam:
        ids = tuple(id_ for id_ in hypothesis.ids if id_ is not None)
        words = tuple(_decode_run(model, [ids[mask] for mask in run]) for run in runs)
        start, end = masked.spans[0][0], masked.spans[-1][1]
        first, last = crop_long(text, start, end)
        filled = text[first:last]
        for run, word in zip(reversed(runs), reversed(words), strict=True):  # offsets stay valid
            begin, stop = masked.spans[run[0]][0] - first, masked.spans[run[-1]][1] - first
            filled = insert_word(filled, begin, stop, word)
        found.setdefault(
            filled,
            Completion(
                text=filled, words=words, ids=ids, log_probability=hypothesis.log_probability
            ),
        )
    return list(found.values())


def _group_adjacent(positions: Sequence[int]) -> list[list[int]]:
    """The numbers of the masks, those without a token between them together."""
    groups = groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    return [[mask for mask, _ in group] for _, group in groups]


def _decode_run(model: Model, ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return decode_token(model, ids[0]) or ""
    return model.tokenizer.decode(ids, skip_special_tokens=False).strip()
