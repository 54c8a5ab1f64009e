"""Vectors of a frozen body as a reader takes them, and what the reader says.

n tokens of a packed batch, p places of an item, d width of the joined layers, c labels.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Features
from cloze.data.labelled.batch import EncodedExample
from cloze.nn.layout import Packed
from cloze.progress import ProgressCallback
from cloze.tasks.batches import batch_by_tokens
from cloze.tasks.embed import check_pooling, pool
from cloze.tasks.layers import select_layers


@torch.inference_mode()
def extract_features(
    model: Model,
    items: Sequence[EncodedExample],
    spec: Features,
    *,
    pooled: bool,
    batch_tokens: int,
    progress: ProgressCallback | None = None,
) -> list[Tensor]:
    """The vectors of each item, in order: one of all its tokens (1 d), or one a place (p d)."""
    if pooled:
        check_pooling(model, (spec.pooling,))
    layers = select_layers(spec.layers, len(model.module.blocks))
    found: dict[int, Tensor] = {}
    for batch in batch_by_tokens([len(item.ids) for item in items], batch_tokens):
        packed = Packed.of((len(items[n].ids) for n in batch), model.device)
        ids = torch.tensor([x for n in batch for x in items[n].ids], device=model.device)
        types = torch.tensor([x for n in batch for x in items[n].type_ids], device=model.device)
        joined = layers.join(model.module.hidden_states(ids, packed, types))  # n d
        for n, start, length in zip(batch, accumulate(packed.lengths, initial=0), packed.lengths):  # noqa: B905
            vectors = joined[start : start + length]  # t d
            if pooled:
                found[n] = pool(vectors[None], (spec.pooling,), False).cpu()
            else:
                found[n] = vectors[list(items[n].positions)].float().cpu()
        if progress:
            progress("sequences", len(found), len(items))
    return [found[n] for n in range(len(items))]


@torch.inference_mode()
def apply_reader(model: Model, vectors: Sequence[Tensor]) -> list[Tensor]:
    """What the model's reader says about each item's vectors (p c)."""
    assert model.reader is not None
    if not vectors:
        return []
    sizes = [len(one) for one in vectors]
    device = next(model.reader.parameters()).device
    return list(model.reader(torch.cat(list(vectors)).to(device), sizes).cpu().split(sizes))
