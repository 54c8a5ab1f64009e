"""The claims of ELMo (Peters et al. 2018), tested: what each layer knows, and what it is worth.

    python bench/contextual.py --model elmo=runs/elmo --model cove=runs/en-de \\
        --model bert=runs/bert --word-vectors runs/words --device cuda --out OUT

Four parts (--parts), each cell a call of `cloze.finetune` or `cloze.embed`:

    layers    for every model and layer: part of speech (ud_ewt) by a logistic regression of each
              word (--tagger linear); senses (coarsewsd20) by the nearest mean vector of a sense,
              beside the most frequent sense; the same sense or not (wic) by a threshold of the
              cosine, chosen on the training data
    mix       the BiLSTM tagger of the first model: without contextual vectors, with the last layer,
              with a weighted sum of all (λ = 1 and 0.001, equal weights), with and without γ
    position  contextual vectors at the input, at the output, and both
    size      the F1 against the number of training sentences, with and without contextual vectors

Scores of the last three are on CoNLL-2003 testa, the mean over --seeds with its standard deviation;
--jobs trainings run at a time, each in a process. A training has at least --min-steps steps, so
that 50 sentences are read more often than 14,041. The best of three evaluations counts.
The intervals of the first part are 95 % (normal approximation of a proportion). Results are in OUT
as contextual.json and a picture; finished trainings are kept there, and a second call goes on.

Dry run: python bench/contextual.py --rehearse
"""

import argparse
import hashlib
import json
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.tags import read_tagged_examples
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart, Series
from common import DATA, call_in_processes, print_result, versions

PARTS = ("layers", "mix", "position", "size")
SIZES = (50, 100, 200, 500, 1000, 2000, 5000)
EVALUATIONS = 3  # of a tagger, on dev
MIX: dict[str, dict[str, Any]] = {
    "none (baseline)": {"transfer.contextual": "none"},
    "last layer, γ": {"transfer.layers": "last", "transfer.mix_scale": "learned"},
    "last layer, no γ": {"transfer.layers": "last"},
    "all layers, λ = 1": {"transfer.layers": "scalar-mix", "transfer.mix_penalty": 1.0},
    "all layers, λ = 0.001": {"transfer.layers": "scalar-mix", "transfer.mix_penalty": 1e-3},
    "all layers, equal weights": {
        "transfer.layers": "scalar-mix",
        "transfer.mix_weights": "equal",
    },
    "all layers, λ = 0.001, no γ": {
        "transfer.layers": "scalar-mix",
        "transfer.mix_penalty": 1e-3,
        "transfer.mix_scale": "fixed",
    },
}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": MIX["none (baseline)"],
    "input": MIX["all layers, λ = 0.001"],  # the input is the default
    "output": {**MIX["all layers, λ = 0.001"], "transfer.contextual": "output"},
    "both": {**MIX["all layers, λ = 0.001"], "transfer.contextual": "both"},
}
CURVES = {"with": POSITIONS["input"], "without": POSITIONS["none"]}  # of the part size
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Occurrence:
    """A word of a sentence whose words are separated by spaces."""

    sentence: str
    word: int

    @property
    def span(self) -> tuple[int, int]:
        words = self.sentence.split(" ")
        start = sum(len(one) + 1 for one in words[: self.word])
        return start, start + len(words[self.word])


class Cells:
    """Finished cells, by name, in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}

    def compute(self, name: str, function: Callable[[], Any]) -> Any:
        """The value of a cell, which is computed if it is not in the file."""
        if name not in self.found:
            since = time.monotonic()
            self.add(name, function(), f"{time.monotonic() - since:.0f} s")
        return self.found[name]

    def add(self, name: str, value: Any, note: str = "") -> None:
        """Write the value of a cell."""
        self.found[name] = value
        self.file.write_text(json.dumps(self.found, indent=1, ensure_ascii=False), "utf-8")
        print(f"{name}: {value} {note}", flush=True)


def embed_occurrences(model: Model, some: Sequence[Occurrence], layer: int) -> Vectors:
    """The vector of each occurrence: the mean of its tokens', as far as they were read."""
    vectors = []
    for first in range(0, len(some), 512):
        chunk = some[first : first + 512]
        sentences = [one.sentence for one in chunk]
        found = cloze.embed(model, sentences, layers=layer, pooling="none", truncation="window")
        for occurrence, one in zip(chunk, found, strict=True):
            assert one is not None
            tokens = one.encoding.tokens_in_span(*occurrence.span)
            rows = one.vectors[tokens.start : tokens.stop]
            vectors.append(rows.mean(0) if len(rows) else np.zeros(one.vectors.shape[1]))
    return np.array(vectors, np.float32)


