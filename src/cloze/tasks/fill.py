"""`fill`: predict the words behind [MASK].  m masks of a text, v vocabulary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model, check_capability
from cloze.config import in_range
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.tasks.inference import iterate_logits
from cloze.tasks.inputs import check_texts, open_model
from cloze.text.alignment import TokenAlignment
from cloze.text.backends import BYTES

_NO_TEXT = frozenset((None, *BYTES))  # ids without a token, and tokens that are single bytes


@dataclass(frozen=True, kw_only=True)
class MaskPrediction:
    """One word for one mask."""

    word: str
    score: float  # its probability at the mask, the other masks left masked
    ids: tuple[int, ...]  # its tokens; several only for a candidate that the vocabulary splits
    text: str  # the whole text with the word in place of the mask


@dataclass(frozen=True, kw_only=True)
class MaskResult:
    """One [MASK] of the text and the words for it, best first."""

    start: int
    end: int
    predictions: tuple[MaskPrediction, ...]


@dataclass(frozen=True, kw_only=True)
class FillResult:
    """A text and the predictions for its masks."""

    text: str
    masks: tuple[MaskResult, ...]
    truncated: int = 0  # tokens far from the masks that were left out

    @property
    def best(self) -> str:
        """The text with the best word at every mask."""
        text = self.text
        for mask in reversed(self.masks):  # from the back, so that the offsets stay valid
            text = insert_word(text, mask.start, mask.end, mask.predictions[0].word)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return asdict(self)


class FillOptions(TypedDict, total=False):
    """The options of `fill`."""

    top: int
    candidates: Sequence[str] | None
    skip_blank: bool
    batch_tokens: int | None
    progress: ProgressCallback | None


@overload
def fill(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, text: str, **options: Unpack[FillOptions]
) -> FillResult: ...
@overload
def fill(
    model: Model | PathLike, text: Iterable[str], **options: Unpack[FillOptions]
) -> list[FillResult]: ...
def fill(
    model: Model | PathLike,
    text: str | Iterable[str],
    *,
    top: int = 5,
    candidates: Sequence[str] | None = None,
    skip_blank: bool = False,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> FillResult | list[FillResult]:
    """The most probable words for every [MASK] of a text, or of each of several texts.

    Special tokens and tokens that are no whole characters (single bytes) are never predicted, so
    the probabilities may sum to less than 1. A text that is too long is cropped around its masks,
    and `truncated` says by how many tokens: what is far from a mask hardly matters for it.

    Args:
        model: a model with a masked-LM head, or its folder.
        text: a text, or several.
        top: number of words for each mask.
        candidates: score only these words. One that the vocabulary splits is scored token by token
            from the left, p(w₁)·p(w₂ | w₁)…, with as many masks as it has tokens.
        skip_blank: a blank text has no masks, instead of being an error.
        batch_tokens: tokens in a batch; the default depends on the device.
        progress: called with the number of sequences done.
    """
    model = open_model(model, "fill")
    texts = check_texts(text)
    words = None if candidates is None else check_texts(candidates, "candidate")
    split = check_fill(model, top=top, candidates=words)
    longest = max(map(len, split.values()), default=1)
    encoded = {
        number: _encode_masked(model, one, longest)
        for number, one in enumerate(texts)
        if one.strip() or not skip_blank
    }
    options: dict[str, Any] = {"batch_tokens": batch_tokens, "progress": progress}
    if words is None:
        found = dict(_predict_words(model, encoded, top, options))
    else:
        found = _score_candidates(model, encoded, split, top, options)
    results = [
        _result(one, encoded[number], found[number])
        if number in encoded
        else FillResult(text=one, masks=())
        for number, one in enumerate(texts)
    ]
    return results[0] if isinstance(text, str) else results


def check_fill(
    model: Model, *, top: int, candidates: Sequence[str] | None
) -> dict[str, tuple[int, ...]]:
    """The tokens of each candidate; an error if the model or an option is unsuitable."""
    check_capability(model, "fill")
    if "mlm" not in model.task_heads:
        raise InputError(
            f"this model cannot fill masks: its head is {model.head or 'missing'}",
            fix="load a folder with a masked-LM head (BertForMaskedLM, BertForPreTraining, …)",
        )
    if model.module.is_causal:
        raise InputError(
            "this model cannot fill masks: it is causal and attends to nothing after them",
            fix="load a masked language model (cloze pretrain, objective.kind mlm)",
        )
    in_range("top", top, 1, model.tokenizer.vocab_size)
    return {word: _split_candidate(model, word) for word in candidates or ()}


def insert_word(text: str, start: int, end: int, word: str) -> str:
    """`text` with a word in place of [start, end); a ##continuation joins the word before it."""
    if word.startswith("##"):
        return text[:start].rstrip() + word[2:] + text[end:]
    return text[:start] + word + text[end:]


@dataclass(frozen=True, kw_only=True)
class _Masked:
    """A text as the model sees it, and where its masks are."""

    ids: list[int]
    positions: list[int]  # of the masks in `ids`
    spans: list[tuple[int, int]]  # of the masks in the text
    truncated: int

    def item(self, position: int, inserted: Sequence[int], target: int) -> EncodedExample:
        """The sequence with other tokens in place of one mask, scored at `target`."""
        ids = [*self.ids[:position], *inserted, *self.ids[position + 1 :]]
        return _item(ids, [target])


_Found = list[tuple[str, float, tuple[int, ...]]]  # word, probability, tokens


def _item(ids: list[int], positions: list[int]) -> EncodedExample:
    return EncodedExample(ids=ids, type_ids=[0] * len(ids), positions=positions)


