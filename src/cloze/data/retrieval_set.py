"""Retrieval sets: documents, queries and judgments, in the layout of BEIR.

corpus.jsonl     {"_id": "d1", "title": "…", "text": "…"}
queries.jsonl    {"_id": "q1", "text": "…"}
qrels/test.tsv   query-id, corpus-id and score; or qrels.tsv, or qrels.txt as TREC has them
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.data.labelled.records import JSON_FORMATS, Record, read_records
from cloze.errors import InputError
from cloze.files import PathLike, read_text

_NAMES = {"corpus": "corpus.jsonl", "queries": "queries.jsonl"}
_SPLITS = ("test", "dev", "train")
_TREC_FIELDS = 4


@dataclass(frozen=True, kw_only=True)
class RetrievalSet:
    """Documents and queries by id, and the relevance of documents for each query."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    judgments: Mapping[str, Mapping[str, float]]


def read_retrieval_set(folder: PathLike) -> RetrievalSet:
    """Read a folder; queries without a judgment are left out."""
    path = Path(folder)
    documents = {
        name: " ".join(filter(None, (str(row.get("title") or ""), _read_text(row, where))))
        for name, row, where in _read_rows(path / _NAMES["corpus"])
    }
    queries = {
        name: _read_text(row, where) for name, row, where in _read_rows(path / _NAMES["queries"])
    }
    judgments: dict[str, dict[str, float]] = {}
    for query, document, score in _read_judgments(_find_judgments(path)):
        if query in queries and document in documents:
            judgments.setdefault(query, {})[document] = score
    if not judgments:
        raise InputError(
            f"{path} has no judgment about a query and a document that it contains",
            fix="check the ids in corpus.jsonl, queries.jsonl and qrels",
        )
    kept = {name: text for name, text in queries.items() if name in judgments}
    return RetrievalSet(documents=documents, queries=kept, judgments=judgments)


def _read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    if not path.is_file():
        raise InputError(
            f"{path.parent} has no {path.name}",
            fix="give a folder with corpus.jsonl, queries.jsonl and qrels (the layout of BEIR)",
        )
    for record in read_records(path, JSON_FORMATS):
        if isinstance(record, InputError):
            raise record
        yield _read_id(record), record.value, record.where


def _read_id(record: Record) -> str:
    row = record.value if isinstance(record.value, Mapping) else {}
    name = row.get("_id", row.get("id"))
    if not isinstance(name, str | int):
        raise InputError(f"{record.where}: the _id is missing", fix='write {"_id": …, "text": …}')
    return str(name)


def _read_text(row: Mapping[str, Any], where: str) -> str:
    text = row.get("text")
    if not isinstance(text, str):
        raise InputError(f"{where}: the text is missing", fix='write {"_id": …, "text": …}')
    return text


def _find_judgments(folder: Path) -> Path:
    names = [*(f"qrels/{split}.tsv" for split in _SPLITS), "qrels.tsv", "qrels.txt"]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise InputError(f"{folder} has no qrels", fix=f"write {' or '.join(names[-3:])}")
    return found


def _read_judgments(path: Path) -> Iterator[tuple[str, str, float]]:
    """Lines of a query, a document and its score; TREC has another column before the document."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        fields = line.split()
        if not fields or (number == 1 and not fields[-1].lstrip("-").replace(".", "").isdigit()):
            continue  # the header
        if len(fields) == _TREC_FIELDS:
            del fields[1]
        try:
            query, document, score = fields
            yield query, document, float(score)
        except ValueError:
            raise InputError(
                f"{path}:{number}: {line[:40]!r} is not a judgment",
                fix="write a query, a document and a score, separated by tabs",
            ) from None
