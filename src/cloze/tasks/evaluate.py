"""`evaluate`: the scores of a model on data of its kind.

| model | data | scores |
|---|---|---|
| fine-tuned | labelled examples | those of its task, and where it is wrong |
| encoder with a masked-LM head | running text | accuracy on masked tokens, of next sentences |
| other encoder | pairs of texts with a rating | correlation of the ratings with the cosines |
| encoder with a masked-LM head and pooling | either of the two | those of the data |
| language model | running text | perplexity, bits per byte |
| translator | source and target | BLEU |
| model that summarizes | texts and summaries | ROUGE, beside that of the first three sentences |
| word vectors | analogies, rated pairs of words | accuracy, correlation |
| word vectors | rated pairs of texts | correlation of the ratings with the cosines |
| CLIP | images with captions | recall@1 and @5 of captions for images and of images for captions |
"""

from __future__ import annotations  # `help` shows types by their short names

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from cloze.checkpoint.model import Model
from cloze.files import PathLike
from cloze.models.registry import resolve
from cloze.progress import ProgressOption, open_progress
from cloze.tasks.evaluate_labelled import Columns, Data
from cloze.tasks.evaluate_word_vectors import has_text_pairs
from cloze.tasks.evaluation import CorpusEvaluation, Evaluation
from cloze.tasks.evaluation_kind import check_options, evaluation_kind, fills_and_embeds
from cloze.tasks.inputs import resolve_model, warn_truncated
from cloze.tasks.predictions import check_predictions_path, write_predictions

if TYPE_CHECKING:
    from cloze.models.language import LanguageModel
    from cloze.models.word2vec import WordVectors


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """How models of one kind are evaluated."""

    function: str  # "module:function", imported when it is used
    options: tuple[str, ...]  # of the function
    has_predictions: bool = False  # one for each example


EVALUATORS: dict[str, Evaluator] = {  # by `evaluation_kind`
    "labelled": Evaluator(
        function="cloze.tasks.evaluate_labelled:evaluate_labelled",
        options=(
            *("truncation", "overlap", "chinese", "swap", "skip_bad", "batch_tokens"),
            *Columns.__annotations__,
        ),
        has_predictions=True,
    ),
    "similarity": Evaluator(
        function="cloze.tasks.evaluate_similarity:evaluate_similarity",
        options=(
            *("text_column", "pair_column", "label_column"),
            *("truncation", "overlap", "skip_bad", "batch_tokens"),
        ),
        has_predictions=True,
    ),
    "masked": Evaluator(
        function="cloze.tasks.evaluate_text:evaluate_masked",
        options=("max_length", "text_column", "skip_bad", "batch_tokens"),
    ),
    "language": Evaluator(
        function="cloze.tasks.evaluate_language_model:evaluate_language_model",
        options=("text_column", "skip_bad", "database"),
    ),
    "translator": Evaluator(
        function="cloze.tasks.evaluate_translator:evaluate_translator",
        options=("beam", "bleu", "truncation", "text_column", "target_column"),
    ),
    "summarizer": Evaluator(
        function="cloze.tasks.evaluate_summarizer:evaluate_summarizer",
        options=("beam", "truncation", "text_column", "target_column"),
    ),
    "words": Evaluator(
        function="cloze.tasks.evaluate_word_vectors:evaluate_word_vectors", options=()
    ),
    "image_text": Evaluator(
        function="cloze.tasks.evaluate_image_text:evaluate_image_text",
        options=("text_column", "skip_bad"),
    ),
}


