"""Attention masks: True means "may look".  b batch, h heads, q queries, k keys."""

import torch
from torch import Tensor

from cloze.errors import InputError
from cloze.nn.packed import Packed, band
from cloze.nn.varlen import Varlen

FLAT = (Packed, Varlen)  # rows of sequences one after another
Allowed = Tensor | Packed | Varlen | None
"""A boolean mask that broadcasts to b h q k; or a flat row; or None: everyone may look."""


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """Position q may look at every k <= q."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # q k


def near(allowed: Allowed, window: int, length: int, device: torch.device) -> Allowed:
    """`allowed`, where besides no one looks further than `window` places; sequences up to length.

    Sliding windows, Beltagy et al. 2020, §3.1.
    """
    if length <= window + 1:
        return allowed
    if isinstance(allowed, FLAT):
        return allowed.near(window)
    close = band(length, window, device)  # q k
    if allowed is None:
        return close
    if allowed.shape[-2] == 1:  # b 1 1 k: padding looks anywhere, as one that sees nothing is NaN
        close = close | ~allowed.mT  # b 1 q k
    return allowed & close


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
