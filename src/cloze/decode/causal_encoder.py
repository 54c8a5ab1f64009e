"""An encoder that reads left to right (`is_decoder`) as a language model.

It says the next token through its masked-LM head (`objectives/left_to_right.py`).
n tokens of a packed batch, m of them scored, v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.data.batch import batch_by_tokens
from cloze.errors import InputError
from cloze.models.language import LoadedModel, batches
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode, log_softmax

BATCH_TOKENS = 2048
_SCORED = 512  # tokens whose scores of all words are held at a time
Floats: TypeAlias = NDArray[np.float32]
Window: TypeAlias = tuple[list[int], int]  # what is read at once, the first place to be told in it


@dataclass(frozen=True, kw_only=True)
class CausalEncoder:
    """A causal encoder as a `LanguageModel`: its tokenizer's ids, from [CLS] to [SEP].

    To go on from a text, every step reads it anew; of one longer than the model reads, [CLS] and
    the end. A long text to be scored is read in windows, each of which has half in common with the
    one before, and [CLS] in front.
    """

    model: LoadedModel
    first: int  # [CLS]
    end: int  # [SEP]

    @property
    def kind(self) -> str:
        return f"{self.model.config.family}, left to right"

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @cached_property
    def words(self) -> Sequence[str]:
        backend, size = self.model.tokenizer.backend, self.model.tokenizer.vocab_size
        return [backend.id_to_token(id_) or "" for id_ in range(size)]

    @property
    def unknown(self) -> int | None:
        return self.model.tokenizer.unk_id

    def begin(self, text: str) -> list[int]:
        """[CLS] and the pieces of a text."""
        return [self.first, *self.model.tokenizer.encode_ids([text], add_special_tokens=False)[0]]

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """[CLS], the pieces, [SEP] of each text."""
        found = self.model.tokenizer.encode_ids(texts, add_special_tokens=False)
        return [[self.first, *ids, self.end] for ids in found]

    def shown(self, id: int) -> str:
        """A piece for a reader; ## is one that goes on with the word before it."""
        return self.model.tokenizer.decode([id], skip_special_tokens=False).strip()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of pieces, without [CLS] and [SEP]; what is unknown stays so."""
        inside = [id_ for id_ in ids if id_ not in (self.first, self.end)]
        return self.model.tokenizer.decode(inside, skip_special_tokens=False)

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every piece; special tokens never come next, but for the end."""
        room, module = self.model.limit - 1, self.model.module
        ids = torch.tensor([[self.first, *context[1:][-room:]]], device=self.model.device)
        with eval_mode(module):
            logits = module.logits("mlm", module(ids)[0, -1:])[0]
        found = log_softmax(logits)[: self.model.tokenizer.vocab_size]
        never = self.model.tokenizer.special_ids - {self.end, self.unknown}
        found[sorted(never)] = -torch.inf
        return found.cpu().numpy()  # v

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every piece but the first."""
        for some in batches(sequences):
            parts = [list(self._windows(ids)) for ids in some]
            windows = [window for part in parts for window in part]
            found: dict[int, Floats] = {}
            for numbers in batch_by_tokens([len(ids) for ids, _ in windows], BATCH_TOKENS):
                told = self._told([windows[n] for n in numbers])
                found.update(zip(numbers, told, strict=True))
            in_order = (found[n] for n in range(len(windows)))
            yield from (np.concatenate(list(islice(in_order, len(part)))) for part in parts)

    def _windows(self, ids: Sequence[int]) -> Iterator[Window]:
        limit = self.model.limit
        yield list(ids[:limit]), 1
        done = limit
        while done < len(ids):
            first = done - min(limit // 2, limit - 2)
            yield [ids[0], *ids[first : first + limit - 1]], done - first + 1
            done = first + limit - 1

    @torch.inference_mode()
    def _told(self, windows: Sequence[Window]) -> list[Floats]:
        """Log p of the new tokens of each window."""
        device, module = self.model.device, self.model.module
        flat = torch.tensor([id_ for ids, _ in windows for id_ in ids], device=device)
        ends = accumulate(len(ids) for ids, _ in windows)
        places = [
            np.arange(end - len(ids) + new, end)
            for (ids, new), end in zip(windows, ends, strict=True)
        ]
        at = torch.from_numpy(np.concatenate(places)).to(device)  # m
        with eval_mode(module):
            hidden = module(
                flat, Packed.from_lengths((len(ids) for ids, _ in windows), device)
            )  # n d
            parts = [
                log_softmax(module.logits("mlm", hidden[some - 1])).gather(  # of the token before
                    -1, flat[some, None]
                )[:, 0]
                for some in at.split(_SCORED)
            ]
        told = torch.cat(parts).cpu().numpy()
        return np.split(told, np.cumsum([len(some) for some in places])[:-1])


def make_causal_encoder(model: LoadedModel) -> CausalEncoder:
    """A causal encoder with a masked-LM head as a language model; another is an error."""
    if not model.module.is_causal or "mlm" not in model.task_heads:
        head = next(iter(model.task_heads), "missing")
        why = f"its head is {head}" if model.module.is_causal else "it reads texts both ways"
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
    return CausalEncoder(model=model, first=first, end=end)
