"""AWD-LSTM and GPT over whole words: perplexity and bits per byte, on the same words and text.

    python bench/language_models.py wiki-awd wiki-gpt ptb-gpt --data DATA --out OUT
    python bench/language_models.py wiki-awd --out OUT --minutes 20 --set model.hidden_size=384
    python bench/language_models.py wiki-awd wiki-gpt ptb-gpt --rehearse --out OUT   # on a CPU

| run | model | text |
|---|---|---|
| wiki-awd | AWD-LSTM | Wikipedia: the first 96 % of the lines of text/wiki-03, the rest held out |
| wiki-gpt | GPT | the same |
| ptb-gpt, ptb-gpt-dropout | GPT, two strengths of dropout | Penn Treebank, train and valid |

The words are those of the n-gram, NNLM and LSTM in docs/results/language-models.md (Wikipedia:
50,000 words), and the end of each line is predicted, so that perplexities are comparable. Held-out
text is read as one continuous text: by the LSTM from beginning to end, by the GPT in windows that
overlap by half, so that a word has at least half a window of context. The AWD-LSTM on the Penn
Treebank is `bench/ulmfit.py ptb`. A run that has a result is not repeated.
"""

import argparse
import json
import lzma
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

import cloze
from cloze.config import parse_settings
from cloze.decode.language import language_model
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer, train_whitespace_tokenizer
from common import DATA, print_result, versions

LINE_END = "<eol>"  # a word of the text that a GPT reads
WORDS = 50_000  # of Wikipedia
DOCUMENT = 300  # lines of the Penn Treebank that are one document


@dataclass(frozen=True)
class Text:
    """Lines as they are, and as words between spaces; blank lines separate documents."""

    train: list[str]
    held_out: list[str]
    split: Callable[[Sequence[str]], list[str]]

    @property
    def bytes(self) -> int:
        """Of the held-out text, with a line break after each line."""
        return sum(len(line.encode()) + 1 for line in self.held_out if line.strip())

    def words(self, lines: Sequence[str]) -> list[str]:
        """The words of each line, and the word that ends it."""
        return [f"{words} {LINE_END}" if words else "" for words in self.split(lines)]


def read_lines(path: Path, limit: int | None) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line.strip("\n") for line in file][:limit]


def read_ptb(given: argparse.Namespace) -> Text:
    limit = 1200 if given.rehearse else None
    train, held_out = (
        read_lines(given.data / "ptb" / f"ptb.{part}.txt.xz", limit) for part in ("train", "valid")
    )
    apart = [line for n, one in enumerate(train) for line in ([one] if n % DOCUMENT else ["", one])]
    return Text(apart, held_out[:100] if given.rehearse else held_out, _strip)


