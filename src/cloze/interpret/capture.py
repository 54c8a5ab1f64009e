"""Record what the parts of a model compute, without changing it.

b batch, t tokens, h heads, d head size, q queries, k keys, f inner width, n tokens of a flat row.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from cloze.config import suggest
from cloze.errors import InputError
from cloze.interpret.gates import compute_gates
from cloze.nn.attention import Attention, CrossAttention
from cloze.nn.block import Block, FeedForward
from cloze.nn.character_cnn import CharacterCNN
from cloze.nn.embeddings import Embeddings, WordEmbeddings
from cloze.nn.layout import Packed
from cloze.nn.retrieval import NeighborEncoder

Reduce = Callable[[Any], Any]
"""Applied to a value as soon as it is computed; only what it returns is kept."""


class QueryKeyValue(NamedTuple):
    """What attention computes its weights and its output from; rotated, if the model does that."""

    query: Tensor  # b t h d, or n h d of a flat row
    key: Tensor
    value: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A part of a model that is recorded."""

    module: nn.Module
    name: str  # of the module: blocks.0.attention
    stack: str  # of layers that it is in: blocks, encoder, decoder; empty if in none
    layer: int  # from 1; 0 are the embeddings


@dataclass(frozen=True, kw_only=True)
class PartKind:
    """A kind of part: its modules, and how its value is recorded.

    `record(inputs, output)` is called after a method of the module (`forward`, unless `method` is
    given): fused blocks call some methods without the module's `forward`.
    """

    types: tuple[type[nn.Module], ...]
    record: Callable[[Any, tuple[Any, ...], Any], Any]
    method: str = "forward"


