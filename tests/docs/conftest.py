"""A folder with the files and models that the documents name, as small as they may be."""

import gzip
import json
import lzma
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import cloze
from cloze.models import registry

ROOT = Path(__file__).resolve().parents[2]
WORDS = re.findall(
    r"\w+",
    """the a king queen man woman river piano breakfast lunch dinner violin france italy city dog
    cat film door garden stock market is was opened played ate saw fine dull old new in of and""",
)
# (regular expression, replacement): what makes the recipes small
REDUCED = [
    (r"^num_layers = \d+", "num_layers = 1"),
    (r'^preset = "\w+"', 'preset = "tiny"\nnum_layers = 4\nhidden_size = 32'),
    (r"^(hidden_size|embedding_size|intermediate_size) = \d+", r"\1 = 32"),
    (r"^num_heads = \d+", "num_heads = 2"),
    (r"^size = \d+", "size = 300"),
    (r"^batch_tokens = \d+", "batch_tokens = 512"),
    (r"^accumulate = \d+", "accumulate = 1"),
    (r"^(epochs) = [\d.]+", r"\1 = 1"),
    (r"^(minutes|steps) = [\d.]+", "steps = 2"),
    (r'^dtype = "bfloat16"', "fast = true"),  # on a CPU: batches made as on a GPU
]


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


def scored_pairs(count: int, seed: int) -> str:
    texts = sentences(2 * count, seed)
    rows = [f"{texts[2 * n]}\t{texts[2 * n + 1]}\t{n % 6}.0" for n in range(count)]
    return "\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n"


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
    "STS-B/dev.tsv": scored_pairs(20, 13),
    **{
        f"{part}.{language}": "\n".join(sentences(count, seed)) + "\n"
        for seed, (part, count) in enumerate(
            (("train", 60), ("val", 5), ("test", 5), ("more", 40)), 14
        )
        for language in ("en", "de")
    },
    "minimal-pairs.tsv": "a dog is old\tdog a is old\nthe king was in\tthe was king in\n",
    "glove.txt": word_vectors(),
    "questions-words.txt": ": one\nman king woman queen\nfrance italy dog cat\n",
    "simlex999.csv": "word1,word2,score\nking,queen,8.0\ndog,cat,6.0\nriver,piano,1.0\n",
}
COMPRESSED = ("text/e", "wiki-00", "wiki-01", "wiki-02", "wiki-03", "wiki-zh-00", "books-00")


def make_bert(out: Path, *settings: str) -> None:
    cloze.pretrain("text/*.txt", out, "laptop", settings=["run.steps=2", *settings])


def make_translator(out: Path) -> None:
    cloze.finetune("translate", None, ("train.en", "train.de"), out)


def make_model(task: str, data: str) -> Callable[[Path], object]:
    return lambda out: cloze.finetune(task, "runs/bert", data, out)


def copy_bert(out: Path) -> None:
    cloze.load("runs/bert").save(out)


def copy_encoder(out: Path) -> None:
    """Without a head, as sentence-transformers folders are."""
    bert = cloze.load("runs/bert")
    cloze.Model.from_config(bert.config, bert.tokenizer, rng=torch.Generator()).save(out)


def make_arpa(out: Path) -> None:
    cloze.export("arpa", "runs/ngram", out)


# what a document may name without having made it before
MODELS: dict[str, Callable[[Path], object]] = {
    "runs/bert": make_bert,
    "runs/films": make_model("classify", "train.tsv"),
    "runs/small-films": make_model("classify", "train.tsv"),
    "runs/sst2": make_model("classify", "train.tsv"),
    "runs/small-sst2": make_model("classify", "train.tsv"),
    "runs/my-bert": make_bert,
    "runs/ner": make_model("tag", "ner.train"),
    "runs/squad": make_model("answer", "squad.json"),
    "runs/swag": make_model("choose", "choices.jsonl"),
    "runs/causal": lambda out: make_bert(
        out, "objective.kind=causal", "sampling.pairs=none", "run.fast=true"
    ),
    "runs/student": copy_encoder,
    "all-MiniLM-L6-v2": copy_encoder,
    "MINILM": copy_bert,
    "runs/ngram": lambda out: cloze.pretrain("text/*.txt", out, family="ngram"),
    "runs/ptb": lambda out: cloze.pretrain("text/*.txt", out, family="ngram"),
    "runs/nnlm": lambda out: cloze.pretrain("text/*.txt", out, family="nnlm"),
    "runs/lstm": lambda out: cloze.pretrain("text/*.txt", out, family="lstm"),
    "runs/words": lambda out: cloze.load("glove.txt").save(out),
    "their.arpa": make_arpa,
    "runs/en-de": make_translator,
    "runs/more": make_translator,
    "VOCABULARY": lambda out: cloze.vocabulary("text/*.txt", out=out, size=200),
}
NEEDS = {
    "runs/sst2": ["runs/bert"],
    "runs/small-sst2": ["runs/bert"],
    "runs/ner": ["runs/bert"],
    "runs/squad": ["runs/bert"],
    "runs/swag": ["runs/bert"],
    "runs/films": ["runs/bert"],
    "runs/small-films": ["runs/bert"],
    "runs/student": ["runs/bert"],
    "all-MiniLM-L6-v2": ["runs/bert"],
    "MINILM": ["runs/bert"],
    "their.arpa": ["runs/ngram"],
}


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, reduced_recipes: None) -> Path:
    """The files; models are added when a document names them."""
    folder = tmp_path_factory.mktemp("workspace")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    text = running_text(40, 30).encode()
    for name in COMPRESSED:
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress(text))
    rows = gzip.compress(FILES["reviews.jsonl"].encode())
    (folder / "more/reviews.jsonl.gz").write_bytes(rows)
    return folder


@pytest.fixture(scope="session")
def reduced_recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The recipes with models, batches and budgets that take seconds."""
    folder = tmp_path_factory.mktemp("recipes")
    for path in ROOT.glob("recipes/*.toml"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in REDUCED:
            text = re.sub(pattern, replacement, text, flags=re.M)
        (folder / path.name).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        small = {path.stem: path for path in folder.iterdir()}
        patch.setattr("cloze.make.recipe.complete.list_recipes", lambda: small)
        yield


@pytest.fixture
def provide(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A copy of the files, and of the models that a text names, as the working directory."""

    def add(name: str) -> None:
        if not (workspace / name).exists():
            for other in NEEDS.get(name, []):
                add(other)
            (workspace / name).parent.mkdir(exist_ok=True)
            MODELS[name](Path(name))

    def copy(text: str) -> Path:
        monkeypatch.chdir(workspace)
        for name in MODELS:
            if name in text:
                add(name)
        shutil.copytree(workspace, tmp_path / "work")
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.syspath_prepend(tmp_path / "work")  # for modules that a document defines
        monkeypatch.setattr(registry, "FAMILIES", dict(registry.FAMILIES))  # and families
        return tmp_path / "work"

    return copy
