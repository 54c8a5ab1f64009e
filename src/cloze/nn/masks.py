"""Attention masks: True means "may look".  b batch, h heads, q queries, k keys."""

import torch
from torch import Tensor

from cloze.errors import InputError
from cloze.nn.packed import Packed, band, causal
from cloze.nn.varlen import Varlen

__all__ = ["FLAT", "Allowed", "allowed_by", "causal", "near", "past"]

FLAT = (Packed, Varlen)  # rows of sequences one after another
Allowed = Tensor | Packed | Varlen | None
"""A boolean mask that broadcasts to b h q k; or a flat row; or None: everyone may look."""


def near(allowed: Allowed, window: int, length: int, device: torch.device) -> Allowed:
    """`allowed`, where besides no one looks further than `window` places; sequences up to length.

    Sliding windows, Beltagy et al. 2020, §3.1.
    """
    if length <= window + 1:
        return allowed
    if isinstance(allowed, FLAT):
        return allowed.near(window)
    return _both(allowed, band(length, window, device))


def past(allowed: Allowed, length: int, device: torch.device) -> Allowed:
    """`allowed`, where besides no one looks ahead; sequences up to length."""
    if isinstance(allowed, FLAT):
        return allowed.past()
    return _both(allowed, causal(length, device))


def _both(allowed: Tensor | None, seen: Tensor) -> Tensor:
    """What is allowed and is in `seen` (q k)."""
    if allowed is None:
        return seen
    if allowed.shape[-2] == 1:  # b 1 1 k: padding looks anywhere, as one that sees nothing is NaN
        seen = seen | ~allowed.mT  # b 1 q k
    return allowed & seen


def allowed_by(attention_mask: Allowed) -> Allowed:
    """From what a caller hands in (b k of real tokens, or b q k) to what attention takes."""
    if attention_mask is None or isinstance(attention_mask, FLAT):
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
