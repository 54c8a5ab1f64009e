"""Let torch compile what is computed for every token."""

import torch
from torch import nn
from torch.compiler import config as compiler

from cloze.nn.encoder import Encoder
from cloze.nn.fuse import fuse
from cloze.objectives.detector import Detector

FORMS = 32  # of one piece of code, as compiled for different shapes and uses


def compile_parts(learning: nn.Module) -> None:
    """Compile the embeddings, the blocks and what comes before the scores of each encoder in it.

    Block by block: they share their code, so it is compiled once and not once a layer. Shapes are
    taken to stay as they are; the weights keep their names.
    """
    # a first block, one that sees all and one that sees near by, learning and judged, of a model
    # and of a narrower generator: past its limit torch would go on without compiling
    fuse(learning)
    compiler.recompile_limit = max(compiler.recompile_limit, FORMS)
    for part in learning.modules():
        if isinstance(part, Encoder):
            _compile(part)
        elif isinstance(part, Detector):
            part.suspicion = torch.compile(part.suspicion, dynamic=False)  # type: ignore[method-assign]


def _compile(model: Encoder) -> None:
    from cloze.train.added_products import IN_PLACE  # here: it loads torch's compiler, in a second

    # torch 2.11 fuses sums over rows and over columns into one kernel, which with dropout takes ten
    # times as long as both
    model.embeddings.compile(dynamic=False, options={"triton.mix_order_reduction": False})
    for block in model.blocks:
        block.compile(dynamic=False, options=IN_PLACE)
    if "mlm" in model.task_heads:
        model.lm_head_operands = torch.compile(model.lm_head_operands, dynamic=False)  # type: ignore[method-assign]
