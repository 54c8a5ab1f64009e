"""Tagged sentences from lines: CoNLL columns, CoNLL-U, and words and tags on one line.

What a file is, is told by what is in it, for names are of no help here (eng.train, dev.char.bmes).
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
_ID = re.compile(
    r"[0-9]{1,9}(?:[-.][0-9]{1,9})?"
)  # of a word; with - of a range of them, with . of none
_NEW = re.compile(r"#\s*newdoc\b")
# What words without blanks between them are told from a text by: of ten Chinese words nine have
# one to three characters, and marks stand alone.
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
_MARK = re.compile("[，。！？；：、,!?;]")
_MANY, _LONG = 4, 20

Line: TypeAlias = tuple[int, str | InputError]
Row: TypeAlias = list[str]


class Sentence(NamedTuple):
    """A sentence as its file has it."""

    line: int  # of its first word
    text: str
    words: WordSpans
    tags: tuple[str, ...] | None
    document: int | None = None  # None: nothing says that it is part of one


Found: TypeAlias = Iterator[Sentence | InputError]


def read_conll(source: TextLines, column: str | None) -> Found:
    """The sentences of one file, a row that cannot be read as what is wrong with it."""
    file = source.file
    lines: list[Line] = [
        (source.number, line if isinstance(line, InputError) else line.rstrip("\r\n"))
        for line in check_complete(iterate_lines(source), file)
    ]
    texts = [line for _, line in lines if isinstance(line, str) and line.strip()]
    if any(map(_is_sentence, texts)):
        return _from_sentences(file, lines)
    first = next((line.split("\t") for line in texts if not line.startswith("#")), [])
    if len(first) == len(CONLLU) and _ID.fullmatch(first[0]):
        return _from_conllu(file, lines, column)
    return _from_columns(file, lines, column)


# --- a sentence per line: words, a tab, tags


def _is_sentence(line: str) -> bool:
    words, tab, tags = line.partition("\t")
    return bool(tab) and "\t" not in tags and 1 < len(_split(words)) == len(_split(tags))


def _from_sentences(file: str, lines: Iterable[Line]) -> Found:
    for number, line in lines:
        if isinstance(line, InputError):
            yield line
        elif line.strip():
            words, _, tags = (_split(side) for side in line.partition("\t"))
            if len(words) == len(tags):
                yield Sentence(number, *join_words(words), tuple(tags))
            else:
                yield InputError(
                    f"{file}:{number}: {len(words)} words and {len(tags)} tags",
                    fix="write the words, a tab, and one tag for each word, parted by blanks",
                )


# --- CoNLL: a word per line, a blank line behind each sentence


def _from_columns(file: str, lines: Sequence[Line], column: str | None) -> Found:
    number, first = next(_rows(lines), (0, [""]))
    at = _column(first, column, f"{file}:{number}")
    _check_words(file, lines)

    def check(row: Row, where: str) -> InputError | None:
        if len(row) != len(first):
            return column_count_error(row, first, "the first row", where)
        return None if row[0] and row[at] else _empty(where)

    for document, block in _blocks(lines, _is_start):
        words, wrong = _checked(file, block, _fields, check)
        yield from wrong
        if words and not wrong:
            text, places = join_words([row[0] for _, row in words])
            tags = tuple(row[at] for _, row in words) if len(first) > 1 else None
            yield Sentence(words[0][0], text, places, tags, document)


def _column(row: Row, column: str | None, where: str) -> int:
    if column is None:
        return len(row) - 1
    if not column.isdecimal():
        raise InputError(
            f"{where}: columns have no names here, and {column!r} is no number",
            fix=f"give the number of the column, 1 to {len(row)}",
        )
    if not 1 <= int(column) <= len(row):
        raise InputError(
            f"{where}: there is no column {column}, there are {len(row)}",
            fix="count columns from 1",
        )
    return int(column) - 1


def _rows(lines: Iterable[Line]) -> Iterator[tuple[int, Row]]:
    for number, line in lines:
        if isinstance(line, str) and line.strip() and not _is_start(line):
            yield number, _fields(line)


def _check_words(file: str, lines: Iterable[Line]) -> None:
    """Texts with a label each look like words with their tags, but for what is inside them.

    Some words look like a text too (New York, and many in Vietnamese; 中华人民共和国), most do not.
    """
    count, texts = 0, []
    for number, row in _rows(lines):
        count += 1
        if len(row) > 1 and _is_text(row[0]):
            texts.append((number, row[0]))
    if 2 * len(texts) > count:
        number, text = texts[0]
        raise InputError(
            f"{file}:{number}: {text[:40]!r} is no word, nor are most in the first column; "
            "this looks like texts with a label each",
            fix="give a word and its tag on each line, and a blank line behind each sentence; "
            "whole texts with a label are for classify (cloze finetune classify)",
        )


def _is_text(cell: str) -> bool:
    """Whether it has several words: by its blanks, or where none are written by its characters."""
    if len(_split(cell)) > 1 or len(cell) > _LONG:
        return True
    ideographs = len(_IDEOGRAPH.findall(cell))
    return ideographs > _MANY or bool(ideographs and _MARK.search(cell))


def _is_start(line: str) -> bool:
    return line.startswith("-DOCSTART-")


def _fields(line: str) -> Row:
    return line.split("\t") if "\t" in line else _split(line)


def _split(line: str) -> Row:
    # at plain blanks only: an ideographic space is a character that can have a tag
    return re.findall("[^ ]+", line)


# --- CoNLL-U


def _from_conllu(file: str, lines: Sequence[Line], column: str | None) -> Found:
    """Universal Dependencies' format; ranges of words (1-2) and empty nodes (3.1) are no words."""
    at = _conllu_column(column, file)

    def check(row: Row, where: str) -> InputError | None:
        if len(row) != len(CONLLU):
            return column_count_error(row, CONLLU, "CoNLL-U", where)
        if not _ID.fullmatch(row[0]):
            return InputError(f"{where}: {row[0][:40]!r} numbers no word", fix="count from 1")
        return None if row[1] and row[at] else _empty(where)

    for document, block in _blocks(lines, lambda line: _NEW.match(line) is not None):
        real = [(n, line) for n, line in block if not isinstance(line, str) or line[0] != "#"]
        rows, wrong = _checked(file, real, lambda line: line.split("\t"), check)
        yield from wrong
        words = [(number, row) for number, row in rows if row[0].isdecimal()]
        if words and not wrong:
            text, places = join_words(
                [row[1] for _, row in words], _glued([row for _, row in rows])
            )
            yield Sentence(words[0][0], text, places, tuple(row[at] for _, row in words), document)


