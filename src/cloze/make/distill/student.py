"""A student: a model with some of its teacher's layers, and all else the teacher has."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from cloze.checkpoint.model import LoadReport, Model
from cloze.errors import ConfigError, InputError
from cloze.models.build import build_on_meta
from cloze.models.configs.distilbert import NORM_EPS
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.models.registry import FAMILIES
from cloze.nn.encoder import Encoder

SEGMENTS = "embeddings.token_type.weight"
LEARNABLE = {"mlm", "nsp"}  # heads of models that raw text made


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """What a student is to be."""

    config: EncoderConfig
    heads: tuple[str, ...]
    kept: tuple[int, ...]  # the teacher's layers it begins with


@torch.no_grad()
def build_student(teacher: Model, *, layers: int | None = None, family: str | None = None) -> Model:
    """Half the teacher's layers, or so many, with the teacher's embeddings and masked-LM head.

    Unsaid, the family is modernbert of such a teacher and distilbert of any other. How texts are
    pooled is kept; next sentences are not learned. A DistilBERT has no segments: the vector of
    segment 0 goes into the positions, not into the words, because the masked-LM head reads the
    words' table. With all layers kept the student computes what the teacher does.
    """
    shape = plan_student(teacher.config, teacher.heads, layers=layers, family=family)
    # no head reads a pooler, and raw text does not teach it
    parts = {"pooler": False} if shape.config.family == "bert" else {}
    module = build_on_meta(shape.config, shape.heads, **parts)
    theirs = teacher.module.state_dict()
    weights = {name: theirs[_source(name, shape.kept)].clone() for name in module.state_dict()}
    if SEGMENTS in theirs and SEGMENTS not in weights:
        weights["embeddings.position.weight"] += theirs[SEGMENTS][0]
    module.load_state_dict(weights, assign=True)
    return replace(
        teacher, module=module.eval(), config=shape.config, task=None, report=LoadReport()
    )


def plan_student(
    teacher: EncoderConfig,
    heads: Iterable[str],
    *,
    layers: int | None = None,
    family: str | None = None,
) -> StudentPlan:
    """The shape of a student, if the teacher can have such a one."""
    if other := sorted(set(heads) - LEARNABLE):
        raise InputError(
            f"the teacher is fine-tuned (it has a {other[0]} head), and raw text does not teach "
            "what it was fine-tuned for",
            fix="distil the model it was fine-tuned from, then fine-tune the student",
        )
    every, usual = 1, "distilbert"
    if isinstance(teacher, ModernBertConfig):
        every, usual = teacher.global_attention_every, teacher.family
    kept = choose_layers(teacher.num_layers, layers, every=every)
    return StudentPlan(
        config=_config(teacher, family or usual, len(kept)),
        heads=("mlm",) if "mlm" in heads else (),
        kept=kept,
    )


def choose_layers(of: int, layers: int | None = None, *, every: int = 1) -> tuple[int, ...]:
    """So many layers of a teacher, evenly spaced from the first to the last.

    Of twelve half are 0, 2, 4, 7, 9 and 11, as in DistilBERT's released script. Where one layer of
    `every` looks at all of a text, layers are kept that do so, or do not, at their new places, as
    near to the even ones as there are: of 22, one of three, half are 0, 2 … 14, 17, 18, 20.
    """
    if layers is None and of == 1:
        raise ConfigError(
            "the teacher has a single layer, which cannot be halved",
            fix="take a deeper teacher, or keep the layer with --layers 1",
        )
    wanted = of // 2 if layers is None else layers
    if not 1 <= wanted <= of:
        raise ConfigError(
            f"a student of {wanted} layers from a teacher of {of}", fix=f"use 1 to {of} layers"
        )
    even = tuple(round(place) for place in np.linspace(0, of - 1, wanted))
    return even if every == 1 else _of_their_kind(even, of, every)


def _of_their_kind(even: Sequence[int], of: int, every: int) -> tuple[int, ...]:
    """The layers nearest to these, rising, of which each is global where its place is.

    For each layer that a place can take, the best choice that ends with it; the first so many
    layers fit always. The sum of the squares tells what is near.
    """
    best: dict[int, tuple[int, tuple[int, ...]]] = {-1: (0, ())}
    for place, wanted in enumerate(even):
        best = {
            layer: min(
                (cost + (layer - wanted) ** 2, (*kept, layer))
                for last, (cost, kept) in best.items()
                if last < layer
            )
            for layer in range(place, of)
            if (layer % every == 0) == (place % every == 0)
        }
    return min(best.values())[1]


def weights_digest(module: Encoder) -> str:
    """A digest of all weights: a run goes on only with the teacher it began with."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _config(teacher: EncoderConfig, family: str, layers: int) -> EncoderConfig:
    if family != teacher.family and "modernbert" in (family, teacher.family):
        raise ConfigError(
            f"a {teacher.family} teacher, and the student a {family}, which reads places otherwise",
            fix="leave --family out",
        )
    if getattr(teacher, "is_causal", False):
        raise ConfigError(
            "the teacher reads left to right, and a student learns masked words",
            fix="take a teacher that sees both sides",
        )
    if family == teacher.family:
        return replace(teacher, num_layers=layers)
    if family == "bert":
        raise ConfigError(
            f"a {teacher.family} teacher has no segments to give a BERT",
            fix="leave --family out: the student is a distilbert too",
        )
    if teacher.norm_eps != NORM_EPS:
        raise ConfigError(
            f"the teacher's norms use {teacher.norm_eps}, and a DistilBERT's always {NORM_EPS}",
            fix="keep the teacher's family with --family bert",
        )
    shape = {each.name: getattr(teacher, each.name) for each in fields(EncoderConfig)}
    return FAMILIES[family].config_class(**{**shape, "num_layers": layers})


def _source(name: str, kept: Sequence[int]) -> str:
    """The teacher's name for one of the student's weights."""
    return re.sub(r"^blocks\.(\d+)", lambda found: f"blocks.{kept[int(found[1])]}", name)
