"""A model folder with eight bits per weight, a quarter of its size, which every reader opens.

Matrices are stored as float8 (E4M3: one sign, four exponent and three fraction bits; Micikevicius
et al. 2022); biases and norms, which are few, stay as they are. Each number has its own exponent,
so there are no scales to store, and `transformers` and cloze convert while reading. Integers with a
scale for each row are closer to the weights (docs/builtin.md has the numbers), but no library
opens such a file as it is.

`round_weights` rounds with little effect on the outputs (GPTQ): a matrix is rounded column by
column, and the error of each column on the inputs of the matrix is compensated by the following
columns (Frantar et al. 2022, with float8 instead of integers). The rounded weights are further from
the original ones than the nearest values, but the outputs are closer.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.model import Model
from cloze.checkpoint.weights import WEIGHTS_FILE
from cloze.progress import ProgressCallback
from cloze.tasks.embed import embed

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max  # 448
DAMPING = 0.01  # of the mean square of an input, for directions that the text does not contain


def save_float8(model: Model, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """As `model.save`, with eight bits for each number of a matrix."""
    target = Path(folder)
    with atomic_folder(target, force=force) as work:
        model.save_into(work)
        file = work / WEIGHTS_FILE
        tensors = {name: to_float8(tensor) for name, tensor in load_file(file).items()}
        file.unlink()  # what was read may still be mapped to it: do not write over it
        save_file(tensors, file, metadata={"format": "pt"})
    return target


def to_float8(tensor: Tensor) -> Tensor:
    """A matrix as float8; other tensors, and matrices beyond its range, as they are."""
    fits = tensor.dim() == 2 and bool(tensor.abs().max() <= LARGEST)  # noqa: PLR2004
    return tensor.to(FLOAT8) if fits else tensor


def round_weights(
    model: Model, texts: Sequence[str], *, progress: ProgressCallback | None = None
) -> Model:
    """A copy of an encoder whose blocks have eight-bit values, calibrated on these texts.

    Each block is rounded with the outputs of the rounded blocks before it. Embeddings and heads
    are not changed: `save_float8` rounds them to the nearest value.
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
        w[:, column] = to_float8(exact[:, None].float())[:, 0].double()
        error = (exact - w[:, column]) / ahead[column, column]
        w[:, column + 1 :] -= error[:, None] * ahead[column, column + 1 :]
    return w[:, order.argsort()].to(weight.dtype)
