"""The data that each task needs, and errors for files with the data of another task."""

import json
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from cloze.data.input_files import open_binary, split_endings
from cloze.errors import InputError

EXPECTED: Mapping[str, str] = {
    "classify": "a table with a text and a label per row, such as `A fine film.<TAB>positive` "
    '(tsv or csv), or JSON lines such as {"text": "A fine film.", "label": "positive"}',
    "tag": "a word and its tag per line, such as `London B-LOC`, with a blank line after each "
    'sentence (CoNLL), or JSON lines such as {"words": ["in", "London"], "tags": ["O", "B-LOC"]}',
    "answer": 'SQuAD\'s JSON, or JSON lines such as {"question": "Who slept?", "context": "The dog '
    'slept.", "answers": {"text": ["The dog"], "answer_start": [0]}}',
    "choose": 'JSON lines such as {"context": "She opened the door", "options": ["and left.", '
    '"and flew."], "label": 0}',
    "embed": "a table with two texts that belong together per row, such as `a question<TAB>its "
    'answer` (tsv or csv), or JSON lines such as {"anchor": "a question", "positive": "its '
    'answer"}; a third text is a negative, a number says how similar the two are',
}
"""What a file contains, with an example, by task."""

_CONTENTS = {
    "classify": "a table of texts and labels",
    "tag": "words with tags",
    "answer": "questions and answers",
    "choose": "texts with options to choose from",
    "text": "text without labels",
}
_PEEK_BYTES = 2**16
_PEEK_LINES = 50
_TAGGED = re.compile(r"\S+(?:[ \t]+\S+)*[ \t]+(?:O|[BIESMLUWbiesmluw]-\S+)")
_KEYS = {
    "choose": {"options", "choices", "endings", "ending0", "choice"},
    "answer": {"paragraphs", "question", "qas"},
    "tag": {"spans", "tags", "ner_tags", "pos_tags", "tokens", "words", "entities"},
    "classify": {"label", "labels", "sentence", "sentiment", "text"},
}


def detect_content(path: Path) -> str | None:
    """The task that a file has data for, or "text", from its first lines; None if not clear."""
    try:
        with open_binary(path) as stream:
            start = stream.read(_PEEK_BYTES).decode("utf-8-sig", "ignore")
    except (OSError, InputError):
        return None
    if not start.strip():
        return None
    if start.lstrip()[:1] in {"{", "["}:
        return _detect_json(start)
    lines = [line for line in islice(start.splitlines(), _PEEK_LINES) if line.strip()]
    ending = split_endings(path)[0]
    is_table = ending in {".csv", ".tsv"}
    if ending.startswith((".conll", ".iob", ".bio")) or (not is_table and _is_tagged(lines)):
        return "tag"
    if is_table or all("\t" in line for line in lines):
        return "classify"
    return "text" if "\t" not in start else None


def _is_tagged(lines: list[str]) -> bool:
    words = [line for line in lines if not line.startswith(("#", "-DOCSTART-"))]
    return sum(bool(_TAGGED.fullmatch(line.strip())) for line in words) > len(words) * 0.9


def _detect_json(start: str) -> str | None:
    keys = set(re.findall(r'"(\w+)"\s*:', start[:4096]))
    try:
        value: Any = json.loads(start.splitlines()[0])
        if isinstance(value, Mapping) and "data" not in value:
            keys = set(value)
    except (ValueError, RecursionError):
        pass
    return next((task for task, names in _KEYS.items() if keys & names), None)


def describe_wrong_format(error: InputError, path: Path, task: str) -> InputError:
    """The error of a file for another task: what it seems to contain, and what is expected."""
    found = detect_content(path)
    if found in (None, task) or (task == "embed" and found in ("classify", "text")):
        return error
    hint = "" if found == "text" else f"; for this file use `{found}`"
    return InputError(
        f"{path} is not data for `{task}`: it seems to contain {_CONTENTS[found or 'text']} "
        f"({error.problem.removeprefix(f'{path}: ')})",
        fix=f"give {EXPECTED[task]}{hint}",
    )
