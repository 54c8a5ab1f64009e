"""A BERT that reads left to right as a language model.  v vocabulary.

It says the next token through its masked-LM head (`objectives/left_to_right.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.errors import InputError
from cloze.models.language import LanguageModel

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class LeftToRight:
    """A causal model as a `LanguageModel`: its tokenizer's ids, from [CLS] to [SEP].

    Every step reads the text anew. Of one longer than its positions it reads [CLS] and the end.
    """

    model: Model
    first: int  # [CLS]
    end: int  # [SEP]

    @cached_property
    def words(self) -> Sequence[str]:
        backend, size = self.model.tokenizer.backend, self.model.tokenizer.size
        return [backend.id_to_token(id_) or "" for id_ in range(size)]

    @property
    def unknown(self) -> int | None:
        return self.model.tokenizer.unk_id

    def begin(self, text: str) -> list[int]:
        """[CLS] and the pieces of a text."""
        return [self.first, *self.model.tokenizer.ids([text], special=False)[0]]

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """[CLS], the pieces, [SEP] of each text."""
        found = self.model.tokenizer.ids(texts, special=False)
        return [[self.first, *ids, self.end] for ids in found]

    def shown(self, id: int) -> str:
        """A piece for a reader; ## is one that goes on with the word before it."""
        return self.model.tokenizer.decode([id], skip_special=False).strip()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of pieces, without [CLS] and [SEP]; what is unknown stays so."""
        inside = [id_ for id_ in ids if id_ not in (self.first, self.end)]
        return self.model.tokenizer.decode(inside, skip_special=False)

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every piece; special tokens never come next, but for the end."""
        room = self.model.limit - 1
        found = self._logs([self.first, *context[1:][-room:]])[-1]
        never = self.model.tokenizer.special_ids - {self.end, self.unknown}
        found[sorted(never)] = -torch.inf
        return found.cpu().numpy()  # v

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every piece but the first.

        A long one is read in windows that share half of their pieces, so that all but its first
        pieces are told from half of the positions or more.
        """
        room = self.model.limit - 1
        step = max(1, room // 2)
        for one in sequences:
            inside, done = list(one[1:]), 0
            logs: list[Tensor] = []
            while done < len(inside):
                start = max(0, min(done - step, len(inside) - 1 - room))
                stop = min(start + room + 1, len(inside))
                read = self._logs([self.first, *inside[start : stop - 1]])  # its next: start … stop
                wanted = torch.tensor(inside[start:stop], device=read.device)
                logs.append(read.gather(-1, wanted[:, None])[done - start :, 0])
                done = stop
            yield torch.cat(logs).cpu().numpy() if logs else np.zeros(0, np.float32)

    def _logs(self, ids: Sequence[int]) -> Tensor:
        """Log p of every piece after each of the ids: n v."""
        module = self.model.module
        vectors = module(torch.tensor([list(ids)], device=self.model.device))[0]
        logs = module.logits("mlm", vectors).float().log_softmax(-1)
        return logs[:, : self.model.tokenizer.size]


def as_language(model: LanguageModel | Model) -> LanguageModel:
    """What is a language model as it is, and an encoder as one; one that cannot be is an error."""
    if not isinstance(model, Model):
        return model
    if not model.module.causal or "mlm" not in model.heads:
        head = model.head or "missing"
        why = f"its head is {head}" if model.module.causal else "it reads texts both ways"
        raise InputError(
            f"this model cannot say what comes next: {why}",
            fix="load a language model: one that cloze pretrain made with --model ngram, nnlm or "
            "lstm, or a BERT with --set objective.kind=left-to-right --pairs none",
        )
    first, end = model.tokenizer.cls_id, model.tokenizer.sep_id
    if first is None or end is None:
        raise InputError(
            "this model's vocabulary has no [CLS] and [SEP], between which it would read a text",
            fix="load a folder whose tokenizer has both",
        )
    return LeftToRight(model=model, first=first, end=end)
