"""Attention masks: True means "may look".  b batch, h heads, q queries, k keys."""

import torch
from torch import Tensor

from cloze.errors import InputError
from cloze.nn.packed import Packed

Allowed = Tensor | Packed | None
"""A boolean mask that broadcasts to b h q k; or a packed row; or None: everyone may look."""


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """Position q may look at every k <= q."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # q k


def allowed_by(attention_mask: Allowed) -> Allowed:
    """From what a caller hands in (b k of real tokens, or b q k) to what attention takes."""
    if attention_mask is None or isinstance(attention_mask, Packed):
        return attention_mask
    mask = attention_mask.bool()
    if mask.dim() == 2:  # noqa: PLR2004
        return mask[:, None, None, :]  # b k -> b 1 1 k
    if mask.dim() == 3:  # noqa: PLR2004
        return mask[:, None]  # b q k -> b 1 q k
    raise InputError(
        f"an attention mask of {mask.dim()} dimensions",
        fix="give (batch, keys) with 1 for real tokens, or (batch, queries, keys)",
    )
