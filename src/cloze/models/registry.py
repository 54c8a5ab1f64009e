"""The families of models: one record for each, by the `model_type` of its folders.

Classes and tables are named as "package.module:attribute" and imported when they are needed, so
reading the registry imports no torch. Adding an architecture takes one file in `models/`, its
configuration, one table in `interop/`, and one record here. Other packages can add families through
the entry-point group `cloze.families`, whose entries name `Family` objects.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from cloze.config import suggest
from cloze.errors import ConfigError

ENTRY_POINTS = "cloze.families"
Kind = Literal["encoder", "language_model", "translator", "word_vectors"]


class PluginWarning(UserWarning):
    """The family of another package could not be loaded."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a folder that decide which functions the model supports."""

    task_heads: tuple[str, ...] = ()
    is_causal: bool = False
    task: str | None = None  # that it was fine-tuned for


Capabilities = Callable[[Contents], Mapping[str, str]]
"""The functions that a folder supports, each with a phrase that says what it returns."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture."""

    name: str  # the `model_type` in config.json
    description: str  # with its article: "an n-gram model"
    kind: Kind
    config: str
    module: str
    layout: str  # a `cloze.interop.layout.Layout`: names of settings and weights in a folder
    capabilities: Capabilities
    # the ids of the model: those of the tokenizer ("tokens"); <unk>, <s>, </s> and the words of the
    # tokenizer (`cloze.models.language.Vocabulary`, "words"); its own, without a tokenizer ("none")
    vocabulary: Literal["tokens", "words", "none"] = "tokens"
    recipe: str | None = None  # the recipe that trains it by default
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


_TEXT = {"tokenize": "token ids and character offsets"}
_NEXT_TOKENS = {
    "suggest": "the most probable next words",
    "generate": "continuations of a text",
    "score": "the log-probability of a text",
}
_TARGETS = {  # tasks whose model writes a target: what it returns, and its scores
    "translate": ("translations of sentences", "BLEU, overall and by length"),
    "summarize": ("summaries of texts", "ROUGE, beside that of the first three sentences"),
}
_HEADS = {
    "mlm": {"fill": "words for [MASK]", "score": "the pseudo-log-likelihood of a text"},
    "lm": _NEXT_TOKENS,
    "nsp": {"classify": "whether the second text of a pair follows the first"},
    "sequence": {"classify": "the label of a text or a pair of texts"},
    "token": {"tag": "the tags of words, and labelled spans"},
    "span": {"answer": "the span of a context that answers a question"},
    "choice": {"choose": "the option that fits a text best"},
}


def encoder_capabilities(contents: Contents) -> dict[str, str]:
    """The functions of an encoder: those of its task heads, and those of every encoder."""
    found: dict[str, str] = {}
    for head in contents.task_heads:
        found |= _HEADS.get(head, {})
    if contents.is_causal and found.pop("fill", ""):
        found |= _NEXT_TOKENS
    if contents.is_causal and contents.task in _TARGETS:
        found = {contents.task: _TARGETS[contents.task][0], **found}
    return {
        **found,
        "embed": "embeddings of texts or tokens",
        "evaluate": _describe_encoder_scores(contents),
        "compare": "several encoders in one table",
        "export": "a folder in the Hugging Face layout",
        **_TEXT,
    }


def _own_encoder_capabilities(contents: Contents) -> dict[str, str]:
    """Those of an encoder that transformers has no class for."""
    found = encoder_capabilities(contents)
    del found["export"]
    return found


def _describe_encoder_scores(contents: Contents) -> str:
    if contents.task in _TARGETS:
        return _TARGETS[contents.task][1]
    if set(contents.task_heads) - {"mlm", "lm", "nsp"}:
        return "the metrics of its task on labelled data"
    if not {"mlm", "lm"} & set(contents.task_heads):
        return "correlation of text similarities with ratings"
    if contents.is_causal:
        return "perplexity, bits per byte and per character"
    return f"MLM {'and NSP ' if 'nsp' in contents.task_heads else ''}accuracy on text"


def recurrent_encoder_capabilities(contents: Contents) -> dict[str, str]:
    """The functions of a recurrent encoder: as those of others, but no other library reads it."""
    heads = tuple(head for head in contents.task_heads if head in ("sequence", "token"))
    found = encoder_capabilities(Contents(task_heads=heads))
    del found["export"]
    return found


def _make_fixed_capabilities(**functions: str) -> Capabilities:
    """The functions of a family, and that of a feature head, which a folder may have."""
    return lambda contents: {**_list_head_functions(contents), **functions}


def _list_head_functions(contents: Contents) -> dict[str, str]:
    return {name: what for head in contents.task_heads for name, what in _HEADS[head].items()}


_LANGUAGE_MODEL = {
    **_NEXT_TOKENS,
    "evaluate": "perplexity, bits per byte and per character",
    "compare": "several language models in one table",
    **_TEXT,
}


