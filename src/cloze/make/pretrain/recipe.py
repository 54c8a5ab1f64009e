"""A recipe: everything a run on raw text depends on, in one frozen tree that TOML can say.

A recipe comes from a name in `recipes/`, from a file, from flags, or from all three, the last one
having the last word; the run writes the complete file it ran with.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cloze.checkpoint.contents import read_folder
from cloze.config import (
    from_mapping,
    in_range,
    merge,
    override,
    read_toml,
    suggest,
    to_mapping,
)
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.make.pretrain.tables import (
    BatchTable,
    CorpusTable,
    DistillTable,
    MaskingTable,
    ObjectiveTable,
    SamplesTable,
    ShapeTable,
    VocabularyTable,
)
from cloze.make.recipe.run import UNITS, PretrainRun, StartTable
from cloze.models.registry import list_families
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")  # a recipe

DEFAULT = "laptop"  # the recipe when none is named
FAST = "fast"  # and on a GPU
# What a recipe still says of tables that a model to go on from, or a teacher, brings itself.
BROUGHT = {"model": ("init_from",), "vocabulary": ("extra_pieces",)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run: pre-training, or distillation where there is a table about it."""

    model: ShapeTable = field(default_factory=ShapeTable)
    vocabulary: VocabularyTable = field(default_factory=VocabularyTable)
    corpus: CorpusTable = field(default_factory=CorpusTable)
    samples: SamplesTable = field(default_factory=SamplesTable)
    masking: MaskingTable = field(default_factory=MaskingTable)
    objective: ObjectiveTable = field(default_factory=ObjectiveTable)
    batch: BatchTable = field(default_factory=BatchTable)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: PretrainRun = field(default_factory=PretrainRun)
    distill: DistillTable | None = None

    def __post_init__(self) -> None:
        if self._new and self.model.family == "modernbert" and self.samples.pairs != "none":
            raise ConfigError(
                f"samples.pairs is {self.samples.pairs!r}, and a ModernBERT has no segments",
                fix='set samples.pairs to "none" (--pairs none)',
            )
        if self.vocabulary.extra_pieces and self._new:
            raise ConfigError(
                f"vocabulary.extra_pieces is {self.vocabulary.extra_pieces:,}, and there is no "
                "model to go on from",
                fix="name one (--from), or learn a larger vocabulary (--vocabulary-size)",
            )
        self._check_lengths()
        self._check_generator()
        self._check_left_to_right()
        if self.distill is None:
            return
        if self.objective.kind != "mlm":
            raise ConfigError(
                f"objective.kind is {self.objective.kind!r}, and a student learns from its teacher",
                fix="leave the objective table out",
            )
        if self.model.init_from is not None or self.vocabulary != VocabularyTable():
            raise ConfigError(
                "a student has its teacher's shape and vocabulary",
                fix="leave model.start and the vocabulary table out",
            )
        if self.samples.pairs != "none":
            raise ConfigError(
                f"samples.pairs is {self.samples.pairs!r}, and a student learns nothing from pairs",
                fix='set samples.pairs to "none", or begin with the recipe distill',
            )

    def _check_lengths(self) -> None:
        length, places = self.samples.length, self.objective.shared(self.batch.batching()).tokens
        most = self.model.max_positions
        if self._new and length > most:
            raise ConfigError(
                f"samples.length is {length:,}, but model.max_positions is only {most:,}",
                fix=f"use --length {most} or less, or raise model.max_positions",
            )
        if length > places:
            raise ConfigError(
                f"samples.length is {length:,}, and a batch has {places:,} places",
                fix="raise batch.tokens (--batch-tokens), or use a shorter --length",
            )

    def _check_generator(self) -> None:
        if not self._new or not self.objective.detecting:
            return
        shape = self.model.config(vocab_size=1 << 15)
        for name, most in (
            ("generator_layers", shape.num_layers),
            ("generator_width", shape.hidden_size),
        ):
            value = getattr(self.objective, name)
            if value is not None:
                in_range(f"objective.{name}", value, 1, most)

    @property
    def _new(self) -> bool:
        """Whether the model is drawn by this recipe; one to go on from brings its own shape."""
        return self.model.init_from is None and self.distill is None

    def _check_left_to_right(self) -> None:
        if not self.objective.causal:
            return
        if self._new and self.model.family != "bert":
            raise ConfigError(
                f"objective.kind is {self.objective.kind!r}, which model.family "
                f"{self.model.family!r} does not learn",
                fix='set model.family to "bert"',
            )
        if self.samples.pairs != "none":
            raise ConfigError(
                f"samples.pairs is {self.samples.pairs!r}, and left to right no pairs are told",
                fix='set samples.pairs to "none" (--pairs none)',
            )

    @property
    def start(self) -> str | None:
        """The model that the run begins with, or learns from, if it is not a new one."""
        if self.distill is None:
            return self.model.init_from
        if self.distill.teacher is None:
            raise ConfigError(
                "the recipe distils, and names no teacher",
                fix="use cloze distill TEACHER, or set distill.teacher",
            )
        return self.distill.teacher

    def said(self) -> dict[str, Any]:
        """As the run's file says it: nothing of the shape and vocabulary that another model has."""
        values = to_mapping(self)
        if not self._new:
            for table, own in BROUGHT.items():
                values[table] = {name: values[table][name] for name in own if name in values[table]}
        return values

    def trimmed(self) -> "Recipe":
        """The same run, without settings that another model makes void."""
        if self._new:
            return self
        return replace(
            self,
            model=ShapeTable(init_from=self.model.init_from),
            vocabulary=VocabularyTable(extra_pieces=self.vocabulary.extra_pieces),
        )

    def check_processes(self, processes: int) -> None:
        """Refuse steps that several processes cannot share."""
        size = self.objective.shared(self.batch.batching()).per_step
        if size % processes:
            raise ConfigError(
                f"batch.per_step is {size}, and {processes} processes cannot share such a step",
                fix=f"use --accumulate {processes}, or a multiple of it",
            )

    def is_fast(self, device: str, processes: int) -> bool:
        """Whether batches are made on the device and the model is compiled."""
        able = processes == 1 and not self.masking.whole_words and self.distill is None
        if self.run.fast and not able:
            raise ConfigError(
                "run.fast knows no whole words, no teacher and no several processes",
                fix="leave run.fast out",
            )
        fast = self.run.fast
        if fast is None:
            fast = able and device == "cuda" and self.run.dtype == "bf16"
        if self.objective.kind != "mlm" and not fast:
            raise ConfigError(
                f"objective.kind is {self.objective.kind!r}, which needs batches made on the "
                "device: one process, and no whole words",
                fix="train on one GPU in bf16 (--dtype bf16), make them on this device all the "
                'same (--set run.fast=true), or set objective.kind to "mlm"',
            )
        return fast