def normalize(vectors: Vectors) -> Vectors:
    """Vectors of length 1; zero vectors stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def read_senses(folder: Path, part: str) -> tuple[list[Occurrence], list[str]]:
    """The occurrences of a word of coarsewsd20, and their senses."""
    rows = (folder / f"{part}.data.txt").read_text("utf-8").splitlines()
    gold = (folder / f"{part}.gold.txt").read_text("utf-8").split()
    parts = [row.partition("\t") for row in rows]
    return [Occurrence(text, int(index)) for index, _, text in parts], gold


def score_senses(model: Model | None, folders: Sequence[Path], layer: int = 0) -> dict[str, Any]:
    """Accuracy (the same as micro F1) by the nearest mean vector, or the most frequent sense."""
    right: dict[str, list[bool]] = {}
    for folder in folders:
        train, senses = read_senses(folder, "train")
        test, gold = read_senses(folder, "test")
        names = sorted(set(senses), key=lambda one: (-senses.count(one), one))
        if model is None:
            predicted = [names[0]] * len(test)
        else:
            vectors, wanted = embed_occurrences(model, train, layer), np.array(senses)
            means = np.stack([vectors[wanted == name].mean(0) for name in names])
            cosines = normalize(embed_occurrences(model, test, layer)) @ normalize(means).T
            predicted = [names[n] for n in cosines.argmax(1)]
        right[folder.name] = [a == b for a, b in zip(predicted, gold, strict=True)]
    every = [one for some in right.values() for one in some]
    return describe(every) | {"macro": statistics.fmean(map(statistics.fmean, right.values()))}


def read_pairs(folder: Path, part: str) -> tuple[list[Occurrence], list[Occurrence], list[bool]]:
    """The two occurrences of each row of wic, and whether they have the same sense."""
    lines = (folder / f"{part}.data.txt").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    gold = (folder / f"{part}.gold.txt").read_text("utf-8").split()
    indices = [[int(n) for n in row[2].split("-")] for row in rows]
    firsts = [Occurrence(row[3], at[0]) for row, at in zip(rows, indices, strict=True)]
    seconds = [Occurrence(row[4], at[1]) for row, at in zip(rows, indices, strict=True)]
    return firsts, seconds, [one == "T" for one in gold]


def score_pairs(model: Model, folder: Path, layer: int) -> dict[str, Any]:
    """Accuracy by a threshold of the cosine that is best on the training data."""
    cosines, gold = {}, {}
    for part in ("train", "dev"):
        firsts, seconds, same = read_pairs(folder, part)
        both = (normalize(embed_occurrences(model, some, layer)) for some in (firsts, seconds))
        cosines[part], gold[part] = np.einsum("nd,nd->n", *both), np.array(same)
    choices = np.unique(cosines["train"])
    accuracies = [((cosines["train"] >= one) == gold["train"]).mean() for one in choices]
    threshold = choices[int(np.argmax(accuracies))]
    return describe(((cosines["dev"] >= threshold) == gold["dev"]).tolist())


def describe(right: Sequence[bool]) -> dict[str, Any]:
    """The accuracy, half of its 95 % interval and the number of examples."""
    mean = statistics.fmean(right)
    half = 1.96 * (mean * (1 - mean) / len(right)) ** 0.5
    return {"score": mean, "interval": half, "count": len(right)}


@dataclass(frozen=True, kw_only=True)
class Tagger:
    """One training of a tagger on features."""

    settings: dict[str, Any]
    sentences: int | None = None  # the first ones in a random order; None: all
    seed: int = 0

    @property
    def key(self) -> str:
        """Its name in the file of the results: equal settings are trained once."""
        text = json.dumps([self.settings, self.sentences], sort_keys=True)
        return f"tagger {hashlib.sha256(text.encode()).hexdigest()[:12]}, seed {self.seed}"


def train_tagger(args: argparse.Namespace, tagger: Tagger) -> float:
    """The F1 on testa, in this process."""
    sentences, dev = read_conll(args)
    train = sentences[: tagger.sentences]
    epochs = max(args.epochs, args.min_steps / -(-len(train) // args.batch_size))
    settings = {
        "run.epochs": epochs,
        "run.evals_per_epoch": EVALUATIONS / epochs,
        "run.batch_size": args.batch_size,
        "optimizer.lr": args.lr,
        "run.eval_batch_tokens": 16_384,
        "run.seed": tagger.seed,
    }
    folder = next(iter(args.models.values()))
    return finetune_tagger(args, folder, train, dev, {**tagger.settings, **settings})


def finetune_tagger(
    args: argparse.Namespace, model: Path, train: Any, dev: Path, settings: dict[str, Any]
) -> float:
    """The score of a tagger on features."""
    with tempfile.TemporaryDirectory() as folder:
        run = cloze.finetune(
            *("tag", model, train, Path(folder) / "run", "features"),
            dev=dev,
            settings=settings,
            progress=False,
            device=args.device,
        )
    assert run.score is not None
    return run.score


def train_taggers(args: argparse.Namespace, cells: Cells, parts: Sequence[str]) -> None:
    """Train what the tables need and the file does not have, --jobs at a time, large ones first."""
    wanted = {
        tagger.key: tagger
        for part in ("mix", "position", "size")
        if part in parts
        for rows in list_taggers(args, part).values()
        for tagger in rows
        if tagger.key not in cells.found
    }
    some = sorted(wanted.values(), key=lambda one: -(one.sentences or 1 << 30))
    for one, score in call_in_processes(partial(train_tagger, args), some, args.jobs):
        cells.add(one.key, score, f"({one.sentences or 'all'} sentences)")


def list_taggers(args: argparse.Namespace, part: str) -> dict[str, list[Tagger]]:
    """The trainings of each row of a part: one for each seed."""
    if part == "size":
        sizes = [*(one for one in args.sizes if one < count_sentences(args)), None]
        rows = {f"{name} {size}": (CURVES[name], size) for size in sizes for name in CURVES}
    else:
        choices = MIX if part == "mix" else POSITIONS
        rows = {name: (settings, args.sentences) for name, settings in choices.items()}
    return {
        name: [
            Tagger(settings={**args.settings, **settings}, sentences=size, seed=seed)
            for seed in range(args.seeds)
        ]
        for name, (settings, size) in rows.items()
    }


def probe_layers(args: argparse.Namespace, cells: Cells) -> None:
    """Part of speech and senses, by model and layer."""
    senses = sorted(path for path in (args.data / "coarsewsd20").iterdir() if path.is_dir())
    table = Table("model", "layer", "part of speech", "senses", "senses (macro)", "wic")
    cells.compute("senses, most frequent", lambda: score_senses(None, senses))
    for name, folder in args.models.items():
        model = cloze.load(folder, device=args.device, quiet=True)
        for layer in range(model.module.num_layers + 1):
            settings = {"transfer.layers": str(layer), "transfer.tagger": "linear"}
            tagged = cells.compute(
                f"part of speech, {name}, {layer}", lambda s=settings, f=folder: tag_pos(args, f, s)
            )
            wsd = cells.compute(
                f"senses, {name}, {layer}",
                lambda m=model, n=layer: score_senses(m, senses, n),
            )
            wic = cells.compute(
                f"wic, {name}, {layer}",
                lambda m=model, n=layer: score_pairs(m, args.data / "wic", n),
            )
            macro, both = format_percent(wsd["macro"], 1), map(format_cell, (tagged, wsd))
            table.add_row(name, str(layer), *both, macro, format_cell(wic))
    most = cells.found["senses, most frequent"]
    macro = format_percent(most["macro"], 1)
    table.add_row("most frequent sense", "", "", format_cell(most), macro)
    print_result(table)


def tag_pos(args: argparse.Namespace, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The accuracy of a logistic regression of each word; nothing in it depends on the seed."""
    train, dev = (args.data / "ud_ewt" / f"en_ewt-ud-{part}.conllu.xz" for part in ("train", "dev"))
    score = finetune_tagger(args, folder, train, dev, settings)
    num_words = sum(len(one.words) for one in read_tagged_examples([dev]))
    half = 1.96 * (score * (1 - score) / num_words) ** 0.5
    return {"score": score, "interval": half, "count": num_words}


