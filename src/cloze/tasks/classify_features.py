"""Texts and pairs as the inputs of a task model on features, for `classify`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import TextExample
from cloze.errors import InputError
from cloze.tasks.inference import TextItem, encode_long
from cloze.text.alignment import TokenAlignment

CHUNK = 1024  # texts that are encoded at a time, to bound memory
Encode = Callable[[Model, Sequence[TextExample], Task], list[list[TextItem]]]


def encode_compared_pairs(
    model: Model, examples: Sequence[TextExample], task: Task, encode: Encode
) -> list[list[TextItem]]:
    """Encode the two texts of each pair apart, for [u; v; |u − v|; u·v] of their vectors."""
    if task.truncation_strategy == "window":
        raise InputError(
            "this model compares the vectors of two texts, which truncation 'window' does not "
            "support: it needs a single sequence of each",
            fix="use truncation='head', 'tail' or 'head+tail' (command line: --truncation head)",
        )
    assert model.task is not None
    spec = task.features or model.task.features
    assert spec is not None
    plain = replace(task, features=replace(spec, compares_pairs=False))
    firsts = encode(model, [replace(one, pair=None) for one in examples], plain)
    seconds = encode(model, [_take_second(one) for one in examples], plain)
    return [[replace(one[0], other=other[0])] for one, other in zip(firsts, seconds, strict=True)]


def _take_second(example: TextExample) -> TextExample:
    if example.pair is None:
        raise InputError(
            f"{example.origin}: this is a single text, but the model compares the two texts of a "
            "pair",
            fix="give the second text as pair (--pair, --pair-column)",
        )
    return replace(example, text=example.pair, pair=None)


def encode_text_words(
    model: Model,
    examples: Sequence[TextExample],
    task: Task,
    find_targets: Callable[[Model, TextExample], tuple[Any, ...]],
) -> list[list[TextItem]]:
    """Encode texts as sequences that are read at the first token of every word.

    Words are those of the tokenizer. A text without any is read at its first token.
    """
    groups: list[list[TextItem]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        encodings = [model.tokenizer.encode(one.text, one.pair) for one in chunk]
        for number, (example, whole) in enumerate(zip(chunk, encodings, strict=True), first):
            parts: Sequence[TokenAlignment] = [whole]
            if len(whole) > model.max_length:
                parts = list(
                    encode_long(model, example.text, example.pair, task=task, name=example.origin)
                )
            groups.append(
                [
                    replace(
                        _make_word_item(example, one),
                        targets=find_targets(model, example),
                        example=number,
                        truncated_chars=one.truncated_chars if len(parts) == 1 else 0,
                    )
                    for one in parts
                ]
            )
    return groups


def _make_word_item(example: TextExample, encoding: TokenAlignment) -> TextItem:
    positions: list[int] = []
    spellings: list[str] = []
    for sequence, text in enumerate((example.text, example.pair or "")):
        inside = encoding.token_range(sequence)
        starts = [
            n for n in inside if n == inside.start or encoding.words[n] != encoding.words[n - 1]
        ]
        positions += starts
        spellings += [text[slice(*span)].strip().lower() for span in encoding.word_spans(sequence)]
    return TextItem(
        ids=encoding.ids,
        type_ids=encoding.type_ids,
        positions=positions or (0,),
        spellings=spellings or ("",),
    )
