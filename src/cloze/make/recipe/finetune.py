"""The recipe of fine-tuning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from cloze.config import Choices, Config, Flag, Help, Range, one_of, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.data import LabelledData
from cloze.make.recipe.model import ModelSource
from cloze.make.recipe.run import UNITS, SelectingRun
from cloze.make.recipe.transfer import TransferConfig
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

# The grid of the paper (Devlin et al. 2018, appendix A.3), for --search.
SEARCH_LRS, SEARCH_BATCH_SIZES, SEARCH_EPOCHS = (5e-5, 3e-5, 2e-5), (16, 32), (3, 4)
# Its axes, and the settings that fix them.
AXES = {
    "lr": ["optimizer.lr"],
    "batch_size": ["run.batch_size"],
    "epochs": [f"run.{unit}" for unit in UNITS],
}

FEATURE_TASKS = ("classify", "tag")  # that a classifier on features learns
GPT_LM_WEIGHT = 0.5  # λ of Radford et al. 2018, §4.1

# Options of training in steps; a classifier that is solved in one step does not have them.
_TRAINING_SETTINGS = {f"run.{name}" for name in (*UNITS, "batch_size", "patience", "save_every")}

Count = Annotated[int, Range(1, 1 << 30)]


@dataclass(frozen=True, kw_only=True)
class LanguageModelStages(Config):
    """ULMFiT: the language model that a classifier starts from, and how it is prepared."""

    general_text: Annotated[
        tuple[str, ...],
        Help("With --recipe ulmfit and without a model: text to pre-train a language model on"),
        Flag("--general-text", "PATH", only=("classify",)),
    ] = ()
    pretrain_recipe: Annotated[str, Help("Recipe of the pre-training of that model")] = (
        "ulmfit-general"
    )
    pretrain_settings: Annotated[
        tuple[str, ...], Help('Settings of that recipe, such as "run.epochs=20"')
    ] = ()
    unlabelled: Annotated[
        tuple[str, ...],
        Help(
            "With --recipe ulmfit: further text of the task without labels, for fine-tuning the "
            "language model"
        ),
        Flag("--unlabelled", "PATH", only=("classify",)),
    ] = ()
    finetune_recipe: Annotated[
        str,
        Help(
            "Recipe with which a language model is first fine-tuned on the texts of the task "
            "(default: it is not)"
        ),
    ] = ""
    finetune_settings: Annotated[
        tuple[str, ...], Help('Settings of that recipe, such as "run.epochs=5"')
    ] = ()

    @property
    def is_used(self) -> bool:
        """Whether a language model is trained before the classifier."""
        return bool(self.general_text or self.finetune_recipe)


@dataclass(frozen=True, kw_only=True)
class LossConfig(Config):
    """The loss of classes, and the auxiliary loss of a causal model."""

    class_weights: Annotated[
        Literal["none", "balanced"],
        Help("Class weights: none, or balanced by inverse frequency"),
        Flag("--class-weights", "KIND", only=("classify", "tag")),
    ] = "none"
    label_smoothing: Annotated[
        float,
        Range(0, 1),
        Help("Label-smoothing factor"),
        Flag("--label-smoothing", "P", only=("classify", "tag", "choose")),
    ] = 0.0
    lm_weight: Annotated[
        float | None,
        Range(0, 1e6),
        Help(
            "Weight of the language-model loss of a causal model, which is added to the task's "
            f"(default: {GPT_LM_WEIGHT} for the family openai-gpt, else 0)"
        ),
        Flag("--lm-weight", "X"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(SelectingRun):
    """A run that fine-tunes a model."""

    batch_size: Annotated[
        Count, Help("Number of examples in a step"), Flag("--batch-size", "N")
    ] = 32
    seeds: Annotated[
        Count,
        Help(
            "Number of runs with different seeds; the best is kept, mean and standard deviation "
            "are reported"
        ),
        Flag("--seeds", "N"),
    ] = 1
    search: Annotated[
        bool,
        Help(
            "First search the BERT paper's learning rates, batch sizes and epochs on the dev data"
        ),
        Flag("--search"),
    ] = False
    # the axes of the search whose values are given, and which are not searched
    fixed: tuple[Annotated[str, Choices(*AXES)], ...] = ()
    selection_metrics: Annotated[
        tuple[str, ...],
        Help("Metrics whose mean selects the best model (default: the task's own)"),
    ] = ()
    eval_batch_tokens: Annotated[Count, Help("Number of tokens in a batch of evaluations")] = 4096

    @property
    def has_trials(self) -> bool:
        """Whether several runs are trained and the best is kept."""
        return self.search or self.seeds > 1


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe(Config):
    """One fine-tuning run."""

    task: Annotated[Literal["classify", "tag", "answer", "choose"], Help("The task to learn")] = (
        "classify"
    )
    model: ModelSource = field(default_factory=ModelSource)
    data: LabelledData = field(default_factory=LabelledData)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    language_model: LanguageModelStages = field(default_factory=LanguageModelStages)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=5e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.1))
    run: FinetuneRun = field(default_factory=FinetuneRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data.transformation == "similarity" and self.task != "classify":
            raise ConfigError(
                "data.transformation 'similarity' is for pairs that are classified or rated, not "
                f"for the task {self.task}",
                fix="leave --transformation out, or use the task classify",
            )
        self._check_stages()
        if self.transfer.kind == "features":
            self._check_features()

    def _check_stages(self) -> None:
        """Raise an error if texts are given that no language model is trained on."""
        stages = self.language_model
        if stages.unlabelled and not stages.finetune_recipe:
            raise ConfigError(
                "language_model.unlabelled has no effect: no language model is fine-tuned",
                fix="use --recipe ulmfit, or leave --unlabelled out",
            )
        if stages.general_text and self.model.init_from:
            raise ConfigError(
                "language_model.general_text has no effect: a model is given, so none is "
                "pre-trained",
                fix="leave --general-text out, or the model",
            )

    def _check_features(self) -> None:
        """Raise an error if a setting has no effect on a task model on frozen features."""
        for name, value in (
            ("data.transformation", self.data.transformation),
            ("loss.lm_weight", self.loss.lm_weight),
        ):
            if value:
                flag = name.partition(".")[2].replace("_", "-")
                raise ConfigError(
                    f"{name} is {value!r}, which has no effect with transfer.kind 'features'",
                    fix=f"leave --{flag} out, or use --transfer full, last-N or head",
                )
        self.check_task_model()
        if self.task not in FEATURE_TASKS:
            raise ConfigError(
                f"transfer.kind 'features' cannot learn the task {self.task}",
                fix="use --transfer full, last-N or head",
            )
        if self.run.search:
            raise ConfigError(
                "run.search searches learning rates, batch sizes and epochs, which the linear "
                "model of transfer.kind 'features' does not have",
                fix="leave --search out and vary transfer.l2_penalty, or use --transfer full, "
                "last-N or head",
            )

    @property
    def task_model(self) -> str:
        """The kind of the task model on features."""
        return self.transfer.tagger if self.task == "tag" else self.transfer.classifier

    def check_task_model(self) -> None:
        """Raise an error if options of a BiLSTM are given, but the task model is another."""
        table = self.transfer
        if self.task_model == "bilstm":
            return
        for name, default in (
            ("contextual", "input"),
            ("embedding_size", 0),
            ("word_vectors", None),
            ("contextual_dropout", 0.0),
        ):
            if getattr(table, name) != default:
                raise ConfigError(
                    f"transfer.{name} has no effect with a task model of the kind "
                    f"{self.task_model}",
                    fix=f"use --{'tagger' if self.task == 'tag' else 'classifier'} bilstm, or "
                    "leave it out",
                )

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raise an error if an option has no effect; `options` are the paths of those given."""
        if self.transfer.kind != "features" or self.task_model != "linear":
            return
        for name, path in options.items():
            if path.startswith(("optimizer.", "schedule.")) or path in _TRAINING_SETTINGS:
                flag = name.replace("_", "-")
                raise ConfigError(
                    f"{name} has no effect: the linear classifier of transfer.kind 'features' is "
                    "solved in one step",
                    fix=f"leave --{flag} out, or use a network (--classifier cnn or bilstm, "
                    "--tagger bilstm) or --transfer full, last-N or head",
                )

    def check_regression(self) -> None:
        """Raise an error if the labels are numbers and a setting of the loss is for classes.

        The setting would have no effect.
        """
        for name, default in (("class_weights", "none"), ("label_smoothing", 0.0)):
            if getattr(self.loss, name) != default:
                raise ConfigError(
                    f"loss.{name} is for classes, but the labels are numbers",
                    fix=f"leave --{name.replace('_', '-')} out",
                )

    def check_for(self, *, layers: int, positions: int) -> None:
        """Raise an error if a model has too few layers or positions for the settings."""
        if self.data.max_length is not None and self.data.max_length > positions:
            raise ConfigError(
                f"data.max_length is {self.data.max_length:,}, but the model has only "
                f"{positions:,} positions",
                fix=f"use --max-length {positions} or less, or leave it out",
            )
        kind = self.transfer.kind
        if kind.startswith("last-") and int(kind.removeprefix("last-")) > layers:
            raise ConfigError(
                f"transfer.kind is {kind!r}, but the model has only {layers} layers",
                fix=f"use last-{layers} or less, or full",
            )

    def with_run(self, **changes: Any) -> "FinetuneRecipe":  # noqa: ANN401
        """The same with other settings of the run."""
        return replace(self, run=replace(self.run, **changes))

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it."""
        return to_mapping(self)


TASKS = ("classify", "tag", "answer", "choose", "embed", "translate", "summarize")
_TASK_SYNONYMS = {
    **dict.fromkeys(("sentiment", "text-classification", "sequence-classification"), "classify"),
    **dict.fromkeys(("classification", "nli", "regression", "similarity", "sst2"), "classify"),
    **dict.fromkeys(("ner", "pos", "token-classification", "tagging", "conll"), "tag"),
    **dict.fromkeys(("qa", "squad", "question-answering", "answering"), "answer"),
    **dict.fromkeys(("multiple-choice", "swag", "race", "mc"), "choose"),
    **dict.fromkeys(("embedding", "embeddings", "contrastive", "sts", "retrieval"), "embed"),
    **dict.fromkeys(("simcse", "sentence-transformers", "sentence-embeddings"), "embed"),
    **dict.fromkeys(("translation", "mt", "seq2seq"), "translate"),
    **dict.fromkeys(("summarization", "summarisation", "summarise", "summary"), "summarize"),
}


def check_task(task: object, model: object) -> None:
    """Raise unless the task is one; the error knows other names of tasks, and swapped arguments."""
    if task in TASKS:
        return
    problem = f"task has an unknown value: {str(task)[:80]!r}"
    if model in TASKS:
        raise ConfigError(problem, fix=f"give the task first, then the model: {model} {task}")
    if meant := _TASK_SYNONYMS.get(str(task).lower().replace("_", "-")):
        raise ConfigError(problem, fix=f"use {meant}")
    one_of("task", str(task), TASKS)
