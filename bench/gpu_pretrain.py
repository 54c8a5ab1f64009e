"""Pre-training BERT and GPT on one GPU with cloze and with transformers: tokens per second and MFU.

    python bench/gpu_pretrain.py --sizes base small --lengths 128 512 --run FOLDER --json out.json
    python bench/gpu_pretrain.py --sizes base-gpt --lengths 512 1024 --kinds dense --json out.json

All in bfloat16 (autocast with float32 weights), dropout 0.1, 15 % of the tokens masked, MLM + NSP,
fused AdamW, clipping; a step is forward, backward and update. transformers runs
`BertForPreTraining` with its default attention (SDPA), eager and compiled; its batches are made
before the measurement on the GPU and have one shape, which suits the compiler: "dense" sequences
have the full length, "text" are next-sentence pairs of a prepared corpus, padded to that length.
cloze makes its batches and masks on the GPU within the measured time. Tokens are counted without
padding. A size that ends in -gpt is a GPT-2 with 50,257 tokens, without dropout and masks, beside
`GPT2LMHeadModel`; in -gpt3 every second layer has a band of 256 tokens.

MFU (model FLOPs utilization): FLOPs per token × tokens per second / the rate of a bfloat16 matrix
product of 8192³ measured in this run. The FLOPs of a token, forward and backward, are
6 · parameters of the blocks + 12 · layers · hidden size · length (attention); a masked token has
6 · (hidden size² + hidden size · vocabulary) more for the LM head. Nothing else is counted. Of a
causal model the attention is half of that (of a band: that of its width), and every token has
6 · hidden size · vocabulary for the LM head.

Dry run without a GPU: --sizes tiny-gpt tiny --kinds dense --lengths 64 --tokens 512 --steps 2
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from cloze.data.batch import IGNORE_INDEX
from cloze.data.config import Batching
from cloze.data.corpus import Corpus
from cloze.data.device_corpus import CorpusSliceBatch, CorpusSliceBatches, DeviceCorpus
from cloze.data.packing import PackedBatches
from cloze.data.samples import Sampling
from cloze.interop.encoders import BERT
from cloze.interop.gpt import GPT2
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.configs.gpt import GPT2Config, GPT3Config
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.encoder import Encoder
from cloze.objectives.core import Learner
from cloze.objectives.masking import Masking
from cloze.objectives.pretraining import (
    CausalLMBatch,
    causal_lm_objective,
    make_device_objective,
)
from cloze.plot.format import format_percent
from cloze.text.tokenizer import Tokenizer
from cloze.train.compiled import compile_encoders
from cloze.train.config import LoopConfig, OptimizerConfig
from cloze.train.distributed import DistributedContext
from cloze.train.loop import training_steps
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import TrainState
from common import print_result, versions

RATE = 0.15
VOCABULARY, GPT_VOCABULARY = 30_522, 50_257
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WARM = 6  # steps before the time is taken: torch compiles
PROFILED = 3  # steps, after it
Rows = dict[str, dict[str, Any]]
SPECIAL = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}


@dataclass(frozen=True)
class Setting:
    """What both sides are measured on."""

    size: str
    length: int
    tokens: int  # positions per step
    steps: int
    profiled: int = 0  # kernels to show

    @property
    def kind(self) -> str:
        """`modern`, `gpt`, `gpt3`, or empty for a BERT."""
        return self.size.partition("-")[2]

    @property
    def is_causal(self) -> bool:
        return self.kind.startswith("gpt")

    @property
    def vocab_size(self) -> int:
        return GPT_VOCABULARY if self.is_causal else VOCABULARY

    def make_config(self) -> EncoderConfig:
        """The model's configuration."""
        if not self.is_causal:
            kind = ModernBertConfig if self.kind else BertConfig
            return kind.preset(self.size.partition("-")[0], vocab_size=VOCABULARY)
        return (GPT3Config if self.kind == "gpt3" else GPT2Config).preset(
            self.size.partition("-")[0],
            vocab_size=GPT_VOCABULARY,
            max_positions=max(1024, self.length),
            **dict.fromkeys(("dropout", "embedding_dropout", "attention_dropout"), 0.0),
        )


