"""What pre-training works with, built from its recipe: tokenizer, corpus, model, batches.

Objectives other than masked-language modelling are imported where a recipe has them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.batch import Ints, PackedBatch
from cloze.data.config import SamplingConfig
from cloze.data.corpus import DESCRIPTION, Corpus, CorpusSummary
from cloze.data.device_corpus import CorpusSliceBatch, CorpusSliceBatches, DeviceCorpus
from cloze.data.packing import Epoch, PackedBatches
from cloze.data.prepare import (
    PreparationProgress,
    find_corpus_by_digest,
    find_prepared_corpus,
    prepare_corpus,
)
from cloze.data.samples import Sampling
from cloze.data.sources import Source
from cloze.make.extend_model import extend_model
from cloze.make.pretrain.tokenizer import find_base_tokenizer, prepare_tokenizer
from cloze.make.recipe.pretrain import DistillRecipe, EncoderRecipe, is_fast
from cloze.make.recipe.retro import RetroRecipe
from cloze.make.run_folder import CORPUS, TOKENIZER
from cloze.make.sources import check_can_reread
from cloze.metrics.pretraining import (
    EVALUATION_MLM_PROBABILITY,
    EVALUATION_SEED,
    make_evaluation_epoch,
    make_evaluation_masking,
)
from cloze.models.registry import get_family
from cloze.nn.embeddings import Embeddings
from cloze.nn.fuse import move_to_device
from cloze.nn.positions import compute_sinusoids
from cloze.objectives.config import DistillationConfig
from cloze.objectives.core import Objective
from cloze.objectives.masking import Masking, mask_batch
from cloze.objectives.pretraining import make_device_objective, pretraining_objective
from cloze.plot.format import format_percent
from cloze.text.tokenizer import Tokenizer
from cloze.train.callbacks import CallbackList
from cloze.train.distributed import DistributedContext


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The batches of a phase of a run; most runs have one phase."""

    sampling: SamplingConfig
    batches: PackedBatches
    resident: CorpusSliceBatches | None = None  # where the corpus is on the device
    seed: int = 0  # of samples and masks


