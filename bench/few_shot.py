"""Few-shot classification with a language model: accuracy against the number of examples.

    python bench/few_shot.py runs/gpt --train sst2/train.tsv --dev sst2/dev.tsv \\
        --words 0=bad 1=good --device cuda --json out.json --plot few-shot.svg

Brown et al. 2020, section 2.4: no weight is changed. A prompt has k labelled examples and the text
to classify, each written by --template; the label is the one whose word has the highest
log-probability after the prompt (`cloze.score`). For each k the examples are drawn --samplings
times from the training data; the intervals are those of the mean over the samplings (Student's t,
95 %). "calibrated" subtracts from the log-probability of each word that after the same examples
with the text "N/A" (Zhao et al. 2021), which removes the preference of a model for a word. Every
causal model works: GPT, causal BERT, LSTM, n-grams. A prompt that is longer than the model's
maximum is left out and counted; the accuracy is that on the others.

Dry run: python bench/few_shot.py --rehearse
"""

import argparse
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart, Series
from common import print_result, versions

NO_TEXT = "N/A"
# 97.5 % quantiles of Student's t by degrees of freedom
T = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
LABEL = "{label}"


@dataclass(frozen=True)
class Prompts:
    """How examples are written."""

    template: str
    separator: str
    words: dict[str, str]  # label -> word

    def write(self, example: TextExample, word: str) -> str:
        """An example with its label."""
        filled = self.template.replace("{text}", example.text).replace("{pair}", example.pair or "")
        return filled.replace(LABEL, word)

    def ask(self, shown: Sequence[TextExample], asked: TextExample) -> list[str]:
        """A prompt for each label, which ends with the label's word."""
        before = [self.write(one, self.words[str(one.label)]) for one in shown]
        question, _, _ = self.write(asked, LABEL).partition(LABEL)
        return [self.separator.join([*before, question + word]) for word in self.words.values()]


def score_words(
    model: Model, prompts: Prompts, shown: Sequence[TextExample], asked: Sequence[TextExample]
) -> list[list[float] | None]:
    """Log p of every label's prompt, for each text; None if a prompt is too long."""
    texts = [prompts.ask(shown, one) for one in asked]
    if model.tokenizer is not None:
        limit = getattr(model.config, "max_positions", None)
        ids = model.tokenizer.encode_ids([one for some in texts for one in some])
        longest = [len(row) + 2 for row in ids]  # bos and eos
    else:
        limit, longest = None, []
    count = len(prompts.words)
    fits = [
        limit is None or max(longest[n * count : (n + 1) * count]) <= limit
        for n in range(len(asked))
    ]
    flat = [text for some, fit in zip(texts, fits, strict=True) if fit for text in some]
    scores = iter(cloze.score(model, flat, include_eos=False, progress=False) if flat else ())
    return [[next(scores).log_probability for _ in range(count)] if fit else None for fit in fits]


def measure(
    model: Model, prompts: Prompts, shown: Sequence[TextExample], dev: Sequence[TextExample]
) -> dict[str, float]:
    """Accuracy with these examples, with and without calibration."""
    labels = list(prompts.words)
    blank = TextExample(text=NO_TEXT, pair=None if dev[0].pair is None else NO_TEXT)
    *rows, prior = score_words(model, prompts, shown, [*dev, blank])
    hits: Counter[str] = Counter()
    for example, row in zip(dev, rows, strict=True):
        if row is None or prior is None:
            continue
        hits["read"] += 1
        calibrated = [one - base for one, base in zip(row, prior, strict=True)]
        hits["accuracy"] += labels[row.index(max(row))] == str(example.label)
        hits["calibrated"] += labels[calibrated.index(max(calibrated))] == str(example.label)
    read = hits["read"]
    return {
        "read": read / len(dev),
        **{name: hits[name] / read if read else math.nan for name in ("accuracy", "calibrated")},
    }


