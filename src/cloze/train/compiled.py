"""Let torch compile what is computed for every token."""

import torch

from cloze.nn.encoder import Encoder


def compile_parts(model: Encoder) -> None:
    """Compile the embeddings, the blocks and what comes before the word scores.

    Block by block: they share their code, so it is compiled once and not once a layer. Shapes are
    taken to stay as they are; the weights keep their names.
    """
    model.embeddings.compile(dynamic=False)
    for block in model.blocks:
        block.compile(dynamic=False)
    if "mlm" in model.heads:
        model.word_factors = torch.compile(model.word_factors, dynamic=False)  # type: ignore[method-assign]