def evaluate(
    model: Model | LanguageModel | WordVectors | PathLike,
    data: Data,
    *,
    name: str | None = None,
    truncation: str | None = None,
    overlap: int | None = None,
    chinese: bool | None = None,
    swap: bool = False,
    beam: int | None = None,
    bleu: str | None = None,
    target_column: str | int | None = None,
    max_length: int | None = None,
    database: PathLike | None = None,
    skip_bad: bool = False,
    batch_tokens: int | None = None,
    worst: int | None = None,
    predictions: PathLike | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **columns: Unpack[Columns],
) -> Evaluation | CorpusEvaluation:
    """Score a model: a fine-tuned one on labelled data, any other on data of its kind.

    An option that does not apply to the model is an error. So is a row that cannot be read, has no
    label or one that the model does not know; the error names its file and line.

    Args:
        model: a model, or its folder; the table above says what each kind is evaluated on.
        data: files, folders, globs or `-` (standard input); a data frame (pandas, polars),
            a `datasets` object, an iterable of mappings with the same columns, a tuple (texts,
            labels); or examples of `cloze.data.labelled`. For an encoder
            without a task running text, or pairs of texts with a number each; for a language model
            text with one sentence per line; for a translator or a model that summarizes two files,
            source and target, or tables with a column for each; for word vectors files of analogies
            (`a b c d`, `: section`) and of rated pairs of words, or rated pairs of texts; for a
            CLIP images with captions, as `pretrain` reads them.
        name: of the model in the result. Default: the folder as it was given.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            the setting of the folder, else head.
        overlap: tokens that two windows share. Default: a quarter of the window.
        chinese: whether to score answers by CMRC's rules. Default: if most contexts are Chinese.
        swap: predict pairs again with the two texts swapped.
        beam: hypotheses of a translator's beam search. Default: 4.
        bleu: tokenizer of BLEU: 13a (the default), zh for Chinese, none.
        target_column: column of translations or summaries: name or 1-based number (default:
            auto-detected).
        max_length: tokens of a sample in which tokens are masked. Default: the model's limit.
        database: of a RETRO: the folder of a database of chunks, or of the run that made it; the
            perplexity without retrieval is computed, too.
        skip_bad: skip rows that cannot be read, and list them in `skipped`.
        batch_tokens: tokens in a batch; the default depends on the device.
        worst: number of errors listed in JSON (default 5) and on the page (default 50).
        predictions: a file to write all predictions to: .jsonl, .tsv, or for answers .json.
        force: overwrite that file.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
        **columns: columns of tables by name or 1-based number, detected by default: `text_column`,
            `pair_column`, `label_column`, `tag_column`; and `tag_scheme`.
    """
    found = resolve_model(model)
    kind = evaluation_kind(found, **columns)
    if kind == "words" and has_text_pairs(data):
        kind = "similarity"
    if kind == "similarity" and fills_and_embeds(found, **columns) and not has_text_pairs(data):
        kind = "masked"
    evaluator = EVALUATORS[kind]
    given: dict[str, Any] = {
        "truncation": truncation,
        "overlap": overlap,
        "chinese": chinese,
        "swap": swap,
        "beam": beam,
        "bleu": bleu,
        "target_column": target_column,
        "max_length": max_length,
        "database": database,
        "skip_bad": skip_bad,
        "batch_tokens": batch_tokens,
        **columns,
    }
    outputs = ("worst", "predictions") if evaluator.has_predictions else ()
    check_options({"worst": worst, "predictions": predictions}, outputs, kind)
    chosen = check_options(given, evaluator.options, kind)
    if predictions is not None:
        check_predictions_path(predictions, force=force)
    with open_progress(progress) as show:
        result = resolve(evaluator.function)(found, data, progress=show, **chosen)
    named = replace(result, model=name or _name_model(model))
    if not isinstance(named, Evaluation):
        return named
    if truncation is None:
        warn_truncated(named.truncated_chars, found.max_length, name="examples")
    if predictions is not None:
        write_predictions(named, predictions, force=force)
    return replace(named, worst=worst)


def _name_model(model: object) -> str:
    """The folder or the name that was given; of an object its folder, else its family."""
    if isinstance(model, str | os.PathLike):
        return str(model)
    if isinstance(model, Model):
        return str(model.folder or model.family.name)
    return type(model).__name__