def format_cell(cell: dict[str, Any]) -> str:
    """A score and its interval in percent."""
    return f"{100 * cell['score']:.1f} ± {100 * cell['interval']:.1f}"


def compare_taggers(args: argparse.Namespace, cells: Cells, part: str) -> None:
    """A table of taggers with different settings."""
    title = {"mix": "layers", "position": "contextual vectors at"}[part]
    table = Table(title, "F1, mean of the seeds", "standard deviation")
    for name, taggers in list_taggers(args, part).items():
        scores = [cells.found[one.key] for one in taggers]
        cells.add(f"{title}: {name}", scores)
        mean = format_percent(statistics.fmean(scores), 2)
        table.add_row(name, mean, f"{100 * spread(scores):.2f}")
    print_result(table)


def spread(scores: Sequence[float]) -> float:
    return statistics.stdev(scores) if len(scores) > 1 else 0.0


def read_conll(args: argparse.Namespace) -> tuple[list[Any], Path]:
    """The training sentences in a random order, and the file of the dev data."""
    return _read_conll(args.data)


@cache
def _read_conll(data: Path) -> tuple[list[Any], Path]:
    train, dev = (data / "conll2003" / f"eng.{part}.xz" for part in ("train", "testa"))
    sentences = list(read_tagged_examples([train]))
    order = np.random.default_rng(0).permutation(len(sentences))
    return [sentences[n] for n in order], dev


