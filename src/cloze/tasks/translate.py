"""`translate`: translate sentences by beam search.

b sentences, s source tokens, t target tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload
from unicodedata import east_asian_width

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.config import in_range, number, one_of
from cloze.data.batch import batch_by_tokens
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.decode.core import Hypothesis
from cloze.errors import InputError
from cloze.explain.capture import capture
from cloze.files import PathLike
from cloze.models.seq2seq import Seq2Seq
from cloze.nn.attention import CrossAttention
from cloze.plot.alignment import AlignmentLines
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inputs import OnError, Texts, check_texts, open_model, warn_truncated
from cloze.text.joint_bpe import decode_sentence, encode_sentences, truncate_sentence
from cloze.text.long_texts import is_long
from cloze.text.tokenizer import Tokenizer
from cloze.text.truncation import TRUNCATIONS

BATCH_TOKENS = 4096  # source tokens in a batch, times the beam size
END = "⏎"  # symbol for the end of a sentence
# For models without a limit. A longer line is not a sentence, and the search would take minutes.
MAX_SOURCE_TOKENS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """How much each word of the translation attends to each source word."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.float32]  # target words × source words; rows sum to 1

    @property
    def hard(self) -> tuple[int, ...]:
        """For each target word the source word with the largest weight."""
        return tuple(int(n) for n in self.weights.argmax(1))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the alignment."""
        return {
            "source": self.source,
            "target": self.target,
            "weights": [[round(float(x), 6) for x in row] for row in self.weights],
            "hard": self.hard,
        }

    def plot_lines(self) -> AlignmentLines:
        """Two rows of words, and a line from each target word to its source word."""
        weights = self.weights.tolist()
        return AlignmentLines(
            title="Alignment", source=self.source, target=self.target, weights=weights
        )


@dataclass(frozen=True, kw_only=True)
class TranslationCandidate:
    """One translation."""

    text: str
    score: float  # the log-probability divided by the length penalty
    log_probability: float
    finished: bool  # False: it reached the maximum length
    alignment: Alignment | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the translation."""
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "finished": self.finished,
            "alignment": self.alignment and self.alignment.to_dict(),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Translation(Result):
    """A sentence and its translations, best first; no candidates if it is too long."""

    source: str
    candidates: tuple[TranslationCandidate, ...]
    truncated_chars: int = 0  # characters of the source left out by truncation

    record_columns = ("source", "translation", "score", "log_probability", "finished")

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text if self.candidates else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the sentence."""
        return {
            "source": self.source,
            "translations": [one.to_dict() for one in self.candidates],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per translation, best first."""
        return [
            {
                "source": self.source,
                "translation": one.text,
                "score": one.score,
                "log_probability": one.log_probability,
                "finished": one.finished,
            }
            for one in self.candidates
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_figure, render_heading, render_note, render_result

        best, *others = self.candidates or (None,)
        parts = [render_note(self.source), *([render_heading(best.text)] if best else [])]
        parts += [render_note(f"{one.text} ({one.score:.4f})") for one in others]
        if best and best.alignment:
            parts.append(render_figure(best.alignment.plot_lines()))
        return render_result(*parts, truncated_chars=self.truncated_chars)


class TranslateOptions(TypedDict, total=False):
    """The options of `translate`."""

    beam: int
    n_best: int
    length_penalty: float
    length_normalization: str
    no_repeat_ngram_size: int
    max_length_ratio: float
    align: bool
    text_column: str | int | None
    truncation: str | None
    batch_tokens: int
    on_error: OnError | None
    progress: ProgressOption


@overload
def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, texts: str, **options: Unpack[TranslateOptions]
) -> Translation: ...
@overload
def translate(
    model: Model | PathLike, texts: Texts, **options: Unpack[TranslateOptions]
) -> Results[Translation]: ...
@torch.inference_mode()
@with_progress
def translate(
    model: Model | PathLike,
    texts: str | Texts,
    *,
    beam: int = 4,
    n_best: int = 1,
    length_penalty: float = 0.6,
    length_normalization: str = "wu",
    no_repeat_ngram_size: int = 0,
    max_length_ratio: float = 2.0,
    align: bool = False,
    text_column: str | int | None = None,
    truncation: str | None = None,
    batch_tokens: int = BATCH_TOKENS,
    on_error: OnError | None = None,
    progress: ProgressCallback | None = None,
) -> Translation | Results[Translation]:
    """Translate a sentence, or each of several, by beam search.

    The translation of a blank line is blank. Unknown characters are encoded as bytes. With learned
    positions a sentence cannot be longer; for sinusoidal positions and recurrent networks the limit
    is `MAX_SOURCE_TOKENS` or the longest sentence of the training data.

    Args:
        model: a translator, or its folder.
        texts: a sentence, or several: a list, a column, or a table (data frame, `datasets`,
            mappings).
        beam: beam size; 1 is greedy search.
        n_best: number of translations to return, at most `beam`.
        length_penalty: strength of the length penalty; 0 disables it.
        length_normalization: form of the length penalty: wu (Wu et al. 2016) or average.
        no_repeat_ngram_size: n-grams of this size may not occur twice; 0 allows them.
        max_length_ratio: maximum output length: so many times the source length, plus 10 tokens.
        align: whether to return the alignment: how much each word attends to each source word.
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        truncation: for sentences that are too long: head, tail, head+tail or error. Default: head;
            then a warning says how much was not read.
        batch_tokens: maximum of source tokens × beam size in a batch.
        on_error: with truncation "error": called with the index and the error of a sentence that
            is too long; it has no candidates. Default: the error is raised.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    search = BeamConfig(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        length_normalization=length_normalization,  # type: ignore[arg-type]
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    number("max_length_ratio", max_length_ratio, 0.0, 1e3)
    in_range("batch_tokens", batch_tokens, 1, 1 << 30)
    model = open_model(model, "translate", "translator")
    if align and isinstance(model.module, Seq2Seq) and model.module.score is None:
        raise InputError(
            "this model has no attention, which alignments need", fix="use a model with attention"
        )
    single = isinstance(texts, str)
    rows = check_texts(texts, text_column=text_column)
    sources, truncated = _encode_sources(
        model, rows, truncation or "head", None if single else on_error
    )
    if truncation is None:
        counts = [truncated.get(row, 0) for row in range(len(rows))]
        fix = "split them, or choose a truncation (head, tail, head+tail or error)"
        warn_truncated(counts, max_source_length(model), name="sentences", fix=fix)
    found: dict[int, tuple[TranslationCandidate, ...]] = {}
    order, done = list(sources), 0
    for batch in batch_by_tokens([beam * len(ids) for ids in sources.values()], batch_tokens):
        numbers = [order[n] for n in batch]
        some = _search_translations(model, [sources[n] for n in numbers], search, max_length_ratio)
        for row, hypotheses in zip(numbers, some, strict=True):
            found[row] = tuple(
                _make_candidate(model, sources[row], one, align=align) for one in hypotheses
            )
        done += len(batch)
        if progress:
            progress("sentences", done, len(sources))
    blank = TranslationCandidate(text="", score=0.0, log_probability=0.0, finished=True)
    translations = [
        Translation(
            source=text,
            candidates=found.get(row, () if text.strip() else (blank,)),
            truncated_chars=truncated.get(row, 0),
        )
        for row, text in enumerate(rows)
    ]
    return translations[0] if single else Results(translations)


def _encode_sources(
    model: Model, texts: Sequence[str], truncation: str, on_error: OnError | None
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The ids of the sentences that are not blank, and the characters left out, by index."""
    one_of("truncation", truncation, TRUNCATIONS)
    filled = [row for row, text in enumerate(texts) if text.strip()]
    limit, most = model.module.max_positions, max_source_length(model)
    encoded = encode_sentences(model.tokenizer, [texts[row] for row in filled], limit=most)
    found = dict(zip(filled, encoded, strict=True))
    truncated: dict[int, int] = {}
    for row, ids in list(found.items()):
        if len(ids) <= most:
            continue
        if truncation != "error":
            kept = truncate_sentence(model.tokenizer, texts[row], most, truncation)
            found[row], truncated[row] = kept
            continue
        count = f"{'over ' if is_long(texts[row]) else ''}{len(ids):,} tokens"
        error = InputError(
            f"sentence {row + 1:,} has {count} (with the end token), but "
            + (f"the model has {most:,} positions" if limit else f"the limit is {most:,}"),
            fix="split the sentence, or choose a truncation: head, tail, head+tail",
        )
        if on_error is None:
            raise error
        on_error(row, error)
        del found[row]
    return found, truncated


