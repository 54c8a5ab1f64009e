"""The first two stages of ULMFiT: a language model, and its fine-tuning on the task's texts.

ELMo can be fine-tuned in the same way before it is a source of features.

Each stage is a run of its own in a folder inside that of the classifier, with a recipe, metrics, a
report and a training state (Howard & Ruder 2018, §3.1 and §3.2):

    general/         the language model of the general text, if no model is given
    language_model/  the language model after it was fine-tuned on the texts of the task
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import to_mapping
from cloze.data.randomness import Purpose, make_generator
from cloze.data.sources import read_rows
from cloze.device import resolve_device
from cloze.errors import ConfigError
from cloze.files import read_json, write_json
from cloze.make.finetune.labelled import Labelled
from cloze.make.language_model import pretrain_language, resume_language
from cloze.make.recipe.complete import complete_pretraining
from cloze.make.recipe.finetune import FinetuneRecipe, LanguageModelStages
from cloze.make.recipe.language_models import LanguageModelRecipe
from cloze.make.sources import name_sources
from cloze.train.callbacks import CallbackList
from cloze.train.result import RunResult
from cloze.train.run_files import FINISHED, RECIPE

FAMILIES = ("lstm", "elmo")  # of the language models
GENERAL, ADAPTED = STAGES = ("general", "language_model")  # folders
# settings of the classifier's run that also apply to its stages
_SHARED = ("seed", "dtype", "device", "log_every", "save_every", "save_minutes", "tensorboard")


def name_texts(stages: LanguageModelStages) -> LanguageModelStages:
    """The stages with the absolute paths of their texts."""
    return replace(
        stages,
        general_text=name_sources(stages.general_text),
        unlabelled=name_sources(stages.unlabelled),
    )


def train_language_model(
    base: Model | None,
    data: Labelled,
    folder: Path,
    recipe: FinetuneRecipe,
    callbacks: CallbackList,
) -> tuple[Model | None, RunResult | None]:
    """Run the stages that are not finished yet.

    Returns the language model, and the result of a stage that was stopped by a signal.
    """
    stages, total = recipe.language_model, 2 + bool(recipe.language_model.finetune_recipe)
    if base is None:
        callbacks.on_log(f"stage 1 of {total}: pre-train a language model on general text")
        stopped = _run_stage(
            list(stages.general_text),
            folder / GENERAL,
            _complete(stages.pretrain_recipe, stages.pretrain_settings, recipe),
            callbacks,
        )
        if stopped is not None:
            return None, stopped
        base = load(folder / GENERAL, device="cpu", quiet=True)
    if not stages.finetune_recipe:
        return base.to(resolve_device(recipe.run.device)), None
    if base.folder is None:  # the stage is resumed from files
        base.save_into(_make_folder(folder / GENERAL))
        base = load(folder / GENERAL, device="cpu", quiet=True)
    callbacks.on_log(
        f"stage {total - 1} of {total}: fine-tune the language model on the texts of the task"
    )
    stopped = _run_stage(
        [collect_texts(data, stages.unlabelled, seed=recipe.run.seed)],
        folder / ADAPTED,
        _complete(stages.finetune_recipe, stages.finetune_settings, recipe, base=base),
        callbacks,
    )
    if stopped is not None:
        return None, stopped
    callbacks.on_log(f"stage {total} of {total}: train the classifier")
    return load(folder / ADAPTED, device=resolve_device(recipe.run.device), quiet=True), None


def check_stages(recipe: FinetuneRecipe, *, has_model: bool) -> None:
    """Raise if the recipe of a stage is wrong, before anything is read or written."""
    stages = recipe.language_model
    if not has_model:
        _complete(stages.pretrain_recipe, stages.pretrain_settings, recipe)
    if stages.finetune_recipe:
        _complete(stages.finetune_recipe, stages.finetune_settings, recipe)


def collect_texts(data: Labelled, unlabelled: Sequence[str], *, seed: int) -> list[str]:
    """The training texts and the unlabelled ones, line by line, in random order.

    A language model holds its last lines out, which should not have one label only.
    """
    texts = [text for one in data.train for text in (one.text, getattr(one, "pair", None)) if text]
    texts += [row.text for row in read_rows(list(unlabelled))] if unlabelled else []
    order = make_generator(seed, 0, Purpose.ORDER).permutation(len(texts))
    return [line for number in order for line in texts[number].splitlines() if line.strip()]


def _complete(
    source: str, settings: Sequence[str], recipe: FinetuneRecipe, base: Model | None = None
) -> LanguageModelRecipe:
    """The recipe of a stage, with the settings of the classifier's run that apply to it."""
    options: dict[str, Any] = {} if base is None else {"init_from": str(base.folder)}
    made = complete_pretraining(source, options=options, settings=list(settings))
    if not isinstance(made, LanguageModelRecipe) or made.model.family not in FAMILIES:
        raise ConfigError(
            f"{source} is not a recipe for a recurrent language model",
            fix="use ulmfit-general, ulmfit-lm, awd-lstm, lstm, elmo, or a file like them",
        )
    shared = {name: getattr(recipe.run, name) for name in _SHARED}
    return replace(made, run=replace(made.run, **shared))


def _run_stage(
    sources: list[Any], out: Path, recipe: LanguageModelRecipe, callbacks: CallbackList
) -> RunResult | None:
    """Start or continue a stage; its result if a signal has stopped it."""
    if (out / FINISHED).is_file():
        scores = read_json(out / FINISHED).get("scores", {})
        callbacks.on_log(f"it is finished already: {_format_scores(scores)}")
        return None
    if (out / RECIPE).is_file():
        result = resume_language(out, recipe, sources=sources, callbacks=callbacks)
    else:
        result = pretrain_language(sources, out, recipe, force=True, callbacks=callbacks)
    if result.stopped:
        return result
    write_json(out / FINISHED, {"scores": dict(result.scores), "recipe": to_mapping(recipe)})
    return None


def _format_scores(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items())


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
