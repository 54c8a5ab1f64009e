"""Encoders on a GPU: flat rows of fixed shapes as CUDA graphs, or padded rows in float32.

In bfloat16 and float16 a batch is one row without padding between its sequences (`Varlen`), which
is filled up to one of a few sizes. The kernels of each size are captured once, so a batch is one
copy to the GPU and one launch. There is no such attention in float32: sequences of about the same
length are padded to the same length there, and computed together.

On a CPU the same code runs without a graph; the tests use that.

n tokens, b sequences, t tokens of one, d width.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from threading import RLock
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cloze.nn.block import PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.fuse import add_norm_without_dropout
from cloze.nn.layout import Packed, Varlen
from cloze.nn.utils import capture_graph

HALF = (torch.bfloat16, torch.float16)
_MIN_TOKENS, _MIN_SEQUENCES = 128, 8
_MAX_SEQLENS = (64, 128, 512)  # beyond, powers of two; each may need a kernel of its own
_SHORTER = 4  # sequences have at least this fraction of the longest length, on average
_MAX_GRAPHS = 24  # of a model; they share memory
_WARMUP_RUNS = 2  # allocate workspaces and choose kernels, which a graph cannot
_PADDED_LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class Layers(Hashable, Protocol):
    """A selection of layers."""

    def combine(self, layers: Iterable[Tensor]) -> Tensor:
        """Combine the selected ones of all layers."""


class RowShape(NamedTuple):
    """The size of a captured row."""

    tokens: int
    sequences: int
    max_seqlen: int


def choose_shape(packed: Packed, max_positions: int) -> RowShape:
    """A shape that these sequences fit into, of as few as possible: each is captured once.

    Most shapes with the same number of tokens have the same number of sequences, because empty
    sequences take hardly any time.
    """
    longest = packed.max_seqlen
    seqlen = next((one for one in _MAX_SEQLENS if one >= longest), _round_up(longest))
    tokens = max(_MIN_TOKENS, _round_up(sum(packed.lengths)))
    usual = max(_MIN_SEQUENCES, _SHORTER * tokens // seqlen)
    return RowShape(tokens, max(usual, _round_up(len(packed.lengths))), min(seqlen, max_positions))


class GraphRow:
    """Layers of a model for flat rows of one shape."""

    def __init__(
        self,
        module: Encoder,
        shape: RowShape,
        layers: Layers | None,
        pool: Any,  # noqa: ANN401 (a handle that torch does not name)
    ) -> None:
        device = module.embeddings.word.weight.device
        self.shape = shape
        # ids, types and positions of all tokens, then the cumulative lengths
        size = 3 * shape.tokens + shape.sequences + 1
        self._inputs = torch.zeros(size, dtype=torch.long, device=device)
        self._replay = self._capture(module, layers, pool)

    def compute(self, input_ids: Tensor, packed: Packed, token_type_ids: Tensor | None) -> Tensor:
        """The combined layers, n d; valid until the next call of any row of the model."""
        n, count, tokens = len(input_ids), len(packed.lengths), self.shape.tokens
        is_gpu = self._inputs.device.type == "cuda"
        host = torch.zeros(len(self._inputs), dtype=torch.long, pin_memory=is_gpu)
        planes = host[: 3 * tokens].view(3, tokens)
        planes[0, :n] = input_ids
        if token_type_ids is not None:
            planes[1, :n] = token_type_ids
        ends = np.cumsum(np.asarray(packed.lengths, np.int64))
        starts = np.repeat(ends - np.asarray(packed.lengths), packed.lengths)
        planes[2, :n] = torch.from_numpy(np.arange(n) - starts)
        cumulative = host[3 * tokens :]
        cumulative[1 : count + 1] = torch.from_numpy(ends)
        cumulative[count + 1 :] = n  # empty sequences
        self._inputs.copy_(host, non_blocking=True)
        return self._replay()[:n]

    def _compute(self, module: Encoder, layers: Layers | None) -> Tensor:
        tokens = self.shape.tokens
        input_ids, types, positions = self._inputs[: 3 * tokens].view(3, tokens)
        cu_seqlens = self._inputs[3 * tokens :].int()
        layout = Varlen(cu_seqlens, positions, self.shape.max_seqlen)
        context = module.make_context(input_ids, layout)
        x = module.embeddings(input_ids, types, positions)
        return combine_layers(layers, iterate_layers(module, x, context, cu_seqlens))

    def _capture(
        self,
        module: Encoder,
        layers: Layers | None,
        pool: Any,  # noqa: ANN401
    ) -> Callable[[], Tensor]:
        def run() -> Tensor:
            return self._compute(module, layers)

        device = self._inputs.device
        if device.type != "cuda":
            return run
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARMUP_RUNS):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            graph, output = capture_graph(run, pool, error_mode="thread_local")

        def replay() -> Tensor:
            with torch.cuda.device(device):
                graph.replay()
            return output

        return replay


def combine_layers(layers: Layers | None, states: Iterable[Tensor]) -> Tensor:
    """The selected layers of all, the last one by default."""
    if layers is not None:
        return layers.combine(states)
    *_, last = states
    return last


def iterate_layers(
    module: Encoder, x: Tensor, context: AttentionContext, cu_seqlens: Tensor
) -> Iterator[Tensor]:
    """As `Encoder.hidden_states`, from the embeddings of a flat row on.

    In pre-norm blocks each sum is computed together with the norm after it, be it of the next
    block.
    """
    yield x
    blocks = list(module.blocks)
    if not all(isinstance(one, PreNormBlock) and one.cross_attention is None for one in blocks):
        for number, block in enumerate(blocks, 1):
            x = block(x, context)
            yield x if number < len(blocks) else module.norm(x)
        return
    zeros = x.new_zeros(x.shape[-1])
    normed = blocks[0].attention_norm(x)  # type: ignore[operator]
    norms: list[Any] = [*(block.attention_norm for block in blocks[1:]), module.norm]
    for number, (block, norm) in enumerate(zip(blocks, norms, strict=True), 1):
        assert isinstance(block, PreNormBlock)
        y = block.attention(normed, context)
        normed, x = add_norm_without_dropout(x, y, block.ffn_norm, cu_seqlens, zeros)
        normed, x = add_norm_without_dropout(x, block.ffn(normed), norm, cu_seqlens, zeros)
        yield x if number < len(blocks) else normed


class EncoderGraphs:
    """The captured rows of a module, the last used ones."""

    def __init__(self) -> None:
        self._rows: dict[tuple[RowShape, Layers | None], GraphRow] = {}
        self._addresses: Mapping[str, int] = {}
        self._pool: Any = None
        self._is_usable = True
        self.lock = RLock()  # the rows of a module share buffers

    @torch.inference_mode()
    def compute(
        self,
        module: Encoder,
        input_ids: Tensor,
        packed: Packed,
        token_type_ids: Tensor | None,
        layers: Layers | None,
    ) -> Tensor | None:
        """The combined layers of a batch, n d, valid until the next call; None if it fails."""
        if not self._is_usable:
            return None
        addresses = {name: weight.data_ptr() for name, weight in module.named_parameters()}
        if addresses != self._addresses:  # weights were replaced; changed ones are read again
            self._rows.clear()
            self._addresses = addresses
        key = choose_shape(packed, module.max_positions), layers
        row = self._rows.pop(key, None)
        if row is None:
            try:
                if self._pool is None and input_ids.device.type == "cpu":
                    self._pool = _make_pool(module)
                row = GraphRow(module, *key, self._pool)
            except RuntimeError as error:  # no memory, or an operation that cannot be captured
                warnings.warn(f"inference without CUDA graphs: {error}", stacklevel=2)
                self._is_usable = False
                self._rows.clear()
                return None
        self._rows[key] = row  # as the newest
        for oldest in list(self._rows)[:-_MAX_GRAPHS]:
            del self._rows[oldest]
        return row.compute(input_ids, packed, token_type_ids)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a model has no graphs."""
        return type(None), ()


