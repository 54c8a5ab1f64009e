"""Questions and contexts as sequences, for `answer`.  c tokens of the context in a window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import EncodedExample, make_compact
from cloze.data.labelled.examples import QuestionExample
from cloze.errors import InputError
from cloze.tasks.inference import check_pair_support, encode_long, needs_streaming
from cloze.text.alignment import TokenAlignment
from cloze.text.windows import Windows

MAX_QUESTION_TOKENS = 64  # as in the code of Devlin et al.
CHUNK = 1024  # questions that are encoded at a time, to bound memory


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem(EncodedExample):
    """A question and a window of its context as one sequence."""

    context: range  # positions of the context's tokens
    window: range  # indices of these tokens in the whole context
    chars: NDArray[np.int32]  # c 2: their character offsets in the context
    truncated_chars: int = 0  # left out of the question, or of the context without windows


def encode_examples(
    model: Model, examples: Sequence[QuestionExample], task: Task
) -> list[list[AnswerItem]]:
    """Encode each example as windows: [CLS] question [SEP] part of the context [SEP].

    The head is applied at every token. The targets are the tokens with the first and the last
    character of the first answer, or (0, 0), which is [CLS], if the answer is not completely in the
    window. A question is truncated to 64 tokens, or to half of the model's limit if that is less.
    """
    check_pair_support(model)
    groups: list[list[AnswerItem]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        questions, removed = truncate_questions(model, [example.question for example in chunk])
        contexts = [example.context for example in chunk]
        whole = model.tokenizer.encode_batch(questions, contexts, limit=model.max_length)
        for number, (example, question, lost, encoding) in enumerate(
            zip(chunk, questions, removed, whole, strict=True), first
        ):
            windows: Windows | list[TokenAlignment] = [encoding]
            if len(encoding) > model.max_length:
                _check_truncation(task)
                windows = encode_long(
                    model, question, example.context, task=task, name=example.origin
                )
            is_whole, many = len(windows) == 1, needs_streaming(task, example.context)
            groups.append(
                [
                    make_item(
                        one,
                        example,
                        number,
                        lost + (one.truncated_chars if is_whole else 0),
                        compact=many,
                    )
                    for one in windows
                ]
            )
    return groups


def _check_truncation(task: Task) -> None:
    if task.truncation_strategy == "head+tail":
        raise InputError(
            "question answering does not support truncation 'head+tail': a gap may split an answer",
            fix="use truncation='window', 'head' or 'tail' (command line: --truncation window)",
        )


def truncate_questions(model: Model, questions: list[str]) -> tuple[list[str], list[int]]:
    """The questions, shortened if necessary, and the number of characters removed from each."""
    room = model.max_length - model.tokenizer.num_special_tokens(pair=True)
    most = max(1, min(MAX_QUESTION_TOKENS, room // 2))
    tokenizer, kept, removed = model.tokenizer, list(questions), [0] * len(questions)
    encoded = tokenizer.encode_ids(questions, add_special_tokens=False, limit=most)
    for number, ids in enumerate(encoded):
        if len(ids) > most:
            encoding = tokenizer.encode(
                questions[number], max_length=most, truncation="head", add_special_tokens=False
            )
            kept[number] = questions[number][: encoding.offsets[-1][1]]
            removed[number] = encoding.truncated_chars
    return kept, removed


def make_item(
    encoding: TokenAlignment,
    example: QuestionExample,
    number: int,
    truncated: int,
    *,
    compact: bool = False,
) -> AnswerItem:
    """The item of a question and of all or a window of its context."""
    context = encoding.token_range(1)
    kept = encoding.kept_ranges[1]
    return AnswerItem(
        ids=make_compact(encoding.ids) if compact else encoding.ids,
        type_ids=make_compact(encoding.type_ids) if compact else encoding.type_ids,
        positions=range(len(encoding)),
        targets=_find_targets(encoding, example, context),
        example=number,
        context=context,
        window=kept[0] if len(kept) == 1 else range(len(context)),
        chars=np.array(encoding.offsets[context.start : context.stop], np.int32).reshape(-1, 2),
        truncated_chars=truncated,
    )


def _find_targets(
    encoding: TokenAlignment, example: QuestionExample, context: range
) -> tuple[int, ...]:
    if example.answers is None:
        return ()
    if not example.answers:
        return 0, 0
    answer = next((one for one in example.answers if one.start >= 0), None)
    if answer is None:  # no span of the context is the answer: nothing to learn
        return ()
    start, end = answer.start, answer.start + len(answer.text)
    inside = encoding.tokens_in_span(start, end, 1)
    if not inside:
        return 0, 0
    # the answer may begin before the window or end after it
    starts_before = inside.start == context.start and encoding.offsets[inside.start][0] > start
    ends_after = inside.stop == context.stop and encoding.offsets[inside.stop - 1][1] < end
    if encoding.num_truncated[1] and (starts_before or ends_after):
        return 0, 0
    return inside.start, inside.stop - 1
