"""One outer training loop: a job says what is trained and evaluated, `fit` runs it.

    result = fit(TrainingJob(out=folder, state=state, batches=batches, evaluate=evaluate, …))

Around the inner loop (`cloze.train.loop`) it resumes, evaluates, keeps the best model, stops early,
saves the state, writes metrics and reacts to signals. Several processes call it together; only the
first one writes files.
"""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import isinf, isnan, nan
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from cloze.objectives.core import Batch
from cloze.train.budget_check import BudgetAdvice, check_budget
from cloze.train.callbacks import STOPPED, CallbackList, TrainingRun
from cloze.train.consumers import emit_rows, evaluate_steps, save_steps, stop_early, write_metrics
from cloze.train.loggers import TensorBoard
from cloze.train.loop import BatchSource, training_steps
from cloze.train.result import RunResult
from cloze.train.run_files import METRICS_FILE, STATE, FolderWatch, append_metrics
from cloze.train.schedule import Budget, Progress, Schedule
from cloze.train.state import TrainState, resume_training_state, save_training_state
from cloze.train.step import Step
from cloze.train.step_metrics import StepMetrics, make_eval_row

Steps = Iterator[Step]
Evaluate = Callable[[], Mapping[str, float]]
SCORE = "score"  # the key of the selection score in what `evaluate` returns; higher is better
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # they request a stop between two steps


