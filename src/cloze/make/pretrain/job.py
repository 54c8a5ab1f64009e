"""`pretrain` of an encoder: text to a model, a new one or, by the recipe, a teacher's student.

The run's folder is the model's folder. Beside the model lie the recipe it ran with, the tokenizer,
the corpus, the training state, the metrics and the report:

    config.json model.safetensors tokenizer.json …      what `cloze.load` and `transformers` open
    recipe.toml tokenizer/ corpus/ state/                what a resumed run goes on from
    metrics.jsonl fills.json report.html                 what people look at
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.model import Model
from cloze.data.batch import PackedBatch
from cloze.data.files import PathLike, absolute
from cloze.data.resident import Stretches
from cloze.data.streams import Source
from cloze.files import read_json, write_json
from cloze.make.course import exact, written
from cloze.make.distill.student import fingerprint
from cloze.make.folder import alone
from cloze.make.pretrain.prepare import begun
from cloze.make.pretrain.probes import Fills, Probe, ask, probes, write_fills
from cloze.make.pretrain.recipe import DEFAULT, Recipe
from cloze.make.pretrain.recipe import recipe as complete
from cloze.make.pretrain.setup import Workshop, open_workshop
from cloze.make.run import (
    CORPUS_FACTS,
    FILLS,
    METRICS,
    STATE,
    Pretrained,
    Watch,
    check_extras,
    named,
    placed,
    recipe_in,
    texts_of,
)
from cloze.metrics.held_out import majority_baseline, unigram_baseline
from cloze.metrics.perplexity import perplexity
from cloze.models.build import build_on_meta
from cloze.objectives.core import Learner
from cloze.report.page import write_report
from cloze.train.compiled import compile_parts
from cloze.train.consumers import evaluating, saving
from cloze.train.evaluate import averages
from cloze.train.loop import run
from cloze.train.memory import recompute
from cloze.train.optim import build_optimizer
from cloze.train.parallel import Team, assemble, distribute, whole
from cloze.train.run_files import append_metrics
from cloze.train.signals import stop_on_signals
from cloze.train.state import TrainState, resume, save
from cloze.train.step import Step
from cloze.train.step_metrics import Meter, eval_row, scores_of

ASKED = 10  # sentences filled before and after


def pretrain_encoder(
    sources: Source | list[Source],
    out: PathLike,
    recipe: Recipe | PathLike = DEFAULT,
    *,
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Pretrained:
    """Train a BERT on text: a new one, or on from the recipe's `model.init_from`.

    Start it with `torchrun` for several processes. SIGTERM and Ctrl-C save and end it; `resume`
    goes on, exactly where the budget is in steps or tokens.

    Args:
        sources: what `cloze.data.streams.rows` reads; if empty, the recipe's `corpus.sources`.
        out: the run's and the model's folder.
        recipe: a `Recipe`, the name of one, or its file.
        settings: such as "run.minutes=30", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    texts, made = asked(sources, recipe, settings)
    folder, made, watch = Path(out), _placed(made), watch or Watch()
    with assemble(made.run.device) as team, ExitStack() as held:
        with begun(texts, folder, made, team, held, force=force) as readable:
            workshop = open_workshop(readable, folder, made, team=team, say=watch.say)
        return _train(workshop, folder, team, watch)


def asked(
    sources: Source | list[Source], recipe: Recipe | PathLike, settings: Sequence[str]
) -> tuple[list[Source], Recipe]:
    """The text to read, and the complete recipe with its name."""
    made = complete(recipe, settings=settings).trimmed()
    check_extras(made.run)
    made.run.check_budget()
    texts = texts_of(sources, made.corpus.sources)
    return texts, replace(made, corpus=replace(made.corpus, sources=named(texts)))


def resume_encoder(
    out: PathLike,
    *,
    sources: Source | list[Source] = (),
    settings: Sequence[str] = (),
    watch: Watch | None = None,
) -> Pretrained:
    """Go on with the run in a folder, by the recipe that lies there.

    Settings may change where it runs and what it shows, not what it computes. No text is read where
    the corpus that the run began with is still there. Where it must be prepared again, the text is
    named again if it has moved, or if the recipe could not name it.
    """
    texts, made = asked(sources, recipe_in(out), settings)
    folder, watch = Path(out), watch or Watch()
    with assemble(made.run.device) as team, ExitStack() as held:
        team.ahead(lambda: held.enter_context(alone(folder)))
        workshop = open_workshop(
            texts, folder, made, team=team, say=watch.say, began=_began(folder)
        )
        return _train(workshop, folder, team, watch)


