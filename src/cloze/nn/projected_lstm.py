"""LSTM layers whose output is a projection of the cell.

b rows, t tokens, p width of the output, h units.
"""

import warnings
from functools import cache

import torch
from torch import Tensor, nn


@cache
def _silence_warning() -> None:
    """Let torch say now, and nobody hear, that oneDNN has no such layer: it says so only once."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        nn.LSTM(1, 2, proj_size=1, device="cpu")(torch.zeros(1, 1, device="cpu"))


class ProjectedLSTM(nn.LSTM):
    """One LSTM layer with a projection (LSTMP), with or without clipping.  Sak et al. 2014, §2.

    c = f·c + i·tanh(g), clipped to ±`cell_clip`;  y = W_r·(o·tanh(c)), clipped to ±`output_clip`.
    Without clipping it is torch's own layer, one call for all tokens.
    """

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    weight_hr_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(
        self,
        input_size: int,
        cell_size: int,
        output_size: int,
        *,
        cell_clip: float = 0.0,
        output_clip: float = 0.0,
    ) -> None:
        super().__init__(input_size, cell_size, proj_size=output_size, batch_first=True)
        self.cell_clip, self.output_clip = cell_clip, output_clip

    def forward(  # type: ignore[override]
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output at every token (b t p), and the state after the last: 1 b p and 1 b h."""
        if not (self.cell_clip or self.output_clip):
            if x.device.type == "cpu":
                _silence_warning()
            found: tuple[Tensor, tuple[Tensor, Tensor]] = super().forward(x, state)
            return found
        y, cell = state[0][0], state[1][0]
        # the part of the gates that does not depend on the step before
        gates = nn.functional.linear(x, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)
        outputs = []
        for inputs in gates.unbind(1):
            step = inputs + nn.functional.linear(y, self.weight_hh_l0)  # b 4h
            i, f, g, o = step.chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            if self.cell_clip:
                cell = cell.clamp(-self.cell_clip, self.cell_clip)
            y = nn.functional.linear(o.sigmoid() * cell.tanh(), self.weight_hr_l0)
            if self.output_clip:
                y = y.clamp(-self.output_clip, self.output_clip)
            outputs.append(y)
        return torch.stack(outputs, 1), (y[None], cell[None])

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Uniform; the forget gates start open (Jozefowicz et al. 2015)."""
        bound = self.hidden_size**-0.5
        for name, weight in self.named_parameters():
            if "bias" in name:
                weight.zero_()
            else:
                weight.uniform_(-bound, bound, generator=rng)
        self.bias_ih_l0.chunk(4)[1].fill_(1.0)  # torch's order: input, forget, cell, output