def _record_output(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:  # noqa: ANN401
    return output[0] if isinstance(output, tuple) else output


def _record_weights(part: Attention | CrossAttention, inputs: tuple[Any, ...], _: Tensor) -> Any:  # noqa: ANN401
    x, context, *_cache = inputs
    if isinstance(part, Attention) and isinstance(context.layout, Packed):
        return part.sequence_weights(x, context)
    return part.weights(*inputs)


def _record_qkv(
    part: Attention | CrossAttention, inputs: tuple[Any, ...], _: Tensor
) -> QueryKeyValue:
    return QueryKeyValue(*part.compute_qkv(*inputs))


def _record_heads(part: Attention | CrossAttention, _: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.unflatten(-1, (part.num_heads, -1))


def _record_gates(part: nn.RNNBase, inputs: tuple[Any, ...], _: Any) -> Any:  # noqa: ANN401
    x, state = inputs[0], inputs[1] if len(inputs) > 1 else None
    parts = () if state is None else (state,) if isinstance(state, Tensor) else tuple(state)
    return compute_gates(part, x, parts)


KINDS: dict[str, PartKind] = {
    # b h q k; of a packed row a list with h t t of each sequence
    "attention": PartKind(types=(Attention,), record=_record_weights, method="compute_heads"),
    "cross_attention": PartKind(  # b h t s
        types=(CrossAttention,), record=_record_weights, method="compute_heads"
    ),
    "qkv": PartKind(types=(Attention,), record=_record_qkv, method="compute_heads"),
    "cross_qkv": PartKind(types=(CrossAttention,), record=_record_qkv, method="compute_heads"),
    # b t h d: the output of each head, before the output projection
    "heads": PartKind(types=(Attention,), record=_record_heads, method="compute_heads"),
    "cross_heads": PartKind(types=(CrossAttention,), record=_record_heads, method="compute_heads"),
    # b t f: after the activation function
    "ffn": PartKind(types=(FeedForward,), record=_record_output, method="expand"),
    "blocks": PartKind(types=(Block,), record=_record_output),
    # b t d: of tokens, before the first layer
    "embeddings": PartKind(
        types=(Embeddings, WordEmbeddings, CharacterCNN, nn.Embedding), record=_record_output
    ),
    # b t d: the hidden states of recurrent layers; of a decoder's cells one step at a time, b d
    "recurrent": PartKind(types=(nn.RNNBase, nn.RNNCellBase), record=_record_output),
    # `Gates`: gates, candidates and cell states of recurrent layers
    "gates": PartKind(types=(nn.RNNBase,), record=_record_gates),
}
"""The kinds of parts by name. Flat rows have n in place of b t."""


@dataclass(eq=False)
class Captured(list[Any]):
    """The recorded values in the order of the calls, and the source of each."""

    sources: list[Source] = field(default_factory=list)


@contextmanager
def capture(
    module: nn.Module,
    kind: str | type[nn.Module],
    *,
    layers: Sequence[int] | None = None,
    stack: str | None = None,
    reduce: Reduce | None = None,
) -> Iterator[Captured]:
    """Record the value of each part of a kind, in the order of the calls.

    The model computes the same as without it, bit by bit: fused blocks stay fused, and attention
    weights, which are not stored, are computed again. Everything is undone on exit.

        with capture(model.module, "attention", layers=[-1]) as captured:
            model.module(input_ids)

    Args:
        module: the model.
        kind: a name in `KINDS`, or a class, for `Attention` and `CrossAttention` the weights, for
            other classes the outputs of its modules.
        layers: numbers of layers, from 1; −1 is the last one. Default: all.
        stack: for translators encoder or decoder. Default: both.
        reduce: applied to each value at once, of a packed row to that of each sequence, so that
            memory is bounded. Default: values are kept as they are.
    """
    found = _find_kind(kind)
    captured = Captured()

    def keep(source: Source, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
        value = found.record(source.module, inputs, output)
        if reduce is not None:
            value = [reduce(one) for one in value] if isinstance(value, list) else reduce(value)
        captured.append(value)
        captured.sources.append(source)

    with ExitStack() as stack_of_hooks:
        for block in module.modules():
            if isinstance(block, Block):  # decoding steps that bypass blocks look for hooks
                stack_of_hooks.callback(block.register_forward_hook(_do_nothing).remove)
        for source in list_sources(module, kind, layers=layers, stack=stack):
            stack_of_hooks.callback(_observe(source.module, found.method, partial(keep, source)))
        yield captured


def list_sources(
    module: nn.Module,
    kind: str | type[nn.Module],
    *,
    layers: Sequence[int] | None = None,
    stack: str | None = None,
) -> list[Source]:
    """The parts of a kind in a model, from the lowest; raises if a layer does not exist."""
    found: list[Source] = []
    for name, part in _find_modules(module, _find_kind(kind)):
        where, layer = _locate(name)
        found.append(Source(module=part, name=name, stack=where, layer=layer))
    if kind == "embeddings":  # not those of positions
        found = [one for one in found if not one.layer and "position" not in one.name]
    if stack is not None:
        found = [source for source in found if source.stack == stack]
    return found if layers is None else _select_layers(found, layers)


def select_numbers(name: str, wanted: Sequence[int], count: int) -> list[int]:
    """Numbers from 1 to `count`, each once; −1 is the last. Raises for others: `name` is what."""
    found = []
    for number in wanted:
        if not (1 <= number <= count or -count <= number <= -1):
            raise InputError(
                f"there is no {name} {number}",
                fix=f"use 1 to {count}, or −1 for the last" if count else f"there are no {name}s",
            )
        found.append(number if number > 0 else count + 1 + number)
    return list(dict.fromkeys(found))


def _find_kind(kind: str | type[nn.Module]) -> PartKind:
    if isinstance(kind, str):
        if kind not in KINDS:
            raise InputError(f"the kind of part {kind!r} is unknown", fix=suggest(kind, KINDS))
        return KINDS[kind]
    for known in (KINDS["attention"], KINDS["cross_attention"]):
        if issubclass(kind, known.types):
            return PartKind(types=(kind,), record=known.record, method=known.method)
    return PartKind(types=(kind,), record=_record_output)


def _find_modules(module: nn.Module, kind: PartKind) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules of the types: no embedding table inside of embeddings."""
    inside: list[str] = []
    for name, part in module.named_modules():
        if isinstance(part, NeighborEncoder):  # no view reads a database
            inside.append(f"{name}.")
        elif isinstance(part, kind.types) and not any(name.startswith(one) for one in inside):
            inside.append(f"{name}.")
            yield name, part


def _locate(name: str) -> tuple[str, int]:
    """The list of layers that a module is in, and its layer: blocks, 1 of blocks.0.attention."""
    parts = name.split(".")
    at = next((index for index, one in enumerate(parts) if one.isdigit()), None)
    return ("", 0) if at is None else (".".join(parts[:at]), int(parts[at]) + 1)


def _select_layers(sources: Sequence[Source], layers: Sequence[int]) -> list[Source]:
    count = max((source.layer for source in sources), default=0)
    wanted = select_numbers("layer", [one for one in layers if one], count)
    wanted += [0] * (0 in layers and any(source.layer == 0 for source in sources))
    if 0 in layers and 0 not in wanted:
        select_numbers("layer", [0], count)
    return [source for source in sources if source.layer in wanted]


def _observe(
    part: nn.Module, method: str, keep: Callable[[tuple[Any, ...], Any], None]
) -> Callable[[], None]:
    """Call `keep` after a method of a module; returns the function that undoes it."""
    if method == "forward":
        hook = part.register_forward_hook(lambda _, inputs, output: keep(inputs, output))
        return hook.remove
    original, is_own = getattr(part, method), method in vars(part)

    def call(*inputs: Any) -> Any:  # noqa: ANN401
        output = original(*inputs)
        keep(inputs, output)
        return output

    object.__setattr__(part, method, call)

    def undo() -> None:
        if is_own:  # another capture is around this one
            object.__setattr__(part, method, original)
        else:
            object.__delattr__(part, method)

    return undo


def _do_nothing(*_: Any) -> None:  # noqa: ANN401
    """A hook that makes fast decoding steps call the blocks."""
