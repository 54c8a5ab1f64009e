"""Give a model rows for new tokens and the heads that it lacks, and keep everything else."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.models.build import build
from cloze.text.tokenizer import Tokenizer

LABEL_HEADS = ("task_heads.sequence.", "task_heads.token.")  # heads with one output per label


@torch.no_grad()
def extend_model(
    base: Model,
    tokenizer: Tokenizer,
    heads: Iterable[str],
    *,
    rng: torch.Generator,
    **changes: Any,  # noqa: ANN401
) -> Model:
    """`base` with exactly these heads, for a tokenizer whose new tokens follow the old ones.

    A head that `base` lacks, or has for other labels or inputs, is initialised at random. `changes`
    are fields of the configuration.
    """
    vocab_size = max(base.config.vocab_size, tokenizer.vocab_size)
    config = replace(base.config, vocab_size=vocab_size, **changes)
    module = build(config, heads, rng=rng)
    ours, theirs = module.state_dict(), base.module.state_dict()
    has_labels = config.labels == base.config.labels
    theirs = {
        name: weight
        for name, weight in theirs.items()
        if not name.startswith(LABEL_HEADS)
        or (has_labels and name in ours and ours[name].shape == weight.shape)
    }
    for name, weight in theirs.items():
        if name in ours and ours[name].shape == weight.shape:
            ours[name].copy_(weight)
    resize_token_embeddings(ours, theirs, base.tokenizer, tokenizer)
    return replace(base, module=module.eval(), tokenizer=tokenizer, config=config, pooling=None)


def resize_token_embeddings(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], old: Tokenizer, new: Tokenizer
) -> None:
    """Copy the weights that have a row per token: embeddings, masked-LM bias, untied LM head.

    A new token starts as the mean of the old tokens that spell it, so that the model treats it
    about as before; a special token, which nothing spells, keeps its random weights.
    """
    for name, weight in ours.items():
        if name not in theirs or weight.shape == theirs[name].shape:
            continue
        weight[: len(theirs[name])] = theirs[name]
        for id_ in range(old.vocab_size, new.vocab_size):
            text = new.decode([id_], skip_special_tokens=False)
            spelled = old.encode_ids([text], add_special_tokens=False)[0]
            if spelled:
                weight[id_] = theirs[name][spelled].mean(0)
