"""A neural language model as everyone holds it, and its folder: NNLM and LSTM.

b rows, t tokens, n order, v vocabulary.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.own import complete_config, put_weights, read_settings, write_own
from cloze.checkpoint.words import ReadsWords, Vocabulary
from cloze.device import resolve_device
from cloze.errors import ConfigError, FolderError
from cloze.models.configs.lstm import LSTMConfig
from cloze.models.configs.ngram import BOS, EOS
from cloze.models.configs.nnlm import NNLMConfig
from cloze.models.language import batches
from cloze.models.lstm import LSTM
from cloze.models.nnlm import NNLM
from cloze.nn.recurrent import State
from cloze.nn.utils import skip_allocation
from cloze.text.tokenizer import Tokenizer

Config = NNLMConfig | LSTMConfig
Module = NNLM | LSTM
Floats = NDArray[np.float32]

CONFIGS: dict[str, type[Config]] = {"nnlm": NNLMConfig, "lstm": LSTMConfig}
MODULES: dict[str, Callable[[Any], Module]] = {"nnlm": NNLM, "lstm": LSTM}
_WINDOWS = 2048  # scored at once
_STRETCH = 8192  # tokens that an LSTM reads at once: a GPU takes as many steps at one word
_SCORED = 512  # of them, whose scores of all words are held at a time


@dataclass(frozen=True, kw_only=True, repr=False)
class NeuralModel(ReadsWords):
    """A net with its tokenizer; a `LanguageModel`.

    An NNLM reads every sentence from its begin symbol. An LSTM knows none: it reads the text as one
    line in which sentences end, and goes on from each sentence to the next.
    """

    module: Module
    tokenizer: Tokenizer
    config: Config

    @classmethod
    def new(cls, config: Config, tokenizer: Tokenizer, *, rng: torch.Generator) -> "NeuralModel":
        """A model with fresh random weights, drawn from `rng` and nothing else."""
        module = on_meta(config).to_empty(device=rng.device)
        module.init_weights(rng)
        return cls(module=module.eval(), tokenizer=tokenizer, config=config)

    @property
    def device(self) -> torch.device:
        return self.module.embeddings.weight.device

    @property
    def first(self) -> int:
        """What stands before a sentence."""
        return BOS if isinstance(self.module, NNLM) else EOS

    @torch.inference_mode()
    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every word."""
        ids = torch.tensor([list(context)], device=self.device)
        state = self.module.compute_state(ids[:, :-1])
        found, _ = self.module.step(ids[:, -1], state)  # type: ignore[arg-type]
        return found[0].cpu().numpy()  # v

    @torch.inference_mode()
    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Floats]:
        """For each sequence log p of every word but its first.

        An LSTM takes them for one text and carries its state from each to the next, as it learned
        to.
        """
        state = None if isinstance(self.module, NNLM) else self.module.init_state(1)
        for batch in batches(sequences):
            if state is None:
                flat = np.concatenate(list(self._windows(batch)))
            else:
                flat, state = self._running(batch, state)
            ends = accumulate(len(one) - 1 for one in batch)
            for one, end in zip(batch, ends, strict=True):
                yield flat[end - len(one) + 1 : end]

    def _windows(self, sequences: Sequence[Sequence[int]]) -> Iterator[Floats]:
        reach = self.config.order - 1  # type: ignore[union-attr]
        begin = [BOS] * (reach - 1)
        padded = [np.array([*begin, *one]) for one in sequences]
        views = np.lib.stride_tricks.sliding_window_view
        contexts = np.concatenate([views(one[:-1], reach) for one in padded])
        targets = np.concatenate([one[reach:] for one in padded])
        for at in range(0, len(targets), _WINDOWS):
            part = slice(at, at + _WINDOWS)
            yield _chosen(self.module(self._tensor(contexts[part])), self._tensor(targets[part]))

    def _running(self, sequences: Sequence[Sequence[int]], state: State) -> tuple[Floats, State]:
        assert isinstance(self.module, LSTM)
        inputs, targets = (
            np.concatenate([one[part] for one in sequences]) for part in (slice(-1), slice(1, None))
        )
        found = []
        for at in range(0, len(targets), _STRETCH):
            part = slice(at, at + _STRETCH)
            vectors, state = self.module(self._tensor(inputs[part])[None], state)
            wanted = self._tensor(targets[part])
            for some, of in zip(vectors[0].split(_SCORED), wanted.split(_SCORED), strict=True):
                found.append(_chosen(self.module.logits(some), of))
        return np.concatenate(found), state

    def _tensor(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(ids)).to(self.device)

    def _write(self, work: Path) -> None:
        write_own(work, self.module, self.config, self.tokenizer)


def on_meta(config: Config) -> Module:
    """The net without memory behind it: shapes to check, weights to be put in."""
    config.check_complete()
    with skip_allocation():
        return MODULES[config.family](config)


def open_language(
    folder: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> NeuralModel:
    """The model in a folder; shapes are held against config.json before a weight is read."""
    place, where = Path(folder), resolve_device(device)
    config = _read_config(place)
    tokenizer = Tokenizer.load(place)
    words = len(Vocabulary(tokenizer).words)
    if words != config.vocab_size:
        raise FolderError(
            f"the tokenizer has {words:,} words, config.json says {config.vocab_size:,}",
            fix="the two are not of one model; take both from one folder",
        )
    module = on_meta(config)
    put_weights(module, place)
    return NeuralModel(module=module.to(where, dtype).eval(), tokenizer=tokenizer, config=config)


def _read_config(folder: Path) -> Config:
    family, values = read_settings(folder, CONFIGS, "a neural language model")
    try:
        return complete_config(CONFIGS[family], values)
    except ConfigError as error:
        raise FolderError(f"config.json: {error.problem}", fix=error.fix) from None


def _chosen(scores: Tensor, targets: Tensor) -> Floats:
    """Log p of each target: b v, b -> b."""
    logs = scores.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return logs.cpu().numpy()
