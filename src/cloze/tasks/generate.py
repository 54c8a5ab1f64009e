"""`generate`: continue texts with a language model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.config import GenerationOptions, check_stop_strings
from cloze.decode.core import FinishReason, Hypothesis
from cloze.decode.generator import TextGenerator
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike
from cloze.models.language import LanguageModel
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inputs import Texts, check_prompts, check_texts, open_language_model

if TYPE_CHECKING:
    from cloze.plot.svg import Element
    from cloze.tasks.chunk_retriever import RetrievedChunk


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One continuation of a text."""

    text: str
    continuation: str  # with a leading space if it begins a new word
    tokens: tuple[str, ...]  # those of a stop string included
    log_probability: float  # of the tokens, and of the end symbol if it was generated
    score: float  # of beam search, by which continuations rank; else the log-probability
    # end: the end symbol was generated, or no token is allowed; length: max_new_tokens is reached;
    # stop: a stop string was generated
    finish_reason: FinishReason
    # of RETRO with a database: each chunk of the text and its continuation, with its neighbors
    chunks: tuple["RetrievedChunk", ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it ended before `max_new_tokens`."""
        return self.finish_reason != "length"

    @property
    def full_text(self) -> str:
        return self.text + self.continuation

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the continuation."""
        chunks = [one.to_dict() for one in self.chunks]
        return {
            "continuation": self.continuation,
            "tokens": self.tokens,
            "log_probability": self.log_probability,
            "score": self.score,
            "finished": self.finished,
            "finish_reason": self.finish_reason,
            "full_text": self.full_text,
            **({"chunks": chunks} if chunks else {}),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Generations(Result, Sequence[Generation]):
    """The continuations of a text."""

    text: str
    continuations: tuple[Generation, ...]
    truncated_chars: int = 0  # characters at the start of the text that were not read

    record_columns = (
        "text",
        "continuation",
        "log_probability",
        "score",
        "finished",
        "finish_reason",
        "full_text",
    )

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
        from cloze.plot.notebook import render_columns, render_result, render_text

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
        beside = [_render_chunks(one.chunks) for one in self.continuations]
        rows = [
            render_columns([text, chunks]) if chunks else text
            for text, chunks in zip(texts, beside, strict=True)
        ]
        return render_result(*rows, truncated_chars=self.truncated_chars)


def _render_chunks(chunks: Sequence["RetrievedChunk"]) -> "Element | None":
    """The neighbors of every chunk, beside the text."""
    from cloze.plot.notebook import render_table

    rows = [
        (number, neighbor.score, f"{neighbor.text} → {neighbor.continuation}")
        for number, chunk in enumerate(chunks, 1)
        for neighbor in chunk.neighbors
    ]
    return render_table(("chunk", "cosine", "neighbor → continuation"), rows) if rows else None


class GenerationStream(Iterator[str]):
    """The continuation of a text in chunks, each as soon as it is known.

    A chunk is never a part of a character, and the chunks joined are the continuation. `result` is
    available after the last one.
    """

    def __init__(self, generator: TextGenerator, truncated_chars: int = 0) -> None:
        self._generator, self._truncated_chars = generator, truncated_chars
        self._chunks = generator.stream()
        self._result: Generations | None = None

    def __next__(self) -> str:
        for found in self._chunks:
            if isinstance(found, str):
                return found
            self._result = make_result(self._generator, 0, [found], self._truncated_chars)
        raise StopIteration

    @property
    def result(self) -> Generations:
        """What `generate` returns without `stream`."""
        if self._result is None:
            raise InputError(
                "the stream has not ended", fix="read all of its chunks before the result"
            )
        return self._result


class Options(TypedDict, total=False):
    """The options of `generate`."""

    max_new_tokens: int
    samples: int
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    beam: int | None
    n_best: int
    length_normalization: str
    length_penalty: float
    early_stopping: str
    stop: bool
    stop_strings: Sequence[str]
    include_stop_string: bool
    truncation: str | None
    seed: int
    database: PathLike | None
    text_column: str | int | None
    progress: ProgressOption


@overload
def generate(
    model: LanguageModel | Model | PathLike,
    text: str = "",
    *,
    stream: Literal[True],
    **options: Unpack[Options],
) -> GenerationStream: ...
@overload
def generate(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: LanguageModel | Model | PathLike,
    text: str = "",
    *,
    stream: Literal[False] = False,
    **options: Unpack[Options],
) -> Generations: ...
@overload
def generate(
    model: LanguageModel | Model | PathLike,
    text: Texts,
    *,
    stream: Literal[False] = False,
    **options: Unpack[Options],
) -> Results[Generations]: ...
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
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    beam: int | None = None,
    n_best: int = 1,
    length_normalization: str = "average",
    length_penalty: float = 1.0,
    early_stopping: str = "heuristic",
    stop: bool = True,
    stop_strings: Sequence[str] = (),
    include_stop_string: bool = False,
    stream: bool = False,
    truncation: str | None = None,
    seed: int = 0,
    database: PathLike | None = None,
    text_column: str | int | None = None,
    progress: ProgressCallback | None = None,
) -> Generations | Results[Generations] | GenerationStream:
    """Continue a text, or each of several; the text is read as the start of a sentence.

    Tokens are sampled, or chosen by beam search if `beam` is given. The options that change
    probabilities are applied in the order in which they are listed here. Texts are decoded in
    batches of bounded size. The continuations of a text depend on the seed, not on the batch or the
    device (except that tokens whose probabilities are equal up to rounding may be exchanged), and
    the first of several samples is the one that `samples=1` gives. The unknown token is never
    generated. A GPT or causal BERT that has no positions left reads the first token and the last
    ones again for every new token, so a continuation may be longer than the model's maximum.

    Args:
        model: any language model, or its folder: n-gram, NNLM, LSTM, GPT, or a causal BERT. The
            last two read the last tokens of a text that is longer than their maximum.
        text: the prompt, or several: a list or a table; an empty one starts a sentence.
        max_new_tokens: maximum number of tokens to generate.
        samples: number of continuations of each text.
        repetition_penalty: divide positive logits of tokens that occur in the prompt or the
            continuation by this factor, and multiply negative ones (Keskar et al. 2019). Beam
            search, and models without logits (n-gram, NNLM, LSTM), multiply log-probabilities.
        no_repeat_ngram_size: n-grams of this size may not occur twice in the prompt and the
            continuation; 0 allows them.
        temperature: below 1 less random, above 1 more random; 0 is greedy.
        top_k: sample only from the k most probable tokens; 1 is greedy.
        top_p: sample only from the most probable tokens whose probabilities sum to `top_p`.
        min_p: sample only from tokens that are at least `min_p` times as probable as the most
            probable one.
        beam: use beam search with so many hypotheses instead of sampling; 1 is greedy.
        n_best: number of continuations that beam search returns, at most `beam`.
        length_normalization: form of its length penalty: average or wu (Wu et al. 2016).
        length_penalty: exponent of its length penalty; scores are divided by length to the power
            of it. The length is that of the continuation. 0 disables it.
        early_stopping: when it stops, after `beam` hypotheses are finished: heuristic (no
            unfinished one scores better at its present length), full (at once) or never (no
            unfinished one could score better at the maximum length). In transformers these are
            `early_stopping=False`, `True` and `"never"`.
        stop: end where the model generates the end symbol; if False, that symbol is never generated
            and every continuation has `max_new_tokens` tokens, unless a stop string ends it.
        stop_strings: end before the first of these strings in the continuation.
        include_stop_string: end after the stop string instead; an error without stop strings.
        stream: return an iterator of the chunks of the continuation (one text, one sample, no beam
            search); its attribute `result` is what is returned otherwise.
        truncation: for texts that are longer than the maximum of a GPT or causal BERT, or than
            65,536 tokens for an LSTM: tail (it reads the last tokens) or error. Default: tail, with
            a warning.
        seed: seed of the random numbers.
        database: for a RETRO: the folder of a database of chunks, or of the run that made it; each
            chunk retrieves its neighbors from it, and the result has them. Default: nothing is
            retrieved.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    if stream:
        _check_stream(text, samples, beam)
    generator, unread = make_generator(
        model,
        text,
        max_new_tokens=max_new_tokens,
        samples=samples,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
        beam=beam,
        n_best=n_best,
        length_normalization=length_normalization,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        stop=stop,
        stop_strings=stop_strings,
        include_stop_string=include_stop_string,
        truncation=truncation,
        seed=seed,
        database=database,
        text_column=text_column,
    )
    if stream:
        return GenerationStream(generator, unread[0])
    found = generator.generate(progress)
    results = [make_result(generator, n, some, unread[n]) for n, some in enumerate(found)]
    return results[0] if isinstance(text, str) else Results(results)


def make_generator(
    model: LanguageModel | Model | PathLike,
    text: str | Texts,
    *,
    max_new_tokens: int = 50,
    samples: int = 1,
    stop: bool = True,
    stop_strings: Sequence[str] = (),
    include_stop_string: bool = False,
    truncation: str | None = None,
    seed: int = 0,
    database: PathLike | None = None,
    text_column: str | int | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[TextGenerator, list[int]]:
    """Check the arguments of `generate`; the unread characters of each text are returned, too.

    `options` are those of `GenerationOptions`.
    """
    chosen, beam = GenerationOptions(**options), options.get("beam")
    in_range("max_new_tokens", max_new_tokens, 1, 1 << 20)
    in_range("samples", samples, 1, 1 << 16)
    in_range("seed", seed, 0, (1 << 63) - 1)
    stop_strings = check_stop_strings(stop_strings, include_stop_string=include_stop_string)
    if beam is not None and samples > 1:
        raise ConfigError(
            f"samples is {samples} and beam is {beam}, but beam search does not sample",
            fix="use n_best for the number of continuations, or leave out beam",
        )
    if beam == 1:
        chosen = GenerationOptions(
            temperature=0.0,
            repetition_penalty=chosen.repetition_penalty,
            no_repeat_ngram_size=chosen.no_repeat_ngram_size,
        )
    model = open_language_model(model, "generate")
    if database is not None:
        from cloze.tasks.chunk_retriever import add_database

        model = add_database(model, database)
    texts = check_texts(text, text_column=text_column)
    unread = check_prompts(model, texts, truncation)
    generator = TextGenerator(
        model=model,
        texts=texts,
        options=chosen,
        max_new_tokens=max_new_tokens,
        samples=samples,
        stop=stop,
        stop_strings=stop_strings,
        include_stop_string=include_stop_string,
        seed=seed,
    )
    return generator, unread


def _check_stream(text: object, samples: int, beam: int | None) -> None:
    if not isinstance(text, str):
        raise InputError("several texts cannot be streamed", fix="pass one text as a str")
    if samples > 1 or beam is not None:
        what = f"{samples} samples" if samples > 1 else "beam search"
        raise ConfigError(
            f"stream is True, but {what} cannot be streamed",
            fix=f"leave out stream or {'samples' if samples > 1 else 'beam'}",
        )


def make_result(
    generator: TextGenerator, number: int, hypotheses: Sequence[Hypothesis], truncated_chars: int
) -> Generations:
    """The result of one of the texts."""
    text, decode_token = generator.texts[number], generator.model.decode_token
    describe = getattr(generator.model, "describe_neighbors", None)
    prompt = generator.prompts[number]
    continuations = [
        Generation(
            text=text,
            continuation=generator.continuations[number].decode(found.tokens),
            tokens=tuple(decode_token(id_) for id_ in found.tokens),
            log_probability=found.log_probability,
            score=found.score,
            finish_reason=found.finish_reason,
            chunks=describe([*prompt, *found.tokens]) if describe else (),
        )
        for found in hypotheses
    ]
    return Generations(
        text=text, continuations=tuple(continuations), truncated_chars=truncated_chars
    )