def count_sentences(args: argparse.Namespace) -> int:
    return len(read_conll(args)[0])


def show_sizes(args: argparse.Namespace, cells: Cells) -> None:
    """F1 against the number of training sentences, with and without contextual vectors."""
    rows = list_taggers(args, "size")
    sizes = list(dict.fromkeys(taggers[0].sentences for taggers in rows.values()))
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in CURVES}
    table = Table("sentences", *CURVES)
    for size in sizes:
        count, row = size or count_sentences(args), []
        for name, points in curves.items():
            scores = [cells.found[one.key] for one in rows[f"{name} {size}"]]
            cells.add(f"{count} sentences, {name} contextual vectors", scores)
            points.append((count, statistics.fmean(scores)))
            row.append(f"{100 * statistics.fmean(scores):.2f} ± {100 * spread(scores):.2f}")
        table.add_row(f"{count:,}", *row)
    print_result(table)
    chart = LineChart(
        title="CoNLL-2003 testa: F1 against the training data",
        series=[
            Series(
                name=f"{name} contextual vectors",
                x=[size for size, _ in points],
                y=[score for _, score in points],
            )
            for name, points in curves.items()
        ],
        x_label="training sentences",
        percent=True,
    )
    chart.save(args.out / "contextual-size.svg")


def write_tiny_data(folder: Path) -> Iterator[str]:
    """Files of the same formats with a few rows."""
    rng = np.random.default_rng(0)
    words = {"a": "DET", "the": "DET", "dog": "NOUN", "bank": "NOUN", "runs": "VERB", "old": "ADJ"}
    texts = [" ".join(rng.choice(list(words), 6)) + " bank" for _ in range(60)]
    for part in ("ud_ewt", "conll2003", "coarsewsd20/bank", "wic"):
        (folder / part).mkdir(parents=True)
    for part in ("train", "dev"):
        rows = [
            "".join(map(format_conllu, count(1), text.split(), repeat(words))) for text in texts
        ]
        write_compressed(folder / "ud_ewt" / f"en_ewt-ud-{part}.conllu.xz", "\n".join(rows) + "\n")
        pairs = [f"bank\tN\t6-6\t{a}\t{b}" for a, b in pairwise(texts)]
        (folder / "wic" / f"{part}.data.txt").write_text("\n".join(pairs) + "\n")
        (folder / "wic" / f"{part}.gold.txt").write_text("\n".join("TF"[n % 2] for n in range(59)))
    for part in ("train", "testa"):
        tags = {word: "B-ORG" if word == "bank" else "O" for word in words}
        rows = ["".join(f"{w} X X {tags[w]}\n" for w in text.split()) for text in texts]
        write_compressed(folder / "conll2003" / f"eng.{part}.xz", "\n".join(rows) + "\n")
    for part in ("train", "test"):
        rows = [f"6\t{text}" for text in texts]
        (folder / "coarsewsd20" / "bank" / f"{part}.data.txt").write_text("\n".join(rows) + "\n")
        gold = [str(int(text.startswith("a"))) for text in texts]
        (folder / "coarsewsd20" / "bank" / f"{part}.gold.txt").write_text("\n".join(gold))
    yield from texts


