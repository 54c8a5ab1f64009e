"""One run of contrastive training: batches, objective, evaluation and outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from cloze.checkpoint.model import Model
from cloze.data.batch import Ints
from cloze.data.pair_batch import (
    EncodedTexts,
    PairBatch,
    PairLayout,
    PartOptions,
    RowShape,
    make_parts,
)
from cloze.data.text_pairs import TextPairs, iterate_blocks
from cloze.errors import ConfigError
from cloze.files import write_json
from cloze.interop.sentence_transformers import Pooling
from cloze.make.best_model import fit_best
from cloze.make.extend_model import extend_model
from cloze.make.finetune.embedding_evaluation import (
    INITIAL,
    EmbeddingEvaluation,
    embed_texts,
    find_neighbours,
)
from cloze.make.finetune.epoch_order import EpochOrder
from cloze.make.finetune.hard_negatives import add_negatives, mine_negatives
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.run import run_fingerprint
from cloze.objectives.contrastive import (
    ContrastiveLoss,
    CoSENTLoss,
    CosineLoss,
    MatryoshkaLoss,
    MultipleNegativesLoss,
)
from cloze.objectives.core import Learner
from cloze.objectives.embedding import EmbeddingObjective
from cloze.objectives.masking import Masking
from cloze.report.page import write_report
from cloze.tasks.text_encoding import encode_texts
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import DistributedContext, wrap_distributed
from cloze.train.fit import Steps
from cloze.train.forward_context import run_eagerly
from cloze.train.optim import build_optimizer
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, NEIGHBOURS
from cloze.train.schedule import Progress
from cloze.train.state import TrainState

Context = Callable[[], AbstractContextManager[object]]
PART_TOKENS, GPU_PART_TOKENS = 4096, 32_768
SIMCSE_DROPOUT = 0.1  # of a model that has none: two passes must differ
ENCODED_TEXTS = 8192  # texts that are tokenized together
NEGATIVES = "negatives"  # the mined ones, saved with the training state


@dataclass(frozen=True, kw_only=True)
class PairRun:
    """What a run is made from, read and checked."""

    base: Model
    pairs: TextPairs
    evaluation: EmbeddingEvaluation
    recipe: EmbeddingRecipe
    pooling: str
    distributed: DistributedContext
    is_held_out: bool  # the dev pairs are some of the training pairs
    skipped: int = 0  # rows that cannot be read

    @property
    def loss_name(self) -> str:
        default = "multiple-negatives" if self.pairs.scores is None else "cosent"
        return self.recipe.loss.kind or default

    def describe(self) -> str:
        """The data in one line."""
        pairs, dev = self.pairs, self.evaluation.pairs
        made = " of a text with itself" if pairs.is_simcse else ""
        held_out = " (held out of the training pairs)" if self.is_held_out else ""
        skipped = f", {self.skipped:,} rows skipped" if self.skipped else ""
        return (
            f"{len(pairs):,} training {pairs.kind}{made} of {len(pairs.texts):,} texts, "
            f"{len(dev) if dev else 0:,} dev pairs{held_out}{skipped}; loss {self.loss_name}"
        )


def train_embedding(run: PairRun, out: Path, callbacks: CallbackList) -> RunResult:
    """Train, or resume the state in `out`, which then contains the best model."""
    recipe, distributed, evaluation = run.recipe, run.distributed, run.evaluation
    if distributed.is_first:
        callbacks.on_log(run.describe())
    model, saved = make_models(run)
    batches = PairBatches(run, model)
    state = _make_state(run, model, is_compiled=batches.shape is not None)
    eager = run_eagerly if batches.shape is not None else nullcontext
    evaluate = DevEvaluation(run, saved, state, eager)

    def wrap_steps(steps: Steps, start: Progress) -> Steps:
        if not start.step:
            evaluate.note_initial(callbacks)
        return batches.mine_in_time(steps, state, saved, eager)

    def save_model() -> None:
        if distributed.is_first:
            saved.save_into(out)

    result = fit_best(
        state,
        recipe,
        out=out,
        batches=batches,
        steps_per_epoch=batches.per_epoch,
        fingerprint=_fingerprint(run),
        evaluate=None if evaluation.is_empty else evaluate,
        save_model=save_model,
        callbacks=callbacks,
        faster_steps="shorter texts (--max-length), smaller batches (--batch-size)",
        wrap_steps=wrap_steps,
    )
    metric = None if evaluation.is_empty else evaluation.names[0]
    result = replace(result, task=recipe.task, metric=metric, truncated=batches.num_truncated)
    if distributed.is_first:
        with eager():
            _write_outputs(out, run, result)
        callbacks.on_train_end(result)
    return result


class DevEvaluation:
    """The scores on the dev data, beside the one before the training."""

    def __init__(self, run: PairRun, model: Model, state: TrainState, context: Context) -> None:
        self._evaluation, self._distributed = run.evaluation, run.distributed
        self._model, self._state, self._context = model, state, context

    def __call__(self) -> dict[str, float]:
        names = self._evaluation.names
        found: dict[str, float] = {}
        if self._distributed.is_first:
            with self._context():
                found = self._evaluation.compute_scores(self._model)
        # the scores of the first process, in all of them
        shared = self._distributed.sum_over_processes([found.get(name, 0.0) for name in names])
        scores = dict(zip(names, shared, strict=True))
        initial = self._state.notes.get(INITIAL)
        before = {} if initial is None else {INITIAL + names[0]: initial}
        return {**scores, **before, "score": scores[names[0]]}

    def note_initial(self, callbacks: CallbackList) -> None:
        """Note the score before the training, which is saved with the state."""
        if self._evaluation.is_empty:
            return
        score = self._state.notes[INITIAL] = self()["score"]
        if self._distributed.is_first:
            callbacks.on_log(f"before training: {self._evaluation.names[0]} {score:.4f}")


def make_models(run: PairRun) -> tuple[Model, Model]:
    """The model as it is trained, and as it is saved: without the dropout of this training."""
    base, recipe = run.base, run.recipe
    has_head = recipe.embedding.keep_mlm_head or recipe.loss.mlm_weight > 0
    dropout = recipe.embedding.dropout
    is_simcse = run.pairs.is_simcse or "simcse" in recipe.data.make_pairs
    if dropout is None and is_simcse and not getattr(base.config, "dropout", 0.0):
        dropout = SIMCSE_DROPOUT
    if is_simcse and dropout == 0:
        raise ConfigError(
            "embedding.dropout is 0, but the pairs are a text twice, whose vectors differ by "
            "dropout only",
            fix="leave --dropout out, or use pairs of different texts",
        )
    known = {field.name for field in fields(base.config)}
    changes = {} if dropout is None else {"dropout": dropout, "attention_dropout": dropout}
    model = extend_model(
        base,
        base.tokenizer,
        ("mlm",) if has_head else (),
        rng=torch.Generator().manual_seed(recipe.run.seed),
        **{name: value for name, value in changes.items() if name in known},
    )
    for name, weight in model.module.named_parameters():
        is_mlm = name.startswith("task_heads.mlm.") and recipe.loss.mlm_weight > 0
        weight.requires_grad_(is_mlm or not name.startswith(("task_heads.", "pooler.")))
    length = recipe.embedding.max_length or recipe.data.max_length
    pooling = Pooling(
        modes=(run.pooling,),
        normalize=recipe.embedding.normalize,
        max_seq_length=length or min(base.max_length, base.module.max_positions),
    )
    saved = replace(
        model,
        config=replace(base.config, vocab_size=model.config.vocab_size),
        pooling=pooling,
        task=None,
        feature_head=None,
    )
    return model, saved


def make_loss(run: PairRun) -> ContrastiveLoss:
    """The loss of the recipe, for one or several sizes of vectors."""
    settings = run.recipe.loss
    losses: dict[str, ContrastiveLoss] = {
        "multiple-negatives": MultipleNegativesLoss(settings.scale, settings.symmetric),
        "cosent": CoSENTLoss(settings.scale),
        "cosine": CosineLoss(),
    }
    loss, sizes = losses[run.loss_name], settings.matryoshka_sizes
    return MatryoshkaLoss(loss, tuple(sizes), tuple(sizes.values())) if sizes else loss


def _make_state(run: PairRun, model: Model, *, is_compiled: bool) -> TrainState:
    recipe, device = run.recipe, run.distributed.device
    weight = recipe.loss.mlm_weight
    objective = EmbeddingObjective(
        make_loss(run),
        device,
        pooling=run.pooling,
        masking=Masking.from_tokenizer(model.tokenizer, mlm_probability=recipe.loss.mlm_probability)
        if weight
        else None,
        mlm_weight=weight,
        special_ids=frozenset(model.tokenizer.special_ids),
    )
    module = model.module
    if is_compiled and device.type == "cuda":
        from cloze.train.compiled import compile_encoders

        compile_encoders(module)
    learner = wrap_distributed(Learner(module, objective), run.distributed)
    return TrainState(
        learner=learner,
        model=module,
        optimizer=build_optimizer(module, recipe.optimizer),
        config=recipe.run,
        distributed=run.distributed,
    )


class PairBatches:
    """The parts of the batch of each step: rows in random order, with mined negatives."""

    def __init__(self, run: PairRun, model: Model) -> None:
        recipe, device = run.recipe, run.distributed.device
        self._run, self._model = run, model
        data, pairs = recipe.data, run.pairs
        self._order = EpochOrder(
            len(pairs),
            recipe.run,
            groups=pairs.groups if data.batch_by_kind else None,
            documents=pairs.documents if data.same_document_pairs > 1 else None,
            together=data.same_document_pairs,
        )
        self.per_epoch = self._order.per_epoch
        self._negatives: Ints | None = None
        self._texts, self.num_truncated = encode_pairs(run)
        self.shape = choose_shape(run, model)
        default = GPU_PART_TOKENS if device.type == "cuda" else PART_TOKENS
        self._options = PartOptions(
            tokens=self.shape.tokens if self.shape else recipe.run.part_tokens or default,
            mlm_probability=recipe.loss.mlm_probability if recipe.loss.mlm_weight else 0.0,
            shape=self.shape,
        )

    def __call__(self, first: int) -> Iterator[Sequence[PairBatch]]:
        """The parts of this process, from a step on."""
        return (self.parts(step) for step in count(first))

    def parts(self, step: int) -> list[PairBatch]:
        """The parts of a step."""
        pairs, chosen = self._run.pairs, self._order.indices(step)
        rows = pairs.rows[chosen]
        if self._negatives is not None:
            rows = add_negatives(rows, self._negatives[chosen])
        scores = None if pairs.scores is None else pairs.scores[chosen]
        distributed = self._run.distributed
        return make_parts(
            PairLayout.from_rows(rows, scores),
            self._texts,
            self._options,
            rank=distributed.rank,
            world_size=distributed.world_size,
        )

    def mine_in_time(
        self, steps: Steps, state: TrainState, model: Model, context: Context
    ) -> Steps:
        """Mine hard negatives before the first step, and again after some epochs if it is set.

        They are saved with the training state, because a resumed run has another model.
        """
        table = self._run.recipe.data
        if not table.hard_negatives:
            yield from steps
            return

        def mine() -> None:
            with context():
                found = self._mine(model)
            state.extra[NEGATIVES] = torch.from_numpy(found)
            self._negatives = found

        if NEGATIVES in state.extra:
            self._negatives = state.extra[NEGATIVES].cpu().numpy()
        else:
            mine()
        every = None if table.mine_every is None else table.mine_every * self.per_epoch
        for step in steps:
            if every is not None and step.number % every == 0 and not step.is_last:
                mine()
            yield step

    def _mine(self, model: Model) -> Ints:
        """All processes mine, and find the same."""
        table = self._run.recipe.data
        return mine_negatives(
            self._run.pairs,
            lambda texts: embed_texts(model, texts),
            count=table.hard_negatives,
            margin=table.negative_margin,
        )


def encode_pairs(run: PairRun) -> tuple[EncodedTexts, int]:
    """The token ids of all texts, truncated as the model will truncate them, and how many were."""
    length = run.recipe.data.max_length
    model = run.base
    if length is not None:
        pooling = replace(model.pooling or Pooling(), max_seq_length=length)
        model = replace(model, pooling=pooling)
    texts, truncated = EncodedTexts(), 0
    for block in iterate_blocks(run.pairs.texts, ENCODED_TEXTS):
        found = encode_texts(model, block)
        texts.extend([one.sequences[0] for one in found.values()])
        truncated += sum(one.truncated_chars > 0 for one in found.values())
    return texts, truncated


def choose_shape(run: PairRun, model: Model) -> RowShape | None:
    """The fixed shape of packed rows, if the model is compiled for it."""
    recipe, distributed = run.recipe, run.distributed
    is_gpu = distributed.device.type == "cuda"
    fast = recipe.run.fast
    if fast is None:
        fast = is_gpu and distributed.world_size == 1 and recipe.run.dtype == "bfloat16"
    if not fast or not model.module.supports_varlen:
        return None
    longest = recipe.data.max_length or min(run.base.max_length, model.module.max_positions)
    default = GPU_PART_TOKENS if is_gpu else PART_TOKENS
    return RowShape(max(recipe.run.part_tokens or default, longest), longest)


def _fingerprint(run: PairRun) -> dict[str, Any]:
    """What must be equal for a run to be resumed."""
    sources = ("data.train", "data.dev", "data.retrieval", "model")
    dev = run.evaluation.pairs
    return {
        "recipe": run_fingerprint(run.recipe, *sources),
        "train": run.pairs.fingerprint,
        "dev": None if dev is None else dev.fingerprint,
    }


def _write_outputs(out: Path, run: PairRun, result: RunResult) -> None:
    """The facts about the data, the nearest texts of some dev texts, and the report."""
    dev = run.evaluation.pairs
    facts = {
        "training": len(run.pairs),
        "dev": len(dev) if dev else 0,
        "texts": len(run.pairs.texts),
        "truncated": result.truncated,
        "skipped": run.skipped,
    }
    write_json(out / DATA_FACTS, facts)
    if dev is not None and not result.stopped:
        from cloze.checkpoint.load import load

        write_json(out / NEIGHBOURS, find_neighbours(load(out, quiet=True), dev))
    write_report(out)
