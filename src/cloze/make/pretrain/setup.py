"""What a run on raw text works with, made from its recipe: tokenizer, corpus, model, batches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.data.batch import Ints, PackedBatch
from cloze.data.corpus import DESCRIPTION, Corpus, Summary
from cloze.data.packing import Batches, Epoch
from cloze.data.prepare import prepare, prepared, with_digest
from cloze.data.resident import Resident, ResidentBatches, Stretches
from cloze.data.streams import Source
from cloze.make.distill.student import student
from cloze.make.extend_model import grown
from cloze.make.pretrain.recipe import Recipe
from cloze.make.pretrain.tokenizer import TOKENIZER, run_vocabulary
from cloze.make.run import Say, check_named
from cloze.metrics.held_out import (
    EVALUATION_MLM_PROBABILITY,
    EVALUATION_SEED,
    make_evaluation_epoch,
    make_evaluation_masking,
)
from cloze.nn.embeddings import Embeddings
from cloze.nn.fuse import move_to_device
from cloze.nn.positions import sinusoids
from cloze.objectives.core import Objective
from cloze.objectives.detector import detector
from cloze.objectives.distillation import TaughtBatch
from cloze.objectives.left_to_right import NextBatch, left_to_right
from cloze.objectives.masking import Masking, mask_batch
from cloze.objectives.pretraining import pretraining, resident_pretraining
from cloze.objectives.replaced import ReplacedBatch, detects, replaced_tokens
from cloze.plot.numbers import percent
from cloze.text.tokenizer import Tokenizer
from cloze.train.parallel import Team

CORPUS = "corpus"  # its place in a run's folder


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Everything but the weights' movement."""

    recipe: Recipe
    tokenizer: Tokenizer
    corpus: Corpus
    model: Model
    batches: Batches
    masking: Masking | None  # None: the model has no use for masked words
    teacher: Model | None = None  # of a distillation
    resident: ResidentBatches | None = None  # where the text lies on the device

    def step(self, number: int, team: Team) -> list[PackedBatch] | list[Stretches]:
        """This process's batches of one step, masked where they are not masked on the device."""
        if self.resident is not None:
            return self._asked(self.resident.step(number), self.batches.numbers(number))
        return [
            self._ready(batch, self.masking, seed=self.recipe.run.seed)
            for batch in self.batches.step(number, rank=team.rank, world=team.world)
        ]

    def steps_per_epoch(self) -> float:
        """The number of steps in the first epoch."""
        return len(self.batches.epoch(0)) / self.batches.batching.per_step

    def held_out(self) -> list[PackedBatch]:
        """Batches to judge by: the same documents, pairs and masks every time, and in every run."""
        epoch, count = self._judging_epoch()
        hidden = self.masking and make_evaluation_masking(self.masking)
        return [self._ready(epoch[n], hidden, seed=EVALUATION_SEED) for n in range(count)]

    def held_out_resident(self) -> list[Stretches]:
        """The same documents and pairs, as the device makes batches of them."""
        assert self.resident is not None
        epoch, count = self._judging_epoch()
        batches = [
            self.resident.of(epoch, n, seed=EVALUATION_SEED + n, rate=EVALUATION_MLM_PROBABILITY)
            for n in range(count)
        ]
        return self._asked(batches)

    def guessed(self, batches: Sequence[PackedBatch]) -> Ints | None:
        """The tokens that the held-out batches ask for; None where they ask for none."""
        if self.recipe.objective.causal:
            return np.concatenate([np.delete(b.input_ids, b.starts[:-1]) for b in batches])
        if self.masking is None or self.recipe.objective.kind == "detection":
            return None
        return np.concatenate([batch.targets for batch in batches])

    def _judging_epoch(self) -> tuple[Epoch, int]:
        sampling = self.recipe.samples.sampling(EVALUATION_SEED)
        # whatever the objective has cut batches into: runs are compared by these numbers
        batching = replace(self.batches.batching, tokens=self.recipe.batch.tokens)
        epoch = make_evaluation_epoch(self.corpus.held_out, self.tokenizer, sampling, batching)
        return epoch, min(len(epoch), self.recipe.run.eval_batches)

    def objective(self, device: torch.device) -> Objective[Any]:
        """What is learned; a teacher goes to the device where its student learns."""
        table = self.recipe.objective
        if table.causal:
            return left_to_right
        if self.resident is not None and self.masking is not None:
            if not table.detecting:
                return resident_pretraining(self.masking, device)
            correction = table.correction if table.kind == "both" else 0.0
            return replaced_tokens(
                self.masking, device, weight=table.importance, correction=correction
            )
        if self.teacher is None or self.recipe.distill is None:
            return pretraining
        teacher = move_to_device(self.teacher.module, device).requires_grad_(False).eval()
        return self.recipe.distill.objective(teacher)

    def learning(self) -> nn.Module:
        """The model with all that learns beside it and is not kept in its folder."""
        table = self.recipe.objective
        if not table.detecting:
            return self.model.module
        return detector(
            self.model.module,
            layers=table.generator_layers,
            width=table.generator_width,
            # other numbers than the model's own first weights
            rng=torch.Generator().manual_seed(self.recipe.run.seed + 1),
        )

    def _asked(
        self, batches: list[Stretches], numbers: Iterable[int] | None = None
    ) -> list[Stretches]:
        """What the model is to do with each; without numbers all of it, as far as it is taught."""
        table = self.recipe.objective
        if table.causal:
            return [NextBatch.of(batch) for batch in batches]
        if not table.detecting:
            return batches
        share, both = table.detecting, table.kind == "both"
        if numbers is None:
            return [ReplacedBatch.of(batch, fills=both, detects=True) for batch in batches]
        finding = [detects(number, share) for number in numbers]
        return [
            ReplacedBatch.of(batch, fills=not found, detects=found)
            for batch, found in zip(batches, finding, strict=True)
        ]

    def _ready(self, batch: PackedBatch, masking: Masking | None, *, seed: int) -> PackedBatch:
        taught = batch if self.teacher is None else TaughtBatch.of(batch)
        return taught if masking is None else mask_batch(taught, masking, seed=seed)


