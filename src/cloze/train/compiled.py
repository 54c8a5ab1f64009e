"""Compile encoders and networks over images with torch.compile."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.compiler import config as compiler

from cloze.models.clip import Clip
from cloze.models.diffusion import Diffusion
from cloze.nn.encoder import Encoder
from cloze.nn.fuse import fuse
from cloze.objectives.detector import Detector

RECOMPILE_LIMIT = 32  # versions of one function for different shapes and uses
# torch 2.11 fuses reductions over rows and columns into one kernel, which with dropout takes ten
# times as long as two
_OPTIONS = {"triton.mix_order_reduction": False}


def compile_encoders(learning: nn.Module) -> None:
    """Compile each encoder in a module: embeddings, blocks, last norm, hidden layers of heads.

    Block by block: the layers share compiled code. Shapes are assumed to be static; the weights
    keep their names.
    """
    fuse(learning)
    _raise_recompile_limit()
    for part in learning.modules():
        if isinstance(part, Encoder):
            _compile(part)
        elif isinstance(part, Detector):
            part.discriminator_logits = torch.compile(part.discriminator_logits, dynamic=False)  # type: ignore[method-assign]


def compile_diffusion(model: Diffusion, trained: Sequence[nn.Module]) -> None:
    """Compile what a stage of a diffusion model's training uses: `trained`, and what is frozen.

    Shapes are assumed to be static. The compiler chooses the memory layout of convolutions
    (channels last), and joins group norms with what surrounds them.
    """
    _raise_recompile_limit()
    parts: list[nn.Module] = []
    if model.autoencoder is not None:
        parts += [model.autoencoder.encoder, model.autoencoder.decoder]
    if model.denoiser in trained:
        parts.append(model.denoiser)
        if model.text_encoder is not None:
            compile_encoders(model.text_encoder)
    for part in parts:
        part.compile(dynamic=False, options=_OPTIONS)


def compile_clip(model: Clip) -> None:
    """Compile both encoders of a CLIP; shapes are assumed to be static."""
    compile_encoders(model.text_encoder)
    model.vision_encoder.compile(dynamic=False, options=_OPTIONS)


def _raise_recompile_limit() -> None:
    """Allow versions for all uses; beyond its limit torch would silently stop compiling.

    First, global and local blocks, in training and evaluation, of a model and of a generator; parts
    of a diffusion model, in both of its stages.
    """
    compiler.recompile_limit = max(compiler.recompile_limit, RECOMPILE_LIMIT)


def _compile(model: Encoder) -> None:
    from cloze.train.inplace_addmm import OPTIONS  # here: importing the compiler takes a second

    model.embeddings.compile(dynamic=False, options=_OPTIONS)
    if not isinstance(model.norm, nn.Identity):
        model.norm.compile(dynamic=False, options=_OPTIONS)
    for block in model.blocks:
        block.compile(dynamic=False, options=OPTIONS)
    if model.lm_head is not None:
        model.lm_head_operands = torch.compile(model.lm_head_operands, dynamic=False)  # type: ignore[method-assign]