def _placed(recipe: Recipe) -> Recipe:
    """With whole paths, so that the run can be resumed from any folder."""
    corpus, words, taught = recipe.corpus, recipe.vocabulary, recipe.distill
    if corpus.folder is not None:
        corpus = replace(corpus, folder=absolute(corpus.folder))
    if words.folder is not None:
        words = replace(words, folder=placed(words.folder))
    if taught is not None and taught.teacher is not None:
        taught = replace(taught, teacher=placed(taught.teacher))
    start = None if recipe.model.init_from is None else placed(recipe.model.init_from)
    model = replace(recipe.model, init_from=start)
    return replace(recipe, corpus=corpus, vocabulary=words, distill=taught, model=model)


def _began(out: Path) -> str | None:
    """The digest of the corpus that a run began with, if it came so far."""
    facts = read_json(out / CORPUS_FACTS) if (out / CORPUS_FACTS).is_file() else {}
    digest = facts.get("digest") if isinstance(facts, dict) else None
    return digest if isinstance(digest, str) else None


def _train(workshop: Workshop, out: Path, team: Team, watch: Watch) -> Pretrained:
    recipe, model = workshop.recipe, workshop.model
    asked, fills = _first_fills(workshop)
    with ExitStack() as stack:
        state = stack.enter_context(beginning(workshop, team))
        identity = _identity(recipe, workshop)
        if resume(state, out / STATE, identity):
            workshop.batches.sizes[:] = state.notes["epoch_sizes"]
        if team.first:
            _write_summary(out, workshop)  # of the corpus that whoever resumes goes on with
        budget = recipe.run.budget(lambda: workshop.batches.epoch(0).packing.tokens)
        judge = _judge(state, workshop)
        if workshop.teacher is not None and not state.progress.step:
            _write_scores(out, state, judge())  # of the layers taken over, before they learn
        stop = stack.enter_context(stop_on_signals())
        steps = run(
            state,
            lambda first: _data(workshop, state, first),
            budget=budget,
            schedule=recipe.schedule,
            stop=stop,
        )
        steps = evaluating(steps, judge, every=recipe.run.eval_interval(workshop.steps_per_epoch))
        steps = saving(
            steps,
            lambda: save(state, out / STATE, identity, keep=recipe.run.keep_states),
            every=recipe.run.save_every,
            minutes=recipe.run.save_minutes,
        )
        if team.first:
            share = workshop.batches.epoch(0).packing.real_share
            meter = partial(Meter, budget, share, state.progress, recipe.samples.pairs)
            steps = written(steps, out, recipe.run, meter, after=state.progress.step)
            steps = watch.steps(steps, meter())
        evaluated = _take(steps)
        scores = evaluated or ({} if stop() else judge())  # who wants to be gone is not kept
        trained = _whole_model(model)
    _write_scores(out, state, {} if evaluated else scores)
    if team.first:
        trained.save_into(out)
        if workshop.masking is not None:
            write_fills(out / FILLS, asked, fills | {"after": ask(trained, asked)})
        write_report(out)
    return Pretrained(
        folder=out,
        steps=state.progress.step,
        tokens=state.progress.tokens,
        seconds=state.progress.seconds,
        scores=scores,
        stopped=stop.reason,
    )


def _first_fills(workshop: Workshop) -> tuple[list[Probe], dict[str, Fills]]:
    """Sentences to fill, and what the model, and its teacher, make of them before it learns."""
    if workshop.masking is None:
        return [], {}
    seed = workshop.recipe.run.seed
    asked = probes(workshop.corpus.held_out, workshop.tokenizer, ASKED, seed=seed)
    fills = {"before": ask(workshop.model, asked)}
    if workshop.teacher is not None:
        fills["teacher"] = ask(workshop.teacher, asked)
    return asked, fills