def recipe(
    source: "Recipe | PathLike" = DEFAULT,
    *,
    flags: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Recipe:
    """The recipe of a name or a file, with flags (a nested mapping) and `a.b=c` settings on top."""
    return completed(Recipe, source, flags, settings)


def completed(
    kind: type[R], source: R | PathLike, flags: Mapping[str, Any] | None, settings: Sequence[str]
) -> R:
    """A recipe of any kind: what it says, then the flags, then the settings.

    A budget that is asked for takes the place of one in another unit.
    """
    if isinstance(source, str | os.PathLike):
        values = read_toml(find_recipe(source))
    else:
        values = to_mapping(source)
    asked = override(flags or {}, settings)
    if any(unit in asked.get("run", {}) for unit in UNITS):
        values["run"] = values.get("run", {}) | dict.fromkeys(UNITS)
    made = from_mapping(kind, merge(values, asked))
    if isinstance(made, Recipe):
        _check_asked(made, asked)
    elif isinstance(model := getattr(made, "model", None), StartTable):
        _check_brought(model.init_from, asked)
    return made


def check_one_model(**shapes: object) -> None:
    """Refuse a recipe that does not describe one of the models that it could."""
    given = sum(shape is not None for shape in shapes.values())
    if given != 1:
        raise ConfigError(
            "the recipe describes " + ("two models" if given else "no model"),
            fix=f"give one table: {' or '.join(shapes)}",
        )


def _check_asked(made: Recipe, asked: Mapping[str, Any]) -> None:
    """Refuse what would change nothing: another model brings its own shape and vocabulary."""
    start = made.model.init_from
    if start is None and made.distill is None:
        return
    whose = "the teacher" if start is None else "the model to go on from"
    for table, own in BROUGHT.items():
        for name, value in asked.get(table, {}).items():
            if name in own or value is None:
                continue
            if name == "family" and start is not None:  # it is a way to name the kind, too
                family = read_folder(start, kind="encoder").family.name
                if value == family:
                    continue
                raise ConfigError(
                    f"model.family is {value!r}, and {whose} is a {family}", fix="leave it out"
                )
            raise ConfigError(
                f"{table}.{name} changes nothing: {whose} has its own",
                fix="leave it out"
                + ("; --extra-pieces adds words of the new text" if table == "vocabulary" else ""),
            )


def _check_brought(start: str | None, asked: Mapping[str, Any]) -> None:
    """The same for language models and translators, whose shapes are tables of their names."""
    for table in ("vocabulary", *list_families()) if start is not None else ():
        for name, value in asked.get(table, {}).items():
            if value is not None:
                raise ConfigError(
                    f"{table}.{name} changes nothing: the model to go on from has its own",
                    fix="leave it out",
                )


def recipes() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    inside = Path(str(files("cloze"))) / "recipes"
    beside = Path(__file__).resolve().parents[4] / "recipes"  # in a checkout
    folder = inside if inside.is_dir() else beside
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def values_of(recipe: "DataclassInstance | PathLike") -> Mapping[str, Any]:
    """All that a recipe, the one of a name, or a file says, as plain values."""
    if isinstance(recipe, str | os.PathLike):
        return read_toml(find_recipe(recipe))
    return to_mapping(recipe)


def find_recipe(source: PathLike) -> Path:
    """The file of a recipe's name, or the file itself."""
    path = Path(source)
    if path.is_file():
        return path
    known = recipes()
    if str(source) in known:
        return known[str(source)]
    raise ConfigError(
        f"there is no recipe {source}",
        fix=f"{suggest(str(source), known)} Or give the path of a TOML file",
    )
