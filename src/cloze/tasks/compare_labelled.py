"""`compare` for encoders: the same labelled data, or scored pairs where they have no task."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cloze.checkpoint.model import Model
from cloze.data.labelled.tag_schemes import detect_tag_scheme
from cloze.errors import InputError
from cloze.progress import ProgressCallback
from cloze.tasks.evaluate import Columns, Data, evaluate_labelled, read_labelled
from cloze.tasks.evaluate_similarity import evaluate_similarity, read_scored_pairs
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.judge import metric_kind, require_task
from cloze.tasks.scored import check_options


def judge_labelled(
    models: Mapping[str, Model],
    kinds: Mapping[str, str],
    data: Data,
    options: Mapping[str, Any],
    report: Callable[[InputError], object] | None,
    told: Callable[[str], ProgressCallback | None],
) -> dict[str, Evaluation]:
    """How each model does, all by the same examples.

    Args:
        models: by the names that the table shows.
        kinds: how those without a task are judged.
        data: what `compare` was given.
        options: of `compare`.
        report: is handed rows that cannot be read; None: they are an error.
        told: who is told of the work on the model of a name.
    """
    examples, judge = _asked(models, kinds, data, options, report)
    judged = {}
    for name, model in models.items():
        try:
            judged[name] = judge(
                model,
                examples,
                policy=options["policy"],
                stride=options["stride"],
                progress=told(name),
            )
        except InputError as error:
            raise InputError(f"{name}: {error.problem}", fix=error.fix) from None
    return judged


def common_measures(judged: Sequence[Evaluation]) -> list[str]:
    """Those that mean the same for all: F1 of two classes is that of a model's second label."""
    first, *others = judged
    common = [name for name in first.scores if all(name in one.scores for one in others)]
    if first.kind == "classify" and any(one.labels != first.labels for one in others):
        common = [name for name in common if name != "f1"]
    return common


def _asked(
    models: Mapping[str, Any],
    kinds: Mapping[str, str],
    data: Data,
    options: Mapping[str, Any],
    report: Callable[[InputError], object] | None,
) -> tuple[list[Any], Callable[..., Evaluation]]:
    """The examples that encoders are judged by, and how each is."""
    if kinds and _by_vectors(models, kinds):
        where = ("text", "pair", "label")
        known = ("policy", "stride", "skip_bad", "resamples", *where)
        check_options(options, *known, of="models of vectors")
        scored = read_scored_pairs(data, report, **{name: options.get(name) for name in where})
        return scored, evaluate_similarity
    _check_alike(models)
    columns: Any = {name: options[name] for name in Columns.__annotations__ if name in options}
    examples = read_labelled(next(iter(models.values())), data, report, **columns)
    return examples, partial(evaluate_labelled, chinese=options["chinese"])


def _by_vectors(models: Mapping[str, Any], kinds: Mapping[str, str]) -> bool:
    """Whether all are encoders without a task, one of which at least has vectors alone.

    Masks are of a model's own pieces, so that two vocabularies have no examples in common.
    """
    if len(kinds) < len(models):
        return False
    if "similarity" not in kinds.values():
        raise InputError(
            "hidden words are those of a model's own vocabulary, and not compared",
            fix="judge each by itself (evaluate); or name the columns of scored pairs: pair, label",
        )
    return True


def _check_alike(models: Mapping[str, Model]) -> None:
    """Scores can be compared where the same is asked and what is said is counted the same way."""
    first, *others = models
    tasks = {}
    for name, model in models.items():
        try:
            kind = metric_kind(require_task(model).name, model.config.problem_type)
        except InputError as error:
            raise InputError(f"{name}: {error.problem}", fix=error.fix) from None
        plain = kind == "tag" and detect_tag_scheme(model.labels) == "plain"
        tasks[name] = "tag words" if plain else "tell numbers" if kind == "number" else kind
    for name in others:
        if tasks[name] != tasks[first]:
            raise InputError(
                f"{first} can {tasks[first]} and {name} can {tasks[name]}",
                fix="compare models for the same task",
            )
