"""The files that README.md and docs/ name, as small as they may be."""

import gzip
import json
import lzma
import re
from pathlib import Path

import numpy as np

WORDS = re.findall(
    r"\w+",
    """the a king queen man woman river piano breakfast lunch dinner violin france italy city dog
    cat film door garden stock market is was opened played ate saw fine dull old new in of and""",
)


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(4, 10))) + "." for _ in range(count)]


def running_text(documents: int, seed: int) -> str:
    lines = sentences(3 * documents, seed)
    return "\n\n".join("\n".join(lines[n : n + 3]) for n in range(0, len(lines), 3)) + "\n"


def table(count: int, seed: int) -> str:
    rows = [f"{text}\t{'good' if 'king' in text else 'bad'}" for text in sentences(count, seed)]
    return "\n".join(["sentence\tlabel", *rows]) + "\n"


def acceptability(count: int, seed: int) -> str:
    """CoLA's layout: label in the second column, text in the fourth, no header."""
    texts = sentences(count, seed)
    return "".join(f"x\t{number % 2}\t\t{text}\n" for number, text in enumerate(texts))


def columns(count: int, seed: int) -> str:
    """Words and their tags, as in CoNLL-2003's files."""
    found = []
    for text in sentences(count, seed):
        words = text.rstrip(".").split()
        found.append("\n".join(f"{word} {'B-X' if word == 'king' else 'O'}" for word in words))
    return "\n\n".join(found) + "\n"


def universal_tags(count: int, seed: int) -> str:
    """CoNLL-U's layout: number, word, lemma, part of speech and six more columns."""
    found = []
    for text in sentences(count, seed):
        words = enumerate(text.rstrip(".").split(), 1)
        tags = {"the": "DET", "a": "DET", "king": "NOUN", "dog": "NOUN"}
        rows = [f"{n}\t{word}\t_\t{tags.get(word, 'X')}" + "\t_" * 6 for n, word in words]
        found.append("\n".join(rows))
    return "\n\n".join(found) + "\n\n"


def questions(count: int, seed: int) -> str:
    """SQuAD's layout."""
    asked = []
    for number, text in enumerate(sentences(count, seed)):
        answer = {"text": text.split()[1], "answer_start": text.index(" ") + 1}
        asked.append(
            {
                "context": text,
                "qas": [{"id": str(number), "question": "who?", "answers": [answer]}],
            }
        )
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]})


def choices(count: int, seed: int) -> str:
    texts = sentences(3 * count, seed)
    rows = [
        {"context": texts[n], "endings": [texts[n + 1], texts[n + 2]], "label": n % 2}
        for n in range(0, 3 * count, 3)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def articles(count: int, seed: int) -> str:
    texts = sentences(5 * count, seed)
    rows = [
        {"text": " ".join(texts[n : n + 5]), "summary": texts[n + 1], "year": 1990 + n}
        for n in range(0, 5 * count, 5)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def scored_pairs(count: int, seed: int) -> str:
    texts = sentences(2 * count, seed)
    rows = [f"{texts[2 * n]}\t{texts[2 * n + 1]}\t{n % 6}.0" for n in range(count)]
    return "\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n"


def text_pairs(count: int, seed: int) -> str:
    texts = sentences(2 * count, seed)
    return "".join(f"{texts[n]}\t{texts[n + 1]}\n" for n in range(0, 2 * count, 2))


def word_vectors() -> str:
    rng = np.random.default_rng(0)
    return "".join(f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=8))}\n" for word in WORDS)


FILES: dict[str, str] = {
    **{f"text/{name}.txt": running_text(60, seed) for seed, name in enumerate("ab")},
    "more/c.txt": running_text(40, 3),
    "texts/d.txt": running_text(40, 30),
    "glue/CoLA/train.tsv": acceptability(20, 31),
    "glue/CoLA/dev.tsv": acceptability(10, 32),
    "held-out.txt": running_text(20, 4),
    **{f"{name}.tsv": table(40, seed) for seed, name in enumerate(("train", "dev", "test"), 5)},
    "reviews.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in sentences(5, 8)),
    **{f"{n}.train": columns(30, 9) for n in ("ner", "eng")},
    **{n: columns(10, 10) for n in ("ner.dev", "eng.testa")},
    "squad.json": questions(30, 11),
    "choices.jsonl": choices(30, 12),
    **{
        name: articles(8, seed)
        for seed, name in enumerate(("articles.jsonl", "articles-dev.jsonl"), 30)
    },
    "STS-B/dev.tsv": scored_pairs(20, 13),
    **{
        f"{part}.{language}": "\n".join(sentences(count, seed)) + "\n"
        for seed, (part, count) in enumerate(
            (("train", 60), ("val", 5), ("test", 5), ("more", 40)), 14
        )
        for language in ("en", "de")
    },
    "train.conllu": universal_tags(30, 40),
    "dev.conllu": universal_tags(10, 41),
    "python.tsv": "text\tsense\n"
    + "He wrote it in Python.\tlanguage\nThe python ate a deer.\tsnake\n" * 2,
    "pairs.tsv": text_pairs(24, 33),
    "minimal-pairs.tsv": "a dog is old\tdog a is old\nthe king was in\tthe was king in\n",
    "glove.txt": word_vectors(),
    "questions-words.txt": ": one\nman king woman queen\nfrance italy dog cat\n",
    "simlex999.csv": "word1,word2,score\nking,queen,8.0\ndog,cat,6.0\nriver,piano,1.0\n",
}
COMPRESSED = (
    "text/e",
    *(f"wiki-{name}" for name in ("00", "01", "02", "03", "short-01", "zh-00")),
    "books-00",
)


def write_files(folder: Path) -> None:
    """Write all files into a folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    text = running_text(40, 30).encode()
    for name in COMPRESSED:
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress(text))
    rows = gzip.compress(FILES["reviews.jsonl"].encode())
    (folder / "more/reviews.jsonl.gz").write_bytes(rows)
