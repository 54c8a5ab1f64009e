"""`evaluate` for language models: perplexity, bits per byte and per character on text."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from cloze.checkpoint.model import Model
from cloze.data.sources import Source, as_list, read_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.perplexity import score_language_model
from cloze.models.language import LanguageModel
from cloze.progress import ProgressCallback
from cloze.tasks.evaluation import CorpusEvaluation
from cloze.tasks.inputs import open_language_model

SCORES = ("perplexity", "word_perplexity", "bits_per_byte", "bits_per_character")
WITHOUT_RETRIEVAL = "perplexity_without_retrieval"
COUNTS = ("texts", "tokens", "words", "unknown")


def evaluate_language_model(
    model: LanguageModel | Model,
    data: Source | Sequence[Any],
    *,
    text_column: str | int | None = None,
    skip_bad: bool = False,
    database: PathLike | None = None,
    progress: ProgressCallback | None = None,  # noqa: ARG001 - all evaluators have it
) -> CorpusEvaluation:
    """Compute perplexity and bits per byte and character on a text with one sentence per line.

    With a `database`, which a RETRO reads, the perplexity without it is computed, too.
    """
    since = time.perf_counter()
    skipped: list[InputError] = []
    lines = read_rows(
        as_list(data), text_column=text_column, on_error=skipped.append if skip_bad else "raise"
    )
    language = open_language_model(model, "evaluate")
    texts: Iterable[str] = (row.text for row in lines)
    without: dict[str, float] = {}
    if database is not None:
        from cloze.tasks.chunk_retriever import add_database

        plain, language, texts = language, add_database(language, database), list(texts)
        without[WITHOUT_RETRIEVAL] = score_language_model(plain, texts).perplexity
    found = score_language_model(language, texts)
    names = SCORES if found.backward_log_p is None else (*SCORES, "backward_perplexity")
    return CorpusEvaluation(
        kind="language",
        scores={name: getattr(found, name) for name in names} | without,
        counts={name: getattr(found, name) for name in COUNTS},
        notes={},
        skipped=tuple(skipped),
        seconds=time.perf_counter() - since,
    )
