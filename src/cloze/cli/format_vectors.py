"""Print embeddings and what they find: tables on a terminal, JSON lines, or tab-separated."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloze.cli.format import print_json_lines, print_table
from cloze.terminal import escape_control_characters

if TYPE_CHECKING:
    from cloze.data.embedding_records import EmbeddingRecord, Vectors

SHOWN_NUMBERS = 6  # of a vector


class VectorLines:
    """Prints vectors as tab-separated numbers in full precision."""

    def __init__(self, *, by_token: bool) -> None:
        self._by_token = by_token  # if so, a text that failed has no lines
        self._width = 1
        self._texts = 0

    def __call__(self, records: "Sequence[EmbeddingRecord]") -> None:
        known = (len(one.vectors) for one in records if one.vectors is not None)
        self._width = next(known, self._width)
        for record in records:
            self._texts += 1
            if record.vectors is not None and record.encoding is not None:
                for token, vector in zip(record.encoding.tokens, record.vectors, strict=True):
                    print(self._texts, escape_control_characters(token), *vector, sep="\t")
            elif record.vectors is not None:
                print(*record.vectors, sep="\t")
            elif not self._by_token:
                print(*["nan"] * self._width, sep="\t")


def print_json_records(records: "Sequence[EmbeddingRecord]") -> None:
    """Print a line of JSON for each text."""
    print_json_lines(records)


def print_vectors(records: "Sequence[EmbeddingRecord]") -> None:
    """Print the first numbers of each vector on a terminal."""
    columns = ("size", "norm", "numbers")
    found = [
        (one.text or one.image, one.vectors, one.encoding)
        for one in records
        if one.vectors is not None
    ]
    texts = [(text, *_vector_cells(vector)) for text, vector, encoding in found if encoding is None]
    if texts:
        print_table(("image" if records[0].image is not None else "text", *columns), texts)
    for text, vectors, encoding in found:
        if encoding is not None:
            tokens = zip(encoding.tokens, vectors, strict=True)
            rows = [(token, *_vector_cells(vector)) for token, vector in tokens]
            print_table(("token", *columns), rows, title=text or "")


def _vector_cells(vector: "Vectors") -> tuple[int, str, str]:
    norm = float((vector**2).sum() ** 0.5)
    more = " …" if len(vector) > SHOWN_NUMBERS else ""
    numbers = " ".join(f"{x:+.3f}" for x in vector[:SHOWN_NUMBERS]) + more
    return len(vector), f"{norm:.3f}", numbers


def print_similarity(found: Mapping[str, Any]) -> None:
    """Print the cosine of two texts, or of each text with each other as a matrix."""
    if "score" in found:
        row = (found["text"], found["pair"], f"{found['score']:.4f}")
        print_table(("text", "pair", "cosine"), [row])
        return
    rows = zip(found["texts"], found["scores"], strict=True)
    print_table(
        ("text", *found["pairs"]), [(text, *(f"{x:.4f}" for x in row)) for text, row in rows]
    )


def print_rerank(found: Mapping[str, Any]) -> None:
    """Print a row per document, best first; the number is that of the input, from 1."""
    rows = [(one["index"] + 1, f"{one['score']:.4f}", one["text"]) for one in found["documents"]]
    print_table(("number", found["kind"], "document"), rows)


def print_search(found: Mapping[str, Any]) -> None:
    """Print the documents of a query: a few lines each on a terminal, tab-separated in a pipe."""
    if not sys.stdout.isatty():
        rows = [
            (rank, f"{one['score']:.4f}", one["id"], one["title"] or "", one["snippet"])
            for rank, one in enumerate(found["hits"], 1)
        ]
        print_table(("rank", "score", "id", "title", "snippet"), rows)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(escape_control_characters(found["query"]), "bold"))
    for rank, one in enumerate(found["hits"], 1):
        line = Text(f"{rank:>3}. ")
        line.append(escape_control_characters(one["title"] or one["id"]), "cyan")
        line.append(f"  {one['score']:.4f}", "dim")
        if one["title"]:
            line.append(f"  {escape_control_characters(one['id'])}", "dim")
        console.print(line, soft_wrap=True)
        start, end = one["highlight"]
        parts = ((None, None, start), ("bold", start, end), (None, end, None))
        text = Text("     ")
        for style, low, high in parts:
            shown = one["snippet"][low:high].replace("\n", " ")
            text.append(escape_control_characters(shown), style)
        console.print(text, soft_wrap=True)
    if not found["hits"]:
        console.print("     nothing was found")
