"""What `answer` reads: a question and, window by window, the context it is asked about."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.batch import Ints
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import QuestionExample
from cloze.errors import InputError
from cloze.tasks.reading import check_pair_support, encode_long
from cloze.text.alignment import TokenAlignment

QUESTION = 64  # pieces of a question that are read; as in the code of Devlin et al.
CHUNK = 1024  # questions whose alignment is held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem(EncodedExample):
    """A question and a window of its context."""

    context: range  # the tokens that are the context's
    window: range  # which of the context's pieces these are
    chars: Ints  # c 2: where they begin and end in the context
    truncated: int = (
        0  # pieces that were left out: of the question, or by a policy other than window
    )


def encode_examples(
    model: Model, examples: Sequence[QuestionExample], task: Task
) -> list[list[AnswerItem]]:
    """For each example its windows, each [CLS] question [SEP] part of the context [SEP].

    Every token is a place. The targets are the tokens that hold the first answer's first and last
    character, or (0, 0), [CLS], where it is not wholly in the window. A question is read up to its
    64th piece, or less far where that would leave it more than half of the model's room.
    """
    check_pair_support(model)
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
                windows = encode_long(
                    model, question, example.context, task=task, name=example.origin
                )
            single = len(windows) == 1
            made.append(
                [
                    _item(one, example, number, cut + (sum(one.num_truncated) if single else 0))
                    for one in windows
                ]
            )
    return made


def _check_policy(task: Task) -> None:
    if task.policy == "head+tail":
        raise InputError(
            "an answer could reach over the gap that head+tail leaves",
            fix="choose the policy window, head or tail",
        )


def _questions(model: Model, questions: list[str]) -> tuple[list[str], list[int]]:
    """The questions as far as they are read, and how many pieces of each are not."""
    room = model.limit - model.tokenizer.num_special_tokens(pair=True)
    most = max(1, min(QUESTION, room // 2))
    read, cut = list(questions), [0] * len(questions)
    for number, ids in enumerate(model.tokenizer.encode_ids(questions, add_special_tokens=False)):
        if len(ids) > most:
            encoding = model.tokenizer.encode(questions[number], add_special_tokens=False)
            read[number] = questions[number][: encoding.offsets[most - 1][1]]
            cut[number] = len(ids) - most
    return read, cut


def _item(encoding: TokenAlignment, example: QuestionExample, number: int, cut: int) -> AnswerItem:
    context = encoding.token_range(1)
    kept = encoding.kept_ranges[1]
    targets = _targets(encoding, example, context)
    return AnswerItem(
        ids=encoding.ids,
        type_ids=encoding.type_ids,
        positions=range(len(encoding)),
        targets=targets,
        example=number,
        context=context,
        window=kept[0] if len(kept) == 1 else range(len(context)),
        chars=np.array(encoding.offsets[context.start : context.stop], np.int64).reshape(-1, 2),
        truncated=cut,
    )


def _targets(encoding: TokenAlignment, example: QuestionExample, context: range) -> tuple[int, ...]:
    if example.answers is None:
        return ()
    if not example.answers:
        return 0, 0
    answer = next((one for one in example.answers if one.start >= 0), None)
    if answer is None:  # the context tells it in other words: there is no span to learn
        return ()
    start, end = answer.start, answer.start + len(answer.text)
    inside = encoding.tokens_in_span(start, end, 1)
    if not inside:
        return 0, 0
    # at an edge of the window the answer may go on beyond it
    begun = inside.start == context.start and encoding.offsets[inside.start][0] > start
    goes_on = inside.stop == context.stop and encoding.offsets[inside.stop - 1][1] < end
    if encoding.num_truncated[1] and (begun or goes_on):
        return 0, 0
    return inside.start, inside.stop - 1
