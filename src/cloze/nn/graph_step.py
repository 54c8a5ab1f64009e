"""Decoding steps on a GPU as CUDA graphs.

A step of one token launches hundreds of small kernels, which takes the program longer than the GPU
needs to run them. A `GraphStep` captures them once, with buffers of fixed sizes: what differs
between steps (tokens, positions, the length of the cache) is in memory on the device. Its
attention reads the whole buffer with a mask, so a buffer is not much longer than it must be.

On a CPU the same code runs without a graph; the tests use that.

b rows, c capacity in tokens, l layers, h heads, d head size, v vocabulary.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from cloze.nn.attention import Attention, KeyValue, KVCache, RotaryAttention
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.fuse import FusedAttention, FusedRotaryAttention
from cloze.nn.fused_step import can_fuse_step, compute_fused_step
from cloze.nn.relative_attention import RelativeAttention
from cloze.nn.utils import capture_graph, eval_mode

MIN_STEPS = 16  # that repay a capture
DEVICES = {"cuda"}
_ATTENTIONS = {
    Attention,
    FusedAttention,
    RotaryAttention,
    FusedRotaryAttention,
    RelativeAttention,
}
_MIN_CAPACITY = 128
_MAX_GRAPHS = 4  # of a model; each has a KV cache of its own
_WARMUP_STEPS = 3  # allocate workspaces and choose kernels, which a graph cannot


@dataclass
class _StaticKVCache(KVCache):
    """A cache whose buffer is attended to as a whole; new tokens are written to `slot`."""

    kv: Tensor = field(kw_only=True)  # 2 b c h d
    slot: Tensor = field(kw_only=True)  # 1

    def append(self, key: Tensor, value: Tensor) -> KeyValue:
        """The whole buffer, with one new token of each row (b 1 h d)."""
        self.kv[0].index_copy_(1, self.slot, key)
        self.kv[1].index_copy_(1, self.slot, value)
        return KeyValue(self.kv[0], self.kv[1])


@dataclass(frozen=True)
class GraphRows:
    """Rows of a batch whose keys and values are in the buffers of a `GraphStep`."""

    graph: "GraphStep"
    count: int
    length: int  # tokens that are cached
    version: int

    @property
    def is_valid(self) -> bool:
        """Whether the buffers still have these tokens; other rows may have replaced them."""
        return self.graph.versions.get(self.length) == self.version


class GraphStep:
    """One token of each row through a model: b -> b v, the next step in place of the last."""

    def __init__(self, model: Encoder, rows: int, capacity: int) -> None:
        weight = model.embeddings.word.weight
        device = weight.device
        attention = next(iter(model.blocks)).attention
        heads, width = attention.num_heads, attention.out.in_features
        shape = (len(model.blocks), 2, rows, capacity, heads, width // heads)
        self.rows, self.capacity = rows, capacity
        self.addresses = _addresses(model)
        self.versions: dict[int, int] = {}  # of the rows in the buffers, by their length
        self._next_version = 0
        self._lock = Lock()
        # not empty: whatever is multiplied with a weight of 0 must be finite
        self._kv = torch.zeros(shape, dtype=weight.dtype, device=device)  # l 2 b c h d
        self._tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self._positions = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._slot = torch.zeros(1, dtype=torch.long, device=device)
        self._mask = torch.zeros(rows, capacity, dtype=torch.bool, device=device)
        self._is_fused = can_fuse_step(model, rows)
        self._replay = self._capture(model)

    @torch.inference_mode()
    def load(self, caches: Sequence[KVCache], mask: Tensor | None) -> GraphRows:
        """Copy the keys and values of a batch (b k h d) into the buffers."""
        with self._lock:
            length = caches[0].length
            count = _count_rows(caches)
            for buffers, cache in zip(self._kv, caches, strict=True):
                assert cache.past is not None
                for buffer, past in zip(buffers, cache.past, strict=True):
                    buffer[:count, :length] = past
            self._mask.zero_()
            self._mask[:count, :length] = True if mask is None else mask
            self._positions.zero_()
            self._positions[:count, 0] = self._mask[:count, :length].sum(1)
            self._slot.fill_(length)
            self.versions.clear()
            return self._make_rows(count, length)

    @torch.inference_mode()
    def step(self, tokens: Tensor, rows: GraphRows) -> tuple[Tensor, GraphRows] | None:
        """Logits after one more token of each row; None if it is not valid or does not fit."""
        with self._lock:
            if not rows.is_valid or rows.length == self.capacity:
                return None
            newer = [length for length in self.versions if length > rows.length]
            if newer:  # another step went on from the same rows
                self._mask[:, rows.length :] = False
                self._positions -= len(newer)
                self._slot.fill_(rows.length)
                for length in newer:
                    del self.versions[length]
            self._tokens[: rows.count] = tokens
            logits = self._replay()[: rows.count]
            return logits.clone(), self._make_rows(rows.count, rows.length + 1)

    @torch.inference_mode()
    def reorder(self, rows: GraphRows, indices: Tensor) -> GraphRows | None:
        """The rows at `indices`, in the same buffers; None if they do not fit or are not valid."""
        with self._lock:
            count = len(indices)
            if count > self.rows or not rows.is_valid:
                return None
            newer = max(self.versions) - rows.length
            self._kv[:, :, :count] = self._kv.index_select(2, indices)
            self._mask[:count] = self._mask[indices]
            self._mask[:, rows.length :] = False
            self._positions[:count] = self._positions[indices] - newer
            self._positions[count:] = 0  # so that those of unused rows stay in range
            self._slot.fill_(rows.length)
            self.versions.clear()
            return self._make_rows(count, rows.length)

    def _make_rows(self, count: int, length: int) -> GraphRows:
        self._next_version += 1
        self.versions[length] = self._next_version
        return GraphRows(self, count, length, self._next_version)

    def _compute(self, model: Encoder) -> Tensor:
        """A step of all rows; positions and slot are then those of the next one."""
        self._mask.index_fill_(1, self._slot, True)
        x = model.embeddings(self._tokens[:, None], None, self._positions)  # b 1 d
        if self._is_fused:
            logits = compute_fused_step(model, x[:, 0], self._kv, self._slot, self._mask)
        else:
            logits = self._compute_blocks(model, x)
        self._slot += 1
        self._positions += 1
        return logits

    def _compute_blocks(self, model: Encoder, x: Tensor) -> Tensor:
        context = AttentionContext(
            self._mask,
            max_seqlen=self.capacity,
            device=self._mask.device,
            position_ids=self._positions,
        )
        for block, kv in zip(model.blocks, self._kv, strict=True):
            x = block(x, context, _StaticKVCache(kv=kv, slot=self._slot))
        assert model.lm_head is not None
        return model.logits(model.lm_head, model.norm(x[:, 0]))

    def _capture(self, model: Encoder) -> Callable[[], Tensor]:
        @torch.inference_mode()
        def run() -> Tensor:
            with eval_mode(model):
                return self._compute(model)

        if self._is_fused:
            try:
                run()  # compiles the kernels
            except Exception as error:
                warnings.warn(f"decoding without our kernels: {error}", stacklevel=2)
                self._is_fused = False
        device = self._kv.device
        if device.type != "cuda":
            return run
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARMUP_STEPS):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            graph, logits = capture_graph(run, error_mode="thread_local")

        def replay() -> Tensor:
            with torch.cuda.device(device):
                graph.replay()
            return logits

        return replay


class GraphSteps:
    """The captured steps of a model, the last used ones."""

    def __init__(self) -> None:
        self._graphs: list[GraphStep] = []
        self._is_usable = True

    def load(
        self, model: Encoder, caches: Sequence[KVCache], mask: Tensor | None, capacity: int
    ) -> GraphRows | None:
        """Put a batch into the buffers of a graph, captured if there is none; None if it fails."""
        addresses = _addresses(model)
        self._graphs = [graph for graph in self._graphs if graph.addresses == addresses]
        count = _count_rows(caches)
        graph = next((one for one in self._graphs if _fits(one, count, capacity)), None)
        if graph is None:
            if not self._is_usable:
                return None
            try:
                graph = GraphStep(model, _round_up(count, 1), _round_up(capacity, _MIN_CAPACITY))
            except RuntimeError as error:  # no memory, or an operation that cannot be captured
                warnings.warn(f"decoding without CUDA graphs: {error}", stacklevel=2)
                self._is_usable = False
                self._graphs.clear()
                return None
        self._graphs = [graph, *(one for one in self._graphs if one is not graph)][:_MAX_GRAPHS]
        return graph.load(caches, mask)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a model has no graphs."""
        return type(None), ()


