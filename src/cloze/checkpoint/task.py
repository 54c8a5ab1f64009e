"""The task of a fine-tuned model, stored in `cloze.json` next to config.json.

Folders of other libraries have no such file; their task follows from the task head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloze.config import from_mapping, in_range, number, one_of, to_mapping
from cloze.errors import ConfigError, FolderError, MissingSettingError
from cloze.interop.layout import check_version
from cloze.models.configs.encoder import MAX_LABELS, ProblemType
from cloze.text.truncation import TRUNCATIONS

TASK_FILE = "cloze.json"
NSP_LABELS = ("next", "not next")  # labels 0 and 1 of the next-sentence head
FEATURE_HEAD_FILE = "reader.safetensors"  # the name since version 1
FEATURE_HEAD_KINDS = (
    "linear",
    "bilstm",
    "cnn",
)  # the keys of `cloze.nn.feature_heads.FEATURE_HEADS`
FEATURE_WORDS_FILE = "reader_words.json"  # the words of its own embeddings
SNAPSHOTS_FILE = "snapshots.safetensors"  # word vectors during their training
CONTEXTUAL = ("input", "output", "both", "none")  # where contextual vectors enter
MAX_WORDS = 1 << 22  # of own embeddings
MAX_KERNEL_SIZE = 31  # of a cnn
FORMAT_VERSION = 2
# keys in version 1 -> present keys
VERSION_1_KEYS = {"policy": "truncation", "stride": "overlap", "none": "allow_no_answer"}
VERSION_1_FEATURE_KEYS = {"width": "input_size", "hidden": "hidden_size", "depth": "num_layers"}
# of the inputs of a causal model (Radford et al. 2018): how a pair becomes one sequence or two
TRANSFORMATIONS = ("entailment", "similarity", "none")
TASK_HEADS = {"classify": "sequence", "tag": "token", "answer": "span", "choose": "choice"}
TARGET_TASKS = ("translate", "summarize")  # the model writes a target for each source


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """The features of a frozen encoder, and the head trained on them (`reader.safetensors`)."""

    input_size: int  # of the feature vectors; of one layer, if layers are mixed
    layers: str = "last"
    pooling: str = "cls"  # of texts; taggers read the first token of each word
    kind: str = "linear"  # of the head: linear, bilstm or cnn
    hidden_size: int = 0  # of a cnn; of a bilstm, per direction
    num_layers: int = 0  # of a bilstm or a cnn
    kernel_size: int = 0  # of a cnn
    mixed_layers: int = 0  # number of layers of which the head learns a weighted sum; 0: none
    learns_weights: bool = True  # of that sum; otherwise they are equal
    learns_scale: bool = True  # γ of that sum; otherwise it is 1
    dropout: float = 0.0  # of the contextual vectors in training
    contextual: str = "input"  # where these enter a bilstm: input, output, both or none
    vocab_size: int = 0  # of the head's own word embeddings (`reader_words.json`), and one
    embedding_size: int = 0
    reads_words: bool = False  # a bilstm for texts: it reads one vector per word
    compares_pairs: bool = False  # the texts of a pair are read apart: [u; v; |u − v|; u·v]

    def __post_init__(self) -> None:
        one_of("features.kind", self.kind, FEATURE_HEAD_KINDS)
        one_of("features.contextual", self.contextual, CONTEXTUAL)
        number("features.dropout", self.dropout, 0, 1)
        minimum = 0 if self.kind == "linear" else 1
        for name, low, high in (
            ("vocab_size", int(self.embedding_size > 0), MAX_WORDS),
            ("embedding_size", int(self.contextual == "none"), 1 << 15),
            ("input_size", 1, 1 << 20),
            ("hidden_size", minimum, 1 << 15),
            ("num_layers", minimum, 16),
            ("kernel_size", int(self.kind == "cnn"), MAX_KERNEL_SIZE),
            ("mixed_layers", 0, 1 << 10),
        ):
            in_range(f"features.{name}", getattr(self, name), low, high)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The task that a model was fine-tuned for, and how its inputs are prepared."""

    name: str
    truncation: str | None = None  # of texts that are too long; None: see `truncation_strategy`
    overlap: int | None = None  # tokens that neighbouring windows share; None: a quarter
    # entailment (one sequence), similarity (both orders, added); None or none: the tokenizer's own
    transformation: str | None = None
    context: bool = False  # tag: the model also reads the neighbouring sentences of a document
    allow_no_answer: bool = False  # answer: a question may have no answer in its context
    threshold: float = 0.0  # answer: predict "no answer" if its score is higher by more than this
    # classify, with several labels per text: a label is predicted if its probability reaches this
    thresholds: Mapping[str, float] = field(default_factory=dict)
    features: FeatureSettings | None = None
    # of a feature-based model whose configuration has neither, such as word vectors
    labels: tuple[str, ...] = ()
    problem_type: ProblemType | None = None
    # translate, summarize
    separator: str | None = None  # token between source and target, of a decoder-only model
    max_source_length: int | None = None  # tokens that sources are truncated to
    max_target_length: int | None = None  # tokens of a target, at most

    def __post_init__(self) -> None:
        one_of("task", self.name, (*TASK_HEADS, *TARGET_TASKS))
        in_range("the number of labels", len(self.labels), 0, MAX_LABELS)
        for name in ("max_source_length", "max_target_length"):
            if getattr(self, name) is not None:
                in_range(name, getattr(self, name), 1, 1 << 30)
        if not isinstance(self.thresholds, Mapping):
            raise ConfigError("thresholds is not a table", fix="use labels and numbers from 0 to 1")
        for label, threshold in self.thresholds.items():
            number(f"thresholds.{label}", threshold, 0, 1)
        if self.truncation is not None:
            one_of("truncation", self.truncation, TRUNCATIONS)
        if self.transformation is not None:
            one_of("transformation", self.transformation, TRANSFORMATIONS)

    @property
    def is_symmetric(self) -> bool:
        """Whether pairs are read in both orders, and the vectors of both are added."""
        return self.transformation == "similarity"

    @property
    def truncation_strategy(self) -> str:
        """The truncation of the task; by default head, and window for question answering."""
        return self.truncation or ("window" if self.name == "answer" else "head")

    @property
    def head(self) -> str:
        return TASK_HEADS.get(self.name, "lm")


