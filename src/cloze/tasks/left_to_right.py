"""An encoder that reads left to right (`is_decoder`) as a language model that can be judged.

n tokens of a packed batch, m of them scored, v vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.checkpoint.model import Model
from cloze.models.language import batches
from cloze.nn.modes import settled
from cloze.nn.packed import Packed
from cloze.objectives.core import exact
from cloze.tasks.batches import by_tokens

BATCH_TOKENS = 2048
_SCORED = 512  # tokens whose scores of all words are held at a time
Window: TypeAlias = tuple[list[int], int]  # what is read at once, the first place to be told in it


@dataclass(frozen=True)
class LeftToRight:
    """A causal encoder, whose masked-LM head says the next token; `ScoredLanguage`.

    A text is [CLS] pieces [SEP], each by itself. Where one is longer than the model reads, every
    further window has half of it in common with the one before, and [CLS] in front.
    """

    model: Model

    @property
    def kind(self) -> str:
        return f"{self.model.config.family}, left to right"

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def words(self) -> Sequence[str]:
        vocab = self.model.tokenizer.backend.get_vocab()
        return sorted(vocab, key=vocab.__getitem__)

    @property
    def unknown(self) -> int | None:
        return self.model.tokenizer.unk_id

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        return self.model.tokenizer.ids(texts)

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[NDArray[np.float32]]:
        """For each sequence log p of every piece but the first."""
        for some in batches(sequences):
            parts = [list(self._windows(ids)) for ids in some]
            windows = [window for part in parts for window in part]
            found: dict[int, NDArray[np.float32]] = {}
            for numbers in by_tokens([len(ids) for ids, _ in windows], BATCH_TOKENS):
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
    def _told(self, windows: Sequence[Window]) -> list[NDArray[np.float32]]:
        """Log p of the new tokens of each window."""
        device, module = self.model.device, self.model.module
        flat = torch.tensor([id_ for ids, _ in windows for id_ in ids], device=device)
        ends = accumulate(len(ids) for ids, _ in windows)
        places = [
            np.arange(end - len(ids) + new, end)
            for (ids, new), end in zip(windows, ends, strict=True)
        ]
        at = torch.from_numpy(np.concatenate(places)).to(device)  # m
        with settled(module):
            hidden = module(flat, Packed.of((len(ids) for ids, _ in windows), device))  # n d
            parts = [
                exact(module.logits("mlm", hidden[some - 1]))  # what comes before tells a token
                .log_softmax(-1)
                .gather(-1, flat[some, None])[:, 0]
                for some in at.split(_SCORED)
            ]
        told = torch.cat(parts).cpu().numpy()
        return np.split(told, np.cumsum([len(some) for some in places])[:-1])
