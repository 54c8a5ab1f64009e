"""`answer`: the stretch of a context that answers a question, or none.

t tokens of a window, c of them the context's, l tokens of the longest answer.
"""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.config import in_range
from cloze.data.labelled.examples import Origin, QuestionExample
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.tasks.answer_items import AnswerItem, encode_examples
from cloze.tasks.door import open_model
from cloze.tasks.scoring import compute_logits, resolve_task
from cloze.tasks.texts import check_text
from cloze.text.truncation import max_context_windows
from cloze.text.words import IDEOGRAPHS

MAX_ANSWER_TOKENS = 30  # tokens of an answer
NUM_CANDIDATES = 20  # spans that share the probability

# White space, and scripts that are written without it: ideographs, kana, and what South-East Asia
# writes in. There a run of letters is no word but may be all of a sentence.
_SPACELESS = "\u3040-\u30ff\uff66-\uff9f\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_PARTING = re.compile(rf"[\s{IDEOGRAPHS}{_SPACELESS}]")

_Span = tuple[float, int, int]  # score, and characters in the context


@dataclass(frozen=True, kw_only=True)
class AnswerCandidate:
    """A stretch of the context; an empty text says that the context does not tell."""

    text: str
    start: int
    end: int
    logit: float  # the head's score for its first token plus that for its last
    probability: float  # softmax over the logits of the 20 best


@dataclass(frozen=True, kw_only=True)
class AnswerResult:
    """The answer to a question, and others that come near."""

    text: str  # empty: the context does not tell
    start: int
    end: int
    logit: float
    probability: float
    candidates: tuple[AnswerCandidate, ...]  # best first
    no_answer_margin: (
        float  # of "none" over the best span, in logits; infinite where there is no span
    )
    truncated: int = 0  # pieces that were not read


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
    """The answer of each example, in their order.

    A span scores what its first token scores as a start and its last as an end (Devlin et al. 2018,
    section 4.2). A span may begin only in the window that shows the most around its first token, as
    in their code, so that of the same span in two windows the better informed one counts. With
    `whole_words` it is then widened to the words that it begins and ends in; of candidates with
    the same text the best stays. "None" scores what [CLS] does, in the window that is least sure
    of it; it is the answer where it leads the best span by more than the task's threshold (section
    4.3). `none` says whether it may be; None asks the task.
    """
    in_range("top", top, 1, 1 << 10)
    in_range("longest", max_answer_tokens, 1, 1 << 20)
    task = resolve_task("answer", model, task)
    groups = encode_examples(model, examples, task)
    flat = [item for group in groups for item in group]
    scores = compute_logits(model, flat, head="span", batch_tokens=batch_tokens, progress=progress)
    return postprocess(
        model,
        examples,
        groups,
        scores,
        task=task,
        top=top,
        max_answer_tokens=max_answer_tokens,
        allow_no_answer=allow_no_answer,
        whole_words=whole_words,
    )


def postprocess(
    model: Model,
    examples: Sequence[QuestionExample],
    groups: Sequence[Sequence[AnswerItem]],
    scores: Sequence[Tensor],
    *,
    task: Task | None = None,
    top: int = 1,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    allow_no_answer: bool | None = None,
    whole_words: bool = True,
) -> list[AnswerResult]:
    """What the scores of the examples' items, t 2 each, say of the examples."""
    task = resolve_task("answer", model, task)
    allowed = task.none if allow_no_answer is None else allow_no_answer
    limit = task.threshold if allowed else None
    waiting = iter(scores)
    return [
        _answered(
            example.context,
            group,
            [next(waiting) for _ in group],
            top=top,
            longest=max_answer_tokens,
            threshold=limit,
            whole_words=whole_words,
        )
        for example, group in zip(examples, groups, strict=True)
    ]


def answer(
    model: Model | PathLike,
    question: str,
    context: str,
    *,
    top: int = 1,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    allow_no_answer: bool | None = None,
    whole_words: bool = True,
    policy: str | None = None,
    stride: int | None = None,
) -> AnswerResult:
    """The stretch of a context that answers a question, with its characters and probability.

    `top` is how many candidates to give, `longest` how many tokens an answer may have. `none`
    says whether "the context does not tell" may be the answer; unsaid, it may if the model has
    learned it. An answer is made of whole words, or without `whole_words` of the tokens that the
    model chose, which may begin or end within a word. A context longer than the model reads is
    read in windows that share `stride` tokens, unless another `policy` is given.
    """
    model = open_model(model, "answer", Model)
    task = with_policy(resolve_task("answer", model), policy, stride)
    example = QuestionExample(
        question=check_text(question, "the question"),
        context=check_text(context, "the context"),
        origin=Origin(line=1),
    )
    return predict(
        model,
        [example],
        task=task,
        top=top,
        max_answer_tokens=max_answer_tokens,
        allow_no_answer=allow_no_answer,
        whole_words=whole_words,
    )[0]


