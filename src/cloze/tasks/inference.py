"""Inference with encoders: texts to sequences, sequences to logits of a head.

n tokens of a packed batch, m selected positions in it, p positions of one item, c scores of a head.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from cloze.checkpoint.model import Model, check_capability, unsupported_function_error
from cloze.checkpoint.task import TASK_HEADS, Task, infer_task
from cloze.config import in_range
from cloze.contention import MONITOR
from cloze.data.batch import batch_by_tokens
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import ConfigError, InputError
from cloze.nn.cores import choose_tokens_per_core, map_on_cores
from cloze.nn.encoder import Encoder
from cloze.nn.engine import compute_layers, lock_engine
from cloze.nn.layout import Packed
from cloze.nn.utils import HostCopy, eval_mode
from cloze.progress import ProgressCallback
from cloze.text.alignment import TokenAlignment
from cloze.text.long_texts import is_long
from cloze.text.windows import Windows

ExampleT = TypeVar("ExampleT")
T = TypeVar("T")
R = TypeVar("R")
ItemT = TypeVar("ItemT", bound=EncodedExample)

WINDOW_TOKENS = 1 << 15  # tokens of the windows of a long text that are in memory
BATCH_TOKENS = 2048  # activations of this many tokens fit the caches of a CPU
GPU_BATCH_TOKENS = 32_768  # enough to keep a GPU busy, few enough for a small one


@dataclass(frozen=True, slots=True, kw_only=True)
class TextItem(EncodedExample):
    """The sequence of a text, or of a window of it."""

    truncated_chars: int = 0  # characters left out by truncation


def encode_long(
    model: Model, text: str, pair: str | None = None, *, task: Task, name: object
) -> Windows | list[TokenAlignment]:
    """Encode a text or pair that is too long as one truncated sequence, or as windows.

    Windows overlap by `task.overlap` tokens, or by a quarter of their text. The first text of a
    pair is in every window. Windows can be iterated only once.
    """
    tokenizer, truncation = model.tokenizer, task.truncation_strategy
    if truncation == "window":
        return iterate_windows(model, text, pair, task=task, name=name)
    try:
        return [tokenizer.encode(text, pair, max_length=model.max_length, truncation=truncation)]
    except InputError as error:
        raise InputError(f"{name}: {error.problem}", fix=error.fix) from None


def needs_streaming(task: Task, text: str, pair: str | None = None) -> bool:
    """Whether a text or pair is read in windows and so long that only some are in memory."""
    return task.truncation_strategy == "window" and (is_long(text) or is_long(pair or ""))


def predict_in_order(
    examples: Sequence[ExampleT],
    predict_all: Callable[[Sequence[ExampleT]], Sequence[R]],
    predict_long: Callable[[ExampleT], R],
    *,
    is_long: Callable[[ExampleT], bool],
) -> list[R]:
    """The predictions of examples, of which long ones are predicted alone, window by window."""
    long = [is_long(example) for example in examples]
    others = [example for example, alone in zip(examples, long, strict=True) if not alone]
    found = iter(predict_all(others) if others else ())
    return [
        predict_long(example) if alone else next(found)
        for example, alone in zip(examples, long, strict=True)
    ]


def iterate_windows(
    model: Model, text: str, pair: str | None = None, *, task: Task, name: object
) -> Windows:
    """The windows of a text or pair; of a long text only the tokens of a few are in memory."""
    tokenizer, overlap, most = model.tokenizer, task.overlap, model.max_length
    try:
        if overlap is None:
            fixed = tokenizer.num_special_tokens(pair=pair is not None)
            if pair is not None:
                fixed += tokenizer.count_tokens(text)
            overlap = max(0, (most - fixed) // 4)
        return tokenizer.iterate_windows(text, pair, max_length=most, overlap=overlap)
    except InputError as error:
        raise InputError(f"{name}: {error.problem}", fix=error.fix) from None


def check_pair_support(model: Model) -> None:
    """Reject a model without a type embedding for the second text of a pair."""
    known = getattr(model.config, "type_vocab_size", 0)
    word = model.tokenizer.sample_word
    if known and max(model.tokenizer.encode(word, word).type_ids, default=0) >= known:
        raise ConfigError(
            f"this model cannot encode pairs of texts: its type_vocab_size is {known}",
            fix="use a BERT whose type_vocab_size is 2, or a RoBERTa or ModernBERT",
        )


def compute_logits(
    model: Model,
    items: Sequence[EncodedExample],
    *,
    head: str,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Tensor]:
    """Compute the logits of a head at each item's positions (p c), in the order of the items."""
    found: dict[int, Tensor] = {}
    batches = iterate_logits(model, items, head=head, batch_tokens=batch_tokens, progress=progress)
    for numbers, logits in batches:
        found.update(zip(numbers, logits, strict=True))
    return [found[n] for n in range(len(items))]


