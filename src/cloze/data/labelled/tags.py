"""Tagged sentences from files and data sets: CoNLL formats, and JSON.

JSON as written by annotation tools: `{"text": …, "spans": [{"start": 0, "end": 4, "label":
"PER"}]}`, also under "entities" or "label" and as `[0, 4, "PER"]`; and as in data sets:
`{"tokens": […], "ner_tags": […]}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from cloze.data.input_files import TextLines
from cloze.data.labelled.conll import Sentence, SentencesOrErrors, read_conll
from cloze.data.labelled.examples import Origin, TaggedExample
from cloze.data.labelled.records import (
    JSON_FORMATS,
    DataInput,
    Pipe,
    Record,
    detect_input_format,
    find_class_names,
    format_input_name,
    open_input,
    read_inputs,
    read_records,
)
from cloze.data.labelled.tag_schemes import (
    convert_to_iob2,
    detect_tag_scheme,
    parse_scheme,
    spans_to_tags,
)
from cloze.data.readers import check_complete, parse_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError
from cloze.text.words import WordSpans, find_words, join_words

# Endings of the files that are read in a folder; a file that is named may have any ending.
TAG_FORMATS: Mapping[str, str] = {
    **JSON_FORMATS,
    **dict.fromkeys(
        (
            ".conll",
            ".conllu",
            ".conllup",
            ".cupt",
            ".bmes",
            ".bio",
            ".iob",
            ".iob2",
            ".bioes",
            ".tsv",
            ".txt",
            "*",
        ),
        "columns",
    ),
}


def read_tagged_examples(
    sources: Source | list[Source],
    *,
    tag_column: str | int | None = None,
    tag_scheme: str | None = None,
    on_error: OnError = "raise",
) -> Iterator[TaggedExample]:
    """Read the sentences of all sources lazily, in order, one file at a time.

    Span tags are converted to IOB2. A document ends at the next -DOCSTART- or `# newdoc`; in a file
    that has neither, every sentence is a document. A sentence with a row that cannot be read is
    left out, and the row is reported as an error.

    Args:
        sources: a path, folder, glob, or `-` for standard input; a data frame (pandas, polars), a
            `datasets` object, a list or another iterable of mappings; or a list of these.
        tag_column: column of the tags: a 1-based number (default: the last column), a name of
            CoNLL-U or CoNLL-U Plus (default: upos), or a JSON key.
        tag_scheme: IOB1, IOB2, BIOES or plain (default: auto-detected from all tags of a file).
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    given_scheme = None if tag_scheme is None else parse_scheme(tag_scheme)
    column = None if tag_column is None else str(tag_column)
    document = 0

    def read(part: DataInput) -> Iterator[TaggedExample | InputError]:
        nonlocal document
        found = list(check_complete(_read_sentences(part, column), format_input_name(part)))
        sentences = [one for one in found if isinstance(one, Sentence)]
        tags = [one.tags for one in sentences if one.tags is not None]
        file_scheme = given_scheme or detect_tag_scheme(tags)
        last: int | None = None
        for one in found:
            if isinstance(one, InputError):
                yield one
                continue
            document += one.document is None or one.document != last
            last = one.document
            yield TaggedExample(
                text=one.text,
                words=one.words,
                tags=None if one.tags is None else convert_to_iob2(one.tags, file_scheme),
                document=document,
                origin=Origin(file=format_input_name(part), line=one.line),
            )

    return read_inputs(sources, TAG_FORMATS, read, on_error, "tag")


def _read_sentences(part: DataInput, column: str | None) -> SentencesOrErrors:
    if isinstance(part, Path | Pipe) and detect_input_format(part, TAG_FORMATS) == "columns":
        with open_input(part) as stream:
            return read_conll(TextLines(stream, format_input_name(part)), column)
    return _read_json_sentences(part, column)


def _read_json_sentences(part: DataInput, column: str | None) -> SentencesOrErrors:
    for record in read_records(part, TAG_FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        try:
            names = find_class_names(part, find_tags_key(record.value, column) or "")
            yield Sentence(record.line, *parse_tagged_record(record, column, names))
        except InputError as error:
            yield error


# --- JSON: a text and its spans, or words and their tags

_WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "ner", "labels", "label", "pos_tags", "upos")
_SPANS = ("spans", "entities", "labels", "label")
_START, _END = ("start", "start_offset"), ("end", "end_offset")
_LABEL = ("label", "type", "entity_group", "entity", "tag")

