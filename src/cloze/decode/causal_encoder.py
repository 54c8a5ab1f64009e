"""A causal encoder (`is_decoder`) as a language model.

Its masked-LM head predicts the next token (`objectives/left_to_right.py`).
n tokens of a packed batch, m of them scored, d width, v vocabulary.
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
_LOGITS_BATCH = 512  # tokens whose logits (over the whole vocabulary) are in memory together
Floats: TypeAlias = NDArray[np.float32]
Window: TypeAlias = tuple[list[int], int]  # ids, and the index of the first one to score


@dataclass(frozen=True, kw_only=True)
class CausalEncoder:
    """A causal encoder as a `LanguageModel`: ids of its tokenizer, from [CLS] to [SEP].

    A context that is longer than the model's maximum is truncated to [CLS] and its last tokens. A
    long text is scored in windows; each starts with [CLS] and repeats half of the one before.
    """

    model: LoadedModel
    bos_id: int  # [CLS]
    eos_id: int  # [SEP]

    @property
    def kind(self) -> str:
        return f"{self.model.config.family}, left to right"

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @cached_property
    def vocabulary(self) -> Sequence[str]:
        backend, size = self.model.tokenizer.backend, self.model.tokenizer.vocab_size
        return [backend.id_to_token(id_) or "" for id_ in range(size)]

    @property
    def unk_id(self) -> int | None:
        return self.model.tokenizer.unk_id

    def encode_prompt(self, text: str) -> list[int]:
        """[CLS] and the tokens of a prompt."""
        return [self.bos_id, *self.model.tokenizer.encode_ids([text], add_special_tokens=False)[0]]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """[CLS], the tokens and [SEP] of each text."""
        encoded = self.model.tokenizer.encode_ids(texts, add_special_tokens=False)
        return [[self.bos_id, *ids, self.eos_id] for ids in encoded]

    def decode_token(self, id: int) -> str:
        """One token as readable text; ## marks a subword that continues a word."""
        return self.model.tokenizer.decode([id], skip_special_tokens=False).strip()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without [CLS] and [SEP]; unknown tokens stay [UNK]."""
        inside = [id_ for id_ in ids if id_ not in (self.bos_id, self.eos_id)]
        return self.model.tokenizer.decode(inside, skip_special_tokens=False)

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every token, v; −∞ for special tokens other than eos."""
        room, module = self.model.max_length - 1, self.model.module
        ids = torch.tensor([[self.bos_id, *context[1:][-room:]]], device=self.model.device)
        with eval_mode(module):
            logits = module.logits("mlm", module(ids)[0, -1:])[0]
        log_probs = log_softmax(logits)[: self.model.tokenizer.vocab_size]
        banned = self.model.tokenizer.special_ids - {self.eos_id, self.unk_id}
        log_probs[sorted(banned)] = -torch.inf
        return log_probs.cpu().numpy()  # v

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every token but the first."""
        for batch in batches(sequences):
            groups = [list(self._split_windows(ids)) for ids in batch]
            windows = [window for group in groups for window in group]
            scores: dict[int, Floats] = {}
            for numbers in batch_by_tokens([len(ids) for ids, _ in windows], BATCH_TOKENS):
                some = self._score_windows([windows[n] for n in numbers])
                scores.update(zip(numbers, some, strict=True))
            in_order = (scores[n] for n in range(len(windows)))
            yield from (np.concatenate(list(islice(in_order, len(group)))) for group in groups)

    def _split_windows(self, ids: Sequence[int]) -> Iterator[Window]:
        limit = self.model.max_length
        yield list(ids[:limit]), 1
        done = limit
        while done < len(ids):
            first = done - min(limit // 2, limit - 2)
            yield [ids[0], *ids[first : first + limit - 1]], done - first + 1
            done = first + limit - 1

    @torch.inference_mode()
    def _score_windows(self, windows: Sequence[Window]) -> list[Floats]:
        """Log p of the tokens of each window that no earlier window has scored."""
        device, module = self.model.device, self.model.module
        flat = torch.tensor([id_ for ids, _ in windows for id_ in ids], device=device)
        ends = accumulate(len(ids) for ids, _ in windows)
        positions = [
            np.arange(end - len(ids) + new, end)
            for (ids, new), end in zip(windows, ends, strict=True)
        ]
        targets = torch.from_numpy(np.concatenate(positions)).to(device)  # m
        layout = Packed.from_lengths((len(ids) for ids, _ in windows), device)
        with eval_mode(module):
            hidden = module(flat, layout)  # n d
            scores = [
                # a token is predicted from the one before it
                log_softmax(module.logits("mlm", hidden[some - 1])).gather(-1, flat[some, None])
                for some in targets.split(_LOGITS_BATCH)
            ]
        log_probs = torch.cat(scores)[:, 0].cpu().numpy()
        return np.split(log_probs, np.cumsum([len(some) for some in positions])[:-1])


def make_causal_encoder(model: LoadedModel) -> CausalEncoder:
    """The adapter of a causal encoder with a masked-LM head; other encoders are an error."""
    if not model.module.is_causal or "mlm" not in model.task_heads:
        head = next(iter(model.task_heads), "missing")
        why = f"its head is {head}" if model.module.is_causal else "it is bidirectional"
        raise InputError(
            f"this model cannot predict the next token: {why}",
            fix="use a language model: one trained with cloze pretrain --family ngram, nnlm or "
            "lstm, or a BERT with --set objective.kind=left-to-right --pairs none",
        )
    bos_id, eos_id = model.tokenizer.cls_id, model.tokenizer.sep_id
    if bos_id is None or eos_id is None:
        raise InputError(
            "the vocabulary of this model has no [CLS] or no [SEP], which begin and end a text",
            fix="use a model whose tokenizer has both",
        )
    return CausalEncoder(model=model, bos_id=bos_id, eos_id=eos_id)