@dataclass(frozen=True, kw_only=True)
class PretrainingSetup:
    """Everything of a pre-training run but the training state."""

    recipe: EncoderRecipe
    tokenizer: Tokenizer
    corpus: Corpus
    model: Model
    phases: tuple[Phase, ...]
    masking: Masking | None  # None: nothing is masked
    teacher: Model | None = None  # of a distillation

    can_compile: ClassVar[bool] = True  # all batches have the same shapes

    def describe_data(self) -> dict[str, Any]:
        """What else must be equal for a resumed run to continue exactly."""
        return {}

    @property
    def batches(self) -> PackedBatches:
        """The batches of the first phase."""
        return self.phases[0].batches

    @property
    def is_resident(self) -> bool:
        """Whether the corpus is on the device, where batches are made and masked."""
        return self.phases[0].resident is not None

    def step(
        self, number: int, distributed: DistributedContext, phase: int = 0
    ) -> list[PackedBatch] | list[CorpusSliceBatch]:
        """This process's batches of one step of a phase, masked unless the device masks them."""
        source = self.phases[phase]
        if source.resident is not None:
            numbers = source.batches.batch_numbers(
                number, rank=distributed.rank, world_size=distributed.world_size
            )
            return self._assign_objective(source.resident.make_batches(numbers), numbers)
        return [
            self._mask(batch, self.masking, seed=source.seed)
            for batch in source.batches.step(
                number, rank=distributed.rank, world_size=distributed.world_size
            )
        ]

    def steps_per_epoch(self) -> float:
        """The number of steps in the first epoch."""
        return len(self.batches.epoch(0)) / self.batches.batching.per_step

    def held_out(self, phase: int = 0) -> list[PackedBatch]:
        """The evaluation batches: the same documents, pairs and masks in every run."""
        epoch, count = self._held_out_epoch(self.phases[phase])
        masking = self.masking and make_evaluation_masking(self.masking)
        return [self._mask(epoch[n], masking, seed=EVALUATION_SEED) for n in range(count)]

    def held_out_resident(self, phase: int = 0) -> list[CorpusSliceBatch]:
        """The same documents and pairs, in batches that are built on the device."""
        resident = self.phases[phase].resident
        assert resident is not None
        epoch, count = self._held_out_epoch(self.phases[phase])
        batches = [
            resident.make_batch(
                epoch, n, seed=EVALUATION_SEED + n, mlm_probability=EVALUATION_MLM_PROBABILITY
            )
            for n in range(count)
        ]
        return self._assign_objective(batches)

    def predicted_tokens(self, batches: Sequence[PackedBatch]) -> Ints | None:
        """The tokens that the model predicts in the held-out batches; None if there are none."""
        if self.recipe.objective.is_causal:
            return np.concatenate([np.delete(b.input_ids, b.starts[:-1]) for b in batches])
        if self.masking is None or self.recipe.objective.kind == "detection":
            return None
        return np.concatenate([batch.targets for batch in batches])

    def _held_out_epoch(self, phase: Phase) -> tuple[Epoch, int]:
        sampling = Sampling(**to_mapping(phase.sampling), seed=EVALUATION_SEED)
        # not split as the objective splits training batches, so that runs can be compared
        batching = replace(phase.batches.batching, tokens=self.recipe.run.batch_tokens)
        epoch = make_evaluation_epoch(self.corpus.held_out, self.tokenizer, sampling, batching)
        return epoch, min(len(epoch), self.recipe.run.eval_batches)

    def objective(self, device: torch.device) -> Objective[Any]:
        """The training objective; a teacher is moved to the student's device."""
        table = self.recipe.objective
        if table.is_causal:
            from cloze.objectives.pretraining import causal_lm_objective

            return causal_lm_objective
        if self.teacher is not None:
            return self._distillation(self.teacher, device)
        if not self.is_resident or self.masking is None:
            return pretraining_objective
        if not table.resolved_detection_fraction:
            return make_device_objective(self.masking, device)
        from cloze.objectives.replaced_tokens import make_detection_objective

        correction = table.correction_weight if table.kind == "both" else 0.0
        return make_detection_objective(
            self.masking, device, weight=table.resolved_detection_weight, correction=correction
        )

    def _distillation(self, teacher: Model, device: torch.device) -> Objective[Any]:
        from cloze.objectives.distillation import Distillation, make_device_distillation

        assert self.recipe.distill is not None
        module = move_to_device(teacher.module, device).requires_grad_(False).eval()
        weights = {f.name: getattr(self.recipe.distill, f.name) for f in fields(DistillationConfig)}
        distillation = Distillation(teacher=module, **weights)
        if not self.is_resident or self.masking is None:
            return distillation
        if device.type == "cuda":
            from cloze.train.compiled import compile_encoders

            compile_encoders(module)
        return make_device_distillation(distillation, self.masking, device)

    def trained_module(self) -> nn.Module:
        """The model, with a generator beside it if tokens are replaced; only the model is saved."""
        table = self.recipe.objective
        if not table.resolved_detection_fraction:
            return self.model.module
        from cloze.objectives.detector import build_detector

        return build_detector(
            self.model.module,
            num_layers=table.generator_num_layers,
            hidden_size=table.generator_hidden_size,
            # not the random numbers that the model was initialised with
            rng=torch.Generator().manual_seed(self.recipe.run.seed + 1),
        )

    def _assign_objective(
        self, batches: list[CorpusSliceBatch], numbers: Iterable[int] | None = None
    ) -> list[CorpusSliceBatch]:
        """The batches with the objective of each; without numbers, with every objective."""
        table = self.recipe.objective
        if table.is_causal:
            from cloze.objectives.pretraining import CausalLMBatch

            return [CausalLMBatch.from_batch(batch) for batch in batches]
        if self.teacher is not None:
            from cloze.objectives.distillation import DistillationSliceBatch

            return [DistillationSliceBatch.from_batch(batch) for batch in batches]
        if not table.resolved_detection_fraction:
            return batches
        from cloze.objectives.replaced_tokens import ReplacedTokenBatch, is_detection_batch

        fraction, both = table.resolved_detection_fraction, table.kind == "both"
        if numbers is None:
            return [
                ReplacedTokenBatch.from_batch(batch, has_mlm=both, has_detection=True)
                for batch in batches
            ]
        detects = [is_detection_batch(number, fraction) for number in numbers]
        return [
            ReplacedTokenBatch.from_batch(batch, has_mlm=not detection, has_detection=detection)
            for batch, detection in zip(batches, detects, strict=True)
        ]

    def _mask(self, batch: PackedBatch, masking: Masking | None, *, seed: int) -> PackedBatch:
        if self.teacher is not None:
            from cloze.objectives.distillation import DistillationBatch

            batch = DistillationBatch.from_batch(batch)
        return batch if masking is None else mask_batch(batch, masking, seed=seed)


