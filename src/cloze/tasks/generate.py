"""`generate`: a text goes on as a language model would have it.  b rows, v vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.core import Hypothesis
from cloze.decode.sampling import Sampling, sample
from cloze.files import PathLike
from cloze.models.language import LanguageModel
from cloze.tasks.inputs import check_texts, open_language_model


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One continuation of a text."""

    text: str
    continuation: str  # with the space in front of it, if it begins a word
    tokens: tuple[str, ...]
    log_probability: float  # of the tokens, and of the end if it was reached
    finished: bool  # False: it reached the maximum length

    @property
    def full_text(self) -> str:
        return self.text + self.continuation

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the continuation."""
        return {
            "continuation": self.continuation,
            "tokens": self.tokens,
            "log_probability": self.log_probability,
            "finished": self.finished,
            "full_text": self.full_text,
        }


@dataclass(frozen=True, kw_only=True)
class Generations(Sequence[Generation]):
    """The continuations of a text."""

    text: str
    continuations: tuple[Generation, ...]

    def __len__(self) -> int:
        return len(self.continuations)

    @overload
    def __getitem__(self, index: int) -> Generation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Generation]: ...
    def __getitem__(self, index: int | slice) -> Generation | Sequence[Generation]:
        return self.continuations[index]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        found = [one.to_dict() for one in self.continuations]
        return {"text": self.text, "continuations": found}


class Options(TypedDict, total=False):
    """The choices of `generate`."""

    max_new_tokens: int
    samples: int
    temperature: float
    top_k: int | None
    top_p: float
    stop: bool
    seed: int


@overload
def generate(
    model: LanguageModel | Model | PathLike, text: str = "", **options: Unpack[Options]
) -> Generations: ...
@overload
def generate(
    model: LanguageModel | Model | PathLike, text: list[str], **options: Unpack[Options]
) -> list[Generations]: ...
@torch.inference_mode()
def generate(
    model: LanguageModel | Model | PathLike,
    text: str | list[str] = "",
    *,
    max_new_tokens: int = 50,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    stop: bool = True,
    seed: int = 0,
) -> Generations | list[Generations]:
    """Go on with a text, or with each of several, from the start of a sentence.

    An unknown word is never written. The same seed writes the same, on every device, and the first
    of many samples is the one that comes alone.

    Args:
        model: any language model, or its folder: n-gram, NNLM, LSTM, or a BERT that reads left to
            right, which reads the whole text anew for each token, as much of its end as it has
            positions.
        text: what comes before; nothing begins a sentence.
        max_new_tokens: maximum number of tokens to generate.
        samples: continuations of each text.
        temperature: below 1 the likely becomes likelier; 0 always takes the likeliest.
        top_k: draw among the k likeliest only; 1 is greedy.
        top_p: draw among the likeliest that together have this probability.
        stop: where the model says so; else the end is never chosen, and all have the length.
        seed: of the draws.
    """
    how = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    in_range("max_new_tokens", max_new_tokens, 1, 1 << 20)
    in_range("samples", samples, 1, 1 << 16)
    in_range("seed", seed, 0, (1 << 63) - 1)
    model = open_language_model(model, "generate")
    texts = check_texts(text)
    if not isinstance(text, str):
        return [
            generate(
                model,
                one,
                max_new_tokens=max_new_tokens,
                samples=samples,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                stop=stop,
                seed=seed,
            )
            for one in texts
        ]
    context = model.begin(text)
    never = {model.unknown} | (set() if stop else {model.end})
    rows = torch.tensor([context] * samples, device=getattr(model, "device", "cpu"))
    stepper: Any = getattr(model, "stepper", None) or _Contexts(model)
    found = sample(
        stepper,
        stepper.compute_state(rows[:, :-1]),
        rows[:, -1],
        how,
        eos=model.end if stop else None,
        limit=max_new_tokens,
        rng=torch.Generator().manual_seed(seed),
        never=[id_ for id_ in never if id_ is not None],
    )
    continuations = tuple(_generated(model, text, context, one) for one in found)
    return Generations(text=text, continuations=continuations)


class _Contexts:
    """Steps of a model whose state is what was said, such as an n-gram's."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def compute_state(self, ids: Tensor) -> list[list[int]]:
        rows: list[list[int]] = ids.tolist()
        return rows

    def step(self, tokens: Tensor, state: list[list[int]]) -> tuple[Tensor, list[list[int]]]:
        rows = [[*row, token] for row, token in zip(state, tokens.tolist(), strict=True)]
        scores = np.stack([self._model.next_log_probs(row) for row in rows])  # b v
        return torch.from_numpy(scores), rows

    def reorder(self, state: list[list[int]], rows: Tensor) -> list[list[int]]:
        return [state[row] for row in rows.tolist()]


def _generated(
    model: LanguageModel, text: str, context: Sequence[int], found: Hypothesis
) -> Generation:
    return Generation(
        text=text,
        continuation=continuation_of(model, text, context, found.tokens),
        tokens=tuple(model.shown(id_) for id_ in found.tokens),
        log_probability=found.log_probability,
        finished=found.finished,
    )


def continuation_of(
    model: LanguageModel, text: str, context: Sequence[int], ids: Sequence[int]
) -> str:
    """What decoding all adds to decoding the text: pieces know whether a space is theirs."""
    before, whole = model.decode(list(context)), model.decode([*context, *ids])
    if not text.strip() or not whole.startswith(before):
        written = model.decode(ids)
        return written if not text or text[-1].isspace() else f" {written}"
    written = whole.removeprefix(before)
    return written.lstrip() if text[-1].isspace() else written