def _make_pool(module: Encoder) -> Any:  # noqa: ANN401
    if module.embeddings.word.weight.device.type != "cuda":
        return None
    return torch.cuda.graph_pool_handle()


def get_encoder_graphs(module: Encoder) -> EncoderGraphs:
    """The graphs of a module, kept with it."""
    graphs: EncoderGraphs | None = module.__dict__.get("_encoder_graphs")
    if graphs is None:
        graphs = module.__dict__["_encoder_graphs"] = EncoderGraphs()
    return graphs


def compute_padded(
    module: Encoder,
    input_ids: Tensor,
    packed: Packed,
    token_type_ids: Tensor | None,
    layers: Layers | None,
) -> Tensor:
    """The combined layers, n d, of sequences that are padded to a few lengths."""
    device = module.embeddings.word.weight.device
    types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
    parts, start = [], 0
    for length, group in groupby(packed.lengths, _round_padded):
        lengths = np.array(list(group), np.int64)
        length = min(length, module.max_positions)
        end = start + int(lengths.sum())
        real = torch.from_numpy(np.arange(length) < lengths[:, None])  # b t
        planes = torch.zeros(3, *real.shape, dtype=torch.long, pin_memory=device.type == "cuda")
        planes[0][real], planes[1][real] = input_ids[start:end], types[start:end]
        planes[2] = real
        ids, type_ids, mask = planes.to(device, non_blocking=True)
        whole = bool((lengths == length).all())
        states = module.hidden_states(ids, None if whole else mask, type_ids)
        combined = combine_layers(layers, states).flatten(0, 1)  # b t d -> (b t) d
        if not whole:
            flat = real.flatten().nonzero()[:, 0]
            flat = flat.pin_memory() if device.type == "cuda" else flat
            combined = combined.index_select(0, flat.to(device, non_blocking=True))
        parts.append(combined)
        start = end
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _round_padded(length: int) -> int:
    return next((one for one in _PADDED_LENGTHS if one >= length), _round_up(length))


def _round_up(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length() if number > 1 else 1