def open_workshop(
    sources: list[Source],
    out: Path,
    recipe: Recipe,
    *,
    team: Team,
    say: Say,
    began: str | None = None,
) -> Workshop:
    """Learn or open the vocabulary, prepare or open the corpus, make or open the model.

    `began` is the digest of the corpus that a resumed run began with: where that is whole, no text
    is read. The first process does the work on the disk; the others wait, and find it done.
    """
    taught, folder = recipe.distill, recipe.corpus.folder
    base = None if recipe.start is None else load(recipe.start, device="cpu", quiet=not team.first)
    place = out / CORPUS if folder is None else Path(folder)

    def make() -> None:
        made = _corpus(sources, out, recipe, base, place=place, say=say, began=began)
        say.text(described(made.summary))

    team.ahead(make)
    tokenizer = Tokenizer.load(out / TOKENIZER)
    opened = Corpus.open(place)
    model = _model(recipe, tokenizer, base)
    words = "mlm" in model.heads
    if not words:
        say.text("the teacher has no masked-LM head: its vectors alone are learned, nothing masked")
    masked = words and not recipe.objective.causal
    fast = recipe.is_fast(team.device.type, team.world) and words
    batching = recipe.objective.shared(recipe.batch.batching())
    batches = Batches(
        opened.train,
        tokenizer,
        recipe.samples.sampling(recipe.run.seed),
        replace(batching, window=None) if fast else batching,
    )
    resident = None
    if fast:
        say.text(f"the text goes to {team.device}")
        resident = ResidentBatches(
            Resident(opened, tokenizer, team.device),
            batches,
            longest=recipe.samples.length,
            rate=recipe.masking.rate,
        )
    return Workshop(
        recipe=recipe,
        tokenizer=tokenizer,
        corpus=opened,
        model=model,
        batches=batches,
        masking=recipe.masking.masking(tokenizer) if masked else None,
        teacher=None if taught is None else base,
        resident=resident,
    )


def _corpus(
    sources: list[Source],
    out: Path,
    recipe: Recipe,
    base: Model | None,
    *,
    place: Path,
    say: Say,
    began: str | None,
) -> Corpus:
    if began is not None and (out / TOKENIZER).is_dir():
        found = with_digest(place, began)
        if found is not None:
            say.text("the corpus that the run began with is whole: no text is read")
            return found
    check_named(sources)
    tokenizer, table = run_vocabulary(sources, out, recipe, base, say), recipe.corpus
    if (made := prepared(sources, tokenizer, place, table.options())) is not None:
        say.text(f"the corpus is there already: {place}")
        return made
    if table.folder is not None and (place / DESCRIPTION).exists():
        say.text(f"{place} holds a corpus of another text or vocabulary: this one replaces it")
    say.text("preparing the corpus")
    return prepare(
        sources,
        tokenizer,
        place,
        table.options(),
        workers=table.workers,
        progress=say.corpus,
    )


def described(summary: Summary) -> str:
    """A corpus in a line."""
    return (
        f"{summary.documents:,} documents ({summary.held_out:,} held out), "
        f"{summary.sentences:,} sentences, {summary.tokens:,} tokens, "
        f"{percent(summary.unknown_rate, 3)} unknown, "
        f"longest sentence {summary.longest_sentence:,} tokens"
        + (f"; {summary.skipped:,} rows could not be read" if summary.skipped else "")
    )


def _model(recipe: Recipe, tokenizer: Tokenizer, base: Model | None) -> Model:
    if recipe.distill is not None and base is not None:
        return student(base, layers=recipe.distill.layers, family=recipe.distill.family)
    heads = ("mlm",) if recipe.samples.pairs == "none" else ("mlm", "nsp")
    rng = torch.Generator().manual_seed(recipe.run.seed)
    if base is not None:
        return grown(base, tokenizer, heads, rng=rng)
    config = recipe.model.config(tokenizer.size, causal=recipe.objective.causal)
    model = Model.new(config, tokenizer, heads, rng=rng)
    if recipe.model.sines:
        _begin_with_sines(model)
    return model


@torch.no_grad()
def _begin_with_sines(model: Model) -> None:
    """Let the table of positions begin as sine waves, as loud as the words are.

    Departs from the original, where it begins as noise. Every position's neighbour is then one and
    the same rotation away (Vaswani et al. 2017), so that looking at the next word is learned once
    and not for each place. In a short run that decides whether context is learned at all.
    """
    embeddings = model.module.embeddings
    if not isinstance(embeddings, Embeddings):
        return  # rotary positions are such rotations already
    table = embeddings.position.weight
    waves = sinusoids(*table.shape)
    table.copy_(waves * (model.config.init_std / waves.std()))