def max_source_length(model: Model) -> int:
    """The maximum number of source tokens, with the end token."""
    limit: int | None = model.module.max_positions
    return limit or max(MAX_SOURCE_TOKENS, model.config.max_trained_length)


def _search_translations(
    model: Model, sources: Sequence[Sequence[int]], search: BeamConfig, max_length_ratio: float
) -> list[list[Hypothesis]]:
    config, most = model.config, model.module.max_positions or 1 << 30
    source, real = pad_sequences(sources, model.device)
    limits = [min(int(max_length_ratio * len(ids)) + 10, most) for ids in sources]
    first = torch.full((len(sources),), config.bos_id, device=model.device)
    state = model.module.init_state(source, real)
    return beam_search(model.module, state, first, search, eos_id=config.eos_id, max_lengths=limits)


def pad_sequences(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad sequences of ids (b s), and mark which ids are not padding."""
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(real.shape, dtype=torch.long)
    ids[real] = torch.tensor([id_ for row in rows for id_ in row])
    return ids.to(device), real.to(device)


def _make_candidate(
    model: Model, source: Sequence[int], found: Hypothesis, *, align: bool
) -> TranslationCandidate:
    return TranslationCandidate(
        text=decode_sentence(model.tokenizer, found.tokens),
        score=found.score,
        log_probability=found.log_probability,
        finished=found.finished,
        alignment=align_words(model, source, found.tokens, ended=found.finished) if align else None,
    )


@torch.inference_mode()
def align_words(
    model: Model, source: Sequence[int], target: Sequence[int], *, ended: bool = True
) -> Alignment:
    """Compute how much each word of a translation attends to each source word, both given as ids.

    For a Transformer this is the mean over the heads of the second-to-last layer, whose
    cross-attention is closest to an alignment (Garg et al. 2019). Weights of the tokens of a source
    word are added, those of a target word averaged. An unfinished translation has no row for its
    end.
    """
    ids, real = pad_sequences([source], model.device)
    before = target if ended else target[:-1]  # the inputs of the decoder
    inputs = torch.tensor([[model.config.bos_id, *before]], device=model.device)
    if isinstance(model.module, Seq2Seq):
        weights = model.module.compute_alignment(ids, real, inputs)[0]  # t s
    else:
        with capture(model.module, CrossAttention) as captured:
            model.module(ids, real, inputs)
        weights = captured[max(len(captured) - 2, 0)][0].mean(0)
    columns = list(_split_words(model, source[:-1], ended=True))
    rows = list(_split_words(model, target, ended=ended))
    joined = torch.stack([weights[:, first:last].sum(1) for _, first, last in columns], 1)
    joined = torch.stack([joined[first:last].mean(0) for _, first, last in rows])
    return Alignment(
        source=tuple(word for word, _, _ in columns),
        target=tuple(word for word, _, _ in rows),
        weights=joined.float().cpu().numpy(),
    )


def _split_words(
    model: Model, ids: Sequence[int], *, ended: bool
) -> Iterator[tuple[str, int, int]]:
    yield from join_words(model.tokenizer, ids)
    if ended:
        yield END, len(ids), len(ids) + 1


def join_words(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Join byte-level tokens to words, each with its first token and the one after its last.

    A word begins at a space, between letters and symbols, and, in scripts without spaces, at each
    token. A token that ends within a character is joined to the next.
    """
    first, word = 0, ""
    for index in range(len(ids)):
        extended = tokenizer.decode(ids[first : index + 1])
        added = extended[len(word) :]
        if word and _begins_word(word[-1], added[:1]):
            yield word.strip(), first, index
            first, extended = index, tokenizer.decode(ids[index : index + 1])
        word = extended
    if len(ids) > first:
        yield word.strip(), first, len(ids)


def _begins_word(before: str, letter: str) -> bool:
    if letter.isspace():
        return True
    if not letter or before == "�":  # the token continues a character
        return False
    wide = east_asian_width(before) in "WF" or east_asian_width(letter) in "WF"
    return wide or before.isalnum() != letter.isalnum()