def wait() -> None:
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def peak(size: int = 8192, rounds: int = 30) -> float:
    """FLOP/s of a large bfloat16 product on random numbers."""
    if DEVICE.type == "cpu":
        return 1e12  # a dry run
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * size**3 / statistics.median(times)


def flops(model: Encoder, length: int) -> float:
    """Of a token: see the head of this file."""
    config = model.config
    weights = sum(weight.numel() for weight in model.blocks.parameters())
    if model.is_causal:
        # the keys of a token, on average
        spans = [
            length / 2 if window is None else min(length / 2, window / 2 + 1)
            for window in (block.attention.window_size for block in model.blocks)
        ]
        head = 6 * config.hidden_size * config.vocab_size
        return 6 * weights + 12 * config.hidden_size * sum(spans) + head
    head = 6 * RATE * (config.hidden_size**2 + config.hidden_size * config.vocab_size)
    return 6 * weights + 12 * config.num_layers * config.hidden_size * length + head


class Synthetic:
    """A corpus of random tokens, on the device at once; nothing is read from a disk."""

    def __init__(self, size: int, vocab_size: int) -> None:
        self.device = DEVICE
        self.cls, self.sep, self.pad = SPECIAL["cls"], SPECIAL["sep"], SPECIAL["pad"]
        self.ids = torch.randint(1000, vocab_size, (size,), device=DEVICE).to(torch.int32)
        self.word_starts = torch.empty(0, dtype=torch.bool, device=DEVICE)
        self.special = torch.zeros(vocab_size, dtype=torch.bool, device=DEVICE)
        self.special[list(SPECIAL.values())] = True


def dense(given: Setting) -> Iterator[CorpusSliceBatch]:
    """Pairs that fill every sequence; for a GPT single texts."""
    source, rows = Synthetic(1 << 22, given.vocab_size), given.tokens // given.length
    half = given.length - 2 if given.is_causal else (given.length - 3) // 2
    for number in count():
        rng = np.random.default_rng(number)
        first = rng.integers(0, (1 << 22) - given.length, rows)
        end = first + half if given.is_causal else first + given.length - 3
        yield CorpusSliceBatch(
            corpus=source,  # type: ignore[arg-type]
            a=np.stack([first, first + half], 1),
            b=np.stack([first + half, end], 1),
            labels=np.full(rows, IGNORE_INDEX) if given.is_causal else rng.integers(0, 2, rows),
            lengths=np.full(rows, given.length),
            sample_ids=np.arange(rows),
            max_seqlen=given.length,
            capacity=given.tokens,
            max_masked=round(RATE * given.tokens),
            num_masked=round(RATE * given.tokens),
        )


def text(given: Setting, folder: Path) -> Iterator[CorpusSliceBatch]:
    """Next sentence pairs of a run's corpus; for a GPT single texts."""
    corpus, tokenizer = Corpus.open(folder / "corpus"), Tokenizer.load(folder / "tokenizer")
    batches = PackedBatches(
        corpus.train,
        tokenizer,
        Sampling(max_length=given.length, pairs="none" if given.is_causal else "nsp"),
        Batching(tokens=given.tokens, window=None),
    )
    source = DeviceCorpus(corpus, tokenizer, DEVICE)
    made = CorpusSliceBatches(source, batches, max_seqlen=given.length, mlm_probability=RATE)
    return (made.step(number)[0] for number in count())


