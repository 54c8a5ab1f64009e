"""`summarize`: summaries of texts by beam search."""

from dataclasses import dataclass
from typing import TypedDict, Unpack, overload

import torch

from cloze.checkpoint.model import Model
from cloze.config import in_range
from cloze.decode.config import BeamConfig
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Results
from cloze.tasks.inputs import OnError, Texts, check_texts, warn_truncated
from cloze.tasks.source_to_target import (
    BATCH_TOKENS,
    GPU_BATCH_TOKENS,
    TargetCandidate,
    TargetResult,
    encode_sources,
    make_translator,
    open_target_model,
    search_targets,
)
from cloze.text.joint_bpe import decode_sentence

DEFAULT_LENGTH = 256  # tokens of a summary by a model that does not say how long they are


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(TargetResult[TargetCandidate]):
    """A text and its summaries, best first; no candidates if it is too long."""

    target_name = "summary"
    targets_name = "summaries"
    record_columns = ("source", "summary", "score", "log_probability", "finished")

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_heading, render_note, render_result

        parts = [render_heading(self.text)]
        parts += [render_note(f"{one.text} ({one.score:.4f})") for one in self.candidates[1:]]
        return render_result(*parts, render_note(self.source), truncated_chars=self.truncated_chars)


class SummarizeOptions(TypedDict, total=False):
    """The options of `summarize`."""

    beam: int
    n_best: int
    length_penalty: float
    length_normalization: str
    no_repeat_ngram_size: int
    max_length: int | None
    text_column: str | int | None
    truncation: str | None
    batch_tokens: int | None
    on_error: OnError | None
    progress: ProgressOption


@overload
def summarize(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike, texts: str, **options: Unpack[SummarizeOptions]
) -> Summary: ...
@overload
def summarize(
    model: Model | PathLike, texts: Texts, **options: Unpack[SummarizeOptions]
) -> Results[Summary]: ...
@torch.inference_mode()
@with_progress
def summarize(
    model: Model | PathLike,
    texts: str | Texts,
    *,
    beam: int = 4,
    n_best: int = 1,
    length_penalty: float = 0.6,
    length_normalization: str = "wu",
    no_repeat_ngram_size: int = 0,
    max_length: int | None = None,
    text_column: str | int | None = None,
    truncation: str | None = None,
    batch_tokens: int | None = None,
    on_error: OnError | None = None,
    progress: ProgressCallback | None = None,
) -> Summary | Results[Summary]:
    """Summarize a text, or each of several, by beam search.

    The summary of a blank text is blank. The model reads as many tokens as the texts that it was
    trained on had at most; a decoder-only model shares its positions between text and summary.

    Args:
        model: a model that `finetune` has trained to summarize, or its folder.
        texts: a text, or several: a list, a column, or a table (data frame, `datasets`, mappings).
        beam: beam size; 1 is greedy search.
        n_best: number of summaries to return, at most `beam`.
        length_penalty: strength of the length penalty; 0 disables it.
        length_normalization: form of the length penalty: wu (Wu et al. 2016) or average.
        no_repeat_ngram_size: n-grams of this size may not occur twice; 0 allows them.
        max_length: maximum number of tokens of a summary (default: of those it was trained on).
        text_column: column of the text, if the texts are in a table: name or 1-based number
            (default: auto-detected).
        truncation: for texts that are too long: head, tail, head+tail or error. Default: head;
            then a warning says how much was not read.
        batch_tokens: maximum of source tokens × beam size in a batch (default: 4096, on a GPU
            65,536).
        on_error: with truncation "error": called with the index and the error of a text that is
            too long; it has no candidates. Default: the error is raised.
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
    for name, value in (("batch_tokens", batch_tokens), ("max_length", max_length)):
        if value is not None:
            in_range(name, value, 1, 1 << 30)
    model = open_target_model(model, "summarize")
    if batch_tokens is None:
        batch_tokens = BATCH_TOKENS if model.device.type == "cpu" else GPU_BATCH_TOKENS
    single = isinstance(texts, str)
    rows = check_texts(texts, text_column=text_column)
    translator = make_translator(model)
    sources, truncated = encode_sources(
        translator, rows, truncation or "head", None if single else on_error, name="text"
    )
    if truncation is None:
        counts = [truncated.get(row, 0) for row in range(len(rows))]
        fix = "choose a truncation (head, tail, head+tail or error)"
        warn_truncated(counts, translator.max_source_length, fix=fix)
    limit = max_length or (model.task and model.task.max_target_length) or DEFAULT_LENGTH
    searched = search_targets(
        translator,
        sources,
        search,
        max_target_length=lambda _: limit,
        batch_tokens=batch_tokens,
        stage="texts",
        progress=progress,
    )
    blank = TargetCandidate(text="", score=0.0, log_probability=0.0, finished=True)
    summaries = []
    for row, text in enumerate(rows):
        found = [
            TargetCandidate(
                text=decode_sentence(model.tokenizer, one.tokens),
                score=one.score,
                log_probability=one.log_probability,
                finished=one.finished,
            )
            for one in searched.get(row, ())
        ]
        if not text.strip():
            found = [blank]
        summaries.append(
            Summary(source=text, candidates=tuple(found), truncated_chars=truncated.get(row, 0))
        )
    return summaries[0] if single else Results(summaries)
