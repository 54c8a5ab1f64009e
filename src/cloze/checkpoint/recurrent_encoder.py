"""A recurrent language model as an encoder: the same layers, with the tokenizer's ids."""

from dataclasses import fields

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing

from cloze.checkpoint.model import Model
from cloze.models.build import build_on_meta
from cloze.models.configs.ngram import EOS
from cloze.models.configs.ulmfit import ULMFiTConfig
from cloze.models.language import Vocabulary
from cloze.text.tokenizer import Tokenizer

_OUTPUT = ("output.weight", "bias")  # weights that only predict words
_END_ROLES = ("eos", "sep", "bos", "cls")  # of tokens that stand between texts


@torch.no_grad()
def make_recurrent_encoder(model: Model) -> Model:
    """The layers of an `lstm` model as a `ulmfit` model without heads, on the same device.

    A language model numbers its words itself (`Vocabulary`); an encoder has a row for each id of
    the tokenizer. The tokens around a text have the vector of </s>, after which the language model
    has learned to begin a text.
    """
    tokenizer = add_end_tokens(model.tokenizer)
    rows = list(Vocabulary(model.tokenizer).model_ids)
    for role in _END_ROLES:
        if (token := getattr(tokenizer, f"{role}_id", None)) is not None:
            rows[token] = EOS
    known = {field.name for field in fields(model.config)} - {"vocab_size", "bos_id"}
    config = ULMFiTConfig(
        vocab_size=len(rows), **{name: getattr(model.config, name) for name in known}
    )
    module = build_on_meta(config).to_empty(device=model.device)
    weights = model.module.state_dict()
    table = weights.pop("embeddings.weight")
    stored = {name: one.clone() for name, one in weights.items() if name not in _OUTPUT}
    stored["embeddings.word.weight"] = table[torch.tensor(rows, device=table.device)]
    module.load_state_dict(stored)
    return Model(module=module.to(model.dtype).eval(), config=config, tokenizer=tokenizer)


def add_end_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with a token before and after each text, if it does not add any yet."""
    if tokenizer.encode_ids([""])[0]:
        return tokenizer
    own = tokenizer.special_tokens
    token = next((own[role] for role in (*_END_ROLES, *own) if role in own), None)
    if token is None:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.post_processor = TemplateProcessing(
        single=f"{token} $A {token}",
        pair=f"{token} $A {token} $B:1 {token}:1",
        special_tokens=[(token, backend.token_to_id(token))],
    )
    special = {**own, "cls": token, "sep": token}
    return Tokenizer(backend, special_tokens=special, max_length=tokenizer.max_length)
