"""The classes of recipes, and which of them a recipe belongs to."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from cloze.checkpoint.task import TARGET_TASKS
from cloze.make.recipe.embedding import EmbeddingRecipe
from cloze.make.recipe.finetune import FinetuneRecipe
from cloze.make.recipe.images import ClipRecipe, DiffusionRecipe
from cloze.make.recipe.language_models import (
    LanguageModelRecipe,
    NGramRecipe,
    TranslationRecipe,
    Word2VecRecipe,
)
from cloze.make.recipe.model import ModelChoice, detect_family
from cloze.make.recipe.pretrain import DistillRecipe, PretrainRecipe
from cloze.make.recipe.retro import RetroRecipe
from cloze.models.registry import Family, get_family

Recipe: TypeAlias = (
    PretrainRecipe
    | RetroRecipe
    | DistillRecipe
    | LanguageModelRecipe
    | NGramRecipe
    | Word2VecRecipe
    | DiffusionRecipe
    | ClipRecipe
    | FinetuneRecipe
    | EmbeddingRecipe
    | TranslationRecipe
)
Command = Literal["pretrain", "distill", "finetune"]

EMBED = "embed"  # the task of sentence embeddings, and its recipe
PRETRAIN_CLASSES = (
    PretrainRecipe,
    RetroRecipe,
    LanguageModelRecipe,
    NGramRecipe,
    Word2VecRecipe,
    DiffusionRecipe,
    ClipRecipe,
)
FINETUNE_CLASSES = (FinetuneRecipe, EmbeddingRecipe, TranslationRecipe)
CLASSES: dict[Command, tuple[type[Any], ...]] = {
    "pretrain": PRETRAIN_CLASSES,
    "distill": (DistillRecipe,),
    "finetune": FINETUNE_CLASSES,
}
_CLASS_OF_FAMILY: dict[str, type[Any]] = {
    "ngram": NGramRecipe,
    "word2vec": Word2VecRecipe,
    "retro": RetroRecipe,
}
_CLASS_OF_KIND: dict[str, type[Any]] = {
    "encoder": PretrainRecipe,
    "language_model": LanguageModelRecipe,
    "translator": TranslationRecipe,
    "word_vectors": Word2VecRecipe,
    "image_generator": DiffusionRecipe,
    "dual_encoder": ClipRecipe,
}


def get_recipe_class(values: Mapping[str, Any]) -> type[Any]:
    """The class of a recipe, by its contents."""
    if "distill" in values:
        return DistillRecipe
    if values.get("task") in TARGET_TASKS:
        return TranslationRecipe
    if values.get("task") == EMBED:
        return EmbeddingRecipe
    if "task" in values:
        return FinetuneRecipe
    return class_of_family(get_family(read_family(values)))


def class_of_family(family: Family) -> type[Any]:
    """The recipe class of the models of a family."""
    return _CLASS_OF_FAMILY.get(family.name) or _CLASS_OF_KIND[family.kind]


def read_family(values: Mapping[str, Any]) -> str:
    """The family of a recipe: the one it names, or that of the model it continues."""
    model = values.get("model", {})
    named = model.get("family") if isinstance(model, Mapping) else None
    if named is None and isinstance(model, Mapping):
        base = detect_family(model.get("init_from"))
        named = base.name if base else None
    return named or ModelChoice.family


def read_task(values: Mapping[str, Any]) -> str | None:
    """The task of a recipe, if it is one of `finetune`."""
    if (
        "distill" not in values
        and "task" not in values
        and class_of_family(get_family(read_family(values))) is TranslationRecipe
    ):
        return "translate"
    return values.get("task")


def is_for_finetune(values: Mapping[str, Any]) -> bool:
    """Whether a recipe is one of `finetune`."""
    labelled = {"task", "transfer"} & values.keys() or "train" in values.get("data", {})
    sized = "batch_size" in values.get("run", {}) and "family" not in values.get("model", {})
    return bool(labelled or sized or read_task(values))
