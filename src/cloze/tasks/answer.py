"""`answer`: extractive question answering.

t tokens of a window, c tokens of the context in it, l tokens of the longest answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, override_truncation
from cloze.config import in_range
from cloze.data.labelled.examples import Origin, QuestionExample
from cloze.data.labelled.questions import read_question_examples
from cloze.data.objects import open_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.answer_items import AnswerItem, encode_examples, make_item, truncate_questions
from cloze.tasks.inference import (
    check_pair_support,
    compute_logits,
    iterate_window_logits,
    iterate_windows,
    needs_streaming,
    predict_in_order,
    resolve_task,
)
from cloze.tasks.inputs import Texts, check_contexts, open_model, warn_truncated
from cloze.text.truncation import iterate_max_context_tokens
from cloze.text.words import expand_to_words

MAX_ANSWER_TOKENS = 30  # as in the code of Devlin et al.
NUM_CANDIDATES = 20  # spans in the softmax of the probabilities
SHORTEN = "shorten the question (at most 64 tokens are read), or choose a truncation"

_Span = tuple[float, int, int]  # score, and characters in the context


@dataclass(frozen=True, kw_only=True)
class AnswerCandidate:
    """A span of the context; an empty text means no answer."""

    text: str
    start: int
    end: int
    logit: float  # the start logit of its first token plus the end logit of its last
    probability: float  # softmax over the logits of the 20 best candidates


@dataclass(frozen=True, kw_only=True, repr=False)
class AnswerResult(Result):
    """The answer to a question, and other candidates."""

    question: str
    context: str
    text: str  # empty: no answer
    start: int
    end: int
    logit: float
    probability: float
    candidates: tuple[AnswerCandidate, ...]  # best first
    no_answer_margin: float  # logit of "no answer" minus that of the best span; inf without a span
    truncated_chars: int = 0  # characters of question and context left out by truncation

    record_columns = ("question", "text", "start", "end", "logit", "probability", "context")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the question."""
        return {
            "question": self.question,
            "context": self.context,
            "answers": [asdict(one) for one in self.candidates],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per candidate, best first."""
        return [
            {"question": self.question, **asdict(one), "context": self.context}
            for one in self.candidates
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.marked_text import Mark
        from cloze.plot.notebook import (
            render_bars,
            render_heading,
            render_result,
            render_text,
        )

        marks = [Mark(start=self.start, end=self.end, hue=135)] if self.text else []
        bars = [(one.text or "(no answer)", one.probability) for one in self.candidates]
        parts = render_heading(self.question), render_text(self.context, marks), render_bars(bars)
        return render_result(*parts, truncated_chars=self.truncated_chars)


class AnswerOptions(TypedDict, total=False):
    """The options of `answer`."""

    top: int
    max_answer_tokens: int
    allow_no_answer: bool | None
    whole_words: bool
    truncation: str | None
    overlap: int | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def answer(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, question: str, context: str, **options: Unpack[AnswerOptions]
) -> AnswerResult: ...
@overload
def answer(
    model: Model | PathLike,
    question: Texts,
    context: str | Iterable[str] | None = None,
    **options: Unpack[AnswerOptions],
) -> Results[AnswerResult]: ...
@with_progress
def answer(
    model: Model | PathLike,
    question: str | Texts,
    context: str | Iterable[str] | None = None,
    *,
    top: int = 1,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    allow_no_answer: bool | None = None,
    whole_words: bool = True,
    truncation: str | None = None,
    overlap: int | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> AnswerResult | Results[AnswerResult]:
    """Find the span of a context that answers a question, with character offsets and probability.

    Args:
        model: a model for question answering, or its folder.
        question: a question, or several: a list, a column, or a table with questions and contexts.
        context: the text that contains the answer: one for all questions, or one for each; not for
            a table.
        top: number of candidates to return.
        max_answer_tokens: maximum length of an answer, in tokens.
        allow_no_answer: whether the result may be "no answer". Default: if the model was trained on
            unanswerable questions.
        whole_words: whether to extend answers to whole words, or return exactly the predicted
            tokens.
        truncation: for contexts that are too long: window (all of the context, in overlapping
            windows), head, tail or error. Default: the setting of the folder, else window.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a bar, or not; or a function. Default: a bar for work that takes seconds.
    """
    model = open_model(model, "answer")
    task = override_truncation(resolve_task("answer", model), truncation, overlap)
    examples = _make_examples(question, context)
    found = predict(
        model,
        examples,
        task=task,
        top=top,
        max_answer_tokens=max_answer_tokens,
        allow_no_answer=allow_no_answer,
        whole_words=whole_words,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    if truncation is None:
        chars = [one.truncated_chars for one in found]
        warn_truncated(chars, model.max_length, name="questions", fix=SHORTEN)
    return found[0] if isinstance(question, str) else Results(found)


def _make_examples(
    question: str | Texts, context: str | Iterable[str] | None
) -> list[QuestionExample]:
    if context is None and isinstance(question, str):
        raise InputError("there is no context", fix="pass the text that contains the answer")
    if context is None:  # a table; its answers are not used
        return [replace(one, answers=None) for one in read_question_examples(open_rows(question))]
    return [
        QuestionExample(question=one, context=other, origin=Origin(line=number))
        for number, (one, other) in enumerate(check_contexts(question, context), 1)
    ]


def predict(
    model: Model,
    examples: Sequence[QuestionExample],
    *,
    task: Task | None = None,
    top: int = 1,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    allow_no_answer: bool | None = None,
    whole_words: bool = True,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[AnswerResult]:
    """Answer the question of each example; results are in the order of the examples.

    The score of a span is the start logit of its first token plus the end logit of its last (Devlin
    et al. 2018, section 4.2). A span is scored only in the window with the most context around its
    first token, as in their code. With `whole_words` it is then extended to whole words; of
    candidates with the same text the best is kept. The score of "no answer" is that of [CLS], the
    minimum over the windows; it is the answer if it exceeds the best span by more than the
    threshold of the task (section 4.3).
    """
    in_range("top", top, 1, 1 << 10)
    in_range("max_answer_tokens", max_answer_tokens, 1, 1 << 20)
    task = resolve_task("answer", model, task)
    search = _make_search(task, top, max_answer_tokens, allow_no_answer, whole_words)

    def predict_all(some: Sequence[QuestionExample]) -> list[AnswerResult]:
        groups = encode_examples(model, some, task)
        flat = [item for group in groups for item in group]
        logits = compute_logits(
            model, flat, head="span", batch_tokens=batch_tokens, progress=progress
        )
        return _answer_all(some, groups, logits, search)

    def predict_long(example: QuestionExample) -> AnswerResult:
        check_pair_support(model)
        (question,), (removed,) = truncate_questions(model, [example.question])
        windows = iterate_windows(model, question, example.context, task=task, name=example.origin)
        items = (make_item(one, example, 0, removed) for one in windows)
        found = iterate_window_logits(
            model, items, len(windows), head="span", batch_tokens=batch_tokens, progress=progress
        )
        return _answer_example(example, windows.spans, found, search)

    return predict_in_order(
        examples,
        predict_all,
        predict_long,
        is_long=lambda one: needs_streaming(task, one.context),
    )


def postprocess(
    model: Model,
    examples: Sequence[QuestionExample],
    groups: Sequence[Sequence[AnswerItem]],
    logits: Sequence[Tensor],
    *,
    task: Task | None = None,
    top: int = 1,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    allow_no_answer: bool | None = None,
    whole_words: bool = True,
) -> list[AnswerResult]:
    """Compute the answer of each example from the logits of its items (t 2 each)."""
    task = resolve_task("answer", model, task)
    search = _make_search(task, top, max_answer_tokens, allow_no_answer, whole_words)
    return _answer_all(examples, groups, logits, search)


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Settings of the search for spans."""

    top: int
    max_answer_tokens: int
    threshold: float | None  # None: the result is always a span
    whole_words: bool


def _make_search(
    task: Task, top: int, max_answer_tokens: int, allow_no_answer: bool | None, whole_words: bool
) -> _Search:
    allowed = task.allow_no_answer if allow_no_answer is None else allow_no_answer
    return _Search(
        top=top,
        max_answer_tokens=max_answer_tokens,
        threshold=task.threshold if allowed else None,
        whole_words=whole_words,
    )


def _answer_all(
    examples: Sequence[QuestionExample],
    groups: Sequence[Sequence[AnswerItem]],
    logits: Sequence[Tensor],
    search: _Search,
) -> list[AnswerResult]:
    remaining = iter(logits)
    return [
        _answer_example(
            example,
            [item.window for item in group],
            ((item, next(remaining)) for item in group),
            search,
        )
        for example, group in zip(examples, groups, strict=True)
    ]


def _answer_example(
    example: QuestionExample,
    spans: Sequence[range],
    windows: Iterable[tuple[AnswerItem, Tensor]],
    search: _Search,
) -> AnswerResult:
    context, most = example.context, max(NUM_CANDIDATES, search.top)
    owned = iterate_max_context_tokens(spans) if len(spans) > 1 else repeat(None)
    best: list[_Span] = []
    null, truncated_chars = float("inf"), 0
    for (item, logits), may_start in zip(windows, owned, strict=False):
        null = min(null, float(logits[0].sum()))
        truncated_chars = max(truncated_chars, item.truncated_chars)
        found = [*best, *_best_spans(context, item, logits, may_start, search)]
        texts: dict[str, _Span] = {}
        for score, start, end in sorted(found, key=lambda span: -span[0]):
            texts.setdefault(context[start:end], (score, start, end))
        best = list(texts.values())[:most]
    margin = null - best[0][0] if best else float("inf")
    if search.threshold is not None or not best:
        # rank 0 if the margin is above the threshold, else the rank of its score
        no_answer = margin > (search.threshold or 0.0)
        rank = 0 if no_answer else 1 + sum(score > null for score, _, _ in best[1:])
        best.insert(rank, (null, 0, 0))
    probabilities = torch.tensor([score for score, _, _ in best]).softmax(-1).tolist()
    candidates = tuple(
        AnswerCandidate(text=context[start:end], start=start, end=end, logit=score, probability=one)
        for (score, start, end), one in zip(best, probabilities, strict=True)
    )
    first = candidates[0]
    return AnswerResult(
        question=example.question,
        context=context,
        text=first.text,
        start=first.start,
        end=first.end,
        logit=first.logit,
        probability=first.probability,
        candidates=candidates[: search.top],
        no_answer_margin=margin,
        truncated_chars=truncated_chars,
    )


def _best_spans(
    context: str,
    item: AnswerItem,
    logits: Tensor,  # t 2
    may_start: list[bool] | None,
    search: _Search,
) -> list[_Span]:
    """The best spans of a window, each text once."""
    length, most = len(item.context), max(NUM_CANDIDATES, search.top)
    if not length:
        return []
    width = min(search.max_answer_tokens, length)
    starts, ends = logits[item.context.start : item.context.stop].unbind(-1)  # c each
    if may_start is not None:
        starts = starts.masked_fill(~torch.tensor(may_start), -torch.inf)
    # row i, column k: from token i to token i + k
    after = F.pad(ends, (0, width - 1), value=-torch.inf).unfold(0, width, 1)  # c l
    best = (starts[:, None] + after).flatten()
    possible = int(best.isfinite().sum())
    spans: dict[str, _Span] = {}
    count = 0
    while len(spans) < most and count < possible:  # several may have the same text
        count = min(max(most, 4 * count), possible)
        values, indices = best.topk(count)
        for score, index in zip(values.tolist(), indices.tolist(), strict=True):
            start = int(item.chars[index // width, 0])
            end = int(item.chars[index // width + index % width, 1])
            if start >= end:
                continue
            if search.whole_words:
                start, end = expand_to_words(context, start, end)
            spans.setdefault(context[start:end], (score, start, end))
    return list(spans.values())[:most]
