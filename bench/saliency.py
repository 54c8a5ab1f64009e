"""Saliency of many texts in one call, compared with plain training steps on the same batches.

    python bench/saliency.py --texts 1000 --shape base --device cuda --json saliency.json

A training step is forward, backward and a step of AdamW (torch's, fused on a GPU), on exactly the
batches that the saliency call makes, in the same precision. Three rows are measured in turns, and
the best of several rounds counts: training steps; gradient × input, from token ids to values; the
whole call `cloze.explain.saliency(model, texts)`, from texts to views, with the prediction of the
class. The aim is at least 0.4 of the speed of training.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

import cloze
from cloze.checkpoint.model import Model
from cloze.device import resolve_device
from cloze.interpret.examples import Example, iterate_batches
from cloze.interpret.saliency import compute_saliency
from cloze.interpret.scores import HeadScore
from cloze.models.configs.bert import BertConfig
from common import versions

SHAPES = {  # layers, width, heads
    "tiny": (2, 128, 2),
    "small": (4, 512, 8),
    "base": (12, 768, 12),
}
LONGEST = 60  # words of a text


def make_texts(count: int, file: Path | None, seed: int = 0) -> list[str]:
    """Lines of a file, or texts of random words, 5 to 60 of them."""
    if file is not None:
        lines = file.read_text("utf-8").splitlines()
        return [line.partition("\t")[0] for line in lines if line.strip()][:count]
    rng = torch.Generator().manual_seed(seed)
    tokenizer = cloze.load("cloze-en").tokenizer
    known = [word for word in tokenizer.backend.get_vocab() if word.isalpha()]
    lengths = torch.randint(5, LONGEST + 1, (count,), generator=rng).tolist()
    drawn = [torch.randint(len(known), (n,), generator=rng).tolist() for n in lengths]
    return [" ".join(known[n] for n in one) for one in drawn]


def make_model(shape: str, device: torch.device, dtype: str) -> Model:
    """A BERT of some shape with random weights and a classifier of two labels."""
    tokenizer = cloze.load("cloze-en").tokenizer
    layers, size, heads = SHAPES[shape]
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        num_layers=layers,
        hidden_size=size,
        num_heads=heads,
        intermediate_size=4 * size,
        labels=("no", "yes"),
    )
    model = Model.from_config(config, tokenizer, ["sequence"], rng=torch.Generator().manual_seed(0))
    return model.to(device, dtype)


def make_examples(model: Model, texts: Sequence[str]) -> list[Example]:
    encoded = model.tokenizer.encode_ids_and_types(texts, [None] * len(texts))
    return [
        Example(
            ids=ids[: model.max_length],
            type_ids=types[: model.max_length],
            score=HeadScore("sequence", 0, 1),
            removable=[True] * min(len(ids), model.max_length),
        )
        for ids, types in encoded
    ]


def make_training(model: Model, examples: Sequence[Example]) -> Callable[[], None]:
    module = model.module
    fused = model.device.type == "cuda"
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-7, fused=fused)
    batches = [batch for _, batch in iterate_batches(module, examples)]

    def train() -> None:
        module.train()
        for one in batches:
            logits = one.score.logits(module, one.batch)  # type: ignore[attr-defined]
            targets = torch.ones(len(one), dtype=torch.long, device=logits.device)
            F.cross_entropy(logits.float(), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        module.eval()

    return train


def measure(
    runs: dict[str, Callable[[], object]], rounds: int, device: torch.device
) -> dict[str, float]:
    """The best time of each, in seconds; they take turns."""
    best = dict.fromkeys(runs, float("inf"))
    for number in range(rounds + 1):  # the first round warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--file", type=Path, help="a text per line; default: random words")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = resolve_device(given.device)
    texts = make_texts(given.texts, given.file)
    model = make_model(given.shape, device, given.dtype)
    examples = make_examples(model, texts)
    best = measure(
        {
            "training steps": make_training(model, examples),
            "gradient × input": lambda: compute_saliency(model.module, examples),
            "explain.saliency": lambda: cloze.explain.saliency(model, texts),
        },
        given.rounds,
        device,
    )
    tokens = sum(map(len, examples))
    rows = {
        name: {
            "seconds": seconds,
            "texts_per_second": len(texts) / seconds,
            "tokens_per_second": tokens / seconds,
            "fraction_of_training": best["training steps"] / seconds,
        }
        for name, seconds in best.items()
    }
    print(
        f"{len(texts):,} texts, {tokens:,} tokens, BERT {given.shape}, {given.dtype}, "
        f"{device}, {torch.get_num_threads()} threads; {versions('torch')}"
    )
    for name, row in rows.items():
        print(
            f"{name:18} {row['seconds']:8.2f} s {row['texts_per_second']:10,.0f} texts/s "
            f"{row['fraction_of_training']:6.2f} of training"
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2), "utf-8")


if __name__ == "__main__":
    main()