def summarize(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half of its 95 % interval."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan, None
    if len(known) == 1:
        return known[0], None
    spread = T.get(len(known) - 1, 1.96) * statistics.stdev(known) / len(known) ** 0.5
    return statistics.fmean(known), spread


def rehearse(args: argparse.Namespace) -> None:
    """Small data and an untrained GPT instead of those that are named."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="few-shot-"))
    rng = random.Random(0)
    for name, size in (("text", 200), ("train", 40), ("dev", 12)):
        rows = [(rng.choice(["good", "bad"]), rng.choice(["film", "book"])) for _ in range(size)]
        if name == "text":
            lines = [f"the {thing} is {word} .\n\n" for word, thing in rows]
        else:
            lines = [f"a {word} {thing}\t{int(word == 'good')}\n" for word, thing in rows]
        (folder / f"{name}.tsv").write_text("".join(lines), "utf-8")
    (folder / "text.tsv").rename(folder / "text.txt")
    cloze.pretrain(
        folder / "text.txt",
        folder / "gpt",
        "gpt",
        steps=30,
        settings=["model.preset=tiny", "vocabulary.size=300", "run.device=cpu"],
        progress=False,
    )
    args.model, args.train, args.dev = str(folder / "gpt"), folder / "train.tsv", folder / "dev.tsv"
    args.words, args.samplings, args.device = ["0=bad", "1=good"], 2, "cpu"


def read_words(given: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    named = dict(one.split("=", 1) for one in given)
    unknown = sorted(named.keys() - set(labels))
    if unknown:
        raise SystemExit(f"--words names {unknown[0]!r}, but the labels are {', '.join(labels)}")
    return {label: named.get(label, label) for label in labels}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a language model's folder")
    parser.add_argument("--train", type=Path, help="labelled texts to draw examples from")
    parser.add_argument("--dev", type=Path, help="labelled texts to classify")
    parser.add_argument("--words", nargs="*", default=[], help="LABEL=WORD, default: the labels")
    parser.add_argument("--template", help='default: "{text} = {label}" ("{text} / {pair} = …")')
    parser.add_argument("--separator", default="\n", help="between examples")
    parser.add_argument("--examples", nargs="*", type=int, default=[0, 1, 2, 4, 8, 16])
    parser.add_argument("--samplings", type=int, default=5)
    parser.add_argument("--limit", type=int, default=500, help="number of texts to classify")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="an SVG of the curve")
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    if not args.rehearse and not (args.model and args.train and args.dev):
        parser.error("give a model, --train and --dev, or --rehearse")
    return args


def main() -> None:
    args = parse()
    if args.rehearse:
        rehearse(args)
    model = cloze.load(args.model, device=args.device)
    train, dev = (list(read_text_examples(str(path))) for path in (args.train, args.dev))
    rng = random.Random(args.seed)
    dev = rng.sample(dev, min(args.limit, len(dev)))
    labels = sorted({str(one.label) for one in [*train, *dev]})
    pair = " / {pair}" if dev[0].pair is not None else ""
    template = args.template or f"{{text}}{pair} = {LABEL}"
    prompts = Prompts(template, args.separator, read_words(args.words, labels))
    majority = Counter(str(one.label) for one in dev).most_common(1)[0][1] / len(dev)
    table, rows = Table("k", "accuracy", "calibrated", "read", "samplings", "seconds"), []
    for k in args.examples:
        start = time.perf_counter()
        draws = [rng.sample(train, k) for _ in range(args.samplings if k else 1)]
        found = [measure(model, prompts, shown, dev) for shown in draws]
        row: dict[str, Any] = {"k": k, "samplings": len(draws)}
        row["seconds"] = time.perf_counter() - start
        for name in ("accuracy", "calibrated", "read"):
            row[name], row[f"{name}_half"] = summarize([one[name] for one in found])
            row[f"{name}_all"] = [one[name] for one in found]
        rows.append(row)
        shown = [
            format_percent(row[name])
            + (f" ± {100 * half:.1f}" if (half := row[f"{name}_half"]) is not None else "")
            for name in ("accuracy", "calibrated")
        ]
        read, seconds = format_percent(row["read"]), f"{row['seconds']:.1f}"
        table.add_row(str(k), *shown, read, str(len(draws)), seconds)
        print(rows[-1], flush=True)
    if args.plot:
        ks = [row["k"] for row in rows]
        series = [
            Series(name=name, x=ks, y=[row[name] for row in rows])
            for name in ("accuracy", "calibrated")
        ]
        base = Series(name="majority baseline", x=ks, y=[majority] * len(ks), style="reference")
        chart = LineChart(
            title="Few-shot classification",
            series=[*series, base],
            x_label="examples in the prompt",
            percent=True,
        )
        chart.save(args.plot)
    print_result(
        table,
        f"{args.model}, {len(dev):,} texts of {args.dev}, majority baseline "
        f"{format_percent(majority)}, template {template!r}, words "
        f"{', '.join(prompts.words.values())}, {versions('torch')}",
        results={"majority": majority, "template": template, "words": prompts.words, "rows": rows},
        file=args.json,
    )


if __name__ == "__main__":
    main()
