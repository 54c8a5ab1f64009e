"""Pairs of source and target as tokens, for both architectures that write targets.

| architecture | source | target |
|---|---|---|
| encoder–decoder | tokens, eos | tokens, eos |
| decoder-only | bos, tokens, separator | tokens, eos |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloze.checkpoint.task import Task
from cloze.data.parallel_text import ParallelText, SortedBatches, TranslationBatches
from cloze.data.sequence_pairs import SequenceBatches
from cloze.decode.translators import MAX_SOURCE_TOKENS, make_prompt
from cloze.errors import InputError
from cloze.make.recipe.language_models import TranslationRecipe
from cloze.text.joint_bpe import encode_plain, encode_sentences
from cloze.text.tokenizer import Tokenizer

SEPARATOR = "<|sep|>"  # of vocabularies that have no separator


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """The pairs that are short enough."""

    source: list[list[int]]
    target: list[list[int]]
    num_too_long: int  # pairs that were left out
    num_truncated: int  # sources of which only the first tokens are read

    @property
    def longest(self) -> int:
        """Tokens of the longest side."""
        return max(len(ids) for side in (self.source, self.target) for ids in side)


@dataclass(frozen=True, kw_only=True)
class PairFormat:
    """How pairs become tokens, and how many tokens they may have, special tokens included."""

    tokenizer: Tokenizer
    max_source: int
    max_target: int
    truncates: bool  # sources that are too long, instead of leaving the pair out
    separator: str | None = None  # of a decoder-only model
    max_positions: int = 0  # of a decoder-only model

    @property
    def is_decoder_only(self) -> bool:
        return self.separator is not None

    def make_task(self, name: str) -> Task | None:
        """The task of the trained model; None if it follows from the family."""
        if not self.is_decoder_only and name == "translate":
            return None
        return Task(
            name=name,
            separator=self.separator,
            max_source_length=self.max_source,
            max_target_length=self.max_target,
        )

    def encode(self, data: ParallelText) -> EncodedPairs:
        """The tokens of the pairs that fit."""
        source = self._encode_sources(data.source)
        target = self._encode_targets(data.target)
        truncated, kept = 0, []
        for n, (ids, other) in enumerate(zip(source, target, strict=True)):
            if len(other) > self.max_target or (len(ids) > self.max_source and not self.truncates):
                continue
            kept.append(n)
            if len(ids) > self.max_source:
                truncated += 1
                source[n] = [*ids[: self.max_source - 1], ids[-1]]
        return EncodedPairs(
            source=[source[n] for n in kept],
            target=[target[n] for n in kept],
            num_too_long=len(source) - len(kept),
            num_truncated=truncated,
        )

    def make_batches(
        self, pairs: EncodedPairs, *, batch_tokens: int, source_weight: float = 0.0, seed: int = 0
    ) -> SortedBatches[Any]:
        """Batches of pairs of similar length."""
        if not self.is_decoder_only:
            return TranslationBatches(
                pairs.source, pairs.target, batch_tokens=batch_tokens, seed=seed
            )
        return SequenceBatches(
            pairs.source,
            pairs.target,
            max_positions=self.max_positions,
            has_source_loss=bool(source_weight),
            batch_tokens=batch_tokens,
            seed=seed,
        )

    def _encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        limit = self.max_source if self.truncates else None
        if not self.is_decoder_only:
            return encode_sentences(self.tokenizer, texts, limit=limit)
        bos_id = self.tokenizer.start_id
        separator_id = self.tokenizer.token_to_id(str(self.separator))
        assert bos_id is not None
        assert separator_id is not None
        plain = encode_plain(self.tokenizer, texts, limit=limit)
        return [make_prompt(ids, bos_id, separator_id) for ids in plain]

    def _encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.is_decoder_only:
            return encode_sentences(self.tokenizer, texts)
        assert self.tokenizer.end_id is not None
        return [[*ids, self.tokenizer.end_id] for ids in encode_plain(self.tokenizer, texts)]


def find_separator(tokenizer: Tokenizer) -> str:
    """The token between source and target: that of the vocabulary, such as [SEP], or a new one."""
    return tokenizer.sep_token or SEPARATOR


def make_format(
    recipe: TranslationRecipe,
    tokenizer: Tokenizer,
    *,
    max_positions: int | None,
    is_decoder_only: bool,
) -> PairFormat:
    """The format of the pairs that a recipe trains on.

    In a decoder-only model source and target share the positions: a target has at most half of
    them, the source the rest.
    """
    table = recipe.data
    truncates = table.max_source_length is not None or recipe.task == "summarize"
    default = table.max_length if recipe.task == "translate" else MAX_SOURCE_TOKENS
    max_source, max_target = table.max_source_length or default, table.max_length
    if max_positions is not None:
        max_target = min(max_target, max_positions // 2 if is_decoder_only else max_positions)
        room = max_positions - max_target if is_decoder_only else max_positions
        max_source = min(max_source, room)
    return PairFormat(
        tokenizer=tokenizer,
        max_source=max_source,
        max_target=max_target,
        truncates=truncates,
        separator=find_separator(tokenizer) if is_decoder_only else None,
        max_positions=max_positions or 0,
    )


def check_pairs(pairs: EncodedPairs, pair_format: PairFormat) -> EncodedPairs:
    """The pairs themselves; raise if all are too long."""
    if pairs.source:
        return pairs
    limits = f"{pair_format.max_source:,} source and {pair_format.max_target:,} target tokens"
    if pair_format.max_source == pair_format.max_target:
        limits = f"{pair_format.max_source:,} tokens"
    raise InputError(
        f"no pair is shorter than {limits}",
        fix="raise data.max_length (--max-length), use a model with more positions, or split the "
        "texts",
    )