def _elmo_capabilities(contents: Contents) -> dict[str, str]:
    """The functions of an ELMo: published models have no output layer, so they predict no words."""
    found: dict[str, str] = {}
    for head in contents.task_heads:
        found |= _LANGUAGE_MODEL if head == "lm" else _HEADS.get(head, {})
    if set(contents.task_heads) - {"lm"}:
        found |= {
            "evaluate": _describe_encoder_scores(contents),
            "compare": "several models in one table",
        }
    elif "lm" in contents.task_heads:
        found["evaluate"] = "perplexity of both directions and bits per byte"
    else:
        found = {
            "evaluate": _describe_encoder_scores(contents),
            "compare": "several models in one table",
        }
    return {
        **found,
        "embed": "embeddings of texts or words",
        "export": "options.json and weights.hdf5, as AllenNLP reads them",
        **_TEXT,
    }


def _translator(contents: Contents) -> dict[str, str]:
    """The functions of an encoder–decoder: it translates, unless it was trained to summarize."""
    task = contents.task if contents.task in _TARGETS else "translate"
    returned, scores = _TARGETS[task]
    models = "translators" if task == "translate" else "models"
    return {
        **_list_head_functions(contents),
        task: returned,
        "embed": "contextual vectors of the encoder (CoVe)",
        "evaluate": scores,
        "compare": f"several {models} in one table",
        **_TEXT,
    }


_FINETUNED = "a model that `cloze finetune {0}` has trained"
_NEEDED = {
    "fill": "a masked language model, such as cloze-en",
    **dict.fromkeys(
        ("embed", "finetune", "finetune --transfer features"), "an encoder, such as cloze-en"
    ),
    "score": "a masked language model, such as cloze-en, or a language model",
    "translate": "a translator (`cloze finetune translate` trains one)",
    "summarize": "a model that `cloze finetune summarize` has trained",
    **dict.fromkeys(
        ("similar", "combine", "analogy", "cosine", "odd_one_out", "plot_words", "plot_vectors"),
        "word vectors (`cloze pretrain --family word2vec` trains them)",
    ),
    "tokenize": "a model with a tokenizer",
    **dict.fromkeys(("classify", "tag", "answer", "choose"), _FINETUNED),
    **dict.fromkeys(
        ("suggest", "generate"),
        "a language model (`cloze pretrain --family ngram`, nnlm, lstm, elmo or gpt2 trains one, "
        "or --set objective.kind=causal --pairs none)",
    ),
}


def describe_needed_model(function: str) -> str:
    """A model that supports a function, as a phrase for errors."""
    return _NEEDED.get(function, "another model").format(function)


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
    return FAMILIES.get(name) or list_families().get(name)


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
        capabilities=_own_encoder_capabilities,
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
        capabilities=_own_encoder_capabilities,
        recipe="music",
        language_model="cloze.decode.causal_encoder:make_causal_encoder",
    ),
    Family(
        name="ngram",
        description="an n-gram model",
        kind="language_model",
        config="cloze.models.configs.ngram:NGramConfig",
        module="cloze.models.ngram:NGram",
        layout="cloze.interop.own:NGRAM",
        capabilities=_make_fixed_capabilities(**_LANGUAGE_MODEL, export="an ARPA file"),
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
        module="cloze.models.nnlm:NNLM",
        layout="cloze.interop.own:NNLM",
        capabilities=_make_fixed_capabilities(**_LANGUAGE_MODEL),
        vocabulary="words",
        recipe="nnlm",
        language_model="cloze.decode.neural:NNLMLanguageModel",
    ),
    Family(
        name="lstm",
        description="a recurrent language model",
        kind="language_model",
        config="cloze.models.configs.lstm:LSTMConfig",
        module="cloze.models.lstm:LSTM",
        layout="cloze.interop.own:LSTM",
        capabilities=_make_fixed_capabilities(
            **_LANGUAGE_MODEL, embed="embeddings of texts or tokens"
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
        module="cloze.models.elmo:Elmo",
        layout="cloze.interop.own:ELMO",
        capabilities=_elmo_capabilities,
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
        module="cloze.models.ulmfit:ULMFiT",
        layout="cloze.interop.own:ULMFIT",
        capabilities=recurrent_encoder_capabilities,
    ),
    Family(
        name="word2vec",
        description="word vectors",
        kind="word_vectors",
        config="cloze.models.configs.word2vec:Word2VecConfig",
        module="cloze.models.word2vec:WordVectors",
        layout="cloze.interop.own:WORD2VEC",
        capabilities=_make_fixed_capabilities(
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
        module="cloze.models.transformer:Transformer",
        layout="cloze.interop.own:TRANSFORMER",
        capabilities=_translator,
        recipe="transformer",
    ),
    Family(
        name="seq2seq",
        description="a translator",
        kind="translator",
        config="cloze.models.configs.seq2seq:Seq2SeqConfig",
        module="cloze.models.seq2seq:Seq2Seq",
        layout="cloze.interop.own:SEQ2SEQ",
        capabilities=_translator,
        recipe="seq2seq",
    ),
):
    register(_family)
