"""Build a student: some layers of its teacher, and its embeddings and masked-LM head."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from cloze.checkpoint.model import Model
from cloze.checkpoint.weights import LoadReport
from cloze.config import one_of
from cloze.errors import ConfigError, InputError
from cloze.models.build import build_on_meta, pooler_option
from cloze.models.configs.distilbert import NORM_EPS
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.models.registry import get_family, list_families
from cloze.nn.encoder import Encoder

SEGMENTS = "embeddings.token_type.weight"
PRETRAINING_HEADS = {"mlm", "nsp"}


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """The configuration of a student."""

    config: EncoderConfig
    heads: tuple[str, ...]
    kept: tuple[int, ...]  # layers of the teacher that initialise those of the student


@torch.no_grad()
def build_student(teacher: Model, *, layers: int | None = None, family: str | None = None) -> Model:
    """A student with half of the teacher's layers, or `layers` of them.

    The default family is distilbert for a BERT and the teacher's for any other. The pooling is
    kept; the next-sentence head is dropped. A DistilBERT has no token types: the vector of type 0
    is added to the positions, not to the words, because the masked-LM head shares the word
    embeddings. With all layers, the student computes the same as the teacher.
    """
    plan = plan_student(teacher.config, teacher.task_heads, layers=layers, family=family)
    # no head uses the pooler, and raw text does not train it
    parts = pooler_option(plan.config, has_pooler=False)
    module = build_on_meta(plan.config, plan.heads, **parts)
    theirs = teacher.module.state_dict()
    weights = {name: theirs[_teacher_name(name, plan.kept)].clone() for name in module.state_dict()}
    if SEGMENTS in theirs and SEGMENTS not in weights:
        weights["embeddings.position.weight"] += theirs[SEGMENTS][0]
    module.load_state_dict(weights, assign=True)
    return replace(
        teacher, module=module.eval(), config=plan.config, task=None, report=LoadReport()
    )


def plan_student(
    teacher: EncoderConfig,
    heads: Iterable[str],
    *,
    layers: int | None = None,
    family: str | None = None,
) -> StudentPlan:
    """Choose the configuration and the layers of a student, or raise if that is impossible."""
    if getattr(teacher, "is_causal", False):
        raise ConfigError(
            "the teacher is a causal language model, but distillation needs a masked one",
            fix="use a bidirectional teacher, such as a BERT",
        )
    if other := sorted(set(heads) - PRETRAINING_HEADS):
        raise InputError(
            f"the teacher is fine-tuned (it has a {other[0]} head), and distillation on raw text "
            "does not train that head",
            fix="distill the model it was fine-tuned from, then fine-tune the student",
        )
    default = "distilbert" if teacher.family == "bert" else teacher.family
    every = teacher.global_attention_every if isinstance(teacher, ModernBertConfig) else 1
    kept = choose_layers(teacher.num_layers, layers, every=every)
    return StudentPlan(
        config=_student_config(teacher, family or default, len(kept)),
        heads=("mlm",) if "mlm" in heads else (),
        kept=kept,
    )


def choose_layers(num_layers: int, layers: int | None = None, *, every: int = 1) -> tuple[int, ...]:
    """Layers of a teacher, evenly spaced from the first to the last.

    Half of twelve are 0, 2, 4, 7, 9 and 11, as in DistilBERT's released script. If one layer of
    `every` has global attention, layers are chosen that are global, or local, at their new index,
    as near to the evenly spaced ones as possible: half of 22 with one of three global are 0, 2 …
    14, 17, 18, 20.
    """
    if layers is None and num_layers == 1:
        raise ConfigError(
            "the teacher has only one layer, which cannot be halved",
            fix="use a deeper teacher, or keep the layer with --num-layers 1",
        )
    wanted = num_layers // 2 if layers is None else layers
    if not 1 <= wanted <= num_layers:
        raise ConfigError(
            f"the student has {wanted} layers, but the teacher has {num_layers}",
            fix=f"use 1 to {num_layers} layers",
        )
    even = tuple(round(index) for index in np.linspace(0, num_layers - 1, wanted))
    return even if every == 1 else _match_attention_kind(even, num_layers, every)


def _match_attention_kind(even: Sequence[int], num_layers: int, every: int) -> tuple[int, ...]:
    """The ascending layers nearest to these that are global where their new index is.

    Dynamic programming over the indices: for each possible layer the best choice that ends with it,
    by the sum of squared distances.
    """
    best: dict[int, tuple[int, tuple[int, ...]]] = {-1: (0, ())}
    for index, wanted in enumerate(even):
        best = {
            layer: min(
                (cost + (layer - wanted) ** 2, (*kept, layer))
                for last, (cost, kept) in best.items()
                if last < layer
            )
            for layer in range(index, num_layers)
            if (layer % every == 0) == (index % every == 0)
        }
    return min(best.values())[1]


def weights_digest(module: Encoder) -> str:
    """A digest of all weights: a run is resumed only with the same teacher."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _student_config(teacher: EncoderConfig, family: str, layers: int) -> EncoderConfig:
    encoders = [one.name for one in list_families().values() if one.kind == "encoder"]
    one_of("distill.family", family, encoders)
    if family == teacher.family:
        return replace(teacher, num_layers=layers)
    if (teacher.family, family) != ("bert", "distilbert"):
        raise ConfigError(
            f"a {teacher.family} teacher cannot have a {family} student: the networks differ",
            fix="leave --family out",
        )
    if teacher.norm_eps != NORM_EPS:
        raise ConfigError(
            f"the teacher has norm_eps {teacher.norm_eps}, but a DistilBERT has {NORM_EPS}",
            fix="use the family of the teacher: --family bert",
        )
    plan = {each.name: getattr(teacher, each.name) for each in fields(EncoderConfig)}
    return get_family(family).config_class(**{**plan, "num_layers": layers})


def _teacher_name(name: str, kept: Sequence[int]) -> str:
    """The name in the teacher of a weight of the student."""
    return re.sub(r"^blocks\.(\d+)", lambda found: f"blocks.{kept[int(found[1])]}", name)
