"""The tokens of a corpus that excite neurons most, found in one pass with bounded memory.

t tokens, m neurons of a layer.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.contention import MONITOR
from cloze.interpret.activations import NeuronLayer, capture_activations
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback, with_progress
from cloze.tasks.explain.inputs import show_token
from cloze.tasks.features import make_id_tensor
from cloze.tasks.inference import BATCH_TOKENS
from cloze.text.alignment import TokenAlignment

CONTEXT = 12  # tokens before and after a token that are kept with it
Neuron = tuple[NeuronLayer, int]


@dataclass(frozen=True, kw_only=True)
class TopToken:
    """A token of a corpus, the tokens around it, and how active a neuron is at each of them."""

    value: float
    token: str
    row: int  # of the corpus, from 1
    tokens: tuple[str, ...]  # with its context
    values: tuple[float, ...]
    index: int  # of the token in its context


@dataclass(frozen=True, kw_only=True, eq=False)
class _Window:
    """A text of the corpus, or a part of a long one."""

    row: int
    words: TokenAlignment


@dataclass
class _Ranking:
    """The largest activations so far; of equal ones the first."""

    size: int
    heap: list[tuple[float, int, TopToken]] = field(default_factory=list)

    def smallest(self) -> float:
        return self.heap[0][0] if len(self.heap) == self.size else 0.0

    def add(self, value: float, order: int, token: TopToken) -> None:
        item = (value, -order, token)  # orders differ, so tokens are never compared
        if len(self.heap) < self.size:
            heapq.heappush(self.heap, item)
        else:
            heapq.heappushpop(self.heap, item)

    def result(self) -> list[TopToken]:
        return [token for *_, token in sorted(self.heap, key=lambda one: (-one[0], -one[1]))]


@torch.inference_mode()
@with_progress
def find_top_tokens(
    source: Model,
    texts: Iterable[str],
    neurons: Sequence[Neuron],
    *,
    top: int = 20,
    context: int = CONTEXT,
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> list[list[TopToken]]:
    """The tokens with the largest activations of each neuron, largest first.

    Special tokens are left out, and so are tokens at which a neuron is not active. A long text is
    read in windows that do not overlap.
    """
    rankings = [_Ranking(top) for _ in neurons]
    layers = {layer.name: layer for layer, _ in neurons}
    columns = {
        name: torch.tensor([number for layer, number in neurons if layer.name == name])
        for name in layers
    }
    slots = {
        name: [slot for slot, (layer, _) in enumerate(neurons) if layer.name == name]
        for name in layers
    }
    # rows of a recurrent layer would be padded, and a backward layer would read them reversed
    alone = any(layer.is_recurrent for layer in layers.values())
    order = count()
    done = 0
    windows = _iterate_windows(source, texts)
    with eval_mode(source.module):
        for batch in _iterate_batches(windows, 1 if alone else batch_tokens):
            MONITOR.check()
            found = _compute_activations(source, batch, list(layers.values()), columns)
            for name, values in found.items():  # t m
                for column, slot in enumerate(slots[name]):
                    _rank(source, batch, values[:, column], rankings[slot], context, order)
            done = batch[-1].row
            if progress:
                progress("texts", done, None)
    return [ranking.result() for ranking in rankings]


def _iterate_windows(source: Model, texts: Iterable[str]) -> Iterator[_Window]:
    tokenizer = source.tokenizer
    # a translator reads an end token, too
    longest = source.max_length - (source.family.kind == "translator")
    for row, text in enumerate(texts, 1):
        if not text.strip():
            continue
        if longest < tokenizer.count_tokens(text) + tokenizer.num_special_tokens():
            for window in tokenizer.iterate_windows(text, max_length=longest, overlap=0):
                yield _Window(row=row, words=window)
        elif (words := tokenizer.encode(text)).ids:
            yield _Window(row=row, words=words)


def _iterate_batches(windows: Iterable[_Window], batch_tokens: int) -> Iterator[list[_Window]]:
    batch: list[_Window] = []
    size = 0
    for window in windows:
        batch.append(window)
        size += len(window.words)
        if size >= batch_tokens:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compute_activations(
    source: Model,
    batch: Sequence[_Window],
    layers: Sequence[NeuronLayer],
    columns: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The activations of some neurons of each layer at all tokens of a batch (t m)."""
    device = source.device
    lengths = [len(window.words) for window in batch]

    def select(layer: NeuronLayer, values: Tensor) -> Tensor:
        return values.flatten(0, -2)[:, columns[layer.name].to(device)].float().cpu()

    with capture_activations(layers, select) as captured:
        ids = make_id_tensor([window.words.ids for window in batch], device)
        for _ in source.module.hidden_states(ids, Packed.from_lengths(lengths, device)):
            if len(captured) == len(layers):  # higher layers are not computed
                break
    total = sum(lengths)
    found = {}
    for name, values in captured.items():
        added = (len(values) - total) // len(batch)  # end tokens that a translator adds
        parts = values.split([length + added for length in lengths])
        found[name] = torch.cat([part[: len(part) - added] for part in parts])
    return found


def _rank(
    source: Model,
    batch: Sequence[_Window],
    values: Tensor,
    ranking: _Ranking,
    context: int,
    order: "count[int]",
) -> None:
    """Add the largest activations of one neuron in a batch (t) to its ranking."""
    special = [one for window in batch for one in window.words.special_tokens_mask]
    ranked = values.masked_fill(torch.tensor(special), 0.0)
    best, indices = ranked.sort(descending=True, stable=True)
    starts = [0]
    for window in batch:
        starts.append(starts[-1] + len(window.words))
    places = torch.searchsorted(torch.tensor(starts), indices[: ranking.size], right=True) - 1
    for value, index, place in zip(
        best[: ranking.size].tolist(), indices.tolist(), places.tolist(), strict=False
    ):
        if value <= ranking.smallest():
            break
        window, begin = batch[place], starts[place]
        at = index - begin
        first, last = max(0, at - context), min(len(window.words), at + context + 1)
        tokens = [show_token(one, source.tokenizer) for one in window.words.tokens[first:last]]
        ranking.add(
            value,
            next(order),
            TopToken(
                value=value,
                token=tokens[at - first],
                row=window.row,
                tokens=tuple(tokens),
                values=tuple(values[begin + first : begin + last].tolist()),
                index=at - first,
            ),
        )
