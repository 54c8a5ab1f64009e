"""A model with rows for new words and with the heads it lacks, everything else as it was."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from cloze.checkpoint.model import Model
from cloze.models.build import build
from cloze.text.tokenizer import Tokenizer

LABELLED = ("heads.sequence.", "heads.token.")  # heads with an output for each label


@torch.no_grad()
def grown(
    base: Model,
    tokenizer: Tokenizer,
    heads: Iterable[str],
    *,
    rng: torch.Generator,
    **changes: Any,  # noqa: ANN401
) -> Model:
    """`base` for a tokenizer whose new pieces come after the old ones, with exactly these heads.

    A new word begins as the mean of the old pieces it was cut into, so that the model understands
    it about as before. A head that `base` lacks, or has for other labels, is drawn anew. `changes`
    are settings of its configuration.
    """
    old_size = base.config.vocab_size
    config = replace(base.config, vocab_size=max(old_size, tokenizer.size), **changes)
    module = build(config, heads, rng=rng)
    ours, theirs = module.state_dict(), base.module.state_dict()
    if config.labels != base.config.labels:
        theirs = {name: weight for name, weight in theirs.items() if not name.startswith(LABELLED)}
    for name, weight in theirs.items():
        if name in ours and ours[name].shape == weight.shape:
            ours[name].copy_(weight)
    tables = [
        name
        for name, weight in ours.items()
        if name in theirs and weight.shape != theirs[name].shape
    ]
    first_new = base.tokenizer.size
    for name in tables:  # the embedding table, the masked-LM bias, an untied masked-LM table
        ours[name][:old_size] = theirs[name]
        for id_ in range(first_new, tokenizer.size):
            pieces = base.tokenizer.ids([tokenizer.decode([id_])], special=False)[0]
            ours[name][id_] = theirs[name][pieces].mean(0)
    return replace(base, module=module.eval(), tokenizer=tokenizer, config=config, pooling=None)
