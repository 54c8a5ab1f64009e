"""Round weights to eight bits with little effect on the outputs (GPTQ).

A matrix is rounded column by column, and the error of each column on the inputs of the matrix is
compensated by the following columns (Frantar et al. 2022, with float8 instead of integers). The
rounded weights are further from the original ones than the nearest values, but the outputs are
closer. The file format does not change.
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

DAMPING = 0.01  # of the mean square of an input, for directions that the text does not contain


def round_weights(
    model: Model, texts: Sequence[str], *, progress: ProgressCallback | None = None
) -> Model:
    """A copy of an encoder whose blocks have eight-bit values, calibrated on these texts.

    Each block is rounded with the outputs of the rounded blocks before it. Embeddings and heads
    are not changed: `save_small` rounds them to the nearest value.
    """
    found = replace(model, module=copy.deepcopy(model.module))
    for number, block in enumerate(found.module.blocks, 1):
        with _record_inputs(block) as squares:
            embed(found, texts, truncation="head")
        for linear, square in squares.items():
            linear.weight.data.copy_(round_columns(linear.weight.data, square))
        if progress is not None:
            progress("rounding the blocks", number, len(found.module.blocks))
    return found


@contextmanager
def _record_inputs(block: nn.Module) -> Iterator[dict[nn.Linear, Tensor]]:
    """Sum XᵀX of the inputs of each linear layer of a block inside the context."""
    squares: dict[nn.Linear, Tensor] = {}

    def record(linear: nn.Linear, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0].reshape(-1, linear.in_features).double()
        squares[linear] = squares.get(linear, 0) + x.T @ x

    linears = [one for one in block.modules() if isinstance(one, nn.Linear)]
    hooks = [one.register_forward_pre_hook(record) for one in linears]
    try:
        yield squares
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def round_columns(weight: Tensor, square: Tensor) -> Tensor:
    """Round a matrix (out × in) to eight-bit values, given XᵀX of its inputs."""
    square = square.double()
    # largest first: most columns can compensate for it
    order = square.diagonal().argsort(descending=True)
    w, h = weight.double()[:, order], square[order][:, order]
    h.diagonal().add_(DAMPING * h.diagonal().mean().clamp_min(1e-12))
    ahead = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    for column in range(len(h)):
        exact = w[:, column].clone()
        w[:, column] = small(exact[:, None].float())[:, 0].double()
        error = (exact - w[:, column]) / ahead[column, column]
        w[:, column + 1 :] -= error[:, None] * ahead[column, column + 1 :]
    return w[:, order.argsort()].to(weight.dtype)
