"""`answer`: the stretch of a context that answers a question, or none.

t tokens of a window, c of them the context's, l tokens of the longest answer.
"""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.config import in_range
from cloze.data.batch import Ints
from cloze.data.files import PathLike
from cloze.data.labelled.batch import Item
from cloze.data.labelled.examples import Origin, QuestionExample
from cloze.errors import InputError
from cloze.tasks.door import opened
from cloze.tasks.reading import check_pairs, fitted
from cloze.tasks.scoring import logits, task_for
from cloze.tasks.texts import text_of
from cloze.text.counting import Told
from cloze.text.encoding import Encoding
from cloze.text.ideographs import IDEOGRAPHS
from cloze.text.length import max_context

QUESTION = 64  # pieces of a question that are read; as in the code of Devlin et al.
LONGEST = 30  # tokens of an answer
BEST = 20  # spans that share the probability
CHUNK = 1024  # questions whose alignment is held at once

# White space, and scripts that are written without it: ideographs, kana, and what South-East Asia
# writes in. There a run of letters is no word but may be all of a sentence.
_SPACELESS = "\u3040-\u30ff\uff66-\uff9f\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_PARTING = re.compile(rf"[\s{IDEOGRAPHS}{_SPACELESS}]")

_Span = tuple[float, int, int]  # score, and characters in the context


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem(Item):
    """A question and a window of its context."""

    context: range  # the tokens that are the context's
    window: range  # which of the context's pieces these are
    chars: Ints  # c 2: where they begin and end in the context
    cut: int = 0  # pieces that were left out: of the question, or by a policy other than window


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A stretch of the context; an empty text says that the context does not tell."""

    text: str
    start: int
    end: int
    logit: float  # the head's score for its first token plus that for its last
    probability: float  # softmax over the logits of the 20 best


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to a question, and others that come near."""

    text: str  # empty: the context does not tell
    start: int
    end: int
    logit: float
    probability: float
    candidates: tuple[Candidate, ...]  # best first
    lead: float  # of "none" over the best span, in logits; infinite where there is no span
    cut: int = 0  # pieces that were not read


