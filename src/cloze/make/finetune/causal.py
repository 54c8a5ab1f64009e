"""What is special about fine-tuning a causal model: its inputs, and the auxiliary LM loss.

Radford et al. 2018, §3.2 and §3.3.
"""

from dataclasses import replace

from cloze.checkpoint.model import Model
from cloze.errors import ConfigError, InputError
from cloze.make.finetune.labelled import Labelled
from cloze.make.recipe.finetune import GPT_LM_WEIGHT, FinetuneRecipe
from cloze.nn.encoder import Encoder


def check_causal_options(base: Model, data: Labelled, recipe: FinetuneRecipe) -> None:
    """Raise if the model or the data do not fit the transformation or the auxiliary loss."""
    choose_transformation(base, data, recipe)
    lm_weight(base, recipe)


def choose_transformation(base: Model, data: Labelled, recipe: FinetuneRecipe) -> str | None:
    """How the texts of an example become inputs; None: as the tokenizer encodes them."""
    chosen = recipe.data.transformation
    if chosen == "similarity" and not any(one.pair is not None for one in data.train):
        raise InputError(
            "the transformation 'similarity' reads pairs of texts, but the training data have none",
            fix="name the column of the second text (--pair-column), or leave --transformation out",
        )
    if chosen is None and is_causal_encoder(base) and recipe.task != "tag":
        return "entailment"
    return chosen


def without_training_heads(model: Model) -> Model:
    """The model without an LM head that only the training needs; both have the same weights."""
    assert model.task is not None
    head = model.task.head
    if model.task_heads == (head,) or is_double_headed(model, head):
        return model
    return replace(model, module=model.module.select_heads((head,)))


def lm_weight(base: Model, recipe: FinetuneRecipe) -> float:
    """The weight λ of the auxiliary loss."""
    weight, has_head = recipe.loss.lm_weight, _has_lm_weights(base)
    if weight is None:
        return GPT_LM_WEIGHT if base.config.family == "openai-gpt" and has_head else 0.0
    if weight and not (base.is_causal and has_head):
        why = "it has no LM head" if base.is_causal else "it is not causal"
        raise ConfigError(
            f"loss.lm_weight is {weight}, but the model cannot predict next tokens: {why}",
            fix="leave --lm-weight out, or start from a causal language model, such as a GPT",
        )
    return weight


def is_causal_encoder(model: Model) -> bool:
    """Whether it is a GPT or a causal BERT."""
    return model.is_causal and isinstance(model.module, Encoder)


def lm_head_name(model: Model) -> str:
    """The name of the LM head of its family."""
    return "lm" if "lm" in model.module.TASK_HEADS else "mlm"


def is_double_headed(model: Model, head: str) -> bool:
    """Whether a model with this head keeps its LM head: multiple choice with a GPT."""
    return head == "choice" and lm_head_name(model) == "lm" and _has_lm_weights(model)


def _has_lm_weights(model: Model) -> bool:
    """Whether the model has an LM head, or one without weights of its own."""
    if not isinstance(model.module, Encoder):
        return False
    is_tied = lm_head_name(model) == "lm" and model.config.tie_embeddings
    return model.module.lm_head is not None or is_tied
