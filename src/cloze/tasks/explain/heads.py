"""`explain.heads`: what attention heads do over a corpus, ranked by pattern."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, cast

import torch

from cloze.checkpoint.model import Model
from cloze.contention import MONITOR
from cloze.data.batch import batch_by_tokens
from cloze.data.labelled.tables import read_text_examples
from cloze.data.objects import is_table, open_rows
from cloze.data.sources import Sources, read_rows
from cloze.errors import InputError, TruncationWarning
from cloze.files import PathLike
from cloze.interpret.capture import capture
from cloze.interpret.head_patterns import (
    BROAD,
    OTHER,
    PATTERNS,
    BatchPatterns,
    HeadPatterns,
    PatternSums,
    describe_tokens,
)
from cloze.models.transformer import Transformer
from cloze.nn.utils import eval_mode
from cloze.plot.format import format_percent
from cloze.plot.head_overview import HeadOverview
from cloze.plot.heatmap import Heatmap
from cloze.plot.page import Cell, Fact, Facts, Grid, Paragraph, Section, Table
from cloze.plot.view import View
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.tasks.explain.inputs import encode_input, reads_prompts
from cloze.tasks.explain.open_model import open_model
from cloze.tasks.inference import BATCH_TOKENS, check_pair_support
from cloze.tasks.inputs import check_text
from cloze.text.alignment import TokenAlignment

_CHUNK = 512  # texts that are sorted by length together
_MAX_SCORES = 1 << 23  # attention weights of one layer that are in memory
_RANKED = 5  # heads of a pattern in the table


@dataclass(frozen=True, kw_only=True)
class _Item:
    """A text as the model reads it."""

    ids: list[int]
    words: TokenAlignment
    truncated_chars: int = 0


def heads(
    model: Model | PathLike,
    texts: Sources | Iterable[str],
    *,
    patterns: Sequence[str] | None = None,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    max_texts: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressOption = None,
) -> View:
    """Rank attention heads by what they attend to in a corpus, such as the previous token.

    For each pattern, the heads are ranked by the mean attention that tokens pay to such tokens, and
    a heat map has all layers and heads. Special tokens are attended to, but do not attend. Of a
    translator, the heads of the encoder are shown.

    Args:
        model: a model, its folder, or the name of a built-in model.
        texts: a list of texts; a file, folder or glob, `-` for standard input; a data frame or
            another table. Texts that are too long are read in parts.
        patterns: the names of patterns (default: all).
        text_column: text column of a table: name or 1-based number (default: auto-detected).
        pair_column: column of the second text, if the model reads pairs.
        max_texts: the number of texts to read (default: all).
        batch_tokens: the number of tokens that are computed together.
        progress: whether to show a progress bar; or a function that is called with stage, number
            of texts and None.
    """
    opened = open_model(model, "heads")
    sums = PatternSums(patterns)
    read = _read_texts(texts, text_column, pair_column)
    counts = _sum_patterns(
        opened, islice(read, max_texts), sums, batch_tokens=batch_tokens, progress=progress
    )
    found = sums.compute()
    num_texts, truncated = counts
    note = f"{truncated:,} characters of long texts were not read." if truncated else ""
    return View(
        title="Attention heads",
        figures=_draw(found, num_texts),
        data={
            "num_texts": num_texts,
            "num_tokens": found.num_tokens,
            "patterns": found.to_dict(),
            "ranked": {
                name: [list(row) for row in found.rank(name)] for name in found.list_patterns()
            },
            "strongest": [[list(pair) for pair in row] for row in found.classify()],
        },
        note=note,
    )


def _read_texts(
    texts: Any,  # noqa: ANN401
    text_column: str | int | None,
    pair_column: str | int | None,
) -> Iterator[tuple[str, str | None]]:
    """The texts, each with its pair or None, lazily."""
    is_file = isinstance(texts, str | os.PathLike)
    if not is_file and not is_table(texts):
        if not isinstance(texts, Iterable):
            raise InputError(
                f"the texts are of type {type(texts).__name__}",
                fix="pass a list of texts, or the name of a file",
            )
        remaining = iter(texts)
        first = next(remaining, None)
        texts = chain([] if first is None else [first], remaining)
        if not isinstance(first, Mapping):
            for number, text in enumerate(texts, 1):
                yield check_text(text, f"text {number:,}"), None
            return
    source = texts if is_file else open_rows(texts)
    if pair_column is not None:
        examples = read_text_examples(
            source, text_column=text_column, pair_column=pair_column, label_column=False
        )
        yield from ((one.text, one.pair) for one in examples)
    else:
        rows = read_rows(source, text_column=text_column)
        yield from ((row.text, None) for row in rows)


@torch.inference_mode()
@with_progress
def _sum_patterns(
    model: Model,
    texts: Iterator[tuple[str, str | None]],
    sums: PatternSums,
    *,
    batch_tokens: int,
    progress: ProgressCallback | None = None,
) -> tuple[int, int]:
    """Add the patterns of all texts; returns their number, and that of characters not read."""
    num_texts = truncated = 0
    num_heads = getattr(model.config, "num_heads", 1)
    with eval_mode(model.module):
        while chunk := list(islice(texts, _CHUNK)):
            items = [item for text, pair in chunk for item in _encode(model, text, pair)]
            longest = max((len(item.ids) for item in items), default=1)
            most = min(batch_tokens, _MAX_SCORES // (num_heads * longest))
            for numbers in batch_by_tokens([len(item.ids) for item in items], most):
                MONITOR.check()
                _add_batch(model, [items[n] for n in numbers], sums)
            num_texts += len(chunk)
            truncated += sum(item.truncated_chars for item in items)
            if progress:
                progress("texts", num_texts, None)
    return num_texts, truncated


def _encode(model: Model, text: str, pair: str | None) -> Iterator[_Item]:
    """The sequences of a text: one, or several if it is too long for the model."""
    if not text.strip():
        return
    if model.family.kind == "translator" or reads_prompts(model):
        target = text if model.family.kind == "translator" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)
            read = encode_input(model, text, target_text=target)
        yield _Item(ids=read.ids, words=read.words, truncated_chars=read.truncated_chars)
        return
    tokenizer, most = model.tokenizer, model.max_length
    if pair is not None:
        check_pair_support(model)
        words = tokenizer.encode(text, pair, max_length=most, truncation="head")
        yield _Item(ids=words.ids, words=words, truncated_chars=words.truncated_chars)
        return
    for words in tokenizer.iterate_windows(text, max_length=most, overlap=0):
        yield _Item(ids=words.ids, words=words)


def _add_batch(model: Model, items: Sequence[_Item], sums: PatternSums) -> None:
    tokenizer, device, module = model.tokenizer, model.device, model.module
    features = describe_tokens(
        [item.words for item in items], tokenizer.special_ids, tokenizer.end_id, device
    )
    longest = features.ids.shape[1]

    def pad(rows: Iterable[Sequence[int]]) -> torch.Tensor:
        return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)

    ids = pad(item.ids for item in items)
    batch = BatchPatterns.of(features, sums.patterns, is_causal=model.is_causal)
    stack = "encoder" if isinstance(module, Transformer) else None
    with capture(module, "attention", stack=stack, reduce=batch.sum_weights) as captured:
        if isinstance(module, Transformer):
            module.encode(ids, features.real)
        else:
            module(ids, features.real, pad(item.words.type_ids for item in items))
    sums.add(batch, cast(list[torch.Tensor], captured), int(features.real.sum()))


def _draw(found: HeadPatterns, num_texts: int) -> list[Any]:
    layers, heads = found.weights.shape[1:]
    facts = [
        Fact(label="texts", text=f"{num_texts:,}", value=num_texts),
        Fact(label="tokens", text=f"{found.num_tokens:,}", value=found.num_tokens),
        Fact(label="heads", text=f"{layers} × {heads}", value=layers * heads),
    ]
    names = found.list_patterns()
    absent = [name for name in found.names if name not in names]
    note = f"Not in these texts: {', '.join(absent)}." if absent else ""
    meaning = Paragraph(
        text="Each number is the mean attention that tokens pay to tokens of a pattern, where "
        "there are such tokens; “equal” is that of a head that attends to all tokens equally. "
        f"“{BROAD}” is the entropy of the weights, divided by that of equal weights. {note}"
    )
    patterns = [*found.names, OTHER]
    overview = HeadOverview(
        title="What each head does",
        cells=[[(patterns.index(name), share) for name, share in row] for row in found.classify()],
        names=patterns,
        note="The pattern with the largest part of the attention of each head, if it is at least "
        "25 % more than that of equal weights; in percent. Broad heads attend to many tokens.",
    )
    return [
        Facts(facts),
        overview,
        Section(title="Strongest heads", parts=[meaning, _rank_heads(found, names)]),
        Section(
            title="All heads", parts=[Grid(parts=[_draw_pattern(found, name) for name in names])]
        ),
    ]


def _rank_heads(found: HeadPatterns, names: Sequence[str]) -> Table:
    """For each pattern the heads with the largest weight, as layer-head."""
    rows: list[list[Cell]] = []
    for name in names:
        best = [
            f"{layer}-{head}  {format_percent(weight)}"
            for layer, head, weight in found.rank(name)[:_RANKED]
        ]
        equal = format_percent(found.uniform[found.names.index(name)])
        rows.append([name, *best, *[""] * (_RANKED - len(best)), equal])
    ranks = [f"{number}." for number in range(1, _RANKED + 1)]
    return Table(columns=["pattern (layer-head)", *ranks, "equal"], rows=rows)


def _draw_pattern(found: HeadPatterns, name: str) -> Heatmap:
    at = found.names.index(name)
    weights = found.weights[at]
    layers, heads = weights.shape
    layer, head, weight = found.rank(name)[0]
    meaning = PATTERNS[name][1] if name in PATTERNS else "all tokens equally"
    return Heatmap(
        title=f"{name[0].upper()}{name[1:]}",
        values=weights.tolist(),
        rows=[str(number) for number in range(1, layers + 1)],
        columns=[str(number) for number in range(1, heads + 1)],
        row_title="layer",
        column_title="head",
        percent=True,
        shades=weights.clip(0, 1).tolist(),
        note=f"Attention to {meaning}. Largest: layer {layer}, head {head}, "
        f"{format_percent(weight)}; equal weights: {format_percent(found.uniform[at])}.",
    )