def run_cloze(given: Setting, batches: Iterator[CorpusSliceBatch]) -> tuple[float, Encoder]:
    """Tokens per second, and the model."""
    fast = given.kind == "modern"
    heads: tuple[str, ...] = ("mlm",) if fast else ("mlm", "nsp")
    objective: Any = make_device_objective(plain_masking(), DEVICE)
    if given.is_causal:
        heads, objective = ("lm",), causal_lm_objective
        batches = (CausalLMBatch.from_batch(batch) for batch in batches)
    model = build(given.make_config(), heads, rng=torch.Generator().manual_seed(0)).to(DEVICE)
    if DEVICE.type == "cuda":
        compile_encoders(model)
    how = OptimizerConfig(name="muon", lr=0.01) if fast else OptimizerConfig(lr=1e-4)
    state = TrainState(
        Learner(model, objective),
        model,
        build_optimizer(model, how),
        LoopConfig(dtype="bf16"),
        DistributedContext(device=DEVICE),
    )
    last = WARM + given.steps
    steps = training_steps(
        state,
        lambda _: ([batch] for batch in batches),
        budget=Budget(steps=last + PROFILED + 1),
        schedule=Schedule(),
    )
    asked = time.perf_counter()
    before = (asked, 0)
    for step in steps:
        if step.number in (WARM, last):
            wait()
            now = (time.perf_counter(), step.tokens)
            if step.number == last:
                break
            before = now
    print(f"   ready after {before[0] - asked:.0f} s, loss {step.loss:.3f}", flush=True)
    if given.profiled:
        profile(steps, given.profiled)
    return (now[1] - before[1]) / (now[0] - before[0]), model


def profile(steps: Iterator[Any], shown: int) -> None:
    """Profile a few more steps, by kernel."""
    with torch.profiler.profile() as profiler:
        for _ in range(PROFILED):
            next(steps)
        wait()
    totals: dict[str, list[float]] = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            totals.setdefault(event.name, []).append(event.time_range.elapsed_us() / 1e3)
    for name, times in sorted(totals.items(), key=lambda one: -sum(one[1]))[:shown]:
        each, often = sum(times) / len(times), len(times) / PROFILED
        print(f"   {sum(times) / PROFILED:8.2f} ms  {often:6.1f} × {each:7.3f}  {name[:90]}")


def padded_batches(
    given: Setting, batches: Iterator[CorpusSliceBatch], amount: int = 8
) -> list[dict[str, Any]]:
    """The same samples as padded batches of one shape, masked, on the GPU."""
    taken = [next(batches) for _ in range(amount)]
    rows = min(given.tokens // given.length, *(len(batch.lengths) for batch in taken))
    found = []
    for batch in taken:
        row = batch.gather_tokens()
        lengths = torch.from_numpy(batch.lengths[:rows]).to(DEVICE)
        real = torch.arange(given.length, device=DEVICE) < lengths[:, None]
        size = int(lengths.sum())
        ids, types = (torch.zeros(real.shape, dtype=torch.long, device=DEVICE) for _ in range(2))
        ids[real], types[real] = row.ids[:size], row.token_type_ids[:size]
        facts = {"tokens": size, "share": size / real.numel()}
        mask = None if bool(real.all()) else real.long()
        if given.is_causal:
            labels = torch.where(real, ids, IGNORE_INDEX)
            found.append({"input_ids": ids, "attention_mask": mask, "labels": labels, **facts})
            continue
        chosen = real & (torch.rand(real.shape, device=DEVICE) < RATE) & (ids > 999)
        found.append(
            {
                "input_ids": torch.where(chosen, SPECIAL["mask"], ids),
                "token_type_ids": types,
                "attention_mask": mask,
                "labels": torch.where(chosen, ids, IGNORE_INDEX),
                "next_sentence_label": row.labels[:rows].clamp(min=0),
                **facts,
            }
        )
    return found


def run_transformers(
    given: Setting, batches: list[dict[str, Any]], *, compiled: bool
) -> tuple[float, float]:
    """Tokens per second of transformers, and the fraction of its positions that are not padding."""
    import transformers

    shape, layout = given.make_config(), GPT2 if given.is_causal else BERT
    heads = ("lm",) if given.is_causal else ("mlm", "nsp")
    values = layout.write_config(shape, heads)
    config = transformers.AutoConfig.for_model(**values)
    model = getattr(transformers, values["architectures"][0])(config).to(DEVICE).train()
    called: Callable[..., Any] = torch.compile(model) if compiled else model
    made = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=DEVICE.type == "cuda")
    turns = cycle(batches)
    micro = 1

    def step() -> int:
        batch = next(turns)
        inputs = {k: v for k, v in batch.items() if k not in ("tokens", "share")}
        for turn in range(micro):
            part = {k: v if v is None else v[turn::micro] for k, v in inputs.items()}
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = called(**part).loss / micro
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        made.step()
        made.zero_grad()
        return int(batch["tokens"])

    while True:  # its logits at all positions may need a smaller batch
        try:
            for _ in range(4):
                step()
            break
        except torch.OutOfMemoryError:
            made.zero_grad()
            torch.cuda.empty_cache()
            micro *= 2
    wait()
    start, tokens = time.perf_counter(), 0
    for _ in range(given.steps):
        tokens += step()
    wait()
    rate = tokens / (time.perf_counter() - start)
    return rate, statistics.fmean(batch["share"] for batch in batches)