class RunOptions(Protocol):
    """The settings of a recipe's `run` table that concern logging and saving."""

    @property
    def log_every(self) -> int: ...

    @property
    def tensorboard(self) -> bool: ...

    @property
    def save_every(self) -> int | None: ...

    @property
    def save_minutes(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What is trained, on which batches, how it is evaluated, and where the results go.

    `evaluate` returns scores by name. Where `save_model` is given, the scores contain "score",
    the model with the highest one is saved, and where nothing was evaluated the last model is.
    Without `save_model` the job saves the last model itself after `fit`.
    """

    out: Path  # the run's folder
    state: TrainState  # model, objective, optimizer, distributed context
    batches: BatchSource[Any]
    fingerprint: Mapping[str, Any]  # must be equal for a saved state to be resumed
    budget: Budget
    schedule: Schedule
    options: RunOptions
    callbacks: CallbackList
    settings: Mapping[str, Any] = field(default_factory=dict)  # the recipe, for the callbacks
    evaluate: Evaluate | None = None
    eval_every: int = 1  # steps
    save_model: Callable[[], object] | None = None
    patience: int | None = None  # evaluations without a better score before the run ends
    saved_states: int = 1  # how many of the newest states are kept
    on_start: Callable[[], object] = lambda: None  # after resuming, before the first step
    # Step consumers of the job, such as gradual unfreezing or an average of the weights (whose
    # tensors belong into `state.extra`); called with the progress at which this sitting starts.
    wrap_steps: Callable[[Steps, Progress], Steps] = lambda steps, _: steps
    non_padding: float = 1.0  # fraction of the positions in a batch that hold tokens
    unit: str = "tokens"  # what the sizes of batches count: tokens or images
    metric_names: Mapping[str, str] = field(default_factory=dict)  # objective term -> other term
    advice: BudgetAdvice | None = None  # None: any budget is large enough


def fit(job: TrainingJob) -> RunResult:
    """Run a job from the newest state in its folder, or from the beginning, until it ends."""
    state = job.state
    resume_training_state(state, job.out / STATE, job.fingerprint)
    job.on_start()
    best, evaluated = _notes(state)
    start = state.progress.step
    job.out.mkdir(parents=True, exist_ok=True)
    watch = FolderWatch(job.out)
    with (
        stop_on_signals(partial(_announce_stop, job)) as stop,
        _open_callbacks(job, stop) as callbacks,
    ):
        job = replace(job, callbacks=callbacks)
        steps = training_steps(
            state, job.batches, budget=job.budget, schedule=job.schedule, stop=stop
        )
        for _ in _consume(_watch_folder(steps, watch), job, best, evaluated):
            pass  # the consumers do the work
        watch.check()
        stopped = _stop_reason(state, stop)
        if stopped is None and _is_final_due(job, evaluated):
            _evaluate_last(job, best, evaluated)
        elif stopped is None and state.progress.step == start > 0:
            job.callbacks.on_log(f"the run in {job.out} is finished already, at step {start:,}")
        watch.check()
        if job.save_model is not None and not best["step"]:  # nothing to choose by: the last model
            _save_model(job)
    is_chosen = bool(best["step"])
    last_step = state.progress.step
    last_scores = evaluated["scores"] if evaluated["step"] == last_step else {}
    _warn_if_diverged(best["scores"] if is_chosen else last_scores)
    return RunResult(
        folder=job.out,
        score=best["score"] if is_chosen else None,
        scores=best["scores"] if is_chosen else last_scores,
        best_step=best["step"] if is_chosen else last_step,
        steps=last_step,
        tokens=state.progress.tokens,
        seconds=state.progress.seconds,
        stopped=stopped or stop.reason,
    )


@contextmanager
def _open_callbacks(job: TrainingJob, stop: "StopRequest") -> Iterator[CallbackList]:
    """The callbacks of the first process, and TensorBoard if it is set."""
    if not job.state.distributed.is_first:
        yield CallbackList()
        return
    run = TrainingRun(
        job.out,
        job.settings,
        step=job.state.progress.step,
        log_every=job.options.log_every,
        stop=partial(stop.request, STOPPED),
    )
    boards = [TensorBoard()] if job.options.tensorboard else []
    with job.callbacks.training(run, *boards):
        yield job.callbacks


def one_batch_each(batch_of: Callable[[int], Batch]) -> BatchSource[Any]:
    """The data of a job whose steps consist of one batch each, found by the step's index."""
    return lambda first: ([batch_of(index)] for index in count(first))


class DivergedWarning(UserWarning):
    """A run ended with a model that is useless."""


def _warn_if_diverged(scores: Mapping[str, float]) -> None:
    infinite = [name for name, value in scores.items() if isinf(value)]
    if infinite:
        warnings.warn(
            f"the run has diverged: {', '.join(infinite)} on held-out data is inf; train again "
            "with a lower learning rate (--lr), a longer warm-up (--set schedule.warmup=0.1) or "
            "stronger clipping (--set run.clip_norm=0.5)",
            DivergedWarning,
            stacklevel=3,
        )


def _watch_folder(steps: Steps, watch: FolderWatch) -> Steps:
    for step in steps:
        watch.check()  # before anything is written
        yield step


def _notes(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    """The best and the last evaluation so far, which are saved with the state.

    JSON has no NaN and no infinity: they were saved as null.
    """
    best = state.notes.setdefault("best", {"score": None, "step": 0, "scores": {}})
    evaluated = state.notes.setdefault("evaluated", {"step": 0, "scores": {}})
    for note in (best, evaluated):
        note["scores"] = {k: nan if v is None else v for k, v in note["scores"].items()}
    if best["step"] and best["score"] is None:
        best["score"] = nan
    return best, evaluated


def _consume(
    steps: Steps, job: TrainingJob, best: dict[str, Any], evaluated: dict[str, Any]
) -> Steps:
    """Everything that happens between the steps, innermost first.

    What decides when to stop comes before what saves and writes (`cloze.train.consumers`).
    """
    start, options = job.state.progress, job.options
    steps = job.wrap_steps(steps, start)
    if job.advice is not None:
        steps = check_budget(
            steps,
            job.budget,
            start,
            job.advice,
            warn=lambda message: job.callbacks.on_log(f"warning: {message}"),
        )
    if job.evaluate is not None:
        steps = evaluate_steps(steps, job.evaluate, every=job.eval_every)
        steps = _remember_scores(steps, evaluated)
        if job.save_model is not None:
            steps = _save_best(steps, best, partial(_save_model, job))
        if job.patience:
            steps = stop_early(
                steps, job.state.notes, score=SCORE, patience=job.patience, better="higher"
            )
    steps = save_steps(
        steps, partial(_save_state, job), every=options.save_every, minutes=options.save_minutes
    )
    return _report_steps(steps, job, start) if job.state.distributed.is_first else steps


def _save_state(job: TrainingJob) -> None:
    folder = save_training_state(job.state, job.out / STATE, job.fingerprint, keep=job.saved_states)
    if folder is not None:
        job.callbacks.on_save(folder)


def _save_model(job: TrainingJob) -> None:
    assert job.save_model is not None
    job.save_model()
    job.callbacks.on_save(job.out)


def _remember_scores(steps: Steps, evaluated: dict[str, Any]) -> Steps:
    for step in steps:
        if step.scores:
            evaluated.update(step=step.number, scores=dict(step.scores))
        yield step


def _save_best(steps: Steps, best: dict[str, Any], save_model: Callable[[], object]) -> Steps:
    for step in steps:
        if step.scores:
            _keep_if_best(step.number, step.scores, best, save_model)
        yield step


def _keep_if_best(
    step: int, scores: Mapping[str, float], best: dict[str, Any], save_model: Callable[[], object]
) -> None:
    new, old = scores[SCORE], best["score"]
    if old is None or isnan(old) or new > old:
        others = {name: value for name, value in scores.items() if name != SCORE}
        best.update(score=new, step=step, scores=others)
        save_model()


def _is_final_due(job: TrainingJob, evaluated: Mapping[str, Any]) -> bool:
    """Whether the budget is spent and the last model was not evaluated.

    Only afterwards it is known which step of a budget in minutes was the last.
    """
    if job.evaluate is None:
        return False
    progress = job.state.progress
    return job.budget.is_spent(progress) and evaluated["step"] != progress.step


def _evaluate_last(job: TrainingJob, best: dict[str, Any], evaluated: dict[str, Any]) -> None:
    assert job.evaluate is not None
    step, scores = job.state.progress.step, job.evaluate()
    evaluated.update(step=step, scores=dict(scores))
    if job.state.distributed.is_first:
        append_metrics(job.out / METRICS_FILE, make_eval_row(step, scores))
        job.callbacks.on_evaluate(step, scores)
    if job.save_model is not None:
        _keep_if_best(step, scores, best, partial(_save_model, job))
        _save_state(job)


def _report_steps(steps: Steps, job: TrainingJob, start: Progress) -> Steps:
    """Write the steps to metrics.jsonl, and pass them to the callbacks."""
    evaluated = job.state.notes["evaluated"]
    if start.step and evaluated["step"] == start.step:  # it may have been killed before writing it
        append_metrics(job.out / METRICS_FILE, make_eval_row(start.step, evaluated["scores"]))
    # each consumer has a meter of its own: it measures the speed between its rows
    meter = partial(
        StepMetrics,
        job.budget,
        start,
        non_padding=job.non_padding,
        metric_names=job.metric_names,
        unit=job.unit,
    )
    log_every, after = job.options.log_every, start.step
    steps = write_metrics(
        steps, job.out / METRICS_FILE, rows=meter().rows, every=log_every, after=after
    )
    for callback in job.callbacks:
        emit = partial(job.callbacks.report_row, callback)
        steps = emit_rows(steps, emit, rows=meter().rows, every=callback.every or log_every)
    return steps


def exit_status(reason: str) -> int:
    """The exit status of a program that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + signal.Signals[reason]


class StopRequest:
    """Whether a stop was requested, and by which signal; call it to check."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        self.reason = reason


def _announce_stop(job: TrainingJob, reason: str) -> None:
    if job.state.distributed.is_first:
        job.callbacks.on_log(
            f"{reason}: stopping after the current step, and saving the state; a second signal "
            "ends the run at once"
        )


@contextmanager
def stop_on_signals(
    announce: Callable[[str], object] = lambda _: None,
) -> Iterator[StopRequest]:
    """The first signal requests a stop; a second one has its usual effect immediately.

    `announce` is called with the name of the first one, in a thread of its own: the main thread may
    hold any lock when it is interrupted.

    Outside the main thread, where Python receives no signals, only `request` does so.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.request(signal.Signals(number).name)
        _restore_handlers()
        threading.Thread(target=announce, args=(stop.reason,), daemon=True).start()

    def _restore_handlers() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        _restore_handlers()


def _stop_reason(state: TrainState, stop: StopRequest) -> str | None:
    """The signal that ended the run; the processes agree on whether there was one."""
    (is_asked,) = state.distributed.max_over_processes([stop()])
    return (stop.reason or "SIGTERM") if is_asked else None
