"""Tagged sentences from JSON: a text and its spans, or words and their tags.

As annotation tools write them: `{"text": …, "spans": [{"start": 0, "end": 4, "label": "PER"}]}`,
also under "entities" or "label" and as `[0, 4, "PER"]`; and as data sets have them:
`{"tokens": […], "ner_tags": […]}`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cloze.data.labelled.records import Record
from cloze.data.labelled.schemes import tags_of
from cloze.data.readers import text_of
from cloze.errors import InputError
from cloze.text.words import WordSpans, find_words, join_words

_WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "ner", "labels", "label", "pos_tags", "upos")
_SPANS = ("spans", "entities", "labels", "label")
_START, _END = ("start", "start_offset"), ("end", "end_offset")
_LABEL = ("label", "type", "entity_group", "entity", "tag")

Tagged = tuple[str, WordSpans, tuple[str, ...] | None]  # text, words, tags if there are any


def tags_key(value: object, column: str | None) -> str | None:
    """Where a record with words of its own has its tags."""
    if not isinstance(value, Mapping) or _first(value, _WORDS) is None:
        return None
    return column if column is not None else _first(value, TAGS)


def tagged(record: Record, column: str | None, names: Sequence[str] | None) -> Tagged:
    """The sentence of a record; `names` are those of tags that are written as numbers."""
    value = record.value
    if isinstance(value, Mapping) and (words := _first(value, _WORDS)) is not None:
        return _from_words(record, value[words], tags_key(value, column), names)
    if isinstance(value, Mapping) and "text" in value:
        key = column if column is not None else _first(value, _SPANS)
        return _from_spans(text_of(value["text"], record.where), record, key)
    raise InputError(
        f"{record.where}: neither a text with spans nor words with tags",
        fix='write {"text": "…", "spans": [{"start": 0, "end": 4, "label": "PER"}]}',
    )


def _from_words(
    record: Record, words: object, key: str | None, names: Sequence[str] | None
) -> Tagged:
    where = record.where
    if not isinstance(words, Sequence) or isinstance(words, str) or not words:
        raise InputError(f"{where}: the words are not a list", fix="write a list of texts")
    clean = [text_of(word, where) for word in words]
    if not all(clean):
        raise InputError(f"{where}: a word is empty", fix="repair the row, or leave it out")
    text, places = join_words(clean)
    if key is None or record.value.get(key) is None:
        return text, places, None
    tags = record.value[key]
    if not isinstance(tags, Sequence) or isinstance(tags, str) or len(tags) != len(words):
        count = f"{len(tags)} tags" if isinstance(tags, list) else "no list of tags"
        raise InputError(
            f"{where}: {len(words)} words and {count}", fix="give one tag for each word"
        )
    return text, places, tuple(_tag(tag, names, where) for tag in tags)


def _tag(tag: object, names: Sequence[str] | None, where: str) -> str:
    if isinstance(tag, str) and tag.strip():
        return tag.strip()
    if isinstance(tag, int) and names and 0 <= tag < len(names):
        return names[tag]
    raise InputError(
        f"{where}: the tag {repr(tag)[:40]} has no name", fix="write tags by name: B-PER, O"
    )


def _from_spans(text: str, record: Record, key: str | None) -> Tagged:
    if key is None or record.value.get(key) is None:
        return text, find_words(text), None
    listed = record.value[key]
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise InputError(f"{record.where}: {key!r} is not a list of spans", fix="write […]")
    spans = sorted({_span(span, len(text), record.where) for span in listed})
    for before, after in pairwise(spans):
        if after[0] < before[1]:
            raise InputError(
                f"{record.where}: the spans {before} and {after} overlap",
                fix="a word has one tag: leave one of them out",
            )
    words = find_words(text, {border for span in spans for border in span[:2]})
    return text, words, tags_of([_whole(span, words, record.where) for span in spans], len(words))


def _whole(span: tuple[int, int, str], words: WordSpans, where: str) -> tuple[int, int, str]:
    start, end, label = span
    inside = [n for n, (first, last) in enumerate(words) if start <= first and last <= end]
    if not inside:
        raise InputError(f"{where}: the span {span} covers no word", fix="move it, or leave it out")
    return inside[0], inside[-1] + 1, label


def _span(value: Any, length: int, where: str) -> tuple[int, int, str]:  # noqa: ANN401
    if isinstance(value, Mapping):
        keys = [_first(value, names) for names in (_START, _END, _LABEL)]
        value = [value.get(key) for key in keys]
    match value:
        case [int(start), int(end), str(label)] if 0 <= start < end <= length and label.strip():
            return start, end, label.strip()
    raise InputError(
        f"{where}: {repr(value)[:60]} is not a span of a text of {length:,} characters",
        fix="write its first character, the one behind its last, and its label",
    )


def _first(value: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in value), None)
