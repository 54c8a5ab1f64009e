"""Pre-train an encoder on raw text: a new one, a continued one, or a student of a teacher.

The run's folder is the model's folder. Beside the model it contains the recipe, the tokenizer,
the corpus, the training state, the metrics and the report:

    config.json model.safetensors tokenizer.json …      the model
    recipe.toml tokenizer/ corpus/ state/                what a resumed run needs
    metrics.jsonl fills.json report.html                 how the run went
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.atomic import lock_folder
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.batch import PackedBatch
from cloze.data.device_corpus import CorpusSliceBatch
from cloze.data.sources import Source, Sources
from cloze.files import PathLike, absolute_path, read_json, write_json
from cloze.make.pretrain.prepare import prepare_run
from cloze.make.pretrain.probes import Fills, Probe, fill_probes, sample_probes, write_fills
from cloze.make.pretrain.setup import PretrainingSetup, open_setup
from cloze.make.recipe.pretrain import DistillRecipe, EncoderRecipe
from cloze.make.recipe.retro import RetrievalConfig, RetroRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.make.run_folder import check_extras
from cloze.make.sources import name_sources, resolve_model_name, resolve_sources
from cloze.metrics.perplexity import perplexity
from cloze.metrics.pretraining import majority_baseline, unigram_baseline
from cloze.models.build import build_on_meta, pooler_option
from cloze.nn.fuse import fuse
from cloze.objectives.core import Learner
from cloze.report.page import write_report
from cloze.train.budget_check import BudgetAdvice
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import (
    DistributedContext,
    distributed_context,
    full_tensor,
    wrap_distributed,
)
from cloze.train.fit import Evaluate, TrainingJob, fit
from cloze.train.loop import evaluate_objective
from cloze.train.memory import gradient_checkpointing
from cloze.train.optim import build_optimizer
from cloze.train.result import RunResult
from cloze.train.run_files import CORPUS_FACTS, FILLS, METRICS_FILE, append_metrics
from cloze.train.schedule import Budget
from cloze.train.state import TrainState
from cloze.train.step_metrics import held_out_scores, make_eval_row

NUM_PROBES = 10  # sentences that the model fills before and after training
PHASE2_STEP = "phase2_step"  # the note of the step after which the second phase began
SENTENCE_ORDER_NAMES = {"nsp": "sop", "nsp.accuracy": "sop.accuracy"}  # the head is the same


def pretrain_encoder(
    sources: Sources,
    out: PathLike,
    recipe: EncoderRecipe,
    *,
    force: bool = False,
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Train an encoder on text: a new one, or one that continues the recipe's `model.init_from`.

    Start it with `torchrun` for several processes. SIGTERM and Ctrl-C save the state and end the
    run; `resume` continues it, bit-exactly if the budget is in steps or tokens.

    Args:
        sources: what `cloze.data.sources.read_rows` reads; if empty, the recipe's `data.sources`.
        out: the run's and the model's folder.
        recipe: a complete recipe.
        force: overwrite what is in `out`.
        callbacks: what is called while the run is prepared and trained.
    """
    texts, recipe = add_sources(sources, recipe)
    recipe, callbacks = _with_absolute_paths(recipe), callbacks or CallbackList()
    folder = Path(out)
    with distributed_context(recipe.run.device) as distributed, ExitStack() as lock:
        with prepare_run(texts, folder, recipe, distributed, lock, force=force) as readable:
            setup = open_setup(
                readable, folder, recipe, distributed=distributed, callbacks=callbacks
            )
        return _train(setup, folder, distributed, callbacks)


def resume_encoder(
    out: PathLike,
    recipe: EncoderRecipe,
    *,
    sources: Sources = (),
    callbacks: CallbackList | None = None,
) -> RunResult:
    """Continue the run in a folder with its recipe.

    No text is read if
    the corpus that the run started with is intact. If the corpus must be prepared again, `sources`
    gives the text again where it has moved or the recipe could not name it.
    """
    texts, recipe = add_sources(sources, recipe)
    folder, callbacks = Path(out), callbacks or CallbackList()
    with distributed_context(recipe.run.device) as distributed, ExitStack() as lock:
        distributed.run_on_first(lambda: lock.enter_context(lock_folder(folder)))
        setup = open_setup(
            texts,
            folder,
            recipe,
            distributed=distributed,
            callbacks=callbacks,
            corpus_digest=_read_corpus_digest(folder),
        )
        return _train(setup, folder, distributed, callbacks)


def add_sources(sources: Sources, recipe: EncoderRecipe) -> tuple[list[Source], EncoderRecipe]:
    """The text to read, and the recipe that names it."""
    check_extras(recipe.run)
    recipe.run.check_budget()
    texts = resolve_sources(sources, recipe.data.sources)
    return texts, replace(recipe, data=replace(recipe.data, sources=name_sources(texts)))


