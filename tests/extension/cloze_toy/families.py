"""The records that the entry points name; reading them imports no torch."""

from pathlib import Path

from cloze.models.capabilities import encoder_capabilities
from cloze.models.registry import Family

ENCODER = Family(
    name="toy-encoder",
    description="a toy encoder",
    kind="encoder",
    config="cloze_toy.configs:ToyEncoderConfig",
    module="cloze_toy.encoder:ToyEncoder",
    layout="cloze_toy.layout:ENCODER",
    capabilities=encoder_capabilities,
    recipe="bert-tiny",
)

LANGUAGE_MODEL = Family(
    name="toy-lm",
    description="a toy language model",
    kind="language_model",
    config="cloze_toy.configs:ToyLanguageModelConfig",
    module="cloze_toy.language_model:ToyLanguageModel",
    layout="cloze_toy.layout:LANGUAGE_MODEL",
    capabilities=lambda _: {
        "suggest": "the most probable next words",
        "generate": "continuations of a text",
        "score": "the log-probability of a text",
        "evaluate": "perplexity",
        "compare": "several language models in one table",
        "tokenize": "token ids",
    },
    vocabulary="words",
    recipe=str(Path(__file__).with_name("toy-lm.toml")),
    language_model="cloze.decode.neural:LSTMLanguageModel",
)
