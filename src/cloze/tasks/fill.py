"""`fill`: predict masked tokens.  m masks of a text, v tokens of the vocabulary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model, check_capability, unsupported_function_error
from cloze.config import in_range, one_of
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.results import Result, Results
from cloze.tasks.inference import describe_heads, iterate_logits
from cloze.tasks.inputs import Texts, check_texts, open_model, warn_truncated
from cloze.text.alignment import TokenAlignment, count_removed_chars
from cloze.text.backends import BYTES
from cloze.text.long_texts import LONG, is_long

MAX_CHARS_PER_TOKEN = 64  # masks that are further apart do not fit into one sequence
_NO_TEXT = frozenset((None, *BYTES))  # ids without a token, and tokens that are single bytes


@dataclass(frozen=True, kw_only=True)
class MaskPrediction:
    """A predicted word for a mask."""

    word: str
    score: float  # its probability; other masks of the text stay masked
    ids: tuple[int, ...]  # its token ids; several only for candidates
    # the text with the word in place of the mask; of a text of more than 32,768 characters, the
    # part around the mask
    text: str


@dataclass(frozen=True, kw_only=True)
class MaskResult:
    """A mask of the text and the predicted words, best first."""

    start: int
    end: int
    predictions: tuple[MaskPrediction, ...]


@dataclass(frozen=True, kw_only=True)
class FillResult(Result):
    """A text and the predictions for its masks."""

    text: str
    masks: tuple[MaskResult, ...]
    truncated_chars: int = 0  # number of characters left out, far from the masks

    record_columns = ("text", "mask", "word", "score")

    @property
    def best(self) -> str:
        """The text with the best word at every mask."""
        text = self.text
        for mask in reversed(self.masks):  # from the back, so that the offsets stay valid
            text = insert_word(text, mask.start, mask.end, mask.predictions[0].word)
        return text

    def to_records(self) -> list[dict[str, Any]]:
        """A row per predicted word; masks are numbered from 1."""
        return [
            {"text": self.text, "mask": number, "word": one.word, "score": one.score}
            for number, mask in enumerate(self.masks, 1)
            for one in mask.predictions
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import (
            Mark,
            render_bars,
            render_columns,
            render_result,
            render_text,
        )

        several = len(self.masks) > 1
        marks = [
            Mark(start=mask.start, end=mask.end, label=str(number) if several else "", hue=207)
            for number, mask in enumerate(self.masks, 1)
        ]
        bars = [
            render_bars(
                ((one.word, one.score) for one in mask.predictions),
                title=f"mask {number}" if several else "",
            )
            for number, mask in enumerate(self.masks, 1)
        ]
        return render_result(render_text(self.text, marks), render_columns(bars))


class FillOptions(TypedDict, total=False):
    """The options of `fill`."""

    top: int
    candidates: Iterable[str] | None
    truncation: str | None
    skip_blank: bool
    text_column: str | int | None
    batch_tokens: int | None
    progress: ProgressCallback | None


@overload
def fill(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, text: str, **options: Unpack[FillOptions]
) -> FillResult: ...
@overload
def fill(
    model: Model | PathLike, text: Texts, **options: Unpack[FillOptions]
) -> Results[FillResult]: ...
def fill(
    model: Model | PathLike,
    text: str | Texts,
    *,
    top: int = 5,
    candidates: Iterable[str] | None = None,
    truncation: str | None = None,
    skip_blank: bool = False,
    text_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> FillResult | Results[FillResult]:
    """Predict the most probable words for every [MASK] of a text, or of each of several texts.

    Special tokens and incomplete characters (single bytes) are never predicted, so probabilities
    may sum to less than 1.

    Args:
        model: a model with a masked-LM head, or its folder.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        top: number of words per mask.
        candidates: score only these words. A word of several tokens is scored token by token from
            left to right, p(w₁)·p(w₂ | w₁)…, with as many masks as it has tokens.
        truncation: for texts that are too long: window (only the text around the masks is read) or
            error. Default: window, with a warning that says how much was not read.
        skip_blank: return no masks for a blank text, instead of an error.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: called with the number of sequences done.
    """
    model = open_model(model, "fill")
    texts = check_texts(text, text_column=text_column)
    words = None if candidates is None else check_texts(candidates, "candidate")
    if truncation is not None:
        one_of("truncation", truncation, ("window", "error"))
    split = check_fill(model, top=top, candidates=words)
    longest = max(map(len, split.values()), default=1)
    encoded = {
        number: _encode_masked(model, one, longest, crop=truncation != "error")
        for number, one in enumerate(texts)
        if one.strip() or not skip_blank
    }
    options: dict[str, Any] = {"batch_tokens": batch_tokens, "progress": progress}
    if words is None:
        found = dict(_predict_words(model, encoded, top, options))
    else:
        found = _score_candidates(model, encoded, split, top, options)
    results = [
        _make_result(one, encoded[number], found[number])
        if number in encoded
        else FillResult(text=one, masks=())
        for number, one in enumerate(texts)
    ]
    if truncation is None:
        counts = [one.truncated_chars for one in results]
        warn_truncated(counts, model.max_length, fix="only the text around the masks was")
    return results[0] if isinstance(text, str) else Results(results)


def check_fill(
    model: Model, *, top: int, candidates: Sequence[str] | None
) -> dict[str, tuple[int, ...]]:
    """Check the model and the options, and return the token ids of each candidate."""
    check_capability(model, "fill")
    if "mlm" not in model.task_heads:
        raise unsupported_function_error(model, "fill", describe_heads(model, "masked-LM"))
    if model.module.is_causal:
        reason = "it is causal and ignores the text after a mask"
        raise unsupported_function_error(model, "fill", reason)
    in_range("top", top, 1, model.tokenizer.vocab_size)
    if candidates is not None and not candidates:
        raise InputError("no candidate was given", fix="give one or more words")
    return {word: _split_candidate(model, word) for word in candidates or ()}


def insert_word(text: str, start: int, end: int, word: str) -> str:
    """Replace [start, end) of a text by a word; a ## token is joined to the word before it."""
    if word.startswith("##"):
        return text[:start].rstrip() + word[2:] + text[end:]
    return text[:start] + word + text[end:]


