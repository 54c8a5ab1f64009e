"""Gradients of a score with respect to the embeddings of the tokens, and other embeddings.

b rows, t tokens, d width of the embeddings.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cloze.errors import InputError
from cloze.interpret.scores import Batch, Score
from cloze.nn.utils import eval_mode

Change = Callable[[int, Tensor], Tensor]
"""From a side (of a translator 0 is the source and 1 the target; of others 0) and the embeddings of
its tokens (b t d) to what the module reads in their place."""


def find_embeddings(module: nn.Module) -> list[nn.Module]:
    """The layers that embed the tokens: word embeddings, or the character CNN of an ELMo."""
    target = getattr(module, "target_embeddings", None)
    if target is not None:  # of a translator; without its own table the source uses this one
        source = getattr(module, "source_embeddings", None)
        return [target] if source is None else [source, target]
    embeddings = getattr(module, "embeddings", None)
    word = getattr(embeddings, "word", embeddings)
    if not isinstance(word, nn.Module):
        raise InputError(
            f"{type(module).__name__} has no word embeddings whose gradient could be computed",
            fix="use an encoder, a GPT, a neural language model or a translator",
        )
    return [word]


@contextmanager
def override_embeddings(module: nn.Module, rows: int, change: Change) -> Iterator[None]:
    """Replace the embeddings of all tokens of a batch of `rows` by what `change` returns.

    A hook on the embedding layer does it, so every family works. A translator embeds the source
    first. The hook is removed on exit.
    """
    calls = 0

    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:  # noqa: ARG001
        nonlocal calls
        changed = change(calls, output.reshape(rows, -1, output.shape[-1]))
        calls += 1
        return changed.reshape(output.shape)

    hooks = [layer.register_forward_hook(hook) for layer in find_embeddings(module)]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()


def compute_gradients(
    module: nn.Module, batch: Batch, score: Score, change: Change | None = None
) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Score and log-probability (b), the embeddings of each side (b t d), and their gradients.

    Only gradients of the embeddings are computed, none of the weights.
    """
    read: list[Tensor] = []

    def record(side: int, vectors: Tensor) -> Tensor:
        changed = vectors if change is None else change(side, vectors)
        read.append(changed.detach().requires_grad_())
        return read[-1]

    with _prepare(module):
        with override_embeddings(module, len(batch), record):
            scores, logs = score.evaluate(module, batch)
        gradients = torch.autograd.grad(scores.sum(), read, materialize_grads=True)
    return scores.detach(), logs.detach(), [one.detach() for one in read], list(gradients)


@contextmanager
def _prepare(module: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients; cuDNN's recurrent layers have none in evaluation mode."""
    is_recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    cudnn = torch.backends.cudnn
    with (
        eval_mode(module),
        torch.inference_mode(False),
        torch.enable_grad(),
        cudnn.flags(enabled=cudnn.enabled and not is_recurrent),
    ):
        yield


@torch.no_grad()
def evaluate_changed(
    module: nn.Module, batch: Batch, score: Score, change: Change | None = None
) -> tuple[Tensor, Tensor]:
    """Score and log-probability (b), with other embeddings if `change` is given."""
    if change is None:
        with eval_mode(module):
            return score.evaluate(module, batch)
    with eval_mode(module), override_embeddings(module, len(batch), change):
        return score.evaluate(module, batch)


def replace_vectors(vectors: Tensor, mask: Tensor, baseline: Tensor | None) -> Tensor:
    """The vectors (b t d) with the baseline (d; None: zeros) where the mask (b t) is True."""
    other = vectors.new_zeros(()) if baseline is None else baseline.to(vectors)
    return torch.where(mask[..., None], other, vectors)
