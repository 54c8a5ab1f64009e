"""The settings of beam search and of sampling, importable without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
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
    repetition_penalty: Annotated[float, Range(1e-3, 1e3)] = 1.0  # see `SamplingOptions`
    # see `GenerationOptions`; next-length: the heuristic, with the score at the next length
    early_stopping: Literal["next-length", "heuristic", "full", "never"] = "next-length"
    ranks_unfinished_last: bool = True  # False: hypotheses at the maximum length rank by score

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

    def is_done(self, best: float, worst: float, length: int, max_length: int) -> bool:
        """Whether to stop when all k hypotheses are finished, the worst with this score.

        `best` is the log-probability of the best unfinished one, which has `length` tokens.
        """
        if self.early_stopping == "full":
            return True
        bounds = {"next-length": length + 1, "heuristic": length, "never": max_length}
        return self.score(best, bounds[self.early_stopping]) <= worst


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Config):
    """Options of sampling.

    They are applied in this order, as in transformers: repetition penalty, n-grams that may not be
    repeated, temperature, top-k, top-p, min-p. Each filter sees what the one before it has kept.
    """

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
    # Nguyen et al. 2024
    min_p: Annotated[
        float,
        Range(0, 1),
        Help("Sample from tokens at least P times as probable as the most probable one"),
        Flag("--min-p", "P"),
    ] = 0.0
    # Keskar et al. 2019 (CTRL)
    repetition_penalty: Annotated[
        float,
        Range(1e-3, 1e3),
        Help(
            "Divide positive logits of tokens that occur in the prompt or the continuation by X, "
            "and multiply negative ones; 1 disables it"
        ),
        Flag("--repetition-penalty", "X"),
    ] = 1.0
    no_repeat_ngram_size: Annotated[
        int,
        Range(0, 1024),
        Help(
            "Size of n-grams that may not occur twice in the prompt and the continuation; 0 "
            "allows all"
        ),
        Flag("--no-repeat-ngram-size", "N"),
    ] = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


# options of `generate` that only sampling or only beam search has
_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
_BEAM = ("n_best", "length_normalization", "length_penalty", "early_stopping")


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(SamplingOptions):
    """Options of `generate`: of sampling, or of beam search if `beam` is given.

    Beam search is that of transformers: scores are sums of log-probabilities after the repetition
    penalty, divided by length ** length_penalty; the length is that of the continuation.
    """

    beam: Annotated[
        int | None,
        Range(1, 1024),
        Help(
            "Use beam search with N hypotheses instead of sampling; 1 is greedy (default: sample)"
        ),
        Flag("--beam", "N"),
    ] = None
    n_best: Annotated[
        int,
        Range(1, 1024),
        Help("Number of continuations that beam search returns, at most the beam"),
        Flag("--n-best", "N"),
    ] = 1
    length_normalization: Annotated[
        Literal["wu", "average"],
        Help(
            "Length penalty of beam search: average (divide the score by the length), or wu "
            "(Wu et al. 2016)"
        ),
        Flag("--length-normalization", "NAME"),
    ] = "average"
    length_penalty: Annotated[
        float,
        Range(0, 10),
        Help("Exponent of the length penalty of beam search; 0 disables it"),
        Flag("--length-penalty", "X"),
    ] = 1.0
    early_stopping: Annotated[
        Literal["heuristic", "full", "never"],
        Help(
            "When beam search stops with all hypotheses finished: heuristic (no unfinished one "
            "scores better at its present length), full (at once), never (none can score better "
            "at the maximum length)"
        ),
        Flag("--early-stopping", "NAME"),
    ] = "heuristic"

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {field.name: field.default for field in fields(self)}
        unused = _BEAM if self.beam is None else _SAMPLING
        for name in unused:
            value = getattr(self, name)
            if value == defaults[name]:
                continue
            if self.beam is None:
                raise ConfigError(
                    f"{name} is {value}, but only beam search uses it",
                    fix=f"set beam, such as 4, or leave out {name}",
                )
            raise ConfigError(
                f"{name} is {value} and beam is {self.beam}, but beam search does not sample",
                fix=f"leave out {name} or beam",
            )
        if self.beam is not None:
            self.make_beam_config()

    def make_beam_config(self) -> BeamConfig:
        """The configuration of beam search."""
        assert self.beam is not None
        return BeamConfig(
            beam=self.beam,
            n_best=self.n_best,
            length_normalization=self.length_normalization,
            length_penalty=self.length_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            repetition_penalty=self.repetition_penalty,
            early_stopping=self.early_stopping,
            ranks_unfinished_last=False,
        )


def check_stop_strings(
    stop_strings: Sequence[str], *, include_stop_string: bool = False
) -> tuple[str, ...]:
    """The strings as a tuple; an empty one, or something else, is an error.

    So is `include_stop_string` without a string.
    """
    if isinstance(stop_strings, str):
        raise ConfigError(
            f"stop_strings is {stop_strings!r}", fix=f"give a list: [{stop_strings!r}]"
        )
    for one in stop_strings:
        if not isinstance(one, str):
            raise ConfigError(f"a stop string is {one!r}", fix="use a list of str")
        if not one:
            raise ConfigError("a stop string is empty", fix="leave it out")
    if include_stop_string and not stop_strings:
        raise ConfigError(
            "include_stop_string is True, but there are no stop strings",
            fix="give one (--stop-string), or leave out include_stop_string",
        )
    return tuple(stop_strings)
