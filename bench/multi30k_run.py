"""One run of bench/multi30k.py: data, training, evaluation and output."""

import argparse
import gzip
import hashlib
import json
import lzma
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.translation import train_translator
from cloze.metrics.bleu import (
    compute_bleu,
    compute_bleu_by_length,
    compute_bleu_from_counts,
    count_ngrams,
)
from cloze.plot.alignment import AlignmentLines, alignment_heatmap
from cloze.tasks.translate import translate
from cloze.text.joint_bpe import encode_sentences, train_joint_bpe
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import Callback, CallbackList
from cloze.train.cuda_graphs import CUDAGraphCache

BEAM = 4
SHORT = 16  # tokens that the runs about positions learn from, at most
EDGES = (0, 8, 10, 12, 15, 18, 1000)  # words of the source
ASKED = "Tom chase Jerry"
# length penalties to choose from on val: a model of smoothed labels likes to end too soon
SEARCHES = (
    {"length_penalty": 0.6},
    {"length_penalty": 1.0},
    {"length_penalty": 1.5},
    {"length_normalization": "average", "length_penalty": 1.0},
)
SEQ2SEQ = {
    "none": ["model.attention=none", "model.cell=lstm"],
    "bahdanau": ["model.attention=bahdanau", "model.cell=gru"],
    "luong": ["model.attention=luong", "model.cell=lstm"],
}
NAMES = {
    "none": "no attention",
    "bahdanau": "Bahdanau",
    "luong": "Luong",
    "transformer": "Transformer",
    "decoder": "decoder-only",
}
# source, separator, target in one sequence, with and without a loss of the source tokens
DECODER = {
    "decoder": [],
    "decoder-source": ["loss.source_weight=0.5"],
    "decoder-lr": ["optimizer.lr=2e-3"],
}
TINY = {
    "transformer": [
        "model.hidden_size=32",
        "model.num_layers=2",
        "model.intermediate_size=64",
    ],
    "seq2seq": ["model.hidden_size=32", "model.embedding_size=16"],
}
TINY["decoder-translate"] = TINY["transformer"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model to train."""

    source: str
    target: str
    model: str
    settings: tuple[str, ...] = ()
    short: bool = False

    @property
    def recipe(self) -> str:
        if self.model in DECODER:
            return "decoder-translate"
        return "seq2seq" if self.model in SEQ2SEQ else "transformer"

    @property
    def bleu(self) -> str:
        return "zh" if self.target == "zh" else "13a"

    @property
    def pair(self) -> str:
        return "-".join(sorted((self.source, self.target)))


def runs() -> dict[str, Run]:
    both = [("en", "de"), ("de", "en")]
    found = {
        f"{source}-{target}/{model}": Run(
            source=source, target=target, model=model, settings=tuple(SEQ2SEQ.get(model, ()))
        )
        for source, target in both
        for model in NAMES
    }
    for model in sorted(DECODER.keys() - NAMES.keys()):
        found[f"en-de/{model}"] = Run(
            source="en", target="de", model=model, settings=tuple(DECODER[model])
        )
    found["en-fr/transformer"] = Run(source="en", target="fr", model="transformer")
    found["fr-en/transformer"] = Run(source="fr", target="en", model="transformer")
    found["en-zh/transformer"] = Run(source="en", target="zh", model="transformer")
    found["en-zh/bahdanau"] = Run(
        source="en", target="zh", model="bahdanau", settings=tuple(SEQ2SEQ["bahdanau"])
    )
    for name, settings in (
        ("waves", ("model.position_encoding=interleaved",)),
        ("learned", ("model.position_encoding=learned", "model.max_positions=128")),
    ):
        found[f"en-de/short-{name}"] = Run(
            source="en", target="de", model="transformer", settings=settings, short=True
        )
    return found


# --- the data ---------------------------------------------------------------------------------

Pairs = tuple[list[str], list[str]]  # source, target


def read(data: Path, run: Run, most: int | None) -> dict[str, Pairs]:
    """train, val and test."""
    if run.target == "zh":
        return chinese(data, most)
    found = {}
    for part, name in (("train", "train"), ("val", "val"), ("test", "test_2016_flickr")):
        sides = []
        for language in (run.source, run.target):
            with gzip.open(data / f"multi30k/{name}.{language}.gz", "rt", encoding="utf-8") as file:
                sides.append(file.read().splitlines()[:most])
        found[part] = (sides[0], sides[1])
    return found


def chinese(data: Path, most: int | None) -> dict[str, Pairs]:
    found: dict[str, Pairs] = {part: ([], []) for part in ("train", "val", "test")}
    with lzma.open(data / "bilingual/cmn-eng.txt.xz", "rt", encoding="utf-8-sig") as file:
        for line in filter(str.strip, file):
            english, translated, *_ = line.split("\t")
            digest = hashlib.sha256(english.strip().lower().encode()).digest()
            place = int.from_bytes(digest[:4], "big") % 100  # one sentence is in one part
            part = "test" if place < 4 else "val" if place < 8 else "train"
            for side, text in zip(found[part], (english, translated), strict=True):
                side.append(text)
    return {part: (one[:most], other[:most]) for part, (one, other) in found.items()}


def by_size(pairs: Pairs, tokenizer: Tokenizer, *, longer: bool) -> Pairs:
    """Those with more tokens than the short runs learn from; or the others."""
    sizes = [
        max(map(len, both))
        for both in zip(*(encode_sentences(tokenizer, s) for s in pairs), strict=True)
    ]
    kept = [
        both
        for both, size in zip(zip(*pairs, strict=True), sizes, strict=True)
        if (size > SHORT) == longer
    ]
    return [one for one, _ in kept], [other for _, other in kept]


def vocabulary(run: Run, given: argparse.Namespace) -> Path:
    return given.out / "vocabulary" / run.pair


def learn_vocabulary(run: Run, given: argparse.Namespace) -> None:
    place = vocabulary(run, given)
    if not place.is_dir():
        source, target = read(given.data, run, given.examples)["train"]
        train_joint_bpe(sorted([*source, *target]), given.vocabulary).save(place)


# --- one run, in a process of its own -----------------------------------------------------------


def print_event(**what: Any) -> None:
    print(json.dumps(what, ensure_ascii=False), flush=True)


def worker(name: str, given: argparse.Namespace) -> None:
    """Train, translate the test sentences, and leave result.json."""
    run, folder = runs()[name], given.out / "runs" / name
    device = "cpu" if given.cpu or not torch.cuda.is_available() else "cuda"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    if given.unrecorded:
        CUDAGraphCache.run_step = lambda *_: None  # type: ignore[method-assign]
    data = read(given.data, run, given.examples)
    if run.short:
        tokenizer = Tokenizer.load(vocabulary(run, given))
        data = {
            part: by_size(pairs, tokenizer, longer=part == "test") for part, pairs in data.items()
        }
    recipe = complete_finetuning(
        run.recipe, task="translate", settings=settings(run, given, device)
    )
    ended = train_translator(
        data["train"],
        folder,
        recipe,  # type: ignore[arg-type]
        dev=data["val"],
        force=True,
        callbacks=CallbackList([Watch(name)]),
    )
    model = cloze.load(folder, device=device)
    search, val = choose_length_penalty(model, data["val"], run)
    result = {
        "run": name,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "pairs": len(data["train"][0]) - ended.left_out,
        "parameters": sum(weight.numel() for weight in model.module.parameters()),
        "steps": ended.steps,
        "best_step": ended.best_step,
        "train_seconds": round(ended.seconds, 1),
        "val_greedy": ended.score,
        "val": val,
        "search": search,
        **evaluate_test(model, data["test"], run, search, folder / "test.txt"),
    }
    if run.target == "zh":
        result["asked"] = plot_example(model, name, search, given.out / "pictures")
    (folder / "result.json").write_text(json.dumps(result, indent=1, ensure_ascii=False), "utf-8")
    print_event(**result)


def settings(run: Run, given: argparse.Namespace, device: str) -> list[str]:
    budget = {unit: getattr(given, unit) for unit in ("minutes", "epochs", "steps")}
    return [
        *run.settings,
        *(TINY[run.recipe] if given.tiny else ()),
        f"vocabulary.folder={vocabulary(run, given)}",
        f"run.bleu_tokenizer={run.bleu}",
        f"run.device={device}",
        f"run.seed={given.seed}",
        f"run.evals_per_epoch={1 / given.eval_epochs}",
        *(f"run.{unit}={value}" for unit, value in budget.items() if value is not None),
        # cuDNN's recurrent nets have no bf16 under autocast
        *(["run.dtype=bf16"] if device == "cuda" and run.recipe != "seq2seq" else ()),
        *given.set,
    ]


class Watch(Callback):
    """Prints messages and scores of a run."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.perf_counter()

    def on_log(self, message: str) -> None:
        print_event(run=self.name, says=message)

    def on_evaluate(self, step: int, scores: Mapping[str, float]) -> None:
        seconds = round(time.perf_counter() - self.began, 1)
        print_event(run=self.name, step=step, seconds=seconds, bleu=round(scores["bleu"], 3))


def read_output(model: Model, source: list[str], search: dict[str, Any]) -> list[str]:
    found = translate(model, source, beam=BEAM, truncation="head", batch_tokens=32_768, **search)
    return [one.text for one in found]


def choose_length_penalty(model: Model, val: Pairs, run: Run) -> tuple[dict[str, Any], float]:
    """The length penalty that does best on val, and its BLEU there."""
    scores = [
        compute_bleu(read_output(model, val[0], search), val[1], tokenize=run.bleu).score
        for search in SEARCHES
    ]
    best = int(np.argmax(scores))
    return SEARCHES[best], scores[best]


def evaluate_test(
    model: Model, test: Pairs, run: Run, search: dict[str, Any], out: Path
) -> dict[str, Any]:
    """BLEU of the test sentences, of all and by length."""
    source, reference = test
    began = time.perf_counter()
    said = read_output(model, source, search)
    seconds = time.perf_counter() - began
    out.write_text("".join(f"{one}\n" for one in said), encoding="utf-8")
    counts = count_ngrams(said, reference, tokenize=run.bleu)
    words = [len(text.split()) for text in source]
    parts = compute_bleu_by_length(counts, words, EDGES, tokenize=run.bleu)
    chosen = np.digitize(words, EDGES) - 1
    whole = compute_bleu_from_counts(counts, tokenize=run.bleu)
    return {
        "test": whole.score,
        "brevity": whole.brevity_penalty,
        "signature": whole.signature,
        "sacrebleu": sacrebleu(said, reference, run.bleu),
        "sentences": len(source),
        "sentences_per_second": round(len(source) / seconds, 1),
        "by_length": [
            {
                "words": float(
                    np.mean([n for n, at in zip(words, chosen, strict=True) if at == k])
                ),
                "sentences": int((chosen == k).sum()),
                "bleu": part.score,
            }
            for k, part in enumerate(parts)
            if part is not None
        ],
    }


def sacrebleu(
    said: Sequence[str], reference: Sequence[str], tokenize: str
) -> dict[str, Any] | None:
    """The score of sacreBLEU, if it is installed."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        return None
    metric = BLEU(tokenize=tokenize)
    score = metric.corpus_score(list(said), [list(reference)]).score
    return {"score": score, "signature": str(metric.get_signature())}


def plot_example(model: Model, name: str, search: dict[str, Any], pictures: Path) -> str:
    """Plot the alignment of the example sentence."""
    found = translate(model, ASKED, beam=BEAM, align=True, **search).candidates[0]
    assert found.alignment is not None
    pictures.mkdir(parents=True, exist_ok=True)
    given: Any = {
        "source": found.alignment.source,
        "target": found.alignment.target,
        "weights": found.alignment.weights.tolist(),
        "title": f"{ASKED} → {found.text}",
    }
    AlignmentLines(**given).save(pictures / f"{slug(name)}-lines.svg")
    alignment_heatmap(**given).save(pictures / f"{slug(name)}-heat.svg")
    return found.text


def slug(name: str) -> str:
    return name.replace("/", "-")
