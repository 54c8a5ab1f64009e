"""The functions that a model supports, by its family and by what its folder contains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a folder that decide which functions the model supports."""

    task_heads: tuple[str, ...] = ()
    is_causal: bool = False
    task: str | None = None  # that it was fine-tuned for


Capabilities = Callable[[Contents], Mapping[str, str]]
"""The functions that a folder supports, each with a phrase that says what it returns."""


_TEXT = {"tokenize": "token ids and character offsets"}
_COMPARED = {  # what every model with embeddings does
    "similarity": "the cosine of the embeddings of texts",
    "rerank": "documents in the order in which they fit a query",
    "index": "an index of documents, which `search` searches",
}
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
        **_COMPARED,
        "evaluate": _describe_encoder_scores(contents),
        "compare": "several encoders in one table",
        "export": "a folder in the Hugging Face layout",
        **_TEXT,
    }


def own_encoder_capabilities(contents: Contents) -> dict[str, str]:
    """Those of an encoder that transformers has no class for."""
    found = encoder_capabilities(contents)
    del found["export"]
    return found


def gpt3_capabilities(contents: Contents) -> dict[str, str]:
    """Those of an encoder that transformers has no class for, but ONNX has all operations of."""
    return {**own_encoder_capabilities(contents), "export": "an ONNX file"}


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


def make_fixed_capabilities(**functions: str) -> Capabilities:
    """The functions of a family, and that of a feature head, which a folder may have."""
    compared = _COMPARED if "embed" in functions else {}
    return lambda contents: {**_list_head_functions(contents), **functions, **compared}


def _list_head_functions(contents: Contents) -> dict[str, str]:
    return {name: what for head in contents.task_heads for name, what in _HEADS[head].items()}


LANGUAGE_MODEL = {
    **_NEXT_TOKENS,
    "evaluate": "perplexity, bits per byte and per character",
    "compare": "several language models in one table",
    **_TEXT,
}


def elmo_capabilities(contents: Contents) -> dict[str, str]:
    """The functions of an ELMo: published models have no output layer, so they predict no words."""
    found: dict[str, str] = {}
    for head in contents.task_heads:
        found |= LANGUAGE_MODEL if head == "lm" else _HEADS.get(head, {})
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
        **_COMPARED,
        "export": "options.json and weights.hdf5, as AllenNLP reads them",
        **_TEXT,
    }


def translator_capabilities(contents: Contents) -> dict[str, str]:
    """The functions of an encoder–decoder: it translates, unless it was trained to summarize."""
    task = contents.task if contents.task in _TARGETS else "translate"
    returned, scores = _TARGETS[task]
    models = "translators" if task == "translate" else "models"
    return {
        **_list_head_functions(contents),
        task: returned,
        "embed": "contextual vectors of the encoder (CoVe)",
        **_COMPARED,
        "evaluate": scores,
        "compare": f"several {models} in one table",
        **_TEXT,
    }


def image_generator_capabilities(contents: Contents) -> dict[str, str]:  # noqa: ARG001
    """The functions of a diffusion model."""
    return {"draw": "images from texts", **_TEXT}


def dual_encoder_capabilities(contents: Contents) -> dict[str, str]:  # noqa: ARG001
    """The functions of a CLIP, which reads texts and images."""
    return {
        "embed": "vectors of texts and of images, in one space",
        "classify": "the label of an image among those that you name (zero-shot)",
        "similarity": "the cosine of the vectors of texts, or of texts and images",
        "index": "an index of images, which `search` searches by a text or an image",
        "evaluate": "recall of images for captions and of captions for images",
        **_TEXT,
    }


_FINETUNED = "a model that `cloze finetune {0}` has trained"
_NEEDED = {
    "fill": "a masked language model, such as cloze-en",
    **dict.fromkeys(
        ("embed", "similarity", "rerank", "index", "finetune", "finetune --transfer features"),
        "an encoder, such as cloze-en",
    ),
    "score": "a masked language model, such as cloze-en, or a language model",
    "translate": "a translator (`cloze finetune translate` trains one)",
    "summarize": "a model that `cloze finetune summarize` has trained",
    **dict.fromkeys(
        ("similar", "combine", "analogy", "cosine", "odd_one_out", "plot_words", "plot_vectors"),
        "word vectors (`cloze pretrain --family word2vec` trains them)",
    ),
    "draw": "a diffusion model (`cloze pretrain --recipe diffusion` trains one)",
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