def plain_masking() -> Masking:
    return Masking(
        mask_id=SPECIAL["mask"], replacement_ids=np.arange(1000, VOCABULARY), mlm_probability=RATE
    )


def compare(
    given: Setting, batches: Callable[[], Iterator[CorpusSliceBatch]], peers: list[str]
) -> Rows:
    """Every row: tokens per second, FLOPs per token, fraction of non-padding positions, memory."""
    found: Rows = {}
    for way in peers if given.kind in ("", "gpt") else []:
        rate, share = run_transformers(
            given, padded_batches(given, batches()), compiled=way == "compiled"
        )
        found[f"transformers, {way}"] = {"tokens_per_second": rate, "real": share}
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    rate, model = run_cloze(given, batches())
    memory = torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0
    found["cloze"] = {"tokens_per_second": rate, "real": 1.0, "gib": memory}
    torch._dynamo.reset()
    needed = flops(model, given.length)
    eager = found.get("transformers, eager", {}).get("tokens_per_second")
    for row in found.values():
        row["flops"] = needed
        row["times_eager"] = row["tokens_per_second"] / eager if eager else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--sizes", nargs="*", default=["base", "small"], help="-modern, -gpt, -gpt3: families"
    )
    parser.add_argument("--lengths", nargs="*", type=int, default=[128, 512])
    parser.add_argument("--kinds", nargs="*", default=["dense", "text"], choices=["dense", "text"])
    parser.add_argument("--run", type=Path, help="a run's folder, whose corpus is the text")
    parser.add_argument("--peers", nargs="*", default=["eager", "compiled"])
    parser.add_argument("--tokens", type=int, default=131_072)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--profile", type=int, default=0, help="number of kernels of cloze to list")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    top = peak()
    names = ("size", "length", "kind", "who", "tokens/s", "× eager", "MFU", "real", "GiB")
    table, rows = Table(*names), []
    for size, length, kind in product(args.sizes, args.lengths, args.kinds):
        given = Setting(size, length, args.tokens, args.steps, args.profile)
        made = partial(dense, given) if kind == "dense" else partial(text, given, args.run)
        for who, row in compare(given, made, args.peers).items():
            row["mfu"] = row["flops"] * row["tokens_per_second"] / top
            rows.append({"size": size, "length": length, "kind": kind, "who": who, **row})
            print(rows[-1], flush=True)
            table.add_row(
                *(size, str(length), kind, who, f"{row['tokens_per_second']:,.0f}"),
                f"{row['times_eager']:.2f}" if row["times_eager"] else "",
                *(
                    format_percent(row["mfu"]),
                    format_percent(row["real"]),
                    f"{row.get('gib', 0):.1f}",
                ),
            )
        if args.json:
            args.json.write_text(json.dumps({"peak": top, "rows": rows}, indent=1))
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "no GPU"
    print_result(
        table,
        f"{device}, peak {top / 1e12:.0f} TFLOP/s, "
        f"{versions('torch', 'transformers')}, {args.tokens:,} positions per step, "
        f"{args.steps} steps",
    )


if __name__ == "__main__":
    main()
