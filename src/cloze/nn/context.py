"""The inputs that all blocks of a forward pass share: attention masks and positions.

b batch, h heads, q queries, k keys; n tokens of a flat row, s source tokens, d width.
"""

from typing import Any

import torch
from torch import Tensor

from cloze.nn.layout import (
    FLAT,
    AttentionLayout,
    Packed,
    apply_causal_mask,
    apply_sliding_window,
    expand_mask,
)
from cloze.nn.positions import RotaryTable, compute_rotary_table


class AttentionContext:
    """Created by the model for each forward pass, and passed to every block.

    Attention modules read their mask (by window size) and their rotary table (by base) from it.
    Each is computed once and shared by all layers that need it. A model calls `Attention.prepare`
    of its layers beforehand, so that compiled blocks only read.
    """

    def __init__(  # noqa: PLR0913 (all by keyword)
        self,
        attention_mask: AttentionLayout = None,
        *,
        max_seqlen: int,
        device: torch.device,
        is_causal: bool = False,
        position_ids: Tensor | None = None,
        encoder_states: Tensor | None = None,
        encoder_mask: Tensor | None = None,
    ) -> None:
        """`attention_mask` is the one that callers pass to a model.

        `position_ids` are needed for rotary positions if they are not 0, 1, 2 … in every row, as in
        decoding with a cache; flat rows have their own. All are less than `max_seqlen`.
        Cross-attention attends to `encoder_states` (b s d) with `encoder_mask` (b s, True for real
        tokens).
        """
        self.layout = (
            expand_mask(attention_mask) if isinstance(attention_mask, Tensor) else attention_mask
        )
        self.max_seqlen = max_seqlen
        self.device = device
        self.is_causal = is_causal
        self.position_ids = (
            self.layout.position_ids if isinstance(self.layout, FLAT) else position_ids
        )
        self.encoder_states = encoder_states
        self.encoder_mask = None if encoder_mask is None else expand_mask(encoder_mask)
        # what chunked cross-attention reads (`cloze.nn.retrieval`); None: nothing is retrieved
        self.retrieval: Any = None
        self._computed: dict[tuple[Any, ...], Any] = {}

    def reach(self, window_size: int | None) -> int | None:
        """Number of positions on each side in a window; None if it covers every sequence."""
        if window_size is None or self.max_seqlen <= window_size // 2 + 1:
            return None
        return window_size // 2

    def attn_mask(self, window_size: int | None = None) -> Tensor | None:
        """Which query may attend to which key (True: it may); None means all to all.

        It broadcasts to b h q k, or for a flat row to h n n.
        """
        key = ("mask", self.reach(window_size))
        if key not in self._computed:
            make = self._flat_mask if isinstance(self.layout, FLAT) else self._padded_mask
            self._computed[key] = make(self.reach(window_size))
        mask: Tensor | None = self._computed[key]
        return mask

    def run_mask(self, length: int, window_size: int | None = None) -> Tensor | None:
        """The mask within a sequence of this length, for the runs of a `Packed` row: q k."""
        reach = self.reach(window_size)
        key = ("run", length, reach)
        if key not in self._computed:
            self._computed[key] = self._whole_mask(None, length, reach)
        mask: Tensor | None = self._computed[key]
        return mask

    def rotary_table(self, head_size: int, theta: float, *, by_token: bool = True) -> RotaryTable:
        """The angles of every token (n d/2), or of the positions of a sequence (`by_token=False`).

        In a padded batch both are the same.
        """
        position_ids = self.position_ids if by_token else None
        key = ("rotary", head_size, theta, position_ids is not None)
        if key not in self._computed:
            self._computed[key] = (
                compute_rotary_table(self.max_seqlen, head_size, theta=theta, device=self.device)
                if position_ids is None
                else self.rotary_table(head_size, theta, by_token=False).select(position_ids)
            )
        table: RotaryTable = self._computed[key]
        return table

    def _padded_mask(self, reach: int | None) -> Tensor | None:
        assert not isinstance(self.layout, FLAT)
        if reach is not None and self.position_ids is not None:
            return self._cached_window_mask(reach)
        return self._whole_mask(self.layout, self.max_seqlen, reach)

    def _cached_window_mask(self, reach: int) -> Tensor:
        """The window of new tokens among all keys of a cache, by their positions: b 1 q k.

        A row may have padding between its tokens, so the position of a key is the number of real
        ones before it.
        """
        assert self.position_ids is not None
        assert not isinstance(self.layout, FLAT)
        if self.layout is None:
            keys = torch.arange(self.max_seqlen, device=self.device)[None]  # 1 k
        else:
            keys = self.layout[:, 0, 0].cumsum(-1) - 1  # b k
        distance = self.position_ids[:, :, None] - keys[:, None]  # b q k
        mask = ((distance >= 0) & (distance <= reach))[:, None]
        return mask if self.layout is None else mask & self.layout

    def _whole_mask(self, mask: Tensor | None, length: int, reach: int | None) -> Tensor | None:
        if reach is not None:
            mask = apply_sliding_window(mask, reach, length, self.device)
        return apply_causal_mask(mask, length, self.device) if self.is_causal else mask

    def _flat_mask(self, reach: int | None) -> Tensor:
        """The mask for all pairs of tokens in a flat row: n n."""
        assert isinstance(self.layout, FLAT)
        token = torch.arange(len(self.layout.position_ids), device=self.device)
        ends = (
            self.layout.starts[1:]
            if isinstance(self.layout, Packed)
            else self.layout.cu_seqlens[1:]
        )
        sequence = torch.searchsorted(ends.long(), token, right=True)  # of each token
        mask = sequence[:, None] == sequence
        if reach is not None:
            mask &= (token[:, None] - token).abs() <= reach
        if self.is_causal:
            mask &= token[:, None] >= token
        return mask
