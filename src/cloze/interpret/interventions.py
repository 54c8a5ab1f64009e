"""Replace what parts of a model's blocks compute, in some rows of a batch, with hooks.

b rows, t tokens, h heads, d width (of a head where a part is one).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cloze.errors import InputError
from cloze.interpret.scores import Batch, Score
from cloze.nn.attention import Attention, CrossAttention
from cloze.nn.block import Block, BlockList
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback

Kind: TypeAlias = Literal["head", "attention", "cross_head", "cross_attention", "ffn", "block"]
HEADS: tuple[Kind, ...] = ("head", "cross_head")
Metric: TypeAlias = Literal["logit", "log_probability", "probability"]
METRICS: tuple[Metric, ...] = ("logit", "log_probability", "probability")
BATCH_TOKENS = 8192  # of all copies of a text that are computed together
SUBLAYERS: tuple[Kind, ...] = ("attention", "cross_attention", "ffn", "block")


@dataclass(frozen=True)
class Part:
    """A head, a sublayer or a whole block of a model.

    A head is its slice of the concatenated heads, before the output projection; a sublayer is what
    is added to the residual; a block is its output.
    """

    stack: str  # the attribute of the model with the blocks: blocks, encoder, decoder
    layer: int  # from 0
    kind: Kind
    head: int | None = None


@dataclass(frozen=True, eq=False)
class Edit:
    """The new value of a part, in one row of a batch."""

    part: Part
    value: Tensor  # d, or t d of the positions
    positions: Tensor | None = None  # t; None: all
    adds_input: bool = False  # of a block: the value is added to its input


def find_stacks(module: nn.Module) -> dict[str, BlockList]:
    """The stacks of attention blocks of a model by name; an error if it has none."""
    stacks = {
        name: child for name, child in module.named_children() if isinstance(child, BlockList)
    }
    if not stacks:
        raise InputError(
            f"a {type(module).__name__} has no attention blocks",
            fix="use an encoder (BERT, RoBERTa, ModernBERT …), a GPT or a Transformer translator",
        )
    return stacks


def list_parts(module: nn.Module, stack: str, kind: Kind) -> list[list[Part]]:
    """The parts of a kind in a stack, by layer; no layer has any if blocks lack the kind."""
    rows: list[list[Part]] = []
    for layer, block in enumerate(find_stacks(module)[stack]):
        attention = block.cross_attention if kind.startswith("cross") else block.attention
        if attention is None:
            return []
        if kind in HEADS:
            rows.append([Part(stack, layer, kind, head) for head in range(attention.num_heads)])
        else:
            rows.append([Part(stack, layer, kind)])
    return rows


def measure(module: nn.Module, score: Score, batch: Batch, metric: Metric) -> Tensor:
    """The metric of the scored output in each row: b."""
    logit, log_probability = (one.float() for one in score.evaluate(module, batch))
    if metric == "logit":
        return logit
    return log_probability.exp() if metric == "probability" else log_probability


@torch.inference_mode()
def measure_runs(  # noqa: PLR0913 (all but four by keyword)
    module: nn.Module,
    score: Score,
    batch: Batch,
    runs: Sequence[Sequence[Edit]],
    *,
    metric: Metric = "log_probability",
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> Tensor:
    """The metric of a text (a batch of one row) when it is computed with each run of edits.

    Many runs are one forward pass: each is a row of a batch.
    """
    source = 0 if batch.source_ids is None else batch.source_ids.shape[1]
    rows = max(1, batch_tokens // (batch.ids.shape[1] + source))
    found = []
    with eval_mode(module):
        for start in range(0, len(runs), rows):
            some = runs[start : start + rows]
            with replace_parts(module, some):
                found.append(measure(module, score, batch.repeat(len(some)), metric))
            if progress:
                progress("runs", start + len(some), len(runs))
    return torch.cat(found)


@contextmanager
def record_parts(
    module: nn.Module, parts: Iterable[Part], *, changes: bool = False
) -> Iterator[dict[Part, Tensor]]:
    """Record the values of parts in the forward passes within the context: b t d each.

    A later forward pass overwrites those of an earlier one. With `changes` the value of a block is
    its output minus its input.
    """
    recorded: dict[Part, Tensor] = {}

    def record(group: Sequence[Part], value: Tensor) -> None:
        for part in group:
            recorded[part] = value[..., _columns(module, part)].detach()

    def record_input(_: nn.Module, inputs: tuple[Any, ...], *, group: Sequence[Part]) -> None:
        record(group, inputs[0])

    def record_output(
        _: nn.Module, inputs: tuple[Any, ...], output: Tensor, *, group: Sequence[Part]
    ) -> None:
        is_block = group[0].kind == "block"
        record(group, output - inputs[0] if is_block and changes else output)

    with _hooks(
        target.register_forward_pre_hook(partial(record_input, group=group))
        if is_input
        else target.register_forward_hook(partial(record_output, group=group))
        for (target, is_input), group in _group_by_target(module, {p: p for p in parts}).items()
    ):
        yield recorded


@contextmanager
def _hooks(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Remove hooks on exit, also if registering one of them fails."""
    registered: list[RemovableHandle] = []
    try:
        registered.extend(handles)
        yield
    finally:
        for handle in registered:
            handle.remove()