def _with_absolute_paths(recipe: EncoderRecipe) -> EncoderRecipe:
    """The recipe with absolute paths, so that the run can be resumed from any working folder."""
    if recipe.data.folder is not None:
        data = replace(recipe.data, folder=absolute_path(recipe.data.folder))
        recipe = replace(recipe, data=data)
    if isinstance(recipe, DistillRecipe):
        teacher = resolve_model_name(recipe.init_from)
        return replace(recipe, distill=replace(recipe.distill, teacher=teacher))
    if isinstance(recipe, RetroRecipe):
        recipe = replace(recipe, retrieval=_with_absolute_folders(recipe.retrieval))
    model, words = recipe.model, recipe.vocabulary
    if model.init_from is not None:
        model = replace(model, init_from=resolve_model_name(model.init_from))
    if words.folder is not None:
        words = replace(words, folder=resolve_model_name(words.folder))
    return replace(recipe, model=model, vocabulary=words)


def _with_absolute_folders(table: RetrievalConfig) -> RetrievalConfig:
    database = table.database and absolute_path(table.database)
    return replace(table, encoder=resolve_model_name(table.encoder), database=database)


def _read_corpus_digest(out: Path) -> str | None:
    """The digest of the corpus that a run started with, if it got that far."""
    facts = read_json(out / CORPUS_FACTS) if (out / CORPUS_FACTS).is_file() else {}
    digest = facts.get("digest") if isinstance(facts, dict) else None
    return digest if isinstance(digest, str) else None


def _train(
    setup: PretrainingSetup, out: Path, distributed: DistributedContext, callbacks: CallbackList
) -> RunResult:
    recipe = setup.recipe
    tokens_per_epoch, non_padding = _measure_epoch(setup)
    probed, fills = _fill_before(setup)
    with training_state(setup, distributed) as state:
        evaluate = _evaluation(state, setup)

        def start() -> None:
            phase = setup.phases[int(PHASE2_STEP in state.notes)]
            phase.batches.epoch_sizes[:] = state.notes.get("epoch_sizes", [])
            if distributed.is_first:
                _write_corpus_facts(out, setup)  # a resumed run may have prepared it again
            if setup.teacher is not None and not state.progress.step and evaluate is not None:
                initial = evaluate()  # of the layers that the student was initialised with
                if distributed.is_first:
                    append_metrics(out / METRICS_FILE, make_eval_row(0, initial))

        budget = recipe.run.budget(lambda: tokens_per_epoch)
        result = fit(
            TrainingJob(
                out=out,
                state=state,
                batches=lambda first: _steps(setup, state, budget, first, callbacks),
                fingerprint=_fingerprint(recipe, setup),
                budget=budget,
                schedule=recipe.schedule,
                options=recipe.run,
                callbacks=callbacks,
                settings=to_mapping(recipe),
                evaluate=evaluate,
                eval_every=recipe.run.eval_interval(setup.steps_per_epoch),
                saved_states=recipe.run.keep_states,
                on_start=start,
                non_padding=non_padding,
                metric_names=_metric_names(recipe),
                advice=BudgetAdvice(
                    faster_steps=f"a smaller model (--preset tiny), --max-length (now "
                    f"{recipe.sampling.max_length:,}) or --batch-tokens",
                    more_steps="more steps, epochs or minutes (--steps, --epochs, --minutes)",
                ),
            )
        )
        trained = _collect_model(setup.model)
    if distributed.is_first:
        trained.save_into(out)
        callbacks.on_save(out)
        if setup.masking is not None:
            write_fills(out / FILLS, probed, fills | {"after": fill_probes(trained, probed)})
        write_report(out)
        callbacks.on_train_end(result)
    return result


def _measure_epoch(setup: PretrainingSetup) -> tuple[int, float]:
    """The tokens of the first epoch, and the fraction of its positions that hold tokens."""
    packing = setup.batches.epoch(0).packing
    return packing.tokens, packing.non_padding_fraction


def _fill_before(setup: PretrainingSetup) -> tuple[list[Probe], dict[str, Fills]]:
    """Sentences with a mask, and how the model, and its teacher, fill them before training."""
    if setup.masking is None:
        return [], {}
    seed = setup.recipe.run.seed
    probed = sample_probes(setup.corpus.held_out, setup.tokenizer, NUM_PROBES, seed=seed)
    fills = {"before": fill_probes(setup.model, probed)}
    if setup.teacher is not None:
        fills["teacher"] = fill_probes(setup.teacher, probed)
    return probed, fills


@contextmanager
def training_state(
    setup: PretrainingSetup, distributed: DistributedContext
) -> Iterator[TrainState]:
    """The state before the first step; gradient checkpointing is active inside if it is set."""
    recipe, blocks = setup.recipe, setup.model.module.blocks
    with gradient_checkpointing(blocks) if recipe.run.gradient_checkpointing else nullcontext():
        module = setup.trained_module()
        is_static = setup.is_resident and setup.model.module.supports_varlen
        is_alone = distributed.world_size == 1
        if is_static and is_alone and distributed.device.type == "cuda":
            from cloze.train.compiled import compile_encoders

            (compile_encoders if setup.can_compile else fuse)(module)
        learner = Learner(module, setup.objective(distributed.device))
        yield TrainState(
            learner=wrap_distributed(
                learner, distributed, strategy=recipe.run.parallel, blocks=blocks
            ),
            model=module,
            optimizer=build_optimizer(module, recipe.optimizer),
            config=recipe.run,
            distributed=distributed,
        )