@dataclass(frozen=True, kw_only=True)
class _MaskedText:
    """The token ids of a text, and the positions of its masks."""

    ids: list[int]
    positions: list[int]  # of the masks in `ids`
    spans: list[tuple[int, int]]  # of the masks in the text
    truncated_chars: int

    def item(self, position: int, inserted: Sequence[int], target: int) -> EncodedExample:
        """The sequence with a mask replaced by other tokens, to predict the token at `target`."""
        ids = [*self.ids[:position], *inserted, *self.ids[position + 1 :]]
        return _make_item(ids, [target])


_Found = list[tuple[str, float, tuple[int, ...]]]  # word, probability, tokens


def _make_item(ids: list[int], positions: list[int]) -> EncodedExample:
    return EncodedExample(ids=ids, type_ids=[0] * len(ids), positions=positions)


def _encode_masked(model: Model, text: str, longest: int, *, crop: bool) -> _MaskedText:
    """Encode a text with masks, so that candidates of `longest` tokens fit."""
    start, part = _take_part(model, text, longest)
    encoding = model.tokenizer.encode(part)
    positions = [n for n, id_ in enumerate(encoding.ids) if id_ == model.tokenizer.mask_id]
    mask = model.tokenizer.mask_token
    if mask is None or not positions:
        raise InputError(
            f"there is no {mask or '[MASK]'} in {_shorten(text)!r}",
            fix=f"write {mask or '[MASK]'} in place of the word to predict",
        )
    ids, inside = encoding.ids, encoding.token_range()
    limit = model.max_length - (longest - 1)
    if len(ids) > limit and not crop:
        raise InputError(
            f"the text has {'more than ' * (len(part) < len(text))}{len(ids):,} tokens with "
            f"special tokens, but at most {limit:,} fit",
            fix="shorten it, or use truncation window, to read the text around the masks",
        )
    kept = _find_window(encoding, positions, limit) if len(ids) > limit else inside
    return _MaskedText(
        ids=[*ids[: inside.start], *ids[kept.start : kept.stop], *ids[inside.stop :]],
        positions=[position - (kept.start - inside.start) for position in positions],
        spans=[
            (start + first, start + end)
            for first, end in (encoding.offsets[position] for position in positions)
        ],
        truncated_chars=len(text)
        - len(part)
        + count_removed_chars(
            encoding.offsets[inside.start : inside.stop],
            [range(kept.start - inside.start, kept.stop - inside.start)],
        ),
    )


def _take_part(model: Model, text: str, longest: int) -> tuple[int, str]:
    """The part of a long text that is needed, and where it starts."""
    mask = model.tokenizer.mask_token
    if mask is None or not is_long(text) or mask not in text:
        return 0, text[:LONG] if mask is None or mask not in text else text
    first, stop = text.find(mask), text.rfind(mask) + len(mask)
    most = model.max_length + longest
    if stop - first > MAX_CHARS_PER_TOKEN * most:
        raise InputError(
            f"the masks are {stop - first:,} characters apart, but the model's maximum length is "
            f"{model.max_length:,} tokens",
            fix="split the text into parts with one mask each",
        )
    start, end = model.tokenizer.find_context(text, first, stop, most)
    return start, text[start:end]