def iterate_window_logits(
    model: Model,
    items: Iterable[ItemT],
    total: int,
    *,
    head: str,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[tuple[ItemT, Tensor]]:
    """Yield the windows of a text in order, with their logits (p c); `total` is for `progress`."""
    remaining, done = iter(items), 0
    while some := list(islice(remaining, max(1, WINDOW_TOKENS // model.max_length))):
        logits = compute_logits(model, some, head=head, batch_tokens=batch_tokens)
        done += len(some)
        if progress:
            progress("sequences", done, total)
        yield from zip(some, logits, strict=True)


def iterate_logits(
    model: Model,
    items: Sequence[EncodedExample],
    *,
    head: str,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[tuple[list[int], Sequence[Tensor]]]:
    """Yield the indices and logits (p c) of the items of each batch, as float32 on the CPU.

    Sequences of similar length are packed together, without padding, up to `batch_tokens`. For a
    feature-based model, `model.feature_head` computes the logits.
    """
    if model.feature_head is not None:
        most = choose_batch_tokens(model, batch_tokens)
        yield list(range(len(items))), _apply_feature_head(model, items, head, most, progress)
        return
    done = 0
    lengths = [sum(len(one.ids) for one in item.sequences) for item in items]
    batches = divide_batches(model, lengths, batch_tokens)

    def launch(batch: list[int]) -> HostCopy:
        return _launch_logits(model, [items[n] for n in batch], head)

    with eval_mode(model.module):
        computed = zip(batches, map_batches(model, launch, batches), strict=True)
        for batch, logits in delay(computed, 0 if model.device.type == "cpu" else 1):
            sizes = [len(items[n].positions) for n in batch]
            yield batch, logits.wait().split(sizes)
            done += len(batch)
            if progress:
                progress("sequences", done, len(items))


def choose_batch_tokens(model: Model, batch_tokens: int | None) -> int:
    """The maximum number of tokens in a batch; the default depends on the device."""
    if batch_tokens is None:
        return BATCH_TOKENS if model.device.type == "cpu" else GPU_BATCH_TOKENS
    return in_range("batch_tokens", batch_tokens, 1, 1 << 30)


def divide_batches(
    model: Model, lengths: Sequence[int], batch_tokens: int | None
) -> list[list[int]]:
    """Indices of sequences in batches; by default such that every core of a CPU has some.

    If states are carried from text to text, each sequence is a batch, in the order of the input.
    """
    if carries_state(model):
        return [[n] for n in range(len(lengths))]
    most = choose_batch_tokens(model, batch_tokens)
    if batch_tokens is None and _uses_cores(model):
        most = choose_tokens_per_core(lengths, most)
    return list(batch_by_tokens(lengths, most))


def carries_state(model: Model) -> bool:
    """Whether a text is read from the states after the one before it (ELMo, `carry_state`)."""
    return bool(getattr(model.config, "carry_state", False))


def carry_states(model: Model) -> AbstractContextManager[None]:
    """Inside, texts are read from the states after the one before, if the model carries states."""
    return model.module.carry_states() if carries_state(model) else nullcontext()


def map_batches(
    model: Model, function: Callable[[list[int]], R], batches: Sequence[list[int]]
) -> Iterator[R]:
    """The results of a function, in order; on a CPU several batches are computed at a time."""
    return map_on_cores(function, batches) if _uses_cores(model) else map(function, batches)


def _uses_cores(model: Model) -> bool:
    return model.device.type == "cpu" and isinstance(model.module, Encoder)


def make_flat_tensor(rows: Iterable[Sequence[int]]) -> Tensor:
    """The numbers of all rows; through numpy this is faster than from a list."""
    return torch.from_numpy(np.fromiter(chain.from_iterable(rows), np.int64))


def delay(items: Iterable[T], count: int) -> Iterator[T]:
    """The same items, each when `count` more have been started."""
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def _apply_feature_head(
    model: Model,
    items: Sequence[EncodedExample],
    head: str,
    batch_tokens: int,
    progress: ProgressCallback | None,
) -> list[Tensor]:
    from cloze.tasks.features import apply_feature_head, extract_features

    assert model.feature_head is not None
    assert model.task is not None
    assert model.task.features is not None
    filled = [n for n, item in enumerate(items) if item.positions]  # a head needs a position
    with eval_mode(model.module, model.feature_head):
        features = extract_features(
            model,
            [items[n] for n in filled],
            model.task.features,
            pooled=head != "token",
            batch_tokens=batch_tokens,
            progress=progress,
        )
        found = dict(zip(filled, apply_feature_head(model, features), strict=True))
    return [found.get(n, torch.empty(0, len(model.labels))) for n in range(len(items))]


@torch.inference_mode()
def _launch_logits(model: Model, items: Sequence[EncodedExample], head: str) -> HostCopy:
    """Start to compute the logits of a batch, m c."""
    MONITOR.check()
    device, module = model.device, model.module
    sequences = [one for item in items for one in item.sequences]
    packed = Packed.from_lengths((len(one.ids) for one in sequences), device)
    starts = accumulate(packed.lengths, initial=0)
    positions = [
        start + position
        for start, one in zip(starts, sequences, strict=False)
        for position in one.positions
    ]
    indices = torch.tensor(positions, dtype=torch.long).to(device, non_blocking=True)
    ids = make_flat_tensor(one.ids for one in sequences)
    types = make_flat_tensor(one.type_ids for one in sequences)
    with lock_engine(module):
        hidden = compute_layers(module, ids, packed, types)  # n d
        selected = module.head_inputs(head, hidden, indices, packed)  # m d
        if len(sequences) > len(items):  # pairs in both orders
            sizes = [len(item.sequences) for item in items]
            selected = torch.stack([part.sum(0) for part in selected.split(sizes)])
        return HostCopy(module.logits(head, selected).float())  # m c


def resolve_task(function: str, model: Model, task: Task | None = None) -> Task:
    """Return the given task, or that of the model; an error if the model lacks the head."""
    check_capability(model, function)
    if model.family.kind == "dual_encoder":
        raise InputError(
            f"this model ({model.family.description}) cannot be used with `{function}` of texts: "
            "it classifies images",
            fix="give images and labels (command line: --images, --labels)",
        )
    head = TASK_HEADS[function]
    is_trained = model.task is not None and model.task.name == function
    has_feature_head = model.feature_head is not None and is_trained
    predicts_next = function == "classify" and predicts_next_sentence(model)
    if head not in model.task_heads and not has_feature_head and not predicts_next:
        raise unsupported_function_error(model, function, describe_heads(model, head))
    if task is not None:
        return task
    own = model.task or infer_task(head)
    if own is None or own.name != function:  # a folder describes only the first of its heads
        own = infer_task(head)
    assert own is not None
    return own


def describe_heads(model: Model, wanted: str) -> str:
    """Why a model lacks a function, for an error: it has another head, or none."""
    return f"its head is {model.head}, not {wanted}" if model.head else f"it has no {wanted} head"


def predicts_next_sentence(model: Model) -> bool:
    """Whether the only classification head is that of next-sentence prediction."""
    has_classifier = "sequence" in model.task_heads or model.feature_head is not None
    return "nsp" in model.task_heads and not has_classifier