@contextmanager
def replace_parts(module: nn.Module, runs: Sequence[Sequence[Edit]]) -> Iterator[None]:
    """Within the context row n of every batch is computed with the edits `runs[n]`.

    The weights are not changed, and the hooks are removed on exit. The model must be in eval mode:
    fused blocks bypass the projections' hooks in training.
    """
    edits = {(row, edit): edit.part for row, run in enumerate(runs) for edit in run}
    with _hooks(
        target.register_forward_pre_hook(partial(_edit_input, module, group))
        if is_input
        else target.register_forward_hook(partial(_edit_output, module, group))
        for (target, is_input), group in _group_by_target(module, edits).items()
    ):
        yield


def _edit_input(
    module: nn.Module,
    group: Sequence[tuple[int, Edit]],
    target: nn.Module,  # noqa: ARG001
    inputs: tuple[Any, ...],
) -> tuple[Any, ...]:
    return (_apply(module, group, inputs[0], None), *inputs[1:])


def _edit_output(
    module: nn.Module,
    group: Sequence[tuple[int, Edit]],
    target: nn.Module,  # noqa: ARG001
    inputs: tuple[Any, ...],
    output: Tensor,
) -> Tensor:
    return _apply(module, group, output, inputs[0])


def _apply(
    module: nn.Module, group: Sequence[tuple[int, Edit]], x: Tensor, before: Tensor | None
) -> Tensor:
    x = x.clone()
    for row, edit in group:
        columns = _columns(module, edit.part)
        value = edit.value.to(x)
        if edit.adds_input:
            assert before is not None
            value = value + before[row]
        if edit.positions is None:
            x[row, :, columns] = value
        else:
            x[row, edit.positions, columns] = value
    return x


def _group_by_target(
    module: nn.Module, items: dict[Any, Part]
) -> dict[tuple[nn.Module, bool], list[Any]]:
    """Items by the module that a hook is registered on, and whether its input is the value."""
    stacks = find_stacks(module)
    groups: dict[tuple[nn.Module, bool], list[Any]] = {}
    for item, part in items.items():
        block = list(stacks[part.stack])[part.layer]
        target: Any = block if part.kind == "block" else _find_sublayer(block, part.kind)
        is_head = part.kind in HEADS
        groups.setdefault((target.out if is_head else target, is_head), []).append(item)
    return groups


def _find_sublayer(block: Block, kind: Kind) -> Any:  # noqa: ANN401
    if kind == "ffn":
        return block.ffn
    return block.cross_attention if kind.startswith("cross") else block.attention


def _columns(module: nn.Module, part: Part) -> slice:
    """The columns of a head among the concatenated heads; all columns of other parts."""
    if part.head is None:
        return slice(None)
    block = list(find_stacks(module)[part.stack])[part.layer]
    attention: Attention | CrossAttention = _find_sublayer(block, part.kind)
    size = attention.out.in_features // attention.num_heads
    return slice(part.head * size, (part.head + 1) * size)