def expand_to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """A stretch with all of the words that it begins and ends in.

    A word is what BERT takes for one before it looks for pieces: what stands between white space
    and punctuation, and every ideograph by itself. Scripts without spaces are left as they are.
    """
    while start > 0 and _in_word(text[start - 1]) and _in_word(text[start]):
        start -= 1
    while end < len(text) and _in_word(text[end - 1]) and _in_word(text[end]):
        end += 1
    return start, end


def _in_word(letter: str) -> bool:
    """Whether it is part of a longer word; BERT counts all of ASCII's marks as punctuation."""
    mark = letter in string.punctuation or category(letter).startswith("P")
    return not mark and not _PARTING.match(letter)


def _answered(
    context: str,
    group: Sequence[AnswerItem],
    scores: Sequence[Tensor],
    *,
    top: int,
    longest: int,
    threshold: float | None,
    whole_words: bool,
) -> AnswerResult:
    most = max(NUM_CANDIDATES, top)
    owner = max_context_windows([item.window for item in group]) if len(group) > 1 else None
    found: list[_Span] = []
    for number, (item, part) in enumerate(zip(group, scores, strict=True)):
        own = None if owner is None else [owner[piece] == number for piece in item.window]
        found += _spans(
            context, item, part, own, most=most, longest=longest, whole_words=whole_words
        )
    found.sort(key=lambda span: -span[0])
    spans: dict[str, _Span] = {}
    for score, start, end in found:
        spans.setdefault(context[start:end], (score, start, end))
    best = list(spans.values())[:most]
    null = min(float(part[0].sum()) for part in scores)
    lead = null - best[0][0] if best else float("inf")
    if threshold is not None or not best:
        # it is first if it leads far enough, and else stands where its score puts it
        silent = lead > (threshold or 0.0)
        place = 0 if silent else 1 + sum(score > null for score, _, _ in best[1:])
        best.insert(place, (null, 0, 0))
    chances = torch.tensor([score for score, _, _ in best]).softmax(-1).tolist()
    candidates = tuple(
        AnswerCandidate(
            text=context[start:end], start=start, end=end, logit=score, probability=chance
        )
        for (score, start, end), chance in zip(best, chances, strict=True)
    )
    first = candidates[0]
    return AnswerResult(
        text=first.text,
        start=first.start,
        end=first.end,
        logit=first.logit,
        probability=first.probability,
        candidates=candidates[:top],
        no_answer_margin=lead,
        truncated=max(item.truncated for item in group),
    )


def _spans(
    context: str,
    item: AnswerItem,
    scores: Tensor,
    own: list[bool] | None,
    *,
    most: int,
    longest: int,
    whole_words: bool,
) -> list[_Span]:
    """The best spans of a window, no two of one text."""
    count = len(item.context)
    if not count:
        return []
    width = min(longest, count)
    starts, ends = scores[item.context.start : item.context.stop].unbind(-1)  # c each
    if own is not None:
        starts = starts.masked_fill(~torch.tensor(own), -torch.inf)
    # row i, column k: from token i to token i + k
    after = F.pad(ends, (0, width - 1), value=-torch.inf).unfold(0, width, 1)  # c l
    best = (starts[:, None] + after).flatten()
    possible = int(best.isfinite().sum())
    spans: dict[str, _Span] = {}
    asked = 0
    while len(spans) < most and asked < possible:  # several may be of the same words
        asked = min(max(most, 4 * asked), possible)
        values, places = best.topk(asked)
        for score, place in zip(values.tolist(), places.tolist(), strict=True):
            start = int(item.chars[place // width, 0])
            end = int(item.chars[place // width + place % width, 1])
            if start >= end:
                continue
            if whole_words:
                start, end = expand_to_words(context, start, end)
            spans.setdefault(context[start:end], (score, start, end))
    return list(spans.values())[:most]
