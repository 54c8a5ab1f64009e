"""`compare`: evaluate several models on the same data, with confidence intervals."""

from __future__ import annotations  # `help` shows types by their short names

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, check_capability
from cloze.data.labelled.tag_schemes import detect_tag_scheme
from cloze.data.sources import Source, as_list, read_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.bootstrap import RESAMPLES
from cloze.metrics.perplexity import LanguageModelScores, score_language_model
from cloze.models.language import LanguageModel
from cloze.progress import ProgressCallback, ProgressOption, open_progress
from cloze.tasks.comparison import (
    Comparison,
    LanguageComparison,
    LanguageEntry,
    Resampled,
    make_entry,
)
from cloze.tasks.evaluate_labelled import (
    Columns,
    Data,
    evaluate_labelled,
    metric_kind,
    read_labelled,
    require_task,
)
from cloze.tasks.evaluate_word_vectors import has_text_pairs, score_word_vectors
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.evaluation_kind import (
    KINDS,
    check_options,
    evaluation_kind,
    fills_and_embeds,
)
from cloze.tasks.inputs import open_language_model, resolve_model, warn_truncated
from cloze.tasks.scored_predictions import OnBadRow

Models = Mapping[str, Any] | Iterable[Model | PathLike] | PathLike
OPTIONS = {  # by `evaluation_kind`
    "language": ("text_column", "skip_bad"),
    "translator": ("truncation", "bleu", "resamples", "text_column", "target_column"),
    "summarizer": ("truncation", "resamples", "text_column", "target_column"),
    "words": ("resamples",),
    "similarity": (
        *("truncation", "overlap", "skip_bad", "resamples"),
        *("text_column", "pair_column", "label_column"),
    ),
    "labelled": (
        *("truncation", "overlap", "chinese", "skip_bad", "resamples"),
        *Columns.__annotations__,
    ),
}


def compare(
    models: Models,
    data: Data,
    *,
    truncation: str | None = None,
    overlap: int | None = None,
    chinese: bool | None = None,
    bleu: str | None = None,
    target_column: str | int | None = None,
    skip_bad: bool = False,
    resamples: int | None = None,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float32",
    progress: ProgressOption = None,
    **columns: Unpack[Columns],
) -> Comparison | LanguageComparison:
    """Score models on the same examples, with bootstrap confidence intervals.

    All models must have the same task and know all labels of the data. The difference of each model
    to the first one has a confidence interval and a p-value. Language models are compared on text
    with one sentence per line, translators by BLEU and models that summarize by ROUGE on two files
    (source and target) or tables, word vectors on analogies and rated pairs of words, encoders
    without a task on rated pairs of texts. An option that does not apply to the models is an error.

    Args:
        models: several folders or models from `cloze.load`, or a mapping of names to such.
        data: files, folders, globs or `-` (standard input); a data frame (pandas, polars),
            a `datasets` object, an iterable of mappings with the same columns, a tuple (texts,
            labels); or examples of `cloze.data.labelled`.
        truncation: for texts that are too long: head, tail, head+tail, window or error. Default:
            the setting of each folder, else head.
        overlap: number of tokens that two windows share. Default: a quarter of the window.
        chinese: whether to score answers by CMRC's rules. Default: if most contexts are Chinese.
        bleu: tokenizer of BLEU: 13a (the default), zh for Chinese, none.
        target_column: column of translations or summaries: name or 1-based number (default:
            auto-detected).
        skip_bad: skip rows that cannot be read, for all models.
        resamples: number of bootstrap resamples. Default: 1000.
        seed: seed of the bootstrap.
        device: device that folders are loaded to.
        dtype: dtype of the weights of folders.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
        **columns: columns of tables, as in `evaluate`.
    """
    opened = _open_models(models, device, dtype)
    first = next(iter(opened.values()))
    if isinstance(first, Model):
        check_capability(first, "compare")
    kinds = _find_kinds(opened, data, columns)
    kind = "similarity" if _compares_vectors(opened, kinds, data) else _check_same_kind(kinds)
    options: dict[str, Any] = {
        "truncation": truncation,
        "overlap": overlap,
        "chinese": chinese,
        "bleu": bleu,
        "target_column": target_column,
        "skip_bad": skip_bad,
        "resamples": resamples,
        **columns,
    }
    check_options(options, OPTIONS[kind], kind)
    skipped: list[InputError] = []
    report = skipped.append if skip_bad else None
    unknown = 0
    evaluations: Mapping[str, Resampled]
    with open_progress(progress) as show:
        if kind == "language":
            return _compare_language(opened, data, options, skipped, show)
        if kind in ("translator", "summarizer"):
            evaluations = _score_targets(opened, kind, data, options, show)
        elif kind == "words":
            evaluations, unknown = score_word_vectors(
                {name: model.module for name, model in opened.items()}, as_list(data), show
            )
        else:
            evaluations = _score_examples(opened, kind, data, options, report, show)
    if truncation is None:
        _warn_truncated(opened, evaluations)
    draws = RESAMPLES if resamples is None else resamples
    metrics = _common_metrics(list(evaluations.values()))
    entries = tuple(
        make_entry(name, count_parameters(model), evaluations, metrics, resamples=draws, seed=seed)
        for name, model in opened.items()
    )
    return Comparison(entries=entries, resamples=draws, skipped=tuple(skipped), unknown=unknown)


