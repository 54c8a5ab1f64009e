"""The settings of masking, pre-training objectives and distillation, importable without torch."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from cloze.config import Config, Flag, Help, Range
from cloze.errors import ConfigError

Weight = Annotated[float, Range(0, 1e6)]
Probability = Annotated[float, Range(0, 1)]
MAX_DENOMINATOR = 16  # of `resolved_detection_fraction`


@dataclass(frozen=True, kw_only=True)
class MaskingConfig(Config):
    """Which tokens the masked language model predicts, and what replaces them."""

    mlm_probability: Annotated[
        float,
        Range(above=0, high=1),
        Help("Fraction of the tokens that are selected for prediction"),
        Flag("--mlm-probability", "P"),
    ] = 0.15
    whole_word: Annotated[
        bool,
        Help("Mask whole words instead of single tokens"),
        Flag("--whole-word/--no-whole-word"),
    ] = False
    # of the selected tokens: [MASK], a random token, unchanged
    split: tuple[Probability, Probability, Probability] = (0.8, 0.1, 0.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isclose(sum(self.split), 1, rel_tol=1e-5):
            raise ConfigError(
                f"split is {list(self.split)}, which does not sum to 1",
                fix="use three fractions that sum to 1, such as [0.8, 0.1, 0.1]",
            )


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Config):
    """What an encoder learns in pre-training.

    mlm: masked tokens; detection: which tokens a generator has replaced; both: masked tokens in
    some batches, replaced ones in the others (`objectives.replaced_tokens`); causal: the next token
    (`causal_lm_objective`).
    """

    kind: Annotated[
        Literal["mlm", "detection", "both", "causal"],
        Help("Pre-training objective: mlm, detection, both or causal"),
    ] = "mlm"
    generator_num_layers: Annotated[
        int | None,
        Range(1, 1 << 20),
        Help("Detection: layers of the generator (default: a quarter of the model's)"),
    ] = None
    generator_hidden_size: Annotated[
        int | None,
        Range(1, 1 << 20),
        Help("Detection: hidden size of the generator (default: the model's)"),
    ] = None
    detection_weight: Annotated[
        Weight | None,
        Help("Weight of the detection loss (default: 50, as in ELECTRA; 10 with kind both)"),
    ] = None
    detection_fraction: Annotated[
        float,
        Range(1 / MAX_DENOMINATOR, 1),
        Help("Kind both: fraction of the batches that train detection"),
    ] = 0.5
    correction_weight: Annotated[
        Weight, Help("Kind both: weight of predicting the original of a replaced token")
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            self.kind == "both"
            and self.resolved_detection_fraction == 1
            and not self.correction_weight
        ):
            raise ConfigError(
                "kind is 'both', but no batch trains the model to predict masked tokens",
                fix="use an objective.detection_fraction below 1, or a positive "
                "objective.correction_weight",
            )

    @property
    def resolved_detection_weight(self) -> float:
        """The weight of detection: by default the paper's, or less if the model also learns mlm."""
        if self.detection_weight is not None:
            return self.detection_weight
        return 10.0 if self.kind == "both" else 50.0

    @property
    def is_causal(self) -> bool:
        """Whether tokens may only attend to earlier ones."""
        return self.kind == "causal"

    @property
    def resolved_detection_fraction(self) -> Fraction:
        """The fraction of the batches that train detection, with a denominator of at most 16."""
        if self.kind == "both":
            return Fraction(self.detection_fraction).limit_denominator(MAX_DENOMINATOR)
        return Fraction(self.kind == "detection")


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(Config):
    """The weights of the distillation losses; the defaults are those of DistilBERT's script."""

    temperature: Annotated[
        float,
        Range(1e-3, 1e3),
        Help("Softmax temperature of both models' predictions"),
        Flag("--temperature", "T"),
    ] = 2.0
    soft_weight: Annotated[Weight, Help("Weight of the teacher's predictions")] = 5.0
    mlm_weight: Annotated[Weight, Help("Weight of the masked-language-model loss")] = 2.0
    cosine_weight: Annotated[Weight, Help("Weight of the cosine loss on hidden states")] = 1.0
