"""The settings of training steps and of the optimizer, importable without torch."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Choices, Config, Flag, Help, Range

OptimizerName = Literal["adamw", "muon"]

GuardAction = Literal["stop", "skip"]
Parallelism = Literal["ddp", "fsdp"]

# Every name of a data type that commands accept, and the one that recipes use.
DTYPE_NAMES: dict[str, str] = {
    "float32": "float32",
    "bfloat16": "bf16",
    "bf16": "bf16",
}

Beta = Annotated[float, Range(0, below=1)]


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """An optimizer; the defaults are those of BERT (Devlin et al. 2018, appendix A.2)."""

    name: Annotated[OptimizerName, Help("Optimizer: adamw, or muon for the matrices of blocks")] = (
        "adamw"
    )
    lr: Annotated[float, Range(0, 1000), Help("Peak learning rate"), Flag("--lr", metavar="LR")] = (
        1e-4
    )
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Annotated[float, Range(0, 1)] = 1e-6
    weight_decay: Annotated[float, Range(0, 1000)] = 0.01
    adamw_lr: Annotated[
        float, Range(0, 1000), Help("Muon: peak learning rate of AdamW, for all other weights")
    ] = 1e-3


@dataclass(frozen=True, kw_only=True)
class LoopConfig(Config):
    """How each training step is computed."""

    seed: Annotated[
        int,
        Range(0, (1 << 63) - 1),
        Help("Seed of the random number generators"),
        Flag("--seed", metavar="N"),
    ] = 0
    dtype: Annotated[
        str,
        Choices(*DTYPE_NAMES),
        Help("Data type of the forward pass: float32, or bfloat16 in mixed precision"),
        Flag("--dtype", metavar="NAME"),
    ] = "float32"
    clip_norm: Annotated[float, Range(0, math.inf), Help("Maximum gradient norm (inf: none)")] = 1.0
    guard: Annotated[
        GuardAction, Help("What to do about a step whose loss or gradient is not finite")
    ] = "stop"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", DTYPE_NAMES[self.dtype])
