"""Tagged sentences from files and data sets: CoNLL in its kinds, and JSON."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from cloze.data.labelled.conll import Found, Sentence, read_conll
from cloze.data.labelled.examples import Origin, TaggedExample
from cloze.data.labelled.pipes import Pipe
from cloze.data.labelled.records import (
    JSON,
    Part,
    class_names,
    kind_of,
    name_of,
    opened,
    read_each,
    records,
)
from cloze.data.labelled.schemes import scheme_named, scheme_of, to_iob2
from cloze.data.labelled.spans import tagged, tags_key
from cloze.data.readers import whole_file
from cloze.data.streams import OnError, Source
from cloze.data.unpack import Lines
from cloze.errors import InputError

# In a folder these are read; a file that is named may end in anything.
KINDS: Mapping[str, str] = {
    **JSON,
    **dict.fromkeys(
        (".conll", ".conllu", ".bmes", ".bio", ".iob", ".iob2", ".bioes", ".tsv", ".txt", "*"),
        "columns",
    ),
}


def read_tags(
    sources: Source | list[Source],
    *,
    column: str | int | None = None,
    scheme: str | None = None,
    on_error: OnError = "raise",
) -> Iterator[TaggedExample]:
    """Every sentence of every source, in order; a file is read as a whole when its turn comes.

    Tags of spans become IOB2. Sentences stand in one document up to the next -DOCSTART- or
    `# newdoc`; in a file that has neither, each is a document of its own. A row that cannot be
    read is an error by itself, and its sentence is left out.

    Args:
        sources: a path, folder, glob, or `-` for standard input; an iterable of mappings, such as a
            `datasets` object or a list; or a list of these.
        column: where the tags are: a number from 1 (the last column when left out), a name of
            CoNLL-U (upos when left out), or a key of JSON.
        scheme: IOB1, IOB2, BIOES or plain; told from all tags of a file when left out.
        on_error: what to do with what cannot be read: raise it, or hand it over and go on.
    """
    how = None if scheme is None else scheme_named(scheme)
    column = None if column is None else str(column)
    document = 0

    def read(part: Part) -> Iterator[TaggedExample | InputError]:
        nonlocal document
        found = list(whole_file(_sentences(part, column), name_of(part)))
        sentences = [one for one in found if isinstance(one, Sentence)]
        known = how or scheme_of([one.tags for one in sentences if one.tags is not None])
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
                tags=None if one.tags is None else to_iob2(one.tags, known),
                document=document,
                origin=Origin(file=name_of(part), line=one.line),
            )

    return read_each(sources, KINDS, read, on_error)


def _sentences(part: Part, column: str | None) -> Found:
    if isinstance(part, Path | Pipe) and kind_of(part, KINDS) == "columns":
        with opened(part) as stream:
            return read_conll(Lines(stream, name_of(part)), column)
    return _from_json(part, column)


def _from_json(part: Part, column: str | None) -> Found:
    for record in records(part, KINDS):
        if isinstance(record, InputError):
            yield record
            continue
        try:
            names = class_names(part, tags_key(record.value, column) or "")
            yield Sentence(record.line, *tagged(record, column, names))
        except InputError as error:
            yield error
