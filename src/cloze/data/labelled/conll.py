"""Tagged sentences from text files: CoNLL, CoNLL-U (Plus), and words and tags on one line.

The format is detected from the contents, because file names do not show it (eng.train,
dev.char.bmes).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from cloze.config import suggest
from cloze.data.input_files import TextLines
from cloze.data.readers import check_complete, column_count_error, iterate_lines
from cloze.errors import InputError
from cloze.text.words import IDEOGRAPHS, WordSpans, join_words

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
# of a word (1), a range of words (1-2) or an empty node (1.1)
_ID = re.compile(r"[0-9]{1,9}(?:[-.][0-9]{1,9})?")
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(\S.*)")
_OUTSIDE = {"_": "O", "*": "O"}  # no tag, in columns that CoNLL-U does not have
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
# A cell with more ideographs than a word, or with punctuation, is a text: nine of ten Chinese words
# have one to three characters, and punctuation marks are words of their own.
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
_MARK = re.compile("[，。！？；：、,!?;]")
_MAX_WORD_IDEOGRAPHS, _MAX_WORD_CHARS = 4, 20

Line: TypeAlias = tuple[int, str | InputError]
Row: TypeAlias = list[str]


class Sentence(NamedTuple):
    """A sentence of a file."""

    line: int  # of its first word
    text: str
    words: WordSpans
    tags: tuple[str, ...] | None
    document: int | None = None  # None: unknown


SentencesOrErrors: TypeAlias = Iterator[Sentence | InputError]


def read_conll(source: TextLines, column: str | None) -> SentencesOrErrors:
    """The sentences of a file; a row that cannot be read becomes an error."""
    file = source.file
    lines: list[Line] = [
        (source.number, line if isinstance(line, InputError) else line.rstrip("\r\n"))
        for line in check_complete(iterate_lines(source), file)
    ]
    texts = [line for _, line in lines if isinstance(line, str) and line.strip()]
    if any(map(_is_sentence_line, texts)):
        return _parse_sentence_lines(file, lines)
    if columns := _find_global_columns(lines, file):
        return _parse_conllu(file, lines, column, columns)
    first = next((line.split("\t") for line in texts if not line.startswith("#")), [])
    if len(first) == len(CONLLU) and _ID.fullmatch(first[0]):
        return _parse_conllu(file, lines, column, CONLLU)
    return _parse_columns(file, lines, column)


# --- a sentence per line: words, a tab, tags


def _is_sentence_line(line: str) -> bool:
    words, tab, tags = line.partition("\t")
    return (
        bool(tab)
        and "\t" not in tags
        and 1 < len(_split_at_spaces(words)) == len(_split_at_spaces(tags))
    )


def _parse_sentence_lines(file: str, lines: Iterable[Line]) -> SentencesOrErrors:
    for number, line in lines:
        if isinstance(line, InputError):
            yield line
        elif line.strip():
            words, _, tags = (_split_at_spaces(side) for side in line.partition("\t"))
            if len(words) == len(tags):
                yield Sentence(number, *join_words(words), tuple(tags))
            else:
                yield InputError(
                    f"{file}:{number}: {len(words)} words and {len(tags)} tags",
                    fix="write the words, a tab, and one tag per word, separated by spaces",
                )


# --- CoNLL: a word per line, a blank line after each sentence


def _parse_columns(file: str, lines: Sequence[Line], column: str | None) -> SentencesOrErrors:
    number, first = next(_iterate_rows(lines), (0, [""]))
    at = _find_tag_column(first, column, f"{file}:{number}")
    _check_words(file, lines)

    def check(row: Row, where: str) -> InputError | None:
        if len(row) != len(first):
            return column_count_error(row, first, "the first row", where)
        return None if row[0] and row[at] else _empty_field_error(where)

    for document, block in _split_blocks(lines, _is_document_start):
        words, errors = _check_rows(file, block, _split_fields, check)
        yield from errors
        if words and not errors:
            text, spans = join_words([row[0] for _, row in words])
            tags = tuple(row[at] for _, row in words) if len(first) > 1 else None
            yield Sentence(words[0][0], text, spans, tags, document)


def _find_tag_column(row: Row, column: str | None, where: str) -> int:
    if column is None:
        return len(row) - 1
    if not column.isdecimal():
        raise InputError(
            f"{where}: the columns have no names, and {column!r} is not a number",
            fix=f"use the number of the column, 1 to {len(row)}",
        )
    if not 1 <= int(column) <= len(row):
        raise InputError(
            f"{where}: there is no column {column}, only {len(row)} columns",
            fix="count columns from 1",
        )
    return int(column) - 1


def _iterate_rows(lines: Iterable[Line]) -> Iterator[tuple[int, Row]]:
    for number, line in lines:
        if isinstance(line, str) and line.strip() and not _is_document_start(line):
            yield number, _split_fields(line)


def _check_words(file: str, lines: Iterable[Line]) -> None:
    """Raise if the file contains labelled texts, which look like words with tags.

    Some words look like a text too (New York, and many in Vietnamese; 中华人民共和国), most do not.
    """
    count, texts = 0, []
    for number, row in _iterate_rows(lines):
        count += 1
        if len(row) > 1 and _is_text(row[0]):
            texts.append((number, row[0]))
    if 2 * len(texts) > count:
        number, text = texts[0]
        raise InputError(
            f"{file}:{number}: {text[:40]!r} is a text, not a word, and so are most cells of the "
            "first column; the file seems to contain texts with labels",
            fix="write one word and its tag per line, and a blank line after each sentence; "
            "use classify for labelled texts (cloze finetune classify)",
        )


def _is_text(cell: str) -> bool:
    """Whether a cell has several words: by its spaces or, without spaces, by its characters."""
    if len(_split_at_spaces(cell)) > 1 or len(cell) > _MAX_WORD_CHARS:
        return True
    ideographs = len(_IDEOGRAPH.findall(cell))
    return ideographs > _MAX_WORD_IDEOGRAPHS or bool(ideographs and _MARK.search(cell))


def _is_document_start(line: str) -> bool:
    return line.startswith("-DOCSTART-")


def _split_fields(line: str) -> Row:
    return line.split("\t") if "\t" in line else _split_at_spaces(line)


def _split_at_spaces(line: str) -> Row:
    # at plain spaces only: an ideographic space is a character that can have a tag
    return re.findall("[^ ]+", line)


# --- CoNLL-U, and CoNLL-U Plus with columns of its own


def _find_global_columns(lines: Sequence[Line], file: str) -> tuple[str, ...]:
    """The columns that the first comments of a CoNLL-U Plus file name."""
    for number, line in lines:
        if not isinstance(line, str) or not line.startswith("#"):
            break
        if found := _GLOBAL_COLUMNS.match(line):
            names = tuple(found[1].lower().split())
            if "form" not in names:
                raise InputError(
                    f"{file}:{number}: no column of global.columns is named FORM",
                    fix="name the column of the words FORM",
                )
            return names
    return ()


def _parse_conllu(
    file: str, lines: Sequence[Line], column: str | None, columns: Sequence[str]
) -> SentencesOrErrors:
    """The format of Universal Dependencies; ranges (1-2) and empty nodes (3.1) are not words."""
    at = _find_conllu_column(column, columns, file)
    word, number, misc = (
        columns.index(name) if name in columns else None for name in ("form", "id", "misc")
    )
    assert word is not None
    outside = _OUTSIDE if columns[at] not in CONLLU else {}

    def check(row: Row, where: str) -> InputError | None:
        if len(row) != len(columns):
            name = "CoNLL-U" if columns is CONLLU else "global.columns"
            return column_count_error(row, columns, name, where)
        if number is not None and not _ID.fullmatch(row[number]):
            return InputError(
                f"{where}: {row[number][:40]!r} is not a valid word id", fix="count from 1"
            )
        return None if row[word] and row[at] else _empty_field_error(where)

    for document, block in _split_blocks(lines, lambda line: _NEW_DOCUMENT.match(line) is not None):
        content = [(n, line) for n, line in block if not isinstance(line, str) or line[0] != "#"]
        rows, errors = _check_rows(file, content, lambda line: line.split("\t"), check)
        yield from errors
        plain = [
            [
                str(index) if number is None else row[number],
                row[word],
                outside.get(row[at], row[at]),
                "" if misc is None else row[misc],
            ]
            for index, (_, row) in enumerate(rows, 1)
        ]
        words = [row for row in plain if row[0].isdecimal()]
        if words and not errors:
            text, spans = join_words([row[1] for row in words], _find_no_space_after(plain))
            line = next(n for (n, _), row in zip(rows, plain, strict=True) if row[0].isdecimal())
            yield Sentence(line, text, spans, tuple(row[2] for row in words), document)


def _find_no_space_after(rows: Sequence[Row]) -> set[int]:
    """Indices of the words, from 0, that no space follows; rows are id, form, tag and misc.

    The words of a range are written together if they spell it: do and n't are don't, de and le are
    not du.
    """
    forms = [row[1] for row in rows if row[0].isdecimal()]
    no_space_after: set[int] = set()
    seen = 0
    for row in rows:
        last = seen
        if row[0].isdecimal():
            seen += 1
        elif "-" in row[0]:
            first, end = map(int, row[0].split("-"))
            last = min(seen + end - first, len(forms) - 1)
            if "".join(forms[seen : last + 1]) == row[1]:
                no_space_after |= set(range(seen, last))
        else:
            continue
        if "SpaceAfter=No" in row[-1].split("|"):
            no_space_after.add(last)
    return no_space_after


def _find_conllu_column(column: str | None, columns: Sequence[str], where: str) -> int:
    """The requested column; by default the parts of speech, or the last if there are none."""
    if column is None:
        return columns.index("upos") if "upos" in columns else len(columns) - 1
    name = column.lower()
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(columns):
        return int(name) - 1
    what = "CoNLL-U" if columns is CONLLU else "global.columns"
    raise InputError(f"{where}: {what} has no column {column!r}", fix=suggest(name, columns))


# --- CoNLL and CoNLL-U


def _split_blocks(
    lines: Sequence[Line], is_start: Callable[[str], bool]
) -> Iterator[tuple[int | None, list[Line]]]:
    """Blocks of lines up to a blank line or the start of a document, with document numbers."""
    has_documents = any(isinstance(line, str) and is_start(line) for _, line in lines)
    document = 0
    block: list[Line] = []
    for number, line in [*lines, (0, "")]:
        is_new = isinstance(line, str) and is_start(line)
        if not is_new and not (isinstance(line, str) and not line.strip()):
            block.append((number, line))
            continue
        if block:
            yield (document if has_documents else None), block
            block = []
        document += is_new


def _check_rows(
    file: str,
    block: Sequence[Line],
    split: Callable[[str], Row],
    check: Callable[[Row, str], InputError | None],
) -> tuple[list[tuple[int, Row]], list[InputError]]:
    rows: list[tuple[int, Row]] = []
    errors: list[InputError] = []
    for number, line in block:
        row = line if isinstance(line, InputError) else split(line)
        problem = row if isinstance(row, InputError) else check(row, f"{file}:{number}")
        if problem:
            errors.append(problem)
        elif isinstance(row, list):
            rows.append((number, row))
    return rows, errors


def _empty_field_error(where: str) -> InputError:
    return InputError(f"{where}: the word or its tag is empty", fix="add it")