def open_setup(
    sources: list[Source],
    out: Path,
    recipe: EncoderRecipe,
    *,
    distributed: DistributedContext,
    callbacks: CallbackList,
    corpus_digest: str | None = None,
) -> PretrainingSetup:
    """Train or load the tokenizer, prepare or open the corpus, create or load the model.

    `corpus_digest` is that of the corpus that a resumed run started with: if it is intact, no text
    is read. The first process does the work on the disk while the others wait.
    """
    folder, init_from = recipe.data.folder, recipe.init_from
    base = (
        None
        if init_from is None
        else load(init_from, device="cpu", quiet=not distributed.is_first, kind="encoder")
    )
    corpus_folder = out / CORPUS if folder is None else Path(folder)

    def make() -> None:
        made = _prepare_corpus(
            sources,
            out,
            recipe,
            base,
            corpus_folder=corpus_folder,
            callbacks=callbacks,
            digest=corpus_digest,
        )
        callbacks.on_log(describe_corpus(made.summary))

    distributed.run_on_first(make)
    tokenizer = Tokenizer.load(out / TOKENIZER)
    opened = Corpus.open(corpus_folder)
    model = _build_model(recipe, tokenizer, base)
    has_lm_head = model.module.lm_head is not None
    if not has_lm_head:
        callbacks.on_log("the teacher has no masked-LM head: only hidden states are distilled")
    is_masked = has_lm_head and not recipe.objective.is_causal
    fast = is_fast(recipe, distributed.device.type, distributed.world_size) and has_lm_head
    on_device = None
    if fast:
        callbacks.on_log(f"the corpus is moved to {distributed.device}")
        on_device = DeviceCorpus(
            opened,
            tokenizer,
            distributed.device,
            with_words=recipe.masking.whole_word and is_masked,
        )
    setup = PretrainingSetup(
        recipe=recipe,
        tokenizer=tokenizer,
        corpus=opened,
        model=model,
        phases=tuple(
            _make_phase(recipe, opened, tokenizer, on_device, index)
            for index in range(len(recipe.sampling.phases()))
        ),
        masking=_make_masking(recipe, tokenizer) if is_masked else None,
        teacher=None if recipe.distill is None else base,
    )
    if isinstance(recipe, RetroRecipe):
        from cloze.make.pretrain.retro import add_retrieval

        return add_retrieval(setup, out, distributed, callbacks)
    return setup


def _make_phase(
    recipe: EncoderRecipe,
    corpus: Corpus,
    tokenizer: Tokenizer,
    on_device: DeviceCorpus | None,
    index: int,
) -> Phase:
    sampling, batching = recipe.sampling.phases()[index], recipe.batching
    seed = recipe.run.seed + index
    batches = PackedBatches(
        corpus.train,
        tokenizer,
        Sampling(**to_mapping(sampling), seed=seed),
        batching if on_device is None else replace(batching, window=None),
    )
    resident = None
    if on_device is not None:
        resident = CorpusSliceBatches(
            on_device,
            batches,
            max_seqlen=sampling.max_length,
            mlm_probability=recipe.masking.mlm_probability,
        )
    return Phase(sampling=sampling, batches=batches, resident=resident, seed=seed)


def _make_masking(recipe: EncoderRecipe, tokenizer: Tokenizer) -> Masking:
    settings = recipe.masking
    return Masking.from_tokenizer(
        tokenizer,
        mlm_probability=settings.mlm_probability,
        whole_word=settings.whole_word,
        split=settings.split,
    )