def _steps(
    setup: PretrainingSetup, state: TrainState, budget: Budget, first: int, callbacks: CallbackList
) -> Iterator[Sequence[PackedBatch] | Sequence[CorpusSliceBatch]]:
    """The batches of each step; what a resumed run needs to find them again is noted.

    These are the sizes of the epochs, and the step after which the second phase began: the first
    one at which the fraction of the first phase was spent.
    """
    for index in count(first):
        is_over = budget.fraction(state.progress) >= setup.recipe.sampling.phase1_fraction
        if len(setup.phases) > 1 and is_over and PHASE2_STEP not in state.notes:
            state.notes[PHASE2_STEP] = index
            length = setup.phases[1].sampling.max_length
            callbacks.on_log(
                f"second phase after step {index:,}: sequences of up to {length:,} tokens"
            )
        phase, begin = (1, state.notes[PHASE2_STEP]) if PHASE2_STEP in state.notes else (0, 0)
        batches = setup.step(index - begin, state.distributed, phase)
        state.notes["epoch_sizes"] = list(setup.phases[phase].batches.epoch_sizes)
        yield batches


def _evaluation(state: TrainState, setup: PretrainingSetup) -> Evaluate | None:
    """Scores on the held-out documents, with the unigram and the majority baseline.

    Each phase is evaluated on samples of its own length: the positions beyond those of the first
    phase are not trained before the second.
    """
    if not len(setup.corpus.held_out):
        return None
    evaluations: dict[int, Evaluate] = {}

    def evaluate() -> Mapping[str, float]:
        is_second = state.progress.step > state.notes.get(PHASE2_STEP, state.progress.step)
        if is_second not in evaluations:
            evaluations[is_second] = _phase_evaluation(state, setup, int(is_second))
        return evaluations[is_second]()

    return evaluate


def _phase_evaluation(state: TrainState, setup: PretrainingSetup, phase: int) -> Evaluate:
    batches = setup.held_out(phase)
    evaluated = setup.held_out_resident(phase) if setup.is_resident else batches
    baselines = {}
    if (targets := setup.predicted_tokens(batches)) is not None:
        baselines["unigram"] = unigram_baseline(setup.corpus.train, targets)
    labels = np.concatenate([batch.labels for batch in batches])
    if (majority := majority_baseline(labels)) is not None:
        baselines["majority"] = majority

    def evaluate() -> dict[str, float]:
        means = evaluate_objective(state, evaluated)
        scores = {**means, **baselines}
        for term in means.keys() & {"mlm", "lm"}:
            scores["perplexity"] = perplexity(means[term])
        return held_out_scores(scores, _metric_names(setup.recipe))

    return evaluate


def _metric_names(recipe: EncoderRecipe) -> dict[str, str]:
    return SENTENCE_ORDER_NAMES if recipe.sampling.pairs == "sop" else {}


def _fingerprint(recipe: EncoderRecipe, setup: PretrainingSetup) -> dict[str, Any]:
    """What must be equal for a resumed run to continue exactly."""
    described = run_fingerprint(recipe)
    tokenizer = setup.tokenizer.backend.to_str().encode()
    found: dict[str, Any] = {
        "recipe": described,
        "corpus": setup.corpus.digest,
        "tokenizer": blake2b(tokenizer, digest_size=16).hexdigest(),
    }
    found |= setup.describe_data()
    if setup.is_resident:
        found["resident"] = True  # batches and masks differ from those made on the CPU
    if setup.teacher is not None:  # its folder may have moved, but its weights must be the same
        from cloze.make.distill.student import weights_digest

        described["distill"].pop("teacher")
        found["teacher"] = weights_digest(setup.teacher.module)
    return found


def _collect_model(model: Model) -> Model:
    """The model with complete weights on the CPU, even if FSDP has distributed them.

    All processes must call it.
    """
    weights = {
        name: full_tensor(weight).detach().cpu()
        for name, weight in model.module.state_dict().items()
    }
    parts = pooler_option(model.config, has_pooler=model.module.pooler is not None)
    module = build_on_meta(model.config, model.task_heads, **parts)
    module.load_state_dict(weights, assign=True)
    return replace(model, module=module.eval())


def _write_corpus_facts(out: Path, setup: PretrainingSetup) -> None:
    summary = setup.corpus.summary
    digest = setup.corpus.digest
    values = {**asdict(summary), "unknown_rate": summary.unknown_rate, "digest": digest}
    write_json(out / CORPUS_FACTS, values)