def items(model: Model, examples: Sequence[QuestionExample], task: Task) -> list[list[AnswerItem]]:
    """For each example its windows, each [CLS] question [SEP] part of the context [SEP].

    Every token is a place. The targets are the tokens that hold the first answer's first and last
    character, or (0, 0), [CLS], where it is not wholly in the window. A question is read up to its
    64th piece, or less far where that would leave it more than half of the model's room.
    """
    check_pairs(model)
    made: list[list[AnswerItem]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        questions, lost = _questions(model, [example.question for example in chunk])
        whole = model.tokenizer.encode_batch(questions, [example.context for example in chunk])
        for number, (example, question, cut, encoding) in enumerate(
            zip(chunk, questions, lost, whole, strict=True), first
        ):
            windows = [encoding]
            if len(encoding) > model.limit:
                _check_policy(task)
                windows = fitted(model, question, example.context, task=task, name=example.origin)
            single = len(windows) == 1
            made.append(
                [
                    _item(one, example, number, cut + (sum(one.cut) if single else 0))
                    for one in windows
                ]
            )
    return made


def predict(
    model: Model,
    examples: Sequence[QuestionExample],
    *,
    task: Task | None = None,
    top: int = 1,
    longest: int = LONGEST,
    none: bool | None = None,
    whole_words: bool = True,
    batch_tokens: int | None = None,
    progress: Told | None = None,
) -> list[Answered]:
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
    in_range("longest", longest, 1, 1 << 20)
    task = task_for("answer", model, task)
    groups = items(model, examples, task)
    flat = [item for group in groups for item in group]
    scores = logits(model, flat, head="span", batch_tokens=batch_tokens, progress=progress)
    return told(
        model,
        examples,
        groups,
        scores,
        task=task,
        top=top,
        longest=longest,
        none=none,
        whole_words=whole_words,
    )


def told(
    model: Model,
    examples: Sequence[QuestionExample],
    groups: Sequence[Sequence[AnswerItem]],
    scores: Sequence[Tensor],
    *,
    task: Task | None = None,
    top: int = 1,
    longest: int = LONGEST,
    none: bool | None = None,
    whole_words: bool = True,
) -> list[Answered]:
    """What the scores of the examples' items, t 2 each, say of the examples."""
    task = task_for("answer", model, task)
    allowed = task.none if none is None else none
    limit = task.threshold if allowed else None
    waiting = iter(scores)
    return [
        _answered(
            example.context,
            group,
            [next(waiting) for _ in group],
            top=top,
            longest=longest,
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
    longest: int = LONGEST,
    none: bool | None = None,
    whole_words: bool = True,
    policy: str | None = None,
    stride: int | None = None,
) -> Answered:
    """The stretch of a context that answers a question, with its characters and probability.

    `top` is how many candidates to give, `longest` how many tokens an answer may have. `none`
    says whether "the context does not tell" may be the answer; unsaid, it may if the model has
    learned it. An answer is made of whole words, or without `whole_words` of the tokens that the
    model chose, which may begin or end within a word. A context longer than the model reads is
    read in windows that share `stride` tokens, unless another `policy` is given.
    """
    model = opened(model, "answer", Model)
    task = with_policy(task_for("answer", model), policy, stride)
    example = QuestionExample(
        question=text_of(question, "the question"),
        context=text_of(context, "the context"),
        origin=Origin(line=1),
    )
    return predict(
        model,
        [example],
        task=task,
        top=top,
        longest=longest,
        none=none,
        whole_words=whole_words,
    )[0]


def widened(text: str, start: int, end: int) -> tuple[int, int]:
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
) -> Answered:
    most = max(BEST, top)
    owner = max_context([item.window for item in group]) if len(group) > 1 else None
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
        Candidate(text=context[start:end], start=start, end=end, logit=score, probability=chance)
        for (score, start, end), chance in zip(best, chances, strict=True)
    )
    first = candidates[0]
    return Answered(
        text=first.text,
        start=first.start,
        end=first.end,
        logit=first.logit,
        probability=first.probability,
        candidates=candidates[:top],
        lead=lead,
        cut=max(item.cut for item in group),
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
                start, end = widened(context, start, end)
            spans.setdefault(context[start:end], (score, start, end))
    return list(spans.values())[:most]


def _check_policy(task: Task) -> None:
    if task.policy == "head+tail":
        raise InputError(
            "an answer could reach over the gap that head+tail leaves",
            fix="choose the policy window, head or tail",
        )


def _questions(model: Model, questions: list[str]) -> tuple[list[str], list[int]]:
    """The questions as far as they are read, and how many pieces of each are not."""
    room = model.limit - model.tokenizer.added(pair=True)
    most = max(1, min(QUESTION, room // 2))
    read, cut = list(questions), [0] * len(questions)
    for number, ids in enumerate(model.tokenizer.ids(questions, special=False)):
        if len(ids) > most:
            encoding = model.tokenizer.encode(questions[number], special=False)
            read[number] = questions[number][: encoding.offsets[most - 1][1]]
            cut[number] = len(ids) - most
    return read, cut


def _item(encoding: Encoding, example: QuestionExample, number: int, cut: int) -> AnswerItem:
    context = encoding.pieces_of(1)
    kept = encoding.kept[1]
    targets = _targets(encoding, example, context)
    return AnswerItem(
        ids=encoding.ids,
        type_ids=encoding.type_ids,
        places=range(len(encoding)),
        targets=targets,
        example=number,
        context=context,
        window=kept[0] if len(kept) == 1 else range(len(context)),
        chars=np.array(encoding.offsets[context.start : context.stop], np.int64).reshape(-1, 2),
        cut=cut,
    )


def _targets(encoding: Encoding, example: QuestionExample, context: range) -> tuple[int, ...]:
    if example.answers is None:
        return ()
    if not example.answers:
        return 0, 0
    answer = next((one for one in example.answers if one.start >= 0), None)
    if answer is None:  # the context tells it in other words: there is no span to learn
        return ()
    start, end = answer.start, answer.start + len(answer.text)
    inside = encoding.pieces_between(start, end, 1)
    if not inside:
        return 0, 0
    # at an edge of the window the answer may go on beyond it
    begun = inside.start == context.start and encoding.offsets[inside.start][0] > start
    goes_on = inside.stop == context.stop and encoding.offsets[inside.stop - 1][1] < end
    if encoding.cut[1] and (begun or goes_on):
        return 0, 0
    return inside.start, inside.stop - 1
