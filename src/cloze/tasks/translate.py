"""`translate`: translate sentences by beam search.

b sentences, s source tokens, t target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch

from cloze.checkpoint.model import Model
from cloze.config import in_range, number
from cloze.decode.config import BeamConfig
from cloze.decode.core import Hypothesis
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Results
from cloze.tasks.inputs import OnError, Texts, check_texts, warn_truncated
from cloze.tasks.source_to_target import (
    BATCH_TOKENS,
    TargetCandidate,
    TargetResult,
    encode_sources,
    make_translator,
    open_target_model,
    search_targets,
)
from cloze.tasks.word_alignment import Alignment, align_words, check_alignable
from cloze.text.joint_bpe import decode_sentence


@dataclass(frozen=True, kw_only=True)
class TranslationCandidate(TargetCandidate):
    """One translation."""

    alignment: Alignment | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the translation."""
        return super().to_dict() | {"alignment": self.alignment and self.alignment.to_dict()}


@dataclass(frozen=True, kw_only=True, repr=False)
class Translation(TargetResult[TranslationCandidate]):
    """A sentence and its translations, best first; no candidates if it is too long."""

    target_name = "translation"
    targets_name = "translations"
    record_columns = ("source", "translation", "score", "log_probability", "finished")

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
    model = open_target_model(model, "translate")
    if align:
        check_alignable(model)
    single = isinstance(texts, str)
    rows = check_texts(texts, text_column=text_column)
    translator = make_translator(model)
    sources, truncated = encode_sources(
        translator, rows, truncation or "head", None if single else on_error
    )
    if truncation is None:
        counts = [truncated.get(row, 0) for row in range(len(rows))]
        fix = "split them, or choose a truncation (head, tail, head+tail or error)"
        warn_truncated(counts, translator.max_source_length, name="sentences", fix=fix)
    searched = search_targets(
        translator,
        sources,
        search,
        max_target_length=lambda ids: int(max_length_ratio * len(ids)) + 10,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    found = {
        row: tuple(_make_candidate(model, sources[row], one, align=align) for one in hypotheses)
        for row, hypotheses in searched.items()
    }
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
