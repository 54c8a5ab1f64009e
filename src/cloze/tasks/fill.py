"""`fill`: predict masked tokens.  m masks of a text, v tokens of the vocabulary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model, check_capability, unsupported_function_error
from cloze.config import in_range, one_of
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inference import describe_heads, iterate_logits
from cloze.tasks.inputs import Texts, check_texts, open_model, warn_truncated
from cloze.tasks.joint_fill import Completion, FillOrder, check_joint_options, fill_jointly
from cloze.tasks.masked_text import (
    MaskedText,
    decode_token,
    encode_masked,
    insert_into_long,
    insert_word,
    make_item,
    top_tokens,
)
from cloze.text.backends import BYTES

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


@dataclass(frozen=True, kw_only=True, repr=False)
class FillResult(Result):
    """A text and the predictions for its masks."""

    text: str
    masks: tuple[MaskResult, ...]
    joint: tuple[Completion, ...] | None = None  # the best completed texts, if asked for
    truncated_chars: int = 0  # number of characters left out, far from the masks

    record_columns = ("text", "mask", "word", "score")

    @property
    def best(self) -> str:
        """The text with the best word at every mask; with `joint` the best completed text."""
        if self.joint:
            return self.joint[0].text
        text = self.text
        for mask in reversed(self.masks):  # from the back, so that the offsets stay valid
            text = insert_word(text, mask.start, mask.end, mask.predictions[0].word)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text; it has `joint` only if asked for."""
        found = super().to_dict()
        return found if self.joint is not None else {k: found[k] for k in found if k != "joint"}

    def to_records(self) -> list[dict[str, Any]]:
        """A row per predicted word, masks are numbered from 1; with `joint` per completed text."""
        if self.joint:
            return [
                {
                    "text": self.text,
                    "completed": one.text,
                    "words": list(one.words),
                    "log_probability": one.log_probability,
                }
                for one in self.joint
            ]
        return [
            {"text": self.text, "mask": number, "word": one.word, "score": one.score}
            for number, mask in enumerate(self.masks, 1)
            for one in mask.predictions
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.marked_text import Mark
        from cloze.plot.notebook import (
            render_bars,
            render_columns,
            render_result,
            render_table,
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
        parts = [render_text(self.text, marks), render_columns(bars)]
        if self.joint:
            rows = [(one.text, round(one.log_probability, 4)) for one in self.joint]
            parts.append(render_table(("all masks together", "log-probability"), rows))
        return render_result(*parts, truncated_chars=self.truncated_chars)


class FillOptions(TypedDict, total=False):
    """The options of `fill`."""

    top: int
    candidates: Iterable[str] | None
    joint: bool
    beam_size: int | None
    order: FillOrder | None
    truncation: str | None
    skip_blank: bool
    text_column: str | int | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def fill(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, text: str, **options: Unpack[FillOptions]
) -> FillResult: ...
@overload
def fill(
    model: Model | PathLike, text: Texts, **options: Unpack[FillOptions]
) -> Results[FillResult]: ...
@with_progress
def fill(
    model: Model | PathLike,
    text: str | Texts,
    *,
    top: int = 5,
    candidates: Iterable[str] | None = None,
    joint: bool = False,
    beam_size: int | None = None,
    order: FillOrder | None = None,
    truncation: str | None = None,
    skip_blank: bool = False,
    text_column: str | int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> FillResult | Results[FillResult]:
    """Predict the most probable words for every [MASK] of a text, or of each of several texts.

    Special tokens and incomplete characters (single bytes) are never predicted, so probabilities
    may sum to less than 1.

    Without `joint` each mask is predicted while the others stay masked, so two words that are best
    by themselves may not fit together.

    Args:
        model: a model with a masked-LM head, or its folder.
        text: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        top: number of words per mask, and of completed texts.
        candidates: score only these words. A word of several tokens is scored token by token from
            left to right, p(w₁)·p(w₂ | w₁)…, with as many masks as it has tokens.
        joint: also fill all masks together, by beam search: each word is predicted given those
            filled before it. `result.joint` contains the best completed texts with the sum of the
            log-probabilities. Adjacent masks may give the tokens of one word.
        beam_size: with joint: number of hypotheses of a text that are kept (default 8); 1 is
            greedy. At most this many completed texts are found.
        order: with joint: which mask is filled next: confidence (the one whose best word is most
            probable; the default) or left-to-right.
        truncation: for texts that are too long: window (only the text around the masks is read) or
            error. Default: window, with a warning that says how much was not read.
        skip_blank: return no masks for a blank text, instead of an error.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    model = open_model(model, "fill")
    texts = check_texts(text, text_column=text_column)
    words = None if candidates is None else check_texts(candidates, "candidate")
    if truncation is not None:
        one_of("truncation", truncation, ("window", "error"))
    split = check_fill(model, top=top, candidates=words)
    size, next_mask = check_joint_options(
        joint=joint, beam_size=beam_size, order=order, has_candidates=words is not None
    )
    longest = max(map(len, split.values()), default=1)
    encoded = {
        number: encode_masked(model, one, longest, crop=truncation != "error")
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
    if joint:
        completed = fill_jointly(
            model, texts, encoded, beam_size=size, order=next_mask, options=options
        )
        results = [
            replace(one, joint=tuple(completed.get(number, ())[:top]))
            for number, one in enumerate(results)
        ]
    if truncation is None:
        counts = [one.truncated_chars for one in results]
        warn_truncated(counts, model.max_length, fix="the text around the masks was")
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


_Found = list[tuple[str, float, tuple[int, ...]]]  # word, probability, tokens


def _predict_words(
    model: Model, encoded: Mapping[int, MaskedText], top: int, options: Mapping[str, Any]
) -> Iterator[tuple[int, list[_Found]]]:
    """Yield the index of each text and the most probable words of its masks."""
    numbers = list(encoded)
    items = [make_item(one.ids, one.positions) for one in encoded.values()]
    for batch, logits in iterate_logits(model, items, head="mlm", **options):
        for n, part in zip(batch, logits, strict=True):
            scores = part.log_softmax(-1)[:, : model.tokenizer.vocab_size]  # m v
            yield numbers[n], [_top_words(model, row, top) for row in scores]


def _top_words(model: Model, scores: Tensor, top: int) -> _Found:
    best = top_tokens(model, scores, top)
    probabilities = torch.tensor([score for _, score in best]).exp().tolist()
    return [
        (decode_token(model, id_) or "", probability, (id_,))
        for (id_, _), probability in zip(best, probabilities, strict=True)
    ]


def _score_candidates(
    model: Model,
    encoded: Mapping[int, MaskedText],
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


def _make_result(text: str, encoded: MaskedText, found: Sequence[_Found]) -> FillResult:
    masks = [
        MaskResult(
            start=start,
            end=end,
            predictions=tuple(
                MaskPrediction(
                    word=word, score=score, ids=ids, text=insert_into_long(text, start, end, word)
                )
                for word, score, ids in words
            ),
        )
        for (start, end), words in zip(encoded.spans, found, strict=True)
    ]
    return FillResult(
        text=text,
        masks=tuple(masks),
        truncated_chars=encoded.truncated_chars,
    )


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
