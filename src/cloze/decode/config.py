"""The settings of beam search and of sampling, importable without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Config, Flag, Help, Range
from cloze.errors import ConfigError


def average(length: int, alpha: float) -> float:
    """length^α; with α = 1 the score is the mean over the tokens."""
    return float(length**alpha)


def wu(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α.  Wu et al. 2016, eq. 14."""
    return float(((5 + length) / 6) ** alpha)


LENGTH_NORMALIZATIONS: dict[str, Callable[[int, float], float]] = {"wu": wu, "average": average}
"""What log-probabilities are divided by, so that short hypotheses have no advantage."""


@dataclass(frozen=True, kw_only=True)
class BeamConfig(Config):
    """Options of beam search."""

    beam: Annotated[
        int,
        Range(1, 1024),
        Help("Number of hypotheses of the beam search; 1 is greedy"),
        Flag("--beam", "N"),
    ] = 4
    n_best: Annotated[
        int,
        Range(1, 1024),
        Help("Number of hypotheses to return, at most the beam"),
        Flag("--n-best", "N"),
    ] = 1
    length_normalization: Annotated[
        Literal["wu", "average"],
        Help("Length penalty: wu (Wu et al. 2016), or average (divide the score by the length)"),
        Flag("--length-normalization", "NAME"),
    ] = "wu"
    length_penalty: Annotated[
        float,
        Range(0, 10),
        Help("Exponent of the length penalty; 0 disables it"),
        Flag("--length-penalty", "X"),
    ] = 0.6
    no_repeat_ngram_size: Annotated[
        int,
        Range(0, 1024),
        Help("Size of n-grams that may not occur twice; 0 allows all"),
        Flag("--no-repeat-ngram-size", "N"),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise ConfigError(
                f"n_best is {self.n_best}, but the beam has only {self.beam} hypotheses",
                fix="use a larger beam, or a smaller n_best",
            )

    def score(self, log_probability: float, length: int) -> float:
        """The score of a hypothesis with this many tokens, eos included."""
        return log_probability / LENGTH_NORMALIZATIONS[self.length_normalization](
            length, self.length_penalty
        )


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Config):
    """Options of sampling; the filters are applied in this order: temperature, top-k, top-p."""

    temperature: Annotated[
        float,
        Range(0, 1e3),
        Help("Sampling temperature; lower is less random, 0 is greedy"),
        Flag("--temperature", "X"),
    ] = 1.0
    # Fan et al. 2018
    top_k: Annotated[
        int | None,
        Range(1, 1 << 30),
        Help("Sample from the K most probable tokens (default: all)"),
        Flag("--top-k", "K"),
    ] = None
    # Holtzman et al. 2020
    top_p: Annotated[
        float,
        Range(1e-9, 1),
        Help("Sample from the most probable tokens whose probabilities sum to P"),
        Flag("--top-p", "P"),
    ] = 1.0
