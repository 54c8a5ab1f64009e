"""Run a model over one text, for views of its layers: of any family that has vectors of tokens.

t tokens, d width of a layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.nn.utils import eval_mode
from cloze.tasks.explain.inputs import ExplainInput, encode_input, show_token
from cloze.tasks.features import make_id_tensor, prepare_source
from cloze.text.alignment import TokenAlignment


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadableText:
    """A text and the module that reads it.

    The module of a recurrent language model is that of its encoder, which has the same layers.
    """

    source: Model
    tokens: list[str]  # as they are shown
    words: TokenAlignment
    ids: list[Any]
    target: list[str] | None = None  # of a translator: what its decoder reads
    target_ids: tuple[int, ...] = ()
    note: str = ""

    @property
    def special(self) -> list[bool]:
        """Which tokens are special ones that the tokenizer added."""
        return self.words.special_tokens_mask

    @torch.inference_mode()
    def run(self) -> None:
        """Run all layers once; of a translator those of the decoder too."""
        for _ in self.iterate_layers():
            pass

    def iterate_layers(self) -> Iterator[Tensor]:
        """The vectors of layer 0, 1, … of the encoder (t d); a translator's decoder runs last."""
        module, device = self.source.module, self.source.device
        ids = make_id_tensor([self.ids], device)[None]  # 1 t, or 1 t k
        with eval_mode(module), torch.inference_mode():
            if self.source.family.kind == "translator":
                mask = torch.ones_like(ids, dtype=torch.bool)
                inputs = torch.tensor([self.target_ids], device=device)
                module(ids, mask, inputs)
                return
            types = torch.tensor([self.words.type_ids], device=device)
            yield from (layer[0] for layer in module.hidden_states(ids, None, types))


def read_text(
    model: Model, text: str, pair: str | None = None, target_text: str | None = None
) -> ReadableText:
    """Encode a text or a pair for `ReadableText.run`; texts that are too long are truncated."""
    if model.family.kind == "translator":
        encoded = encode_input(model, text, pair, target_text)
        target = encoded.target
        bos = int(model.config.bos_id)
        ids = (bos, *(target.ids[:-1] if target else ()))
        shown = [model.tokenizer.id_to_token(bos) or "<s>", *(target.tokens[:-1] if target else ())]
        return _make_text(model, encoded, target=shown, target_ids=ids)
    if model.family.name == "elmo":  # it reads the characters of words
        from cloze.tasks.explain.inputs import check_text

        check_text("text", text)
        words = model.tokenizer.encode(text, max_length=model.max_length, truncation="head")
        tokens = [show_token(token, model.tokenizer) for token in words.tokens]
        return ReadableText(source=model, tokens=tokens, words=words, ids=list(words.ids))
    source = prepare_source(model)
    return _make_text(source, encode_input(source, text, pair))


def _make_text(
    source: Model,
    encoded: ExplainInput,
    target: list[str] | None = None,
    target_ids: Sequence[int] = (),
) -> ReadableText:
    return ReadableText(
        source=source,
        tokens=encoded.tokens,
        words=encoded.words,
        ids=list(encoded.ids),
        target=target,
        target_ids=tuple(target_ids),
        note=encoded.note,
    )