Tagged = tuple[str, WordSpans, tuple[str, ...] | None]  # text, words, and tags if there are any


def find_tags_key(value: object, column: str | None) -> str | None:
    """The key of the tags in a record with a list of words."""
    if not isinstance(value, Mapping) or _first_key(value, _WORDS) is None:
        return None
    return column if column is not None else _first_key(value, TAGS)


def parse_tagged_record(record: Record, column: str | None, names: Sequence[str] | None) -> Tagged:
    """The sentence of a record; `names` are the names of tags that are numbers."""
    value = record.value
    if isinstance(value, Mapping) and (words := _first_key(value, _WORDS)) is not None:
        return _parse_words(record, value[words], find_tags_key(value, column), names)
    if isinstance(value, Mapping) and "text" in value:
        key = column if column is not None else _first_key(value, _SPANS)
        return _parse_spans(parse_text(value["text"], record.where), record, key)
    raise InputError(
        f"{record.where}: expected a text with spans or words with tags",
        fix='write {"text": "…", "spans": [{"start": 0, "end": 4, "label": "PER"}]}',
    )


def _parse_words(
    record: Record, words: object, key: str | None, names: Sequence[str] | None
) -> Tagged:
    where = record.where
    if not isinstance(words, Sequence) or isinstance(words, str) or not words:
        raise InputError(f"{where}: the words are not a list", fix="use a list of strings")
    checked = [parse_text(word, where) for word in words]
    if not all(checked):
        raise InputError(f"{where}: a word is empty", fix="fix the row, or leave it out")
    text, spans = join_words(checked)
    if key is None or record.value.get(key) is None:
        return text, spans, None
    tags = record.value[key]
    if not isinstance(tags, Sequence) or isinstance(tags, str) or len(tags) != len(words):
        count = f"{len(tags)} tags" if isinstance(tags, list) else "no list of tags"
        raise InputError(f"{where}: {len(words)} words and {count}", fix="use one tag per word")
    return text, spans, tuple(_parse_tag(tag, names, where) for tag in tags)


def _parse_tag(tag: object, names: Sequence[str] | None, where: str) -> str:
    if isinstance(tag, str) and tag.strip():
        return tag.strip()
    if isinstance(tag, int) and names and 0 <= tag < len(names):
        return names[tag]
    raise InputError(
        f"{where}: the tag {repr(tag)[:40]} has no name", fix="use tag names: B-PER, O"
    )


def _parse_spans(text: str, record: Record, key: str | None) -> Tagged:
    if key is None or record.value.get(key) is None:
        return text, find_words(text), None
    listed = record.value[key]
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise InputError(f"{record.where}: {key!r} is not a list of spans", fix="use a JSON array")
    spans = sorted({_parse_span(span, len(text), record.where) for span in listed})
    for before, after in pairwise(spans):
        if after[0] < before[1]:
            raise InputError(
                f"{record.where}: the spans {_describe_span(before)} and "
                f"{_describe_span(after)} overlap",
                fix="remove one of them: a word has one tag",
            )
    words = find_words(text, {border for span in spans for border in span[:2]})
    return (
        text,
        words,
        spans_to_tags([_to_word_span(span, words, record.where) for span in spans], len(words)),
    )


def _describe_span(span: tuple[int, int, str]) -> str:
    start, end, label = span
    return f"{label!r} (characters {start} to {end})"


def _to_word_span(span: tuple[int, int, str], words: WordSpans, where: str) -> tuple[int, int, str]:
    start, end, label = span
    inside = [n for n, (first, last) in enumerate(words) if start <= first and last <= end]
    if not inside:
        raise InputError(
            f"{where}: the span {_describe_span(span)} contains no word",
            fix="move it, or remove it",
        )
    return inside[0], inside[-1] + 1, label


def _parse_span(value: Any, length: int, where: str) -> tuple[int, int, str]:  # noqa: ANN401
    if isinstance(value, Mapping):
        keys = [_first_key(value, names) for names in (_START, _END, _LABEL)]
        value = [value.get(key) for key in keys]
    match value:
        case [int(start), int(end), str(label)] if 0 <= start < end <= length and label.strip():
            return start, end, label.strip()
    raise InputError(
        f"{where}: {repr(value)[:60]} is not a valid span in a text of {length:,} characters",
        fix="use the start, the end (exclusive) and the label",
    )


def _first_key(value: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in value), None)