def split_models_and_data(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a list into models and data: the last item and files before it that are no models."""
    from cloze.checkpoint.load import find_file_family
    from cloze.checkpoint.word2vec import is_vector_file
    from cloze.data.sources import is_stream

    def is_data(name: str) -> bool:
        if is_stream(name):
            return True
        family = find_file_family(name)
        is_model = family is not None and (family.name != "word2vec" or is_vector_file(name))
        return Path(name).is_file() and not is_model

    first = len(names) - 1
    while first > 1 and is_data(names[first - 1]):
        first -= 1
    return list(names[:first]), list(names[first:])


def count_parameters(model: Any) -> int:  # noqa: ANN401 - any that is loaded
    """The number of parameters; for an n-gram model the number of n-grams."""
    return int(getattr(model, "num_parameters", 0))


def _name_model(model: object) -> str:
    """The name of a model that is given without one: its folder."""
    if isinstance(model, Model) and model.folder is not None:
        return str(model.folder)
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"compare needs a name for each model, but was given a {type(model).__name__}",
            fix='pass a mapping: {"mine": model, "other": "runs/other"}',
        )
    return str(model)


def _open_models(models: Models, device: str | None, dtype: str) -> dict[str, Any]:
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        are_several = isinstance(models, Sequence | Set | Iterator) and not isinstance(models, str)
        listed: list[object] = list(models) if are_several else [models]  # type: ignore[arg-type]
        named = {_name_model(one): one for one in listed}
        if len(named) < len(listed):
            raise InputError("a model is given twice", fix="give each model once")
    if not named:
        raise InputError("no model was given to compare", fix="name two or more models")
    return {
        name: load(one, device=device, dtype=dtype, quiet=True)
        if isinstance(one, str | os.PathLike)
        else resolve_model(one)
        for name, one in named.items()
    }


def _find_kinds(
    models: Mapping[str, Any], data: Data, columns: Mapping[str, Any]
) -> dict[str, str]:
    """How each model is evaluated on the data, as in `evaluate`."""
    kinds = {name: evaluation_kind(model, **columns) for name, model in models.items()}
    both = [name for name, model in models.items() if fills_and_embeds(model, **columns)]
    if both and not has_text_pairs(data):
        kinds |= dict.fromkeys(both, "masked")
    return kinds


def _compares_vectors(models: Mapping[str, Any], kinds: Mapping[str, str], data: Data) -> bool:
    """Whether models are compared by their vectors of texts.

    All must have some. One of them is an embedding model, or they are of different kinds or word
    vectors, and the data are rated pairs of texts.
    """
    found = set(kinds.values())
    if "labelled" in found or (len(found) == 1 and found != {"words"}):
        return False
    if not all(isinstance(one, Model) and "embed" in one.capabilities for one in models.values()):
        return False
    return "similarity" in found or has_text_pairs(data)


def _check_same_kind(kinds: Mapping[str, str]) -> str:
    """How the models are evaluated; an error if they differ.

    Masked tokens depend on the vocabulary, so two masked language models have no common examples.
    """
    first = next(iter(kinds))
    if kinds[first] == "masked":
        raise InputError(
            "masked language models cannot be compared: masked tokens depend on the vocabulary",
            fix="evaluate each model separately, or compare on rated pairs of texts: name their "
            "columns with --pair-column and --label-column (pair_column=, label_column= in Python)",
        )
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise InputError(
                f"{first!r} is {KINDS[kinds[first]]}, but {name!r} is {KINDS[kind]}",
                fix="compare models for the same task",
            )
    return kinds[first]


def _score_examples(
    models: Mapping[str, Model],
    kind: str,
    data: Data,
    options: Mapping[str, Any],
    report: OnBadRow | None,
    progress: ProgressCallback | None,
) -> dict[str, Evaluation]:
    """Evaluate encoders on the same labelled examples or rated pairs of texts."""
    from cloze.tasks.evaluate_similarity import evaluate_similarity, read_scored_pairs

    columns: Any = {
        name: options[name]
        for name in OPTIONS[kind]
        if name in options and name in Columns.__annotations__
    }
    evaluate: Callable[..., Evaluation] = evaluate_similarity
    if kind == "similarity":
        examples = read_scored_pairs(data, report, **columns)
    else:
        _check_same_task(models)
        examples = read_labelled(next(iter(models.values())), data, report, **columns)
        evaluate = partial(evaluate_labelled, chinese=options["chinese"])
    evaluations = {}
    for name, model in models.items():
        try:
            evaluations[name] = evaluate(
                model,
                examples,
                truncation=options["truncation"],
                overlap=options["overlap"],
                progress=_named_progress(progress, name),
            )
        except InputError as error:
            raise InputError(f"model {name!r}: {error.problem}", fix=error.fix) from None
    return evaluations


def _warn_truncated(models: Mapping[str, Any], evaluations: Mapping[str, Resampled]) -> None:
    """Warn once for all models, with the smallest of their maximum lengths."""
    counts = {name: getattr(one, "truncated_chars", ()) for name, one in evaluations.items()}
    truncated = [models[name] for name, chars in counts.items() if any(chars)]
    if truncated:
        from cloze.tasks.source_to_target import make_translator

        limits = [
            make_translator(one).max_source_length
            if evaluation_kind(one) in ("translator", "summarizer")
            else one.max_length
            for one in truncated
        ]
        warn_truncated([one for each in counts.values() for one in each], min(limits))


def _common_metrics(evaluations: Sequence[Resampled]) -> list[str]:
    """Metrics that all models have; binary F1 only if the labels have the same order."""
    first, *others = evaluations
    names = [set(one.bootstrap_metrics) for one in others]
    common = [name for name in first.bootstrap_metrics if all(name in one for one in names)]
    if isinstance(first, Evaluation) and first.kind == "classify":
        labels = {one.labels for one in evaluations if isinstance(one, Evaluation)}
        return [name for name in common if name != "f1" or len(labels) == 1]
    return common


def _check_same_task(models: Mapping[str, Model]) -> None:
    """Check that the models have the same task and metrics."""
    first, *others = models
    tasks = {}
    for name, model in models.items():
        try:
            kind = metric_kind(require_task(model).name, model.problem_type)
        except InputError as error:
            raise InputError(f"model {name!r}: {error.problem}", fix=error.fix) from None
        plain = kind == "tag" and detect_tag_scheme(model.labels) == "plain"
        tasks[name] = "tag words" if plain else "predict numbers" if kind == "regression" else kind
    for name in others:
        if tasks[name] != tasks[first]:
            raise InputError(
                f"the task of {first!r} is {tasks[first]}, but that of {name!r} is {tasks[name]}",
                fix="compare models for the same task",
            )


def _score_targets(
    models: Mapping[str, Model],
    kind: str,
    data: Data,
    options: Mapping[str, Any],
    progress: ProgressCallback | None,
) -> Mapping[str, Resampled]:
    """Score the translations or summaries that the models write for the same sources."""
    from cloze.data.source_target import load_pairs
    from cloze.tasks.evaluate_summarizer import score_summarizer
    from cloze.tasks.evaluate_translator import BLEU, score_translator

    columns: Any = {name: options.get(name) for name in ("text_column", "target_column")}
    score: Callable[..., Resampled] = score_summarizer
    if kind == "translator":
        score = partial(score_translator, bleu=options["bleu"] or BLEU)
    task = "translate" if kind == "translator" else "summarize"
    pairs = load_pairs(data, task, **columns, name=f"the data of {KINDS[kind]}")
    return {
        name: score(
            model,
            pairs,
            truncation=options["truncation"] or "head",  # which does not warn
            progress=_named_progress(progress, name),
        )
        for name, model in models.items()
    }


def _compare_language(
    models: Mapping[str, Any],
    data: Source | Sequence[Any],
    options: Mapping[str, Any],
    skipped: list[InputError],
    progress: ProgressCallback | None,
) -> LanguageComparison:
    """Score language models on the same text, one sentence per line."""
    lines = read_rows(
        as_list(data),
        text_column=options.get("text_column"),
        on_error=skipped.append if options["skip_bad"] else "raise",
    )
    texts = [row.text for row in lines]
    entries = list[LanguageEntry]()
    known: set[str] = set()
    for name, one in models.items():
        model = open_language_model(one, "compare")
        known = known or set(model.vocabulary)
        since = time.perf_counter()
        score = score_language_model(model, texts)
        # models with the same vocabulary may split differently: ARPA files split at white space
        same = not entries or _token_counts(score) == _token_counts(entries[0].score)
        entries.append(
            LanguageEntry(
                name=name,
                kind=_describe_kind(model),
                parameters=count_parameters(one),
                vocabulary=len(model.vocabulary),
                same_tokens=same and set(model.vocabulary) == known,
                score=score,
                seconds=time.perf_counter() - since,
            )
        )
        if progress:
            progress(name, len(texts), len(texts))
    return LanguageComparison(entries=tuple(entries), skipped=tuple(skipped))


def _describe_kind(model: LanguageModel) -> str:
    return str(getattr(model, "kind", ""))


def _token_counts(score: LanguageModelScores) -> tuple[int, int]:
    return score.tokens, score.unknown


def _named_progress(progress: ProgressCallback | None, name: str) -> ProgressCallback | None:
    """A callback that reports the name of the model as the stage."""
    return progress and (lambda _, done, total: progress(name, done, total))
