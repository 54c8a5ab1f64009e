"""The families of models: one record for each, by the `model_type` of its folders.

Classes and tables are named as "package.module:attribute" and imported when they are needed, so
reading the registry imports no torch. Adding an architecture takes one file in `models/`, its
configuration, one table in `interop/`, and one record here. Other packages can add families through
the entry-point group `cloze.families`, whose entries name `Family` objects.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from cloze.config import suggest
from cloze.errors import ConfigError
from cloze.models.capabilities import (
    LANGUAGE_MODEL,
    Capabilities,
    dual_encoder_capabilities,
    elmo_capabilities,
    encoder_capabilities,
    gpt3_capabilities,
    image_generator_capabilities,
    make_fixed_capabilities,
    own_encoder_capabilities,
    recurrent_encoder_capabilities,
    translator_capabilities,
)

ENTRY_POINTS = "cloze.families"
RECURRENT_PARTS = ("embeddings", "hidden_states", "recurrent")
RECURRENT_LM_PARTS = (*RECURRENT_PARTS, "layer_outputs")
ENCODER_PARTS = ("embeddings", "hidden_states", "blocks", "attention", "ffn", "layer_outputs")
Kind = Literal[
    "encoder", "language_model", "translator", "word_vectors", "image_generator", "dual_encoder"
]


class PluginWarning(UserWarning):
    """The family of another package could not be loaded."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture."""

    name: str  # the `model_type` in config.json, unless the layout writes one of `model_types`
    description: str  # with its article: "an n-gram model"
    kind: Kind
    config: str
    module: str
    layout: str  # a `cloze.interop.layout.Layout`: names of settings and weights in a folder
    capabilities: Capabilities
    # the ids of the model: those of the tokenizer ("tokens"); <unk>, <s>, </s> and the words of the
    # tokenizer (`cloze.models.language.Vocabulary`, "words"); its own, without a tokenizer ("none")
    vocabulary: Literal["tokens", "words", "none"] = "tokens"
    model_types: tuple[str, ...] = ()  # other values of `model_type` that folders have
    parts: tuple[str, ...] = ENCODER_PARTS  # that views show (`cloze.tasks.explain.views.PARTS`)
    recipe: str | None = None  # the recipe that trains it by default
    # the recipe that continues a causal model, if models of the family may be causal or not
    causal_recipe: str | None = None
    language_model: str | None = None  # function from a loaded model to a `LanguageModel`
    # For models that are not torch modules: `open(contents)` returns the module of a folder, and
    # `write(model, folder)` writes it.
    open: str | None = None
    write: str | None = None
    # function from such a module and its folder's contents to a tokenizer that is not stored
    tokenizer: str | None = None
    # Files of other programs: suffix of the file -> function from its path to a `Model`
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def config_class(self) -> Any:  # noqa: ANN401 (a subclass of ModelConfig)
        return resolve(self.config)

    @property
    def module_class(self) -> Any:  # noqa: ANN401 (a torch module, or tables)
        return resolve(self.module)


FAMILIES: dict[str, Family] = {}
"""By name. Use `get_family` or `list_families`, which include the families of plugins."""


def register(family: Family) -> None:
    """Add a family; raise if the name is already in use."""
    if family.name in FAMILIES:
        raise ConfigError(
            f"the family {family.name} already exists", fix="give the new family another name"
        )
    FAMILIES[family.name] = family


def get_family(name: str) -> Family:
    """The family with this name, built-in or from a plugin."""
    found = find_family(name)
    if found is None:
        raise ConfigError(f"the family {name!r} is unknown", fix=suggest(name, list_families()))
    return found


def find_family(name: object) -> Family | None:
    """Like `get_family`, but None if there is none; the name, from a file, may be any value."""
    if not isinstance(name, str):
        return None
    return FAMILIES.get(name) or list_families().get(name) or _find_by_model_type(name)


def _find_by_model_type(name: str) -> Family | None:
    return next((one for one in list_families().values() if name in one.model_types), None)


def list_families() -> dict[str, Family]:
    """All families by name; those of plugins are last."""
    _load_plugins()
    return dict(FAMILIES)