def _glued(rows: Sequence[Row]) -> set[int]:
    """The words, counted from 0, that no blank follows.

    Those of a range stand together if they spell it: do and n't are don't, de and le are not du.
    """
    forms = [row[1] for row in rows if row[0].isdecimal()]
    glued: set[int] = set()
    seen = 0
    for row in rows:
        last = seen
        if row[0].isdecimal():
            seen += 1
        elif "-" in row[0]:
            first, end = map(int, row[0].split("-"))
            last = min(seen + end - first, len(forms) - 1)
            if "".join(forms[seen : last + 1]) == row[1]:
                glued |= set(range(seen, last))
        else:
            continue
        if "SpaceAfter=No" in row[-1].split("|"):
            glued.add(last)
    return glued


def _conllu_column(column: str | None, where: str) -> int:
    names = [str(number) for number, _ in enumerate(CONLLU, 1)]
    wanted = "upos" if column is None else column.lower()
    if wanted in names:
        return names.index(wanted)
    if wanted not in CONLLU:
        raise InputError(f"{where}: CoNLL-U has no column {column!r}", fix=suggest(wanted, CONLLU))
    return CONLLU.index(wanted)


# --- both


def _blocks(
    lines: Sequence[Line], begins: Callable[[str], bool]
) -> Iterator[tuple[int | None, list[Line]]]:
    """Lines up to a blank one or the beginning of a document, and the number of theirs."""
    marked = any(isinstance(line, str) and begins(line) for _, line in lines)
    document = 0
    block: list[Line] = []
    for number, line in [*lines, (0, "")]:
        new = isinstance(line, str) and begins(line)
        if not new and not (isinstance(line, str) and not line.strip()):
            block.append((number, line))
            continue
        if block:
            yield (document if marked else None), block
            block = []
        document += new


def _checked(
    file: str,
    block: Sequence[Line],
    split: Callable[[str], Row],
    check: Callable[[Row, str], InputError | None],
) -> tuple[list[tuple[int, Row]], list[InputError]]:
    rows: list[tuple[int, Row]] = []
    wrong: list[InputError] = []
    for number, line in block:
        row = line if isinstance(line, InputError) else split(line)
        problem = row if isinstance(row, InputError) else check(row, f"{file}:{number}")
        if problem:
            wrong.append(problem)
        elif isinstance(row, list):
            rows.append((number, row))
    return rows, wrong


def _empty(where: str) -> InputError:
    return InputError(f"{where}: the word or its tag is empty", fix="fill it in")
