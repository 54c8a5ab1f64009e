"""How a model is evaluated, and which options apply to that."""

from collections.abc import Mapping, Sequence
from typing import Any

from cloze.checkpoint.model import Model, check_capability
from cloze.errors import InputError
from cloze.models.registry import Kind

PRETRAINING_HEADS = {"mlm", "lm", "nsp"}
KINDS = {  # kinds of evaluation, and the description of their models
    "labelled": "a fine-tuned model",
    "similarity": "an embedding model",
    "masked": "a masked language model",
    "language": "a language model",
    "translator": "a translator",
    "summarizer": "a model that summarizes",
    "words": "a set of word vectors",
    "image_text": "a CLIP",
}
_KIND_OF_TASK = {"translate": "translator", "summarize": "summarizer"}
_KIND_OF_FAMILY: dict[Kind, str] = {
    "translator": "translator",
    "word_vectors": "words",
    "language_model": "language",
    "dual_encoder": "image_text",
}


def evaluation_kind(
    model: object, *, pair_column: object = None, label_column: object = None, **_: object
) -> str:
    """How a model is evaluated: one of `KINDS`.

    With a pair or label column a model without a task whose vectors `embed` computes is evaluated
    on rated pairs of texts.
    """
    if not isinstance(model, Model):
        return "language"
    check_capability(model, "evaluate")
    if model.task and (model.task.name in _KIND_OF_TASK or model.feature_head is not None):
        return _KIND_OF_TASK.get(model.task.name, "labelled")
    rates_pairs = pair_column is not None or label_column is not None
    if model.family.kind != "encoder":
        # an ELMo without an output layer predicts no words
        is_wordless = model.family.kind == "language_model" and "score" not in model.capabilities
        is_embedder = (rates_pairs or is_wordless) and "embed" in model.capabilities
        return "similarity" if is_embedder else _KIND_OF_FAMILY[model.family.kind]
    if not is_pretrained(model):
        return "labelled"
    has_lm_head = model.module.lm_head is not None and model.pooling is None
    if not has_lm_head or rates_pairs:
        return "similarity"
    return "language" if model.module.is_causal else "masked"


def fills_and_embeds(
    model: object, *, pair_column: object = None, label_column: object = None, **_: object
) -> bool:
    """Whether a model has a masked-LM head and vectors of texts, and no columns of pairs are given.

    Then the data decide how it is evaluated.
    """
    if not is_pretrained(model) or pair_column is not None or label_column is not None:
        return False
    assert isinstance(model, Model)
    return model.pooling is not None and model.module.lm_head == "mlm" and not model.is_causal


def is_pretrained(model: object) -> bool:
    """Whether a model is an encoder that was not fine-tuned for a task."""
    if not isinstance(model, Model) or model.family.kind != "encoder":
        return False
    return model.task is None and set(model.task_heads) <= PRETRAINING_HEADS


def check_options(options: Mapping[str, Any], allowed: Sequence[str], kind: str) -> dict[str, Any]:
    """The options that are set; one that is not in `allowed` is an error (None, False: not set)."""
    given = {name: one for name, one in options.items() if one is not None}
    for name, value in given.items():
        if name not in allowed and value is not False:
            raise InputError(
                f"{name} does not apply to {KINDS[kind]}",
                fix=f"leave it out; these apply: {', '.join(allowed)}"
                if allowed
                else "leave it out",
            )
    return {name: value for name, value in given.items() if name in allowed}
