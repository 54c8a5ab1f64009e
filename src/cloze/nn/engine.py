"""The vectors of encoders for inference: the fastest way that a device and a dtype have.

On a CPU the matrices are packed once (`packed_encoder`); on a GPU batches are CUDA graphs, or
padded rows in float32 (`graph_encoder`). If a module has hooks, or is of another kind, it is called
itself, so that hooks see what they expect. Results are the same up to rounding.

n tokens, d width.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from cloze.errors import ConfigError
from cloze.nn.encoder import Encoder
from cloze.nn.graph_encoder import (
    HALF,
    Layers,
    combine_layers,
    compute_padded,
    get_encoder_graphs,
)
from cloze.nn.layout import Packed
from cloze.nn.packed_encoder import Precision, can_pack_blocks, get_packed_encoder

GRAPH_DEVICES = {"cuda"}


def compute_layers(
    module: Any,  # noqa: ANN401 (whatever has `hidden_states`)
    input_ids: Tensor,
    packed: Packed,
    token_type_ids: Tensor | None = None,
    layers: Layers | None = None,
) -> Tensor:
    """The selected layers of a batch, n d; the last one by default.

    The ids are on the CPU, or on the device of the module. The result may be overwritten by the
    next call: on a GPU, launch what reads it before. Several threads use `lock_engine`.
    """
    if isinstance(module, Encoder) and packed.lengths and min(packed.lengths) > 0:
        found = _compute_fast(module, input_ids, packed, token_type_ids, layers)
        if found is not None:
            return found
    device = packed.device
    ids = input_ids.to(device)
    types = None if token_type_ids is None else token_type_ids.to(device)
    if layers is None:
        hidden: Tensor = module(ids, packed, types)
        return hidden
    return layers.combine(module.hidden_states(ids, packed, types))


def _compute_fast(
    module: Encoder,
    input_ids: Tensor,
    packed: Packed,
    token_type_ids: Tensor | None,
    layers: Layers | None,
) -> Tensor | None:
    weight = module.embeddings.word.weight
    if packed.max_seqlen > module.max_positions or _has_hooks(module):
        return None
    if weight.device.type == "cpu" and not _uses_graphs(module):
        precision: Precision = "int8" if is_quantized(module) else "float"
        made = get_packed_encoder(module, len(input_ids), precision)
        if made is None:
            return None
        return combine_layers(layers, made.hidden_states(module, input_ids, packed, token_type_ids))
    if not _uses_graphs(module) or not module.supports_varlen:
        return None
    arguments = (module, input_ids.cpu(), packed, token_type_ids, layers)
    if weight.dtype in HALF:
        return get_encoder_graphs(module).compute(*arguments)
    return compute_padded(*arguments)


def lock_engine(module: Any) -> AbstractContextManager[object]:  # noqa: ANN401
    """Held while results of `compute_layers` are read, if several threads use a module."""
    if not isinstance(module, Encoder) or not _uses_graphs(module):
        return nullcontext()
    return get_encoder_graphs(module).lock


def _uses_graphs(module: Encoder) -> bool:
    return module.embeddings.word.weight.device.type in GRAPH_DEVICES


def _has_hooks(module: nn.Module) -> bool:
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def quantize(module: object, is_on: bool) -> None:
    """Compute the linear layers of an encoder's blocks in 8-bit integers, or no longer."""
    if is_on and not (isinstance(module, Encoder) and can_pack_blocks(module)):
        raise ConfigError(
            "int8 is supported by encoders only (BERT, RoBERTa, DistilBERT, ModernBERT, GPT)",
            fix="use dtype float32 or bfloat16",
        )
    if is_on and module.embeddings.word.weight.device.type != "cpu":  # type: ignore[attr-defined]
        raise ConfigError("int8 is supported on a CPU only", fix="use bfloat16, or device cpu")
    if isinstance(module, nn.Module):
        module.__dict__["_is_quantized"] = is_on


def is_quantized(module: object) -> bool:
    """Whether `quantize` is on."""
    return bool(getattr(module, "__dict__", {}).get("_is_quantized", False))


__all__ = ["GRAPH_DEVICES", "compute_layers", "is_quantized", "lock_engine", "quantize"]
