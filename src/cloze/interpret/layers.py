"""What a model would predict after each layer: its output layer reads the layers below the last.

nostalgebraist 2020 (logit lens); Alammar 2021 (ranks of output tokens by layer). Layer 0 are the
embeddings. m positions of one text, t tokens, d width, c outputs: tokens of the vocabulary or
labels, l layers, k predictions, n candidates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.errors import InputError
from cloze.interpret.interventions import Part, record_parts
from cloze.interpret.scores import Batch
from cloze.models.elmo import Elmo
from cloze.models.lstm import LSTM
from cloze.models.transformer import Transformer
from cloze.models.ulmfit import ULMFiT
from cloze.nn.encoder import Encoder
from cloze.nn.utils import eval_mode, log_softmax

_CHUNK = 256  # positions whose outputs are in memory at once


@dataclass(frozen=True, eq=False)
class LayerStates:
    """The vectors that the output layer would read after each layer, and that output layer."""

    numbers: tuple[int, ...]  # of the layers; those of another size than the last are left out
    vectors: tuple[Tensor, ...]  # m d each
    compute_logits: Callable[[Tensor], Tensor]  # m d -> m c

    def predict_last(self, k: int) -> Tensor:
        """The best outputs of the last layer: m k."""
        last = LayerStates(self.numbers[-1:], self.vectors[-1:], self.compute_logits)
        none = torch.empty(len(self.vectors[-1]), 0, dtype=torch.long)
        return predict_layers(last, none, k=k).top_ids[0]


@dataclass(frozen=True, eq=False)
class LayerPredictions:
    """Predictions at each position after each layer."""

    layers: tuple[int, ...]
    top_ids: Tensor  # l m k, most probable first
    top_probabilities: Tensor  # l m k
    ranks: Tensor  # l m n of the candidates, from 1
    probabilities: Tensor  # l m n


@torch.inference_mode()
def read_layers(
    module: nn.Module, batch: Batch, positions: Sequence[int], head: str | None = None
) -> LayerStates:
    """The states of one text at these positions after each layer.

    `head` is the task head of an encoder; a head with a pooler has one output for the text. The
    language models and translators have one output layer, which predicts tokens.
    """
    with eval_mode(module):
        if isinstance(module, Encoder | ULMFiT):
            if head is None:
                raise InputError(
                    "this model has no head whose predictions can be read",
                    fix="use a model with a task head, or cloze explain cka to compare its layers",
                )
            return _read_encoder(module, batch, positions, head)
        if isinstance(module, Transformer):
            return _read_decoder(module, batch, positions)
        if isinstance(module, LSTM):
            states = module.init_state(len(batch))
            x = module.embeddings(batch.ids)
            *layers, _ = module.rnn.iterate_layers(x, states)
            return _select([x, *layers], positions, module.logits)
        if isinstance(module, Elmo) and module.output is not None:
            return _read_elmo(module, batch, positions)
    raise InputError(
        f"the layers of a {type(module).__name__} cannot be read by its output layer",
        fix="use an encoder with a task head, a GPT, an LSTM, an ELMo with an output layer or a "
        "Transformer translator",
    )


def _select(
    layers: Sequence[Tensor], positions: Sequence[int], compute_logits: Callable[[Tensor], Tensor]
) -> LayerStates:
    """The layers (1 t d) of the size that the output layer reads."""
    index = torch.tensor(list(positions), device=layers[0].device)
    size = layers[-1].shape[-1]
    chosen = {n: one[0, index] for n, one in enumerate(layers) if one.shape[-1] == size}
    return LayerStates(tuple(chosen), tuple(chosen.values()), compute_logits)


def _read_encoder(
    module: Encoder | ULMFiT, batch: Batch, positions: Sequence[int], head: str
) -> LayerStates:
    """The hidden states with the norm that the last layer has, at the positions a head reads."""
    *lower, last = module.hidden_states(batch.ids, batch.mask, batch.type_ids)
    norm: Any = getattr(module, "norm", nn.Identity())  # a recurrent encoder has none
    index = torch.tensor(list(positions), device=batch.ids.device)
    chosen = {}
    for number, state in enumerate([*map(norm, lower), last]):
        if state.shape[-1] == last.shape[-1]:
            chosen[number] = module.head_inputs(head, state, index, batch.mask)
    return LayerStates(
        tuple(chosen), tuple(chosen.values()), lambda vectors: module.logits(head, vectors)
    )


def _read_decoder(module: Transformer, batch: Batch, positions: Sequence[int]) -> LayerStates:
    assert batch.source_ids is not None
    mask = batch.source_mask
    if mask is None:
        mask = torch.ones_like(batch.source_ids, dtype=torch.bool)
    parts = [Part("decoder", layer, "block") for layer in range(len(module.decoder))]
    embedded: list[Tensor] = []
    hook = module.decoder[0].register_forward_pre_hook(lambda _, inputs: embedded.append(inputs[0]))
    try:
        with record_parts(module, parts) as recorded:
            module(batch.source_ids, mask, batch.ids)
    finally:
        hook.remove()
    layers = [module.decoder_norm(one) for one in (*embedded, *(recorded[part] for part in parts))]
    return _select(layers, positions, module.logits)


def _read_elmo(module: Elmo, batch: Batch, positions: Sequence[int]) -> LayerStates:
    """The layers of the forward direction."""
    assert module.output is not None
    cnn = module.embeddings
    words = cnn(cnn.trim(batch.ids.flatten(0, 1))).unflatten(0, batch.ids.shape[:2])  # 1 t d
    state = module.init_state(len(words))[:2]
    above = (
        module.read_direction(module.forward_layers[:count], words, state)[0]
        for count in range(1, module.num_layers + 1)
    )
    output = module.output()
    return _select([words, *above], positions, lambda vectors: F.linear(vectors, *output))


@torch.inference_mode()
def predict_layers(
    states: LayerStates,
    candidates: Tensor,
    *,
    k: int,
    activation: Callable[[Tensor], Tensor] = log_softmax,
) -> LayerPredictions:
    """The best outputs after each layer, and ranks and probabilities of candidates (m n).

    `activation` turns logits into log-probabilities.
    """
    rows = [
        [torch.cat(parts) for parts in zip(*chunks, strict=True)]
        for chunks in (
            list(_predict_chunks(vectors, states.compute_logits, candidates, k, activation))
            for vectors in states.vectors
        )
    ]
    ids, probabilities, ranks, chosen = (torch.stack(parts) for parts in zip(*rows, strict=True))
    return LayerPredictions(states.numbers, ids, probabilities, ranks, chosen)


def _predict_chunks(
    vectors: Tensor,
    compute_logits: Callable[[Tensor], Tensor],
    candidates: Tensor,
    k: int,
    activation: Callable[[Tensor], Tensor],
) -> Iterator[tuple[Tensor, ...]]:
    chunks = zip(vectors.split(_CHUNK), candidates.split(_CHUNK), strict=True)
    for some, wanted in chunks:
        logits = compute_logits(some).float()
        best = logits.topk(min(k, logits.shape[-1]), -1)
        probabilities = activation(logits).exp()
        wanted = wanted.to(logits.device)
        yield (
            best.indices.cpu(),
            probabilities.gather(-1, best.indices).cpu(),
            compute_ranks(logits, wanted).cpu(),
            probabilities.gather(-1, wanted).cpu(),
        )


def compute_ranks(logits: Tensor, candidates: Tensor) -> Tensor:
    """The rank of each candidate among all outputs, from 1: m c, m n -> m n.

    Of equal logits the lower index comes first, as in a stable sort.
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    ranks = []
    for column in candidates[..., None].unbind(-2):  # m 1
        own = logits.gather(-1, column)
        before = (logits > own) | ((logits == own) & (ids < column))
        ranks.append(1 + before.sum(-1))
    return torch.stack(ranks, -1) if ranks else candidates.new_empty(candidates.shape)
