"""Sample from a language model at several temperatures: how likely and how repetitive it is.

    python bench/temperatures.py runs/gpt --prompts "The city" "He was born" --held-out held-out.txt

Every prompt is continued --samples times at each temperature, without its end symbol. The table has
the mean log-probability of a token under the model itself (at temperature 1), the fraction of
4-grams of words that occurred before in the same continuation, and the number of different words
in 1,000. The last row are lines of --held-out of the same length. One continuation of each
temperature is printed below.

Dry run: python bench/temperatures.py MODEL --tokens 8 --samples 1
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

import cloze
from cloze.plot.format import format_percent
from common import print_result, versions

NGRAM = 4
SAMPLED_WORDS = 1000


def repeated_fraction(texts: Sequence[str]) -> float:
    """The fraction of n-grams of words that occurred before in the same text."""
    total = repeated = 0
    for text in texts:
        words = text.split()
        grams = [tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)]
        total += len(grams)
        repeated += len(grams) - len(set(grams))
    return repeated / total if total else 0.0


def distinct_words(texts: Sequence[str]) -> float:
    """Different words in 1,000 consecutive ones, mean over the texts joined."""
    words = [word.lower() for text in texts for word in text.split()]
    starts = list(range(0, len(words) + 1, SAMPLED_WORDS))
    counts = [len(set(words[start:end])) for start, end in pairwise(starts)]
    return sum(counts) / len(counts) if counts else float(len(set(words)))


def read_held_out(path: Path, prompts: int, tokens: int, model: Any) -> list[str]:
    """Lines that are as long as the continuations."""
    texts: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        encoded = model.tokenizer.encode(line, add_special_tokens=False)
        if len(encoded.ids) >= tokens:
            texts.append(line[: encoded.offsets[tokens - 1][1]])
        if len(texts) == prompts:
            break
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--prompts", nargs="+", default=[""])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.5, 0.8, 1.0, 1.3])
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=Path, help="a text to compare with, a paragraph a line")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = cloze.load(given.model)
    table = Table("temperature", "log-probability", f"repeated {NGRAM}-grams", "words in 1,000")
    shown, rows = [], []

    def add(name: str, log_probability: float, texts: Sequence[str]) -> None:
        row = {
            "temperature": name,
            "log_probability": log_probability,
            "repeated": repeated_fraction(texts),
            "distinct_words": distinct_words(texts),
        }
        rows.append(row)
        table.add_row(
            *(name, f"{log_probability:.2f}", format_percent(row["repeated"])),
            f"{row['distinct_words']:.0f}",
        )

    for temperature in given.temperatures:
        found = cloze.generate(
            model,
            given.prompts,
            temperature=temperature,
            top_p=given.top_p,
            samples=given.samples if temperature else 1,
            max_new_tokens=given.tokens,
            stop=False,
            seed=given.seed,
            progress=False,
        )
        continuations = [one for some in found for one in some]
        tokens = sum(len(one.tokens) for one in continuations)
        mean = sum(one.log_probability for one in continuations) / max(1, tokens)
        add(f"{temperature:g}", mean, [one.continuation for one in continuations])
        shown.append((f"{temperature:g}", found[0][0].full_text))
    if given.held_out:
        count = len(given.prompts) * given.samples
        texts = read_held_out(given.held_out, count, given.tokens, model)
        scores = cloze.score(model, texts, include_eos=False, progress=False)
        tokens = sum(len(one.tokens) for one in scores)
        add("held-out text", sum(one.log_probability for one in scores) / tokens, texts)
    for name, text in shown:
        print(f"[{name}] {text!r}\n")
    footer = (
        f"{len(given.prompts)} prompts × {given.samples} samples of {given.tokens} tokens, "
        f"top-p {given.top_p:g}, {versions('torch')}"
    )
    print_result(table, footer, results=rows, file=given.json)


if __name__ == "__main__":
    main()
