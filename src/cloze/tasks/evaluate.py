"""`evaluate`: a model and labelled data to scores, and where it goes wrong."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeAlias, TypedDict, Unpack, overload

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.checkpoint.translator import Translator
from cloze.data.labelled.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.data.labelled.tag_schemes import detect_tag_scheme
from cloze.data.sources import Source
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.metrics.squad import is_chinese
from cloze.models.language import LanguageModel
from cloze.models.word2vec import WordVectors
from cloze.progress import ProgressCallback
from cloze.tasks.door import resolve_model
from cloze.tasks.evaluate_own import OwnOptions, evaluate_own
from cloze.tasks.evaluate_pretrained import evaluate_pretrained, is_pretrained
from cloze.tasks.evaluation import Evaluation, SwapResult
from cloze.tasks.judge import (
    ScoredPredictions,
    compute_metrics,
    gold_label,
    metric_kind,
    require_task,
    score_predictions,
)
from cloze.tasks.scored import CorpusEvaluation, check_options
from cloze.tasks.scoring import predict_each
from cloze.tasks.task_functions import TASK_FUNCTIONS

Data: TypeAlias = Source | Sequence[Source] | Sequence[Example]

EXAMPLES: dict[str, type] = {
    "classify": TextExample,
    "tag": TaggedExample,
    "answer": QuestionExample,
    "choose": ChoiceExample,
}


class Columns(TypedDict, total=False):
    """Where the data have what; found where left out."""

    text: str | int | None  # of tables, by name or by number from 1
    pair: str | int | None
    label: str | int | None
    column: str | int | None  # of the tags; of running text
    scheme: str | None


class Options(Columns, total=False):
    """The choices of `evaluate`."""

    policy: str | None
    stride: int | None
    chinese: bool | None
    swap: bool
    skip_bad: bool
    batch_tokens: int | None
    length: int | None  # of samples in which words are hidden
    progress: ProgressCallback | None


@overload
def evaluate(
    model: Model, data: Data, **options: Unpack[Options]
) -> Evaluation | CorpusEvaluation: ...
@overload
def evaluate(
    model: LanguageModel | Translator | WordVectors,
    data: Source | Sequence[Source],
    **options: Unpack[OwnOptions],
) -> CorpusEvaluation: ...
@overload
def evaluate(
    model: PathLike,
    data: Data,
    *,
    beam: int | None = None,
    bleu: str | None = None,
    **options: Unpack[Options],
) -> Evaluation | CorpusEvaluation: ...
def evaluate(
    model: Model | LanguageModel | Translator | WordVectors | PathLike,
    data: Data,
    *,
    policy: str | None = None,
    stride: int | None = None,
    chinese: bool | None = None,
    swap: bool = False,
    beam: int | None = None,
    bleu: str | None = None,
    skip_bad: bool = False,
    batch_tokens: int | None = None,
    length: int | None = None,
    progress: ProgressCallback | None = None,
    **columns: Unpack[Columns],
) -> Evaluation | CorpusEvaluation:
    """Score a model: a fine-tuned one on labelled data, any other on data of its own kind.

    What changes nothing for the model at hand is refused. A row that cannot be read, has no label
    or one that the model does not know is an error that names its file and line.

    Args:
        model: one with a task (its scores, and where it goes wrong), an encoder without one (the
            words it finds behind [MASK], or how alike it finds texts), a language model
            (perplexity, bits per byte), a translator (BLEU), word vectors (accuracy of analogies,
            correlation with judged similarities); or its folder.
        data: files, folders or globs; or examples of `cloze.data.labelled`. For an encoder without
            a task running text, or pairs of texts with a number each; for a language model text, a
            sentence to a line; for a translator two files, source and target; for word vectors
            files of questions (`a b c d`, `: section`) and of judged pairs.
        policy: for texts longer than the model reads: head, tail, head+tail or window.
        stride: tokens that windows share.
        chinese: score answers by CMRC's rules; left out, if most of the contexts is Chinese.
        swap: ask pairs again with A and B exchanged.
        beam: hypotheses that a translator follows; unsaid, 4.
        bleu: how BLEU finds words: 13a (unsaid), zh where the target is Chinese, none.
        skip_bad: pass over rows that are an error, and list them in `skipped`.
        batch_tokens: computed at once.
        length: of the samples in which words are hidden; unsaid, the longest the model reads.
        progress: is told how many sequences are done.
        **columns: where tables have `text`, `pair` and `label`, by name or by number from 1; of
            tags their `column` and `scheme`, of running text its `column`.
    """
    found = resolve_model(model)
    both: dict[str, Any] = {"policy": policy, "skip_bad": skip_bad, "progress": progress}
    labelled: dict[str, Any] = {
        "stride": stride,
        "chinese": chinese,
        "swap": swap,
        "batch_tokens": batch_tokens,
        **columns,
    }
    others: dict[str, Any] = {"beam": beam, "bleu": bleu, "length": length}
    if isinstance(found, Model) and not is_pretrained(found):
        check_options(others, of=found)
        return evaluate_labelled(found, data, **both, **labelled)
    ask = evaluate_pretrained if isinstance(found, Model) else evaluate_own
    return ask(found, data, **both, **labelled, **others)


def evaluate_labelled(
    model: Model,
    data: Data,
    *,
    policy: str | None = None,
    stride: int | None = None,
    chinese: bool | None = None,
    swap: bool = False,
    skip_bad: bool = False,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
    **columns: Unpack[Columns],
) -> Evaluation:
    """Ask a fine-tuned model about every example, and hold what it says against what is right.

    A row that cannot be read, has no label or one that the model does not know is an error that
    names its file and line.

    Args:
        model: with a task; that says how the data are read.
        data: files, folders, globs or `-` (standard input); a `datasets` object or a list of
            mappings with the same columns; or examples of `cloze.data.labelled`.
        policy: for texts longer than the model reads: head, tail, head+tail or window.
        stride: tokens that windows share.
        chinese: score answers by CMRC's rules; left out, if most of the contexts is Chinese.
        swap: ask pairs again with A and B exchanged.
        skip_bad: pass over rows that are an error, and list them in `skipped`.
        batch_tokens: computed at once.
        progress: is told how many sequences are done.
        **columns: text, pair and label of tables, column and scheme of tags; see `Columns`.
    """
    task = with_policy(require_task(model), policy, stride)
    skipped: list[InputError] = []
    examples = read_labelled(model, data, skipped.append if skip_bad else None, **columns)
    if skip_bad:
        examples = _readable(model, task, examples, skipped.append)
    kind = metric_kind(task.name, model.config.problem_type)
    if not examples:
        raise InputError("there are no examples to score", fix="check what the data hold")
    for example in examples:  # before the time is spent
        gold_label(kind, example)
    if swap:
        _check_pairs(examples)
    if chinese and kind != "answer":
        raise InputError("CMRC's rules are for answers", fix="leave chinese out")
    if chinese is None:
        chinese = kind == "answer" and is_chinese(example.context for example in examples)
    since = time.perf_counter()
    judged = score_predictions(
        model,
        examples,
        task=task,
        chinese=chinese,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    seconds = time.perf_counter() - since
    return Evaluation(
        kind=kind,
        result=judged,
        labels=model.labels,
        scheme=detect_tag_scheme(model.labels) if kind == "tag" else None,
        chinese=chinese,
        skipped=tuple(skipped),
        seconds=seconds,
        swapped=_swapped(model, task, judged, batch_tokens) if swap else None,
    )


def read_labelled(
    model: Model,
    data: Data,
    on_error: Callable[[InputError], object] | None = None,
    **columns: Unpack[Columns],
) -> list[Any]:
    """The examples of a model's task in the data; they may be examples already."""
    task = require_task(model)
    options: dict[str, Any] = {"on_error": on_error or "raise"}
    taken = {"classify": ("text", "pair", "label"), "tag": ("column", "scheme")}.get(task.name, ())
    for name, value in columns.items():
        if value is not None:
            if name not in taken:
                raise InputError(
                    f"the data of `{task.name}` have no {name} to choose",
                    fix=f"choose {', '.join(taken)}" if taken else "leave it out",
                )
            options[name] = value
    if isinstance(data, list | tuple) and data and isinstance(data[0], tuple(EXAMPLES.values())):
        if not isinstance(data[0], EXAMPLES[task.name]):
            raise InputError(
                f"a model for `{task.name}` cannot be asked about a {type(data[0]).__name__}",
                fix=f"give examples of the kind {EXAMPLES[task.name].__name__}",
            )
        return list(data)
    if task.name == "classify":
        options["number"] = model.config.problem_type == "number"
    return list(
        TASK_FUNCTIONS[task.name].read(list(data) if isinstance(data, tuple) else data, **options)
    )