def format_conllu(number: int, word: str, tags: dict[str, str]) -> str:
    return f"{number}\t{word}\t{word}\t{tags[word]}\t_\t_\t0\t_\t_\t_\n"


def write_compressed(file: Path, text: str) -> None:
    file.write_bytes(lzma.compress(text.encode()))


def rehearse(folder: Path) -> list[str]:
    """Tiny data and models, and the arguments that use them."""
    texts = list(write_tiny_data(folder / "data"))
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    options: dict[str, Any] = {"progress": False}
    small = {"model.preset": "tiny", "vocabulary.min_count": 1, "run.batch_size": 4}
    cloze.pretrain(
        *(folder / "text.txt", folder / "elmo"), family="elmo", steps=2, settings=small, **options
    )
    shape = {"model.num_layers": 2, "model.hidden_size": 16, "model.embedding_size": 8}
    both = (folder / "text.txt", folder / "text.txt")
    cloze.finetune(
        *("translate", None, both, folder / "cove", "seq2seq"), steps=2, settings=shape, **options
    )
    vectors = "".join(f"{word} {n} 1 0\n" for n, word in enumerate(("a", "dog", "bank")))
    (folder / "vectors.txt").write_text(vectors)
    return [
        *("--model", f"elmo={folder / 'elmo'}", "--model", f"cove={folder / 'cove'}"),
        *("--word-vectors", str(folder / "vectors.txt"), "--data", str(folder / "data")),
        *("--out", str(folder / "out"), "--seeds", "1", "--sizes", "20", "--epochs", "1"),
        *("--hidden-size", "8", "--device", "cpu", "--min-steps", "2", "--jobs", "2"),
    ]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--word-vectors", help="folder or file: embeddings of the task model")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("contextual"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument(
        "--sentences", type=int, help="of CoNLL for the parts mix and position (default: all)"
    )
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--min-steps", type=int, default=300, help="of a tagger, at least")
    parser.add_argument("--batch-size", type=int, default=32, help="of a tagger, in sentences")
    parser.add_argument("--lr", type=float, default=1e-3, help="of a tagger")
    parser.add_argument("--jobs", type=int, default=1, help="taggers at a time")
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rehearse", action="store_true", help="tiny data and models, on the CPU")
    return parser


def main() -> None:
    args = make_parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.rehearse:
            args = make_parser().parse_args(rehearse(Path(folder)))
        run(args)


def run(args: argparse.Namespace) -> None:
    """Compute the parts and print their tables."""
    args.models = {name: Path(path) for name, _, path in (one.partition("=") for one in args.model)}
    if not args.models:
        raise SystemExit("name a model: --model elmo=FOLDER")
    args.out.mkdir(parents=True, exist_ok=True)
    own = {"transfer.word_vectors": args.word_vectors} if args.word_vectors else {}
    args.settings = {
        **(own or {"transfer.embedding_size": 100}),
        "transfer.hidden_size": args.hidden_size,
        "transfer.num_layers": 1,
        "transfer.contextual_dropout": 0.3,
    }
    print(versions("torch", "numpy"), args.device)
    cells = Cells(args.out / "contextual.json")
    parts = args.parts.split(",")
    if "layers" in parts:
        probe_layers(args, cells)
    train_taggers(args, cells, parts)
    for part in ("mix", "position"):
        if part in parts:
            compare_taggers(args, cells, part)
    if "size" in parts:
        show_sizes(args, cells)


if __name__ == "__main__":
    main()