def _strip(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def read_wiki(given: argparse.Namespace) -> Text:
    lines = read_lines(given.data / "text" / "wiki-03.txt.xz", 1500 if given.rehearse else None)
    kept = round(0.96 * len(lines))
    train, held_out = lines[:kept], lines[kept:]
    folder = given.out / "words"
    if not folder.is_dir():
        size = 500 if given.rehearse else WORDS
        made = train_tokenizer(
            (line for line in train if line.strip()), kind="word", vocab_size=size
        )
        made.save(folder)
    tokenizer = Tokenizer.load(folder)

    def split(some: Sequence[str]) -> list[str]:
        encoded = tokenizer.encode_ids(some, add_special_tokens=False)
        names = {id_: word for word, id_ in tokenizer.backend.get_vocab().items()}
        names[tokenizer.unk_id] = "<unk>"
        return [" ".join(names[id_] for id_ in ids) for ids in encoded]

    return Text(train, held_out, split)


GPT = {
    "sampling.short_seq_prob": 0.2,
    "data.sentences": "lines",
    "data.hold_out": 0.0,
    "schedule.shape": "cosine",
    "run.save_minutes": 1000,
}


def set_shape(size: int, layers: int, dropout: float) -> dict[str, Any]:
    names = ("dropout", "embedding_dropout", "attention_dropout")
    return {
        "model.hidden_size": size,
        "model.num_layers": layers,
        "model.num_heads": size // 64,
        "model.intermediate_size": 4 * size,
        **{f"model.{name}": dropout for name in names},
    }


PTB_GPT = {
    "run.epochs": 20,
    "model.max_positions": 256,
    "sampling.max_length": 256,
    "run.batch_tokens": 8192,
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 0.1,
}
RUNS: dict[str, dict[str, Any]] = {
    "wiki-awd": {
        "run.minutes": 7,
        "optimizer.name": "adamw",
        "optimizer.lr": 3e-3,
        "optimizer.betas": (0.9, 0.99),
        "schedule.shape": "linear",
        "schedule.warmup": 0.02,
        "run.average_patience": 1000,
        "model.dropout": 0.2,
        "model.input_dropout": 0.25,
        "model.output_dropout": 0.3,
        "model.embedding_dropout": 0.05,
        "model.weight_dropout": 0.3,
        "run.batch_size": 80,
        "run.eval_rows": 32,
        "run.save_minutes": 1000,
    },
    "wiki-gpt": {
        **GPT,
        **set_shape(512, 6, 0.2),
        "run.minutes": 4,
        "model.max_positions": 512,
        "sampling.max_length": 512,
        "run.batch_tokens": 32_768,
        "optimizer.lr": 1e-3,
        "optimizer.weight_decay": 0.1,
    },
    "ptb-gpt": {**GPT, **PTB_GPT, **set_shape(384, 6, 0.35)},
    "ptb-gpt-dropout": {**GPT, **PTB_GPT, **set_shape(384, 6, 0.5)},
}
TINY_GPT = {**set_shape(64, 2, 0.1), "run.steps": 3, "run.batch_tokens": 1024}
TINY_AWD = {"model.hidden_size": 24, "model.embedding_size": 12, "run.batch_size": 8}


def settings_of(name: str, given: argparse.Namespace) -> dict[str, Any]:
    settings = dict(RUNS[name])
    if given.rehearse:
        settings = {key: settings[key] for key in settings if key not in _BUDGETS}
        settings |= {**TINY_AWD, "run.steps": 3} if name == "wiki-awd" else TINY_GPT
    elif given.minutes:
        settings = {key: settings[key] for key in settings if key not in _BUDGETS}
        settings["run.minutes"] = given.minutes
    return settings | parse_settings(given.settings)


_BUDGETS = ("run.minutes", "run.epochs")


def train_lstm(name: str, text: Text, given: argparse.Namespace) -> dict[str, Any]:
    """An AWD-LSTM, and its scores on one continuous text."""
    settings = settings_of(name, given) | {"vocabulary.folder": str(given.out / "words")}
    out, dev = given.out / name, given.out / "held-out.txt"
    dev.write_text("\n".join(text.held_out), encoding="utf-8")
    result = cloze.pretrain(
        [[line for line in text.train if line.strip()]],
        out,
        "awd-lstm",
        settings=settings,
        dev=str(dev),
        dtype=given.dtype or "float32",
        device=given.device,
        force=True,
        progress=False,
    )
    found = cloze.evaluate(cloze.load(out, device=given.device), dev)
    return {**describe(result), **found.scores, "tokens": found.counts["tokens"]}


def train_gpt(name: str, text: Text, given: argparse.Namespace) -> dict[str, Any]:
    """A GPT of the same words, and its scores on one continuous text."""
    folder = given.out / f"{name}-text"
    folder.mkdir(parents=True, exist_ok=True)
    lines = text.words(text.train)
    (folder / "train.txt").write_text("\n".join(lines), encoding="utf-8")
    train_whitespace_tokenizer(lines).save(folder / "words")
    out = given.out / name
    result = cloze.pretrain(
        folder / "train.txt",
        out,
        "gpt",
        settings={**settings_of(name, given), "vocabulary.folder": str(folder / "words")},
        dtype=given.dtype or ("float32" if given.rehearse else "bfloat16"),
        device=given.device,
        force=True,
        progress=False,
    )
    model = language_model(cloze.load(out, device=given.device))
    held_out = " ".join(line for line in text.words(text.held_out) if line)
    (log_probs,) = model.log_probs(model.encode_texts([held_out]))
    log_p, tokens = float(log_probs[:-1].sum(dtype="float64")), len(log_probs) - 1
    return {
        **describe(result),
        "tokens": tokens,
        "perplexity": math.exp(-log_p / tokens),
        "bits_per_byte": -log_p / math.log(2) / text.bytes,
    }


def describe(result: Any) -> dict[str, Any]:
    return {
        "steps": result.steps,
        "training_tokens": result.tokens,
        "training_seconds": round(result.seconds, 1),
        "dev": dict(result.scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", choices=RUNS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, help="of each run (default: its own budget)")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="of each run")
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", help="(default float32 of an LSTM, bfloat16 of a GPT)")
    parser.add_argument("--rehearse", action="store_true", help="a part of the text, on a CPU")
    given = parser.parse_args()
    given.device = "cpu" if given.rehearse else given.device
    given.out.mkdir(parents=True, exist_ok=True)
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    table = Table("run", "perplexity", "bits per byte", "words", "steps", "seconds of training")
    results = {}
    for name in given.runs:
        file = given.out / f"result-{name}.json"
        if not file.is_file():
            since = time.monotonic()
            text = read_ptb(given) if name.startswith("ptb") else read_wiki(given)
            train = train_lstm if name == "wiki-awd" else train_gpt
            found = train(name, text, given)
            found["seconds"] = round(time.monotonic() - since, 1)
            file.write_text(json.dumps(found, indent=1), encoding="utf-8")
        results[name] = found = json.loads(file.read_text("utf-8"))
        table.add_row(
            *(name, f"{found['perplexity']:.2f}", f"{found['bits_per_byte']:.3f}"),
            *(f"{found['tokens']:,}", f"{found['steps']:,}", f"{found['training_seconds']:.0f}"),
        )
        print(json.dumps({name: found}), flush=True)
    print_result(table, versions("torch", "tokenizers"), results=results)


if __name__ == "__main__":
    main()
