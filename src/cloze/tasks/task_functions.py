"""The four tasks of fine-tuned models side by side: who reads their data, and who does them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.questions import read_question_examples
from cloze.data.labelled.tables import read_text_examples
from cloze.data.labelled.tags import read_tagged_examples
from cloze.tasks import answer, answer_items, choose, classify, tag


@dataclass(frozen=True, kw_only=True)
class TaskFunctions:
    """What one task consists of, beside the head of the model."""

    read: Callable[..., Iterator[Any]]  # files to examples
    encode_examples: Callable[
        [Model, Sequence[Any], Task], Sequence[Sequence[EncodedExample]]
    ]  # to sequences
    predict: Callable[..., Sequence[Any]]  # to predictions, as many and in the same order
    postprocess: Callable[..., Sequence[Any]]  # the same from the scores of the sequences


TASK_FUNCTIONS: dict[str, TaskFunctions] = {
    "classify": TaskFunctions(
        read=read_text_examples,
        encode_examples=classify.encode_examples,
        predict=classify.predict,
        postprocess=classify.postprocess,
    ),
    "tag": TaskFunctions(
        read=read_tagged_examples,
        encode_examples=tag.encode_examples,
        predict=tag.predict,
        postprocess=tag.postprocess,
    ),
    "answer": TaskFunctions(
        read=read_question_examples,
        encode_examples=answer_items.encode_examples,
        predict=answer.predict,
        postprocess=answer.postprocess,
    ),
    "choose": TaskFunctions(
        read=read_choice_examples,
        encode_examples=choose.encode_examples,
        predict=choose.predict,
        postprocess=choose.postprocess,
    ),
}
