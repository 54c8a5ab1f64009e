"""`generate`: continue texts with a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.config import SamplingOptions
from cloze.decode.core import Hypothesis
from cloze.decode.prompts import batch_rows, make_prompt_decoder, start_rows
from cloze.decode.sampling import sample
from cloze.files import PathLike
from cloze.models.language import LanguageModel
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inputs import Texts, check_prompts, check_texts, open_language_model


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One continuation of a text."""

    text: str
    continuation: str  # with a leading space if it begins a new word
    tokens: tuple[str, ...]
    log_probability: float  # of the tokens, and of the end symbol if it was generated
    finished: bool  # False: it reached max_new_tokens

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Generations(Result, Sequence[Generation]):
    """The continuations of a text."""

    text: str
    continuations: tuple[Generation, ...]
    truncated_chars: int = 0  # characters at the start of the text that were not read

    record_columns = ("text", "continuation", "log_probability", "finished", "full_text")

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
        return {
            "text": self.text,
            "continuations": found,
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per continuation."""
        return [
            {name: getattr(one, name) for name in self.record_columns} for one in self.continuations
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.marked_text import Mark
        from cloze.plot.notebook import render_result, render_text

        texts = [
            render_text(
                one.full_text,
                [
                    Mark(
                        start=len(one.full_text) - len(one.continuation.lstrip()),
                        end=len(one.full_text),
                        tooltip=f"log-probability {one.log_probability:.2f}",
                        hue=207,
                    )
                ],
            )
            for one in self.continuations
        ]
        return render_result(*texts, truncated_chars=self.truncated_chars)


class Options(TypedDict, total=False):
    """The options of `generate`."""

    max_new_tokens: int
    samples: int
    temperature: float
    top_k: int | None
    top_p: float
    stop: bool
    truncation: str | None
    seed: int
    text_column: str | int | None
    progress: ProgressOption


@overload
def generate(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: LanguageModel | Model | PathLike, text: str = "", **options: Unpack[Options]
) -> Generations: ...
@overload
def generate(
    model: LanguageModel | Model | PathLike, text: Texts, **options: Unpack[Options]
) -> Results[Generations]: ...
@torch.inference_mode()
@with_progress
def generate(
    model: LanguageModel | Model | PathLike,
    text: str | Texts = "",
    *,
    max_new_tokens: int = 50,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    stop: bool = True,
    truncation: str | None = None,
    seed: int = 0,
    text_column: str | int | None = None,
    progress: ProgressCallback | None = None,
) -> Generations | Results[Generations]:
    """Continue a text, or each of several; the text is read as the start of a sentence.

    Texts are decoded in batches of bounded size. The continuations of a text depend on the seed,
    not on the batch or the device (except that tokens whose probabilities are equal up to rounding
    may be exchanged), and the first of several samples is the one that `samples=1` gives. The
    unknown token is never generated.

    Args:
        model: any language model, or its folder: n-gram, NNLM, LSTM, or a causal BERT, which reads
            the last tokens of a text that is longer than its maximum.
        text: the prompt, or several: a list or a table; an empty one starts a sentence.
        max_new_tokens: maximum number of tokens to generate.
        samples: number of continuations of each text.
        temperature: below 1 less random, above 1 more random; 0 is greedy.
        top_k: sample only from the k most probable tokens; 1 is greedy.
        top_p: sample only from the most probable tokens whose probabilities sum to `top_p`.
        stop: end where the model generates the end symbol; if False, that symbol is never generated
            and every continuation has `max_new_tokens` tokens.
        truncation: for texts that are longer than the maximum of a causal BERT, or than 65,536
            tokens for an LSTM: tail (it reads the last tokens) or error. Default: tail, with a
            warning.
        seed: seed of the random numbers.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    sampling = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p)
    in_range("max_new_tokens", max_new_tokens, 1, 1 << 20)
    in_range("samples", samples, 1, 1 << 16)
    in_range("seed", seed, 0, (1 << 63) - 1)
    model = open_language_model(model, "generate")
    texts = check_texts(text, text_column=text_column)
    unread = check_prompts(model, texts, truncation)
    prompts = [model.encode_prompt(one) for one in texts]
    # every prompt gets the same random numbers, so its samples depend on the seed alone
    rng = torch.Generator().manual_seed(seed)
    draws = torch.rand(samples, max_new_tokens, generator=rng, dtype=torch.float64)
    banned = {model.unk_id} | (set() if stop else {model.eos_id})
    decoder = make_prompt_decoder(model)
    rows = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(samples)]
    lengths = [len(prompts[prompt]) + max_new_tokens for prompt, _ in rows]
    hypotheses: dict[tuple[int, int], Hypothesis] = {}
    for batch in batch_rows(model, lengths):
        some = [rows[n] for n in batch]
        tokens, state = start_rows(
            decoder, prompts, [prompt for prompt, _ in some], max_new_tokens=max_new_tokens
        )
        found = sample(
            decoder,
            state,
            tokens,
            sampling,
            draws=draws[[number for _, number in some]],
            eos_id=model.eos_id if stop else None,
            banned_ids=[id_ for id_ in banned if id_ is not None],
        )
        hypotheses.update(zip(some, found, strict=True))
        if progress:
            progress("texts", len(hypotheses) // samples, len(texts))
    results = [
        Generations(
            text=one,
            continuations=tuple(
                _make_generation(model, one, prompts[n], hypotheses[n, sample])
                for sample in range(samples)
            ),
            truncated_chars=unread[n],
        )
        for n, one in enumerate(texts)
    ]
    return results[0] if isinstance(text, str) else Results(results)


def _make_generation(
    model: LanguageModel, text: str, context: Sequence[int], found: Hypothesis
) -> Generation:
    return Generation(
        text=text,
        continuation=continuation_of(model, text, context, found.tokens),
        tokens=tuple(model.decode_token(id_) for id_ in found.tokens),
        log_probability=found.log_probability,
        finished=found.finished,
    )


def continuation_of(
    model: LanguageModel, text: str, context: Sequence[int], ids: Sequence[int]
) -> str:
    """The text that the new ids add to the prompt, with a space where a new word begins."""
    before, whole = model.decode(list(context)), model.decode([*context, *ids])
    if not text.strip() or not whole.startswith(before):
        written = model.decode(ids)
        return written if not text or text[-1].isspace() else f" {written}"
    written = whole.removeprefix(before)
    return written.lstrip() if text[-1].isspace() else written
