"""Weights in eight bits that say the same of real text.

A matrix is rounded column after column, and what a column loses by it on the text that the matrix
reads, the columns still to come make up for (Frantar et al. 2022, with float8 in place of their
whole numbers). So the numbers are further from the weights than the nearest ones, and what they
say is nearer. The file is the same as without: only its numbers are better.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from cloze.checkpoint.model import Model
from cloze.checkpoint.store import small
from cloze.progress import ProgressCallback
from cloze.tasks.embed import embed

DAMPING = 0.01  # of the mean square of an input: directions that the text has none of stay put


def round_weights(
    model: Model, texts: Sequence[str], *, progress: ProgressCallback | None = None
) -> Model:
    """A copy of an encoder whose blocks hold eight-bit numbers, fitted to these texts.

    Each block is rounded on what the rounded blocks before it make of the texts. Embeddings and
    heads stay as they are: `save_small` rounds them to the nearest.
    """
    found = replace(model, module=copy.deepcopy(model.module))
    for number, block in enumerate(found.module.blocks, 1):
        with _watched(block) as squares:
            embed(found, texts, truncation="head")
        for linear, square in squares.items():
            linear.weight.data.copy_(round_columns(linear.weight.data, square))
        if progress is not None:
            progress("rounding the blocks", number, len(found.module.blocks))
    return found


@contextmanager
def _watched(block: nn.Module) -> Iterator[dict[nn.Linear, Tensor]]:
    """While it is open, the sums of XᵀX of what each matrix of a block reads are taken."""
    squares: dict[nn.Linear, Tensor] = {}

    def look(linear: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0].reshape(-1, linear.in_features).double()
        squares[linear] = squares.get(linear, 0) + x.T @ x

    linears = [one for one in block.modules() if isinstance(one, nn.Linear)]
    hooks = [one.register_forward_pre_hook(look) for one in linears]
    try:
        yield squares
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def round_columns(weight: Tensor, square: Tensor) -> Tensor:
    """A matrix (out × in) in numbers that eight bits hold, near to it on inputs of this XᵀX."""
    square = square.double()
    order = square.diagonal().argsort(descending=True)  # the busiest first: many can make up for it
    w, h = weight.double()[:, order], square[order][:, order]
    h.diagonal().add_(DAMPING * h.diagonal().mean().clamp_min(1e-12))
    ahead = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    for column in range(len(h)):
        exact = w[:, column].clone()
        w[:, column] = small(exact[:, None].float())[:, 0].double()
        lost = (exact - w[:, column]) / ahead[column, column]
        w[:, column + 1 :] -= lost[:, None] * ahead[column, column + 1 :]
    return w[:, order.argsort()].to(weight.dtype)