def infer_task(head: str | None) -> Task | None:
    """The task of a folder without `cloze.json`, by its task head."""
    tasks = {head: task for task, head in TASK_HEADS.items()}
    if head not in tasks:
        return None
    return Task(name=tasks[head])


def read_task(values: object) -> Task:
    """The task that the contents of `cloze.json` describe, after checking them."""
    if not isinstance(values, dict):
        raise FolderError(
            f"{TASK_FILE} does not contain a JSON object", fix="download or save the folder again"
        )
    version = check_version(values.get("format_version"), TASK_FILE, FORMAT_VERSION)
    settings = {key: value for key, value in values.items() if key != "format_version"}
    if version == 1:
        settings = _rename_keys(settings, VERSION_1_KEYS)
        if isinstance(features := settings.get("features"), dict):
            settings["features"] = _rename_keys(features, VERSION_1_FEATURE_KEYS)
    try:
        return from_mapping(Task, settings)
    except ConfigError as error:
        fix = f"add it to {TASK_FILE}" if isinstance(error, MissingSettingError) else error.fix
        raise FolderError(f"{TASK_FILE}: {error.problem}", fix=fix) from None


def write_task(task: Task) -> dict[str, Any]:
    """The contents of `cloze.json`."""
    values = to_mapping(task)
    for name in ("thresholds", "labels", "problem_type"):
        if not values.get(name):
            values.pop(name, None)
    return {"format_version": FORMAT_VERSION, **values}


def list_heads(task_heads: tuple[str, ...], task: Task | None) -> tuple[str, ...]:
    """The task heads of a model, and the one whose function a head on features has."""
    return (*task_heads, task.head) if task and task.features else task_heads


def override_truncation(task: Task, truncation: str | None, overlap: int | None) -> Task:
    """The task with another truncation or overlap; None keeps the task's own."""
    return replace(
        task,
        truncation=task.truncation if truncation is None else truncation,
        overlap=task.overlap if overlap is None else overlap,
    )


def _rename_keys(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}
