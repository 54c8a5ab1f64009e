"""`compare`: several models on the same data, in one table that says how sure it is."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from cloze.checkpoint.abilities import can
from cloze.checkpoint.families import load
from cloze.checkpoint.translator import Translator
from cloze.data.sources import as_list
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.bootstrap import RESAMPLES
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.tasks.compare_labelled import common_measures, judge_labelled
from cloze.tasks.compare_language import LanguageComparison, compare_language, is_language
from cloze.tasks.compare_words import score_word_vectors
from cloze.tasks.comparison import Comparison, Judged, make_entry
from cloze.tasks.door import resolve_model
from cloze.tasks.evaluate import Columns, Data
from cloze.tasks.evaluate_pretrained import evaluation_kind, is_pretrained
from cloze.tasks.evaluate_translator import BLEU, TranslatorScores, read_parallel, score_translator
from cloze.tasks.left_to_right import language_model
from cloze.tasks.scored import check_options


def compare(
    models: Mapping[str, Any] | Sequence[PathLike] | PathLike,
    data: Data,
    *,
    policy: str | None = None,
    stride: int | None = None,
    chinese: bool | None = None,
    bleu: str | None = None,
    skip_bad: bool = False,
    resamples: int | None = None,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float32",
    progress: ProgressCallback | None = None,
    **columns: Unpack[Columns],
) -> Comparison | LanguageComparison:
    """Judge models by the same examples, with intervals by the bootstrap (`evaluate.bootstrap`).

    All must do the same task and know every label of the data. Each is held against the first.
    Language models are compared by text, a sentence to a line (`tasks.compare_language`),
    translators by BLEU on two files, source and target, word vectors by files of analogies and of
    judged pairs (`tasks.compare_words`), encoders without a task by scored pairs
    (`tasks.evaluate_similarity`). What changes nothing for the kind at hand is refused.

    Args:
        models: folders, or names with a model or a folder each.
        data: files, folders, globs or `-` (standard input); a `datasets` object or a list of
            mappings with the same columns; or examples of `cloze.data.labelled`.
        policy: for texts longer than a model reads: head, tail, head+tail or window.
        stride: tokens that windows share.
        chinese: score answers by CMRC's rules; left out, if most of the contexts is Chinese.
        bleu: how BLEU finds words: 13a (unsaid), zh where the target is Chinese, none.
        skip_bad: pass over rows that cannot be read, for all models alike.
        resamples: draws of the bootstrap; unsaid, 1000.
        seed: of the draws.
        device: where folders are loaded to.
        dtype: of the weights of folders.
        progress: is told model, sequences done and of how many.
        **columns: text, pair and label of tables, column and scheme of tags; see `Columns`.
    """
    opened = _opened(models, device, dtype)
    kinds = {
        name: evaluation_kind(model, pair=columns.get("pair"), label=columns.get("label"))
        for name, model in opened.items()
        if is_pretrained(model)
    }
    leader = next(iter(opened))
    if is_language(opened[leader]) or kinds.get(leader) == "language":
        opened |= {n: language_model(opened[n]) for n, kind in kinds.items() if kind == "language"}
    first = opened[leader]
    options: dict[str, Any] = {
        "policy": policy,
        "stride": stride,
        "chinese": chinese,
        "bleu": bleu,
        "skip_bad": skip_bad,
        "resamples": resamples,
        **columns,
    }
    can(first, "compare")
    if is_language(first):
        check_options(options, "skip_bad", of=first)
        return compare_language(opened, data, skip_bad=skip_bad, progress=progress)
    draws = RESAMPLES if resamples is None else resamples
    skipped: list[InputError] = []
    unknown = 0
    judged: Mapping[str, Judged]
    if isinstance(first, Translator):
        check_options(options, "policy", "bleu", "resamples", of=first)
        judged = _translated(opened, data, policy, bleu or BLEU, progress)
        measures = [TranslatorScores.metric]
    elif isinstance(first, WordVectors):
        check_options(options, "resamples", of=first)
        asked, unknown = score_word_vectors(opened, as_list(data), progress)
        judged, measures = asked, [*asked[leader].sets]
    else:
        check_options({"bleu": bleu}, of=first)
        report = skipped.append if skip_bad else None
        told = partial(_told, progress)
        found = judge_labelled(opened, kinds, data, options, report, told)
        judged, measures = found, common_measures(list(found.values()))
    entries = tuple(
        make_entry(name, model, judged, measures, resamples=draws, seed=seed)
        for name, model in opened.items()
    )
    return Comparison(entries=entries, resamples=draws, skipped=tuple(skipped), unknown=unknown)


def _opened(
    models: Mapping[str, Any] | Sequence[PathLike] | PathLike, device: str | None, dtype: str
) -> dict[str, Any]:
    if not isinstance(models, Mapping):
        if isinstance(models, str) or not isinstance(models, Sequence):
            models = [models]
        for one in models:
            if not isinstance(one, str | os.PathLike):
                raise InputError(
                    f"a {type(one).__name__} brings no name for the table",
                    fix='give each model or folder one: {"mine": model, "other": "runs/other"}',
                )
    named = models if isinstance(models, Mapping) else {str(one): one for one in models}
    if not named:
        raise InputError("there is no model to compare", fix="name one or more")
    if len(named) < len(models):
        raise InputError("a model is named twice", fix="name each once")
    return {
        name: load(one, device=device, dtype=dtype, quiet=True)
        if isinstance(one, str | os.PathLike)
        else resolve_model(one)
        for name, one in named.items()
    }


def _translated(
    models: Mapping[str, Any],
    data: Data,
    policy: str | None,
    bleu: str,
    progress: ProgressCallback | None,
) -> dict[str, TranslatorScores]:
    pairs = read_parallel(data)
    for name, model in models.items():
        if not isinstance(model, Translator):
            raise InputError(
                f"{name} is no translator, and {next(iter(models))} is one",
                fix="compare models for the same task",
            )
    return {
        name: score_translator(
            model, pairs, policy=policy, bleu=bleu, progress=_told(progress, name)
        )
        for name, model in models.items()
    }


def _told(progress: ProgressCallback | None, name: str) -> ProgressCallback | None:
    """The same, told of a model instead of what is counted."""
    return progress and (lambda _, done, total: progress(name, done, total))
