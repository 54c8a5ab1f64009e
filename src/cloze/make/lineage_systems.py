"""The systems that `lineage` trains, in the order of their publication."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TASKS = ("classify", "tag")
PRESETS = {  # the presets of GPT and BERT, and the sizes that give the others as many parameters
    "tiny": {"hidden_size": 128, "elmo": "tiny", "vocabulary": 8_000},
    "mini": {"hidden_size": 256, "elmo": "tiny", "vocabulary": 12_000},
    "small": {"hidden_size": 512, "elmo": "small", "vocabulary": 16_000},
    "medium": {"hidden_size": 650, "elmo": "small", "vocabulary": 30_000},
}


@dataclass(frozen=True, kw_only=True)
class System:
    """How one system is trained and transferred."""

    name: str
    idea: str
    recipe: str
    settings: Callable[[str], Mapping[str, Any]] = lambda _: {}  # from the preset
    gpu: Mapping[str, Any] = field(default_factory=dict)  # settings on a GPU
    has_budget: bool = True  # False: it reads the text a fixed number of times
    is_language_model: bool = True
    finetunes: tuple[str, ...] = ()  # the tasks
    finetune_recipe: str = "finetune"
    features: str | None = "last"  # the layers


SYSTEMS = {
    system.name: system
    for system in (
        System(
            name="ngram",
            idea="counts of word sequences, smoothed",
            recipe="ngram",
            has_budget=False,
            features=None,
        ),
        System(
            name="word2vec",
            idea="one vector per word, learned from its neighbours",
            recipe="word2vec",
            settings=lambda size: {"model.hidden_size": PRESETS[size]["hidden_size"]},
            has_budget=False,
            is_language_model=False,
        ),
        System(
            name="lstm",
            idea="a state that carries everything read so far",
            recipe="lstm",
            settings=lambda size: {
                "model.hidden_size": PRESETS[size]["hidden_size"],
                "model.dropout": 0.2,
                "vocabulary.size": PRESETS[size]["vocabulary"],
            },
            gpu={"run.batch_size": 256},
            finetunes=("classify",),
            finetune_recipe="ulmfit",
        ),
        System(
            name="elmo",
            idea="vectors of words in their context, from both directions",
            recipe="elmo",
            settings=lambda size: {
                "model.preset": PRESETS[size]["elmo"],
                "vocabulary.size": PRESETS[size]["vocabulary"],
                "run.batch_size": 32,
            },
            gpu={"run.batch_size": 256, "vocabulary.size": 50_000},
            features="scalar-mix",
        ),
        System(
            name="gpt",
            idea="attention to all earlier tokens; the whole model is fine-tuned",
            recipe="gpt",
            settings=lambda size: {
                "model.preset": size,
                "vocabulary.size": PRESETS[size]["vocabulary"],
            },
            gpu={"run.dtype": "bfloat16", "run.batch_tokens": 65_536, "sampling.max_length": 128},
            finetunes=TASKS,
            features="scalar-mix",
        ),
        System(
            name="bert",
            idea="attention in both directions, by filling masks",
            recipe="laptop",
            settings=lambda size: {
                "model.preset": size,
                "vocabulary.size": PRESETS[size]["vocabulary"],
            },
            gpu={"run.dtype": "bfloat16", "run.batch_tokens": 65_536, "sampling.max_length": 128},
            is_language_model=False,
            finetunes=TASKS,
            features="scalar-mix",
        ),
    )
}