def _prepare_corpus(
    sources: list[Source],
    out: Path,
    recipe: EncoderRecipe,
    base: Model | None,
    *,
    corpus_folder: Path,
    callbacks: CallbackList,
    digest: str | None,
) -> Corpus:
    if digest is not None and (out / TOKENIZER).is_dir():
        found = find_corpus_by_digest(corpus_folder, digest)
        if found is not None:
            callbacks.on_log("the corpus that the run started with is intact: no text is read")
            return found
    check_can_reread(sources)
    if base is None:
        assert not isinstance(recipe, DistillRecipe)
        max_length = recipe.model.new_config.max_positions
    else:
        max_length = base.max_length
    tokenizer = prepare_tokenizer(
        sources,
        out,
        recipe.vocabulary,
        recipe.data,
        base=find_base_tokenizer(base, is_teacher=isinstance(recipe, DistillRecipe)),
        max_length=max_length,
        callbacks=callbacks,
    )
    table = recipe.data
    if (made := find_prepared_corpus(sources, tokenizer, corpus_folder, table)) is not None:
        callbacks.on_log(f"using the prepared corpus in {corpus_folder}")
        return made
    if table.folder is not None and (corpus_folder / DESCRIPTION).exists():
        callbacks.on_log(
            f"{corpus_folder} contains a corpus of another text or vocabulary, which is replaced"
        )
    callbacks.on_log("preparing the corpus")
    return prepare_corpus(
        sources,
        tokenizer,
        corpus_folder,
        table,
        workers=table.workers,
        engine=table.engine,
        address=table.address,
        progress=_corpus_progress(callbacks),
    )


def _corpus_progress(callbacks: CallbackList) -> Callable[[PreparationProgress], None]:
    return lambda done: callbacks.on_progress("documents prepared", done.documents, None)


def describe_corpus(summary: CorpusSummary) -> str:
    """A corpus in one line."""
    return (
        f"{summary.documents:,} documents ({summary.held_out:,} held out), "
        f"{summary.sentences:,} sentences, {summary.tokens:,} tokens, "
        f"{format_percent(summary.unknown_rate, 3)} unknown, "
        f"longest sentence {summary.longest_sentence:,} tokens"
        + (f"; {summary.skipped:,} rows could not be read" if summary.skipped else "")
    )


def _build_model(recipe: EncoderRecipe, tokenizer: Tokenizer, base: Model | None) -> Model:
    if isinstance(recipe, DistillRecipe):
        from cloze.make.distill.student import build_student

        assert base is not None
        return build_student(base, layers=recipe.distill.num_layers, family=recipe.distill.family)
    known = get_family(base.config.family if base else recipe.model.family).module_class.TASK_HEADS
    lm_head = "mlm" if "mlm" in known else "lm"
    heads = (lm_head,) if recipe.sampling.pairs == "none" else (lm_head, "nsp")
    rng = torch.Generator().manual_seed(recipe.run.seed)
    if isinstance(recipe, RetroRecipe) and base is not None and base.config.family != "retro":
        from cloze.make.pretrain.retro import extend_decoder

        return extend_decoder(extend_model(base, tokenizer, heads, rng=rng), recipe, rng=rng)
    if base is not None:
        return extend_model(base, tokenizer, heads, rng=rng)
    config = replace(recipe.model.new_config, vocab_size=tokenizer.vocab_size)
    if tokenizer.pad_id is not None:
        config = replace(config, pad_id=tokenizer.pad_id)
    model = Model.from_config(config, tokenizer, heads, rng=rng)
    if recipe.model.position_init == "sinusoidal":
        _init_sinusoidal_positions(model)
    return model


@torch.no_grad()
def _init_sinusoidal_positions(model: Model) -> None:
    """Initialise the learned positions as sinusoids with the standard deviation of the tokens.

    Departs from the original, where they are random. The offset between neighbours is then the
    same rotation everywhere (Vaswani et al. 2017), so attention to the next token is learned once
    and not for each position. In a short run that decides whether context is learned at all.
    """
    embeddings = model.module.embeddings
    if not isinstance(embeddings, Embeddings):
        return  # rotary positions are rotations anyway
    table = embeddings.position.weight
    waves = compute_sinusoids(*table.shape)
    table.copy_(waves * (model.config.init_std / waves.std()))
