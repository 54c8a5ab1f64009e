"""The four tasks of fine-tuned models side by side: who reads their data, and who does them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.batch import Item
from cloze.data.labelled.choices import read_choices
from cloze.data.labelled.questions import read_questions
from cloze.data.labelled.tables import read_texts
from cloze.data.labelled.tags import read_tags
from cloze.tasks import answer, answer_items, choose, classify, tag


@dataclass(frozen=True, kw_only=True)
class TaskFunctions:
    """What one task consists of, beside the head of the model."""

    read: Callable[..., Iterator[Any]]  # files to examples
    items: Callable[[Model, Sequence[Any], Task], Sequence[Sequence[Item]]]  # to sequences
    predict: Callable[..., Sequence[Any]]  # to predictions, as many and in the same order
    told: Callable[..., Sequence[Any]]  # the same from the scores of the sequences


TASK_FUNCTIONS: dict[str, TaskFunctions] = {
    "classify": TaskFunctions(
        read=read_texts, items=classify.items, predict=classify.predict, told=classify.told
    ),
    "tag": TaskFunctions(read=read_tags, items=tag.items, predict=tag.predict, told=tag.told),
    "answer": TaskFunctions(
        read=read_questions, items=answer_items.items, predict=answer.predict, told=answer.told
    ),
    "choose": TaskFunctions(
        read=read_choices, items=choose.items, predict=choose.predict, told=choose.told
    ),
}