def resolve(name: str) -> Any:  # noqa: ANN401 (whatever it names)
    """The object that "package.module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@cache
def _load_plugins() -> None:
    """Register the families of other packages; one that fails is reported and left out."""
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            found = entry.load()
            if not isinstance(found, Family):
                raise TypeError(f"{entry.value} is a {type(found).__name__}, not a Family")
            register(found)
        except Exception as error:
            warnings.warn(
                f"the model family {entry.name} ({entry.value}) could not be loaded: {error}",
                PluginWarning,
                stacklevel=2,
            )


for _family in (
    Family(
        name="bert",
        description="a BERT",
        kind="encoder",
        config="cloze.models.configs.bert:BertConfig",
        module="cloze.models.bert:Bert",
        layout="cloze.interop.encoders:BERT",
        capabilities=encoder_capabilities,
        recipe="laptop",
        causal_recipe="gpt",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="distilbert",
        description="a DistilBERT",
        kind="encoder",
        config="cloze.models.configs.distilbert:DistilBertConfig",
        module="cloze.models.distilbert:DistilBert",
        layout="cloze.interop.encoders:DISTILBERT",
        capabilities=encoder_capabilities,
        recipe="distill",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="modernbert",
        description="a ModernBERT",
        kind="encoder",
        config="cloze.models.configs.modernbert:ModernBertConfig",
        module="cloze.models.modernbert:ModernBert",
        layout="cloze.interop.encoders:MODERNBERT",
        capabilities=encoder_capabilities,
        recipe="laptop",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="roberta",
        description="a RoBERTa",
        kind="encoder",
        config="cloze.models.configs.roberta:RobertaConfig",
        module="cloze.models.roberta:Roberta",
        layout="cloze.interop.roberta:ROBERTA",
        capabilities=encoder_capabilities,
        recipe="laptop",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="xlm-roberta",
        description="an XLM-R",
        kind="encoder",
        config="cloze.models.configs.roberta:XLMRobertaConfig",
        module="cloze.models.roberta:Roberta",
        layout="cloze.interop.roberta:XLM_ROBERTA",
        capabilities=encoder_capabilities,
        recipe="laptop",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="openai-gpt",
        description="a GPT",
        kind="encoder",
        config="cloze.models.configs.gpt:GPTConfig",
        module="cloze.models.gpt:GPT",
        layout="cloze.interop.gpt:GPT",
        capabilities=encoder_capabilities,
        recipe="gpt",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="gpt2",
        description="a GPT-2",
        kind="encoder",
        config="cloze.models.configs.gpt:GPT2Config",
        module="cloze.models.gpt:GPT2",
        layout="cloze.interop.gpt:GPT2",
        capabilities=encoder_capabilities,
        recipe="gpt",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="gpt3",
        description="a GPT-3",
        kind="encoder",
        config="cloze.models.configs.gpt:GPT3Config",
        module="cloze.models.gpt:GPT2",
        layout="cloze.interop.gpt:GPT3",
        capabilities=gpt3_capabilities,
        recipe="gpt",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="clip-text",
        description="a text encoder of CLIP",
        kind="encoder",
        config="cloze.models.configs.clip_text:ClipTextConfig",
        module="cloze.models.gpt:GPT2",
        layout="cloze.interop.clip:CLIP_TEXT",
        capabilities=encoder_capabilities,
        model_types=("clip_text_model",),
        recipe="gpt",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="music-transformer",
        description="a Music Transformer",
        kind="encoder",
        config="cloze.models.configs.music_transformer:MusicTransformerConfig",
        module="cloze.models.music_transformer:MusicTransformer",
        layout="cloze.interop.own:MUSIC_TRANSFORMER",
        capabilities=own_encoder_capabilities,
        recipe="music",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="retro",
        description="a RETRO",
        kind="encoder",
        config="cloze.models.configs.retro:RetroConfig",
        module="cloze.models.retro:Retro",
        layout="cloze.interop.own:RETRO",
        capabilities=own_encoder_capabilities,
        recipe="retro",
        language_model="cloze.decode.retro:make_retro_decoder",
    ),
    Family(
        name="ngram",
        description="an n-gram model",
        kind="language_model",
        config="cloze.models.configs.ngram:NGramConfig",
        parts=("ngrams",),
        module="cloze.models.ngram:NGram",
        layout="cloze.interop.own:NGRAM",
        capabilities=make_fixed_capabilities(**LANGUAGE_MODEL, export="an ARPA file"),
        vocabulary="words",
        recipe="ngram",
        language_model="cloze.decode.language:NGramLanguageModel",
        open="cloze.checkpoint.ngram:open_ngram",
        write="cloze.checkpoint.ngram:write_ngram",
        files={".arpa": "cloze.checkpoint.ngram:load_arpa"},
    ),
    Family(
        name="nnlm",
        description="an NNLM",
        kind="language_model",
        config="cloze.models.configs.nnlm:NNLMConfig",
        parts=("embeddings",),
        module="cloze.models.nnlm:NNLM",
        layout="cloze.interop.own:NNLM",
        capabilities=make_fixed_capabilities(**LANGUAGE_MODEL),
        vocabulary="words",
        recipe="nnlm",
        language_model="cloze.decode.neural:NNLMLanguageModel",
    ),
    Family(
        name="lstm",
        description="a recurrent language model",
        kind="language_model",
        config="cloze.models.configs.lstm:LSTMConfig",
        parts=RECURRENT_LM_PARTS,
        module="cloze.models.lstm:LSTM",
        layout="cloze.interop.own:LSTM",
        capabilities=make_fixed_capabilities(
            **LANGUAGE_MODEL, embed="embeddings of texts or tokens"
        ),
        vocabulary="words",
        recipe="lstm",
        language_model="cloze.decode.neural:LSTMLanguageModel",
    ),
    Family(
        name="elmo",
        description="an ELMo",
        kind="language_model",
        config="cloze.models.configs.elmo:ElmoConfig",
        parts=RECURRENT_LM_PARTS,
        module="cloze.models.elmo:Elmo",
        layout="cloze.interop.own:ELMO",
        capabilities=elmo_capabilities,
        vocabulary="words",
        recipe="elmo",
        language_model="cloze.decode.elmo:ElmoLanguageModel",
        files={".hdf5": "cloze.checkpoint.elmo:load_published"},
    ),
    Family(
        name="ulmfit",
        description="a recurrent encoder",
        kind="encoder",
        config="cloze.models.configs.ulmfit:ULMFiTConfig",
        parts=RECURRENT_LM_PARTS,
        module="cloze.models.ulmfit:ULMFiT",
        layout="cloze.interop.own:ULMFIT",
        capabilities=recurrent_encoder_capabilities,
    ),
    Family(
        name="word2vec",
        description="word vectors",
        kind="word_vectors",
        config="cloze.models.configs.word2vec:Word2VecConfig",
        parts=("word_vectors",),
        module="cloze.models.word2vec:WordVectors",
        layout="cloze.interop.own:WORD2VEC",
        capabilities=make_fixed_capabilities(
            similar="nearest words, analogies, the odd one out",
            embed="the mean vector of the words of a text, or the vectors of the words",
            evaluate="accuracy on analogies, correlation with human similarity ratings",
            compare="several sets of word vectors in one table",
            export="word2vec's text and binary files",
        ),
        vocabulary="none",
        recipe="word2vec",
        open="cloze.checkpoint.word2vec:open_vectors",
        write="cloze.checkpoint.word2vec:write_vectors",
        tokenizer="cloze.checkpoint.word2vec:open_tokenizer",
        files=dict.fromkeys((".txt", ".vec", ".bin"), "cloze.checkpoint.word2vec:import_vectors"),
    ),
    Family(
        name="transformer",
        description="a translator",
        kind="translator",
        config="cloze.models.configs.transformer:TransformerConfig",
        parts=(*ENCODER_PARTS, "cross_attention"),
        module="cloze.models.transformer:Transformer",
        layout="cloze.interop.own:TRANSFORMER",
        capabilities=translator_capabilities,
        recipe="transformer",
    ),
    Family(
        name="seq2seq",
        description="a translator",
        kind="translator",
        config="cloze.models.configs.seq2seq:Seq2SeqConfig",
        parts=(*RECURRENT_PARTS, "alignment"),
        module="cloze.models.seq2seq:Seq2Seq",
        layout="cloze.interop.own:SEQ2SEQ",
        capabilities=translator_capabilities,
        recipe="seq2seq",
    ),
    Family(
        name="diffusion",
        description="a diffusion model of images",
        kind="image_generator",
        config="cloze.models.configs.diffusion:DiffusionConfig",
        parts=(),
        module="cloze.models.diffusion:Diffusion",
        layout="cloze.interop.own:DIFFUSION",
        capabilities=image_generator_capabilities,
        recipe="diffusion",
    ),
    Family(
        name="clip",
        description="a CLIP",
        kind="dual_encoder",
        config="cloze.models.configs.clip:ClipConfig",
        parts=(),
        module="cloze.models.clip:Clip",
        layout="cloze.interop.clip:CLIP",
        capabilities=dual_encoder_capabilities,
        model_types=("cloze-clip", "vision-text-dual-encoder"),
        recipe="clip",
    ),
):
    register(_family)
