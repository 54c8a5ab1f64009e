"""The table `vocabulary` of every recipe: an existing tokenizer, or how to learn one."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Config, Flag, Help, Range
from cloze.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Config):
    """A tokenizer; each job has its own defaults for kind and size."""

    folder: Annotated[
        str | None,
        Help("Folder of a tokenizer to use (default: one is learned from the text)"),
        Flag("--vocabulary", "FOLDER"),
    ] = None
    kind: Annotated[
        Literal["wordpiece", "bpe", "word", "spaced", "char"],
        Help("Kind of the tokens; spaced: words as they are separated by spaces in the text"),
    ] = "wordpiece"
    size: Annotated[
        int,
        Help("Number of tokens to learn, special tokens included"),
        Flag("--vocabulary-size", "N"),
    ] = 30_000
    lowercase: Annotated[
        bool | None, Help("Convert text to lower case (default: for wordpiece and word)")
    ] = None
    byte_fallback: Annotated[bool, Help("Spell rare characters in bytes instead of [UNK]")] = False
    min_count: Annotated[
        int, Range(1, 1 << 40), Help("Minimum number of occurrences of a token")
    ] = 2
    extra_tokens: Annotated[
        int,
        Range(0, 1_000_000),
        Help("With --init-from: number of words of the new text to add to the vocabulary"),
        Flag("--extra-tokens", "N"),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self._check_size()
        except ConfigError as error:  # the tokenizer calls the setting by another name
            problem = error.problem.replace("vocab_size", "size")
            raise ConfigError(problem, fix=error.fix) from None

    def _check_size(self) -> None:
        # imported here, as it takes longer than all recipes together
        from cloze.text.tokenizer_training import check_vocabulary, check_whitespace_vocabulary

        if self.kind == "spaced":
            check_whitespace_vocabulary(vocab_size=self.size, min_count=self.min_count)
        else:
            check_vocabulary(
                kind=self.kind,
                vocab_size=self.size,
                min_count=self.min_count,
                byte_fallback=self.byte_fallback,
            )