def _find_window(encoding: TokenAlignment, positions: list[int], limit: int) -> range:
    """The tokens of the text that fit, with the masks in the middle."""
    inside = encoding.token_range()
    room = limit - (len(encoding) - len(inside))
    first, stop = positions[0], positions[-1] + 1
    if stop - first > room:
        raise InputError(
            f"the masks are {stop - first:,} tokens apart, but the model's maximum length leaves "
            f"room for {max(room, 0):,} tokens",
            fix="split the text into parts with one mask each",
        )
    start = max(inside.start, min((first + stop - room) // 2, inside.stop - room))
    return range(start, start + room)


def _predict_words(
    model: Model, encoded: Mapping[int, _MaskedText], top: int, options: Mapping[str, Any]
) -> Iterator[tuple[int, list[_Found]]]:
    """Yield the index of each text and the most probable words of its masks."""
    numbers = list(encoded)
    items = [_make_item(one.ids, one.positions) for one in encoded.values()]
    for batch, logits in iterate_logits(model, items, head="mlm", **options):
        for n, part in zip(batch, logits, strict=True):
            scores = part.log_softmax(-1)[:, : model.tokenizer.vocab_size]  # m v
            yield numbers[n], [_top_words(model, row, top) for row in scores]


def _top_words(model: Model, scores: Tensor, top: int) -> _Found:
    """The best tokens that are text: takes more than `top`, as some are special or bytes."""
    found: _Found = []
    count = 0
    while len(found) < top and count < len(scores):
        count = min(max(2 * top + len(model.tokenizer.special_ids), 4 * count), len(scores))
        best = scores.topk(count)
        found = [
            (word, score, (id_,))
            for id_, score in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
            if (word := _decode_token(model, id_)) is not None
        ]
    return found[:top]


def _score_candidates(
    model: Model,
    encoded: Mapping[int, _MaskedText],
    split: Mapping[str, tuple[int, ...]],
    top: int,
    options: Mapping[str, Any],
) -> dict[int, list[_Found]]:
    """Rank the candidates of each mask; every token of every candidate is one sequence."""
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
    remaining = iter(logs)
    return {
        number: [_rank_candidates(split, remaining)[:top] for _ in one.positions]
        for number, one in encoded.items()
    }


def _rank_candidates(split: Mapping[str, tuple[int, ...]], logs: Iterator[float]) -> _Found:
    totals = [sum(next(logs) for _ in tokens) for tokens in split.values()]
    found = [
        (word, float(torch.tensor(total).exp()), tokens)
        for (word, tokens), total in zip(split.items(), totals, strict=True)
    ]
    return sorted(found, key=lambda one: -one[1])


def _insert_word(text: str, start: int, end: int, word: str) -> str:
    """Like `insert_word`, but of a long text only the part around the mask."""
    if is_long(text):
        first, last = max(0, start - LONG // 2), min(len(text), end + LONG // 2)
        text, start, end = text[first:last], start - first, end - first
    return insert_word(text, start, end, word)


def _make_result(text: str, encoded: _MaskedText, found: Sequence[_Found]) -> FillResult:
    masks = [
        MaskResult(
            start=start,
            end=end,
            predictions=tuple(
                MaskPrediction(
                    word=word, score=score, ids=ids, text=_insert_word(text, start, end, word)
                )
                for word, score, ids in words
            ),
        )
        for (start, end), words in zip(encoded.spans, found, strict=True)
    ]
    return FillResult(text=text, masks=tuple(masks), truncated_chars=encoded.truncated_chars)


def _split_candidate(model: Model, word: str) -> tuple[int, ...]:
    encoding = model.tokenizer.encode(word)
    tokens = tuple(
        id_
        for id_, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        if not special
    )
    if not tokens or model.tokenizer.unk_id in tokens:
        raise InputError(
            f"the candidate {word!r} contains characters that are not in the vocabulary",
            fix="leave it out, or use a model with another vocabulary",
        )
    return tokens


def _decode_token(model: Model, id_: int) -> str | None:
    """The text of a token; None for special tokens and incomplete characters."""
    tokenizer = model.tokenizer
    if id_ in tokenizer.special_ids or tokenizer.backend.id_to_token(id_) in _NO_TEXT:
        return None
    word = tokenizer.decode([id_], skip_special_tokens=False).strip()
    return None if "\ufffd" in word else word


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