def _write_scores(out: Path, state: TrainState, scores: Mapping[str, float]) -> None:
    if state.team.first and scores:
        append_metrics(out / METRICS, eval_row(state.progress.step, scores))


@contextmanager
def beginning(workshop: Workshop, team: Team) -> Iterator[TrainState]:
    """The state of a run before its first step; inside, the model computes as the recipe says."""
    again = workshop.recipe.run.gradient_checkpointing
    with recompute(workshop.model.module.blocks) if again else nullcontext():
        yield _new_state(workshop, team)


def _new_state(workshop: Workshop, team: Team) -> TrainState:
    recipe, module = workshop.recipe, workshop.learning()
    if workshop.resident is not None and team.device.type == "cuda":
        compile_parts(module)
    learner = distribute(
        Learner(module, workshop.objective(team.device)),
        team,
        way=recipe.run.parallel,
        blocks=workshop.model.module.blocks,
    )
    return TrainState(
        learner=learner,
        model=module,
        optimizer=build_optimizer(module, recipe.optimizer),
        config=recipe.run,
        team=team,
    )


def _data(
    workshop: Workshop, state: TrainState, first: int
) -> Iterator[Sequence[PackedBatch] | Sequence[Stretches]]:
    """The batches of each step from one on; the sizes of epochs are noted for whoever resumes."""
    for number in count(first):
        batches = workshop.step(number, state.team)
        state.notes["epoch_sizes"] = list(workshop.batches.sizes)
        yield batches


def _judge(state: TrainState, workshop: Workshop) -> Callable[[], dict[str, float]]:
    """Scores on the documents held out, beside them those of whoever knows frequencies alone."""
    if not len(workshop.corpus.held_out):
        return dict
    batches = workshop.held_out()
    judged = batches if workshop.resident is None else workshop.held_out_resident()
    baselines = {}
    if (targets := workshop.guessed(batches)) is not None:
        baselines["unigram"] = unigram_baseline(workshop.corpus.train, targets)
    labels = np.concatenate([batch.labels for batch in batches])
    if (commoner := majority_baseline(labels)) is not None:
        baselines["commoner"] = commoner

    def judge() -> dict[str, float]:
        means = averages(state, judged)
        scores = {**means, **baselines}
        for words in means.keys() & {"mlm", "lm"}:
            scores["perplexity"] = perplexity(means[words])
        return scores_of(scores, workshop.recipe.samples.pairs)

    return judge


def _take(steps: Iterable[Step]) -> Mapping[str, float]:
    """Take all the steps; the scores of the last one."""
    scores: Mapping[str, float] = {}
    for step in steps:
        scores = step.scores
    return scores


def _identity(recipe: Recipe, workshop: Workshop) -> dict[str, Any]:
    """What must be the same for a resumed run to go on exactly."""
    described = exact(recipe)
    words = blake2b(workshop.tokenizer.backend.to_str().encode(), digest_size=16).hexdigest()
    same: dict[str, Any] = {
        "recipe": described,
        "corpus": workshop.corpus.digest,
        "tokenizer": words,
    }
    if workshop.resident is not None:
        same["resident"] = True  # other batches and masks than the program would make
    if workshop.teacher is not None:  # may have been moved, but must be the same
        described["distill"].pop("teacher")
        same["teacher"] = fingerprint(workshop.teacher.module)
    return same


def _whole_model(model: Model) -> Model:
    """The model with whole weights on the CPU, wherever and in however many parts they are.

    All processes must call it.
    """
    weights = {
        name: whole(weight).detach().cpu() for name, weight in model.module.state_dict().items()
    }
    parts = {"pooler": model.module.pooler is not None} if model.config.family == "bert" else {}
    module = build_on_meta(model.config, model.heads, **parts)
    module.load_state_dict(weights, assign=True)
    return replace(model, module=module.eval())


def _write_summary(out: Path, workshop: Workshop) -> None:
    summary = workshop.corpus.summary
    digest = workshop.corpus.digest
    values = {**asdict(summary), "unknown_rate": summary.unknown_rate, "digest": digest}
    write_json(out / CORPUS_FACTS, values)