def _readable(
    model: Model, task: Task, examples: Sequence[Any], report: Callable[[InputError], object]
) -> list[Any]:
    """Those that the model can be asked about and that can be judged; the others are reported."""
    kind = metric_kind(task.name, model.config.problem_type)

    def read(some: Sequence[Any]) -> Sequence[Any]:
        for example in some:
            gold_label(kind, example)
        return TASK_FUNCTIONS[task.name].encode_examples(model, some, task)

    good = []
    for example, outcome in predict_each(read, examples):
        if isinstance(outcome, InputError):
            report(outcome)
        else:
            good.append(example)
    return good


def _check_pairs(examples: Sequence[Example]) -> None:
    single = next((one for one in examples if getattr(one, "pair", None) is None), None)
    if single is not None:
        raise InputError(
            f"{single.origin}: there is no pair to exchange", fix="swap only where all are pairs"
        )


def _swapped(
    model: Model, task: Task, judged: ScoredPredictions, batch_tokens: int | None
) -> SwapResult:
    turned = [replace(one, text=one.pair, pair=one.text) for one in judged.examples]
    told = TASK_FUNCTIONS[task.name].predict(model, turned, task=task, batch_tokens=batch_tokens)
    scored = compute_metrics(model, task, turned, told)
    both = list(zip(judged.predictions, told, strict=True))
    number = model.config.problem_type == "number"
    return SwapResult(
        agreement=None if number else fmean(one.label == other.label for one, other in both),
        difference=fmean(abs(one.score - other.scores[one.label]) for one, other in both),
        scores=scored.scores,
    )