def _encode_masked(model: Model, text: str, longest: int) -> _Masked:
    """A text with masks; room is left for a candidate of `longest` tokens."""
    encoding = model.tokenizer.encode(text)
    positions = [n for n, id_ in enumerate(encoding.ids) if id_ == model.tokenizer.mask_id]
    mask = model.tokenizer.mask_token
    if mask is None or not positions:
        raise InputError(
            f"there is no {mask or '[MASK]'} in {_shorten(text)!r}",
            fix=f"write {mask or '[MASK]'} where the word is missing",
        )
    ids, before = _crop_around(encoding, positions, model.max_length - (longest - 1))
    return _Masked(
        ids=ids,
        positions=[position - before for position in positions],
        spans=[encoding.offsets[position] for position in positions],
        truncated=len(encoding) - len(ids),
    )


def _crop_around(
    encoding: TokenAlignment, positions: list[int], limit: int
) -> tuple[list[int], int]:
    """The ids that fit, with the masks in the middle, and how many were left out before them."""
    if len(encoding) <= limit:
        return encoding.ids, 0
    inside = encoding.token_range()
    room = limit - (len(encoding) - len(inside))
    first, stop = positions[0], positions[-1] + 1
    if stop - first > room:
        raise InputError(
            f"there are {stop - first:,} tokens from the first mask to the last, "
            f"and the model has room for {max(room, 0):,}",
            fix="split the text so that each part has one mask",
        )
    start = max(inside.start, min((first + stop - room) // 2, inside.stop - room))
    ids = encoding.ids
    kept = [*ids[: inside.start], *ids[start : start + room], *ids[inside.stop :]]
    return kept, start - inside.start


def _predict_words(
    model: Model, encoded: Mapping[int, _Masked], top: int, options: Mapping[str, Any]
) -> Iterator[tuple[int, list[_Found]]]:
    """For each text the most probable words of each of its masks."""
    numbers = list(encoded)
    items = [_item(one.ids, one.positions) for one in encoded.values()]
    for batch, logits in iterate_logits(model, items, head="mlm", **options):
        for n, part in zip(batch, logits, strict=True):
            scores = part.log_softmax(-1)[:, : model.tokenizer.vocab_size]  # m v
            yield numbers[n], [_top_words(model, row, top) for row in scores]


def _top_words(model: Model, scores: Tensor, top: int) -> _Found:
    """The best that are words or parts of words; few are not, so a few more are looked at."""
    found: _Found = []
    count = 0
    while len(found) < top and count < len(scores):
        count = min(max(2 * top + len(model.tokenizer.special_ids), 4 * count), len(scores))
        best = scores.topk(count)
        found = [
            (word, score, (id_,))
            for id_, score in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
            if (word := _word(model, id_)) is not None
        ]
    return found[:top]


def _score_candidates(
    model: Model,
    encoded: Mapping[int, _Masked],
    split: Mapping[str, tuple[int, ...]],
    top: int,
    options: Mapping[str, Any],
) -> dict[int, list[_Found]]:
    """The candidates of each mask by probability; every token of every candidate is a sequence."""
    items: list[EncodedExample] = []
    targets: list[int] = []
    for one in encoded.values():
        for position in one.positions:
            for tokens in split.values():
                for number, token in enumerate(tokens):
                    masks = [one.ids[position]] * (len(tokens) - number)
                    inserted = [*tokens[:number], *masks]
                    items.append(one.item(position, inserted, position + number))
                    targets.append(token)
    logs = [0.0] * len(items)
    for batch, logits in iterate_logits(model, items, head="mlm", **options):
        scores = torch.cat(list(logits)).log_softmax(-1)  # b v
        wanted = torch.tensor([targets[n] for n in batch])
        chosen = scores[torch.arange(len(batch)), wanted].double().tolist()
        for n, value in zip(batch, chosen, strict=True):
            logs[n] = value
    waiting = iter(logs)
    return {
        number: [_rank_candidates(split, waiting)[:top] for _ in one.positions]
        for number, one in encoded.items()
    }


def _rank_candidates(split: Mapping[str, tuple[int, ...]], logs: Iterator[float]) -> _Found:
    totals = [sum(next(logs) for _ in tokens) for tokens in split.values()]
    found = [
        (word, float(torch.tensor(total).exp()), tokens)
        for (word, tokens), total in zip(split.items(), totals, strict=True)
    ]
    return sorted(found, key=lambda one: -one[1])


def _result(text: str, encoded: _Masked, found: Sequence[_Found]) -> FillResult:
    masks = [
        MaskResult(
            start=start,
            end=end,
            predictions=tuple(
                MaskPrediction(
                    word=word, score=score, ids=ids, text=insert_word(text, start, end, word)
                )
                for word, score, ids in words
            ),
        )
        for (start, end), words in zip(encoded.spans, found, strict=True)
    ]
    return FillResult(text=text, masks=tuple(masks), truncated=encoded.truncated)


def _split_candidate(model: Model, word: str) -> tuple[int, ...]:
    encoding = model.tokenizer.encode(word)
    tokens = tuple(
        id_
        for id_, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if not special
    )
    if not tokens or model.tokenizer.unk_id in tokens:
        raise InputError(
            f"the vocabulary cannot spell the candidate {word!r}",
            fix="leave it out, or use a model whose vocabulary has its characters",
        )
    return tokens


def _word(model: Model, id_: int) -> str | None:
    """A token as text; None if it has none, or is only a part of a character."""
    tokenizer = model.tokenizer
    if id_ in tokenizer.special_ids or tokenizer.backend.id_to_token(id_) in _NO_TEXT:
        return None
    word = tokenizer.decode([id_], skip_special_tokens=False).strip()
    return None if "\ufffd" in word else word


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