def get_graph_steps(model: Encoder) -> GraphSteps | None:
    """The graphs of a model, kept with it; None if its steps cannot be captured."""
    if not _can_capture(model):
        return None
    graphs: GraphSteps | None = model.__dict__.get("_graph_steps")
    if graphs is None:
        graphs = model.__dict__["_graph_steps"] = GraphSteps()
    return graphs


def _can_capture(model: Encoder) -> bool:
    """Whether a step depends on nothing but tokens, positions, mask and cache."""
    return model.embeddings.word.weight.device.type in DEVICES and all(
        type(block.attention) in _ATTENTIONS
        and block.cross_attention is None
        and not block._forward_hooks
        and not block.attention._forward_hooks
        for block in model.blocks
    )


def _count_rows(caches: Sequence[KVCache]) -> int:
    past = caches[0].past
    assert past is not None
    return len(past.key)


def _addresses(model: Encoder) -> Mapping[str, int]:
    return {name: weight.data_ptr() for name, weight in model.named_parameters()}


def _fits(graph: GraphStep, rows: int, capacity: int) -> bool:
    """Whether so many rows fit, and do not leave most of the graph unused."""
    return rows <= graph.rows <= 4 * rows and capacity <= graph.capacity <= max(
        4 * capacity, _MIN_CAPACITY
    )


def _round_up(number: int, least: int) -> int:
    """The next power of two."""
    return max(least, 1 << (number - 1).bit_length())
