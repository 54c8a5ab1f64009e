"""What attention heads attend to: the previous token, [SEP], the same word or punctuation.

b sequences, l layers, h heads, q queries, k keys, p patterns.

For each query, a pattern is a set of keys, and the weight of a head for a pattern is the mean
attention that queries pay to those keys. It is compared with a head that attends to all tokens
equally. Special tokens are not counted as queries, and a query counts for a pattern only if it has
such a key: the first token has no previous one.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.config import one_of
from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment


@dataclass(frozen=True, kw_only=True)
class TokenFeatures:
    """What patterns need to know about the tokens of a padded batch, b t each."""

    ids: Tensor
    real: Tensor  # not padding
    special: Tensor  # added by the tokenizer, such as [CLS] and [SEP]; or special in the text
    separator: Tensor  # [SEP], or the end of a text
    punctuation: Tensor
    words: Tensor  # number of the word in both texts; −1 for special tokens
    sequences: Tensor  # 0 the text, 1 its pair, −1 for special tokens


Pattern = Callable[[TokenFeatures], Tensor]  # which keys belong to it, for each query: b q k


def _at_distance(distance: int) -> Pattern:
    def find(tokens: TokenFeatures) -> Tensor:
        position = torch.arange(tokens.ids.shape[1], device=tokens.ids.device)
        return (position - position[:, None] == distance).expand(len(tokens.ids), -1, -1)

    return find


def _first(tokens: TokenFeatures) -> Tensor:
    position = torch.arange(tokens.ids.shape[1], device=tokens.ids.device)
    return (position == 0).expand(*tokens.ids.shape, -1)


def _separator(tokens: TokenFeatures) -> Tensor:
    return tokens.separator[:, None].expand(-1, tokens.ids.shape[1], -1)


def _punctuation(tokens: TokenFeatures) -> Tensor:
    return tokens.punctuation[:, None].expand(-1, tokens.ids.shape[1], -1)


def _same_token(tokens: TokenFeatures) -> Tensor:
    same = tokens.ids[:, :, None] == tokens.ids[:, None]
    return same & ~torch.eye(tokens.ids.shape[1], dtype=torch.bool, device=same.device)


def _rest_of_word(tokens: TokenFeatures) -> Tensor:
    same = (tokens.words[:, :, None] == tokens.words[:, None]) & (tokens.words[:, None] >= 0)
    return same & ~torch.eye(tokens.ids.shape[1], dtype=torch.bool, device=same.device)


def _after_same_token(tokens: TokenFeatures) -> Tensor:
    """Keys whose previous token is the query's, other than the query's own next token."""
    same = _same_token(tokens)
    return torch.nn.functional.pad(same[:, :, :-1], (1, 0))


def _other_text(tokens: TokenFeatures) -> Tensor:
    first, second = tokens.sequences[:, :, None], tokens.sequences[:, None]
    return (first != second) & (first >= 0) & (second >= 0)


PATTERNS: Mapping[str, tuple[Pattern, str]] = {
    "previous token": (_at_distance(-1), "the token before"),
    "next token": (_at_distance(1), "the token after"),
    "self": (_at_distance(0), "the token itself"),
    "first token": (_first, "the first token of the sequence: [CLS], or the beginning of the text"),
    "separator": (_separator, "[SEP], or the end of the text"),
    "punctuation": (_punctuation, "punctuation marks and symbols"),
    "same token": (_same_token, "other occurrences of the same token"),
    "rest of the word": (_rest_of_word, "the other subwords of the same word"),
    "after the same token": (
        _after_same_token,
        "the tokens that followed other occurrences of the same token (induction)",
    ),
    "other text": (_other_text, "the tokens of the other text of a pair"),
}
BROAD = "broad"  # entropy of the weights, as a fraction of that of equal weights
OTHER = "other"
_CLEAR = 0.25  # share of the attention above equal weights from which a pattern is what a head does
_BROAD = 0.75


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPatterns:
    """The keys of each pattern in one batch, as numbers that attention is multiplied with."""

    members: Tensor  # b (q k) p: 1 where a query that counts may attend to a key of the pattern
    entropy_scale: Tensor  # b q: 1 / log(number of keys), 0 for queries that do not count
    uniform: Tensor  # p: sums of a head that attends to all keys equally
    counts: Tensor  # p + 1: queries that count, the last for the entropy

    @classmethod
    def of(
        cls, tokens: TokenFeatures, patterns: Sequence[str], *, is_causal: bool
    ) -> "BatchPatterns":
        """The patterns of the tokens of a batch; a causal model attends to earlier tokens only."""
        queries = tokens.real & ~tokens.special
        keys = tokens.real[:, None].expand(-1, tokens.ids.shape[1], -1)
        if is_causal:
            keys = keys.tril()
        number = keys.sum(-1).clamp(min=1)  # b q
        found = [PATTERNS[name][0](tokens) & keys & queries[..., None] for name in patterns]
        several = queries & (number > 1)  # the entropy of a single weight is zero
        counts = [member.any(-1).sum() for member in found] + [several.sum()]
        return cls(
            members=torch.stack([member.flatten(1) for member in found], -1).float(),
            entropy_scale=several / number.log().clamp(min=1e-9),
            uniform=torch.stack([(member.sum(-1) / number).sum() for member in found]).cpu(),
            counts=torch.stack(counts).cpu(),
        )

    def sum_weights(self, weights: Tensor) -> Tensor:
        """The attention that the heads of a layer (b h q k) pay to each pattern: h (p + 1)."""
        weights = weights.float()
        sums = torch.bmm(weights.flatten(2), self.members)  # b h p
        entropy = torch.special.entr(weights).sum(-1) * self.entropy_scale[:, None]  # b h q
        found = torch.cat([sums, entropy.sum(-1, keepdim=True)], -1)
        return found.cpu().double().sum(0)


class PatternSums:
    """Sums over any number of batches: for each layer, head and pattern one number."""

    def __init__(self, patterns: Sequence[str] | None = None) -> None:
        self.patterns = [one_of("pattern", name, PATTERNS) for name in patterns or PATTERNS]
        self._sums: Tensor | None = None  # l h (p + 1)
        self._uniform = torch.zeros(len(self.patterns), dtype=torch.float64)
        self._counts = torch.zeros(len(self.patterns) + 1, dtype=torch.float64)
        self.num_tokens = 0

    def add(self, batch: BatchPatterns, layers: Sequence[Tensor], num_tokens: int) -> None:
        """Add what `BatchPatterns.sum_weights` returned for each layer of a batch."""
        sums = torch.stack(list(layers))
        self._sums = sums if self._sums is None else self._sums + sums
        self._uniform += batch.uniform
        self._counts += batch.counts
        self.num_tokens += num_tokens

    def compute(self) -> "HeadPatterns":
        """The mean attention of each head to each pattern."""
        if self._sums is None:
            raise InputError("the texts have no tokens", fix="pass texts with words")
        counts = self._counts
        means = torch.where(counts > 0, self._sums / counts.clamp(min=1), torch.nan)
        uniform = torch.where(counts > 0, torch.cat([self._uniform, counts[-1:]]) / counts, 1.0)
        return HeadPatterns(
            names=[*self.patterns, BROAD],
            weights=means.permute(2, 0, 1).numpy(),
            uniform=uniform.tolist(),
            num_queries=[int(count) for count in counts],
            num_tokens=self.num_tokens,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadPatterns:
    """The mean attention of every head to each pattern."""

    names: list[str]
    weights: NDArray[np.float64]  # p l h; NaN if no query has such a key
    uniform: list[float]  # of a head that attends to all tokens equally
    num_queries: list[int]
    num_tokens: int

    def list_patterns(self) -> list[str]:
        """The patterns that occur: at least one query has such a key."""
        return [name for name, count in zip(self.names, self.num_queries, strict=True) if count]

    def rank(self, name: str) -> list[tuple[int, int, float]]:
        """Layer and head (from 1) and weight of all heads, the largest weight first."""
        weights = self.weights[self.names.index(name)]
        order = np.argsort(-weights, axis=None, kind="stable")
        layers, heads = np.unravel_index(order, weights.shape)
        return [
            (int(layer) + 1, int(head) + 1, float(weights[layer, head]))
            for layer, head in zip(layers, heads, strict=True)
        ]

    def classify(self) -> list[list[tuple[str, float]]]:
        """For each layer and head, the pattern with most of its attention, and this share.

        The share counts the tokens without such a key, too. The pattern must have at least 25 % of
        the attention more than equal weights; else the head is `broad` if the entropy is at least
        75 % of that of equal weights, or `other`, with the entropy.
        """
        counts = np.array(self.num_queries[:-1]) / max(1, *self.num_queries)
        shares = np.nan_to_num(self.weights[:-1]) * counts[:, None, None]  # p l h
        equal = np.nan_to_num(np.array(self.uniform[:-1])) * counts
        best = (shares - equal[:, None, None]).argmax(0)  # l h

        def name_pattern(layer: int, head: int, pattern: int) -> tuple[str, float]:
            share, entropy = shares[pattern, layer, head], self.weights[-1, layer, head]
            if share - equal[pattern] >= _CLEAR:
                return self.names[pattern], float(share)
            return BROAD if entropy >= _BROAD else OTHER, float(entropy)

        return [
            [name_pattern(layer, head, pattern) for head, pattern in enumerate(row)]
            for layer, row in enumerate(best.tolist())
        ]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: for each pattern, layers × heads; None if no query has such a key."""
        rows = zip(self.names, self.uniform, self.num_queries, self.weights, strict=True)
        return {
            name: {
                "uniform": uniform,
                "num_queries": count,
                "weights": weights.tolist() if count else None,
            }
            for name, uniform, count, weights in rows
        }


def describe_tokens(
    alignments: Sequence[TokenAlignment],
    special_ids: frozenset[int],
    end_id: int | None,
    device: torch.device,
) -> TokenFeatures:
    """The features of a padded batch of encoded texts."""
    longest = max(map(len, alignments), default=0)

    def pad(rows: Sequence[Sequence[int | bool]], fill: int) -> Tensor:
        padded = [[*row, *[fill] * (longest - len(row))] for row in rows]
        return torch.tensor(padded, device=device)

    special = [
        [
            sequence is None or id_ in special_ids
            for id_, sequence in zip(one.ids, one.sequence_ids, strict=True)
        ]
        for one in alignments
    ]
    return TokenFeatures(
        ids=pad([one.ids for one in alignments], 0),
        real=pad([[True] * len(one) for one in alignments], 0).bool(),
        special=pad(special, 1).bool(),
        separator=pad([[id_ == end_id for id_ in one.ids] for one in alignments], 0).bool(),
        punctuation=pad([list(map(is_punctuation, one.tokens)) for one in alignments], 0).bool(),
        words=pad([_number_words(one) for one in alignments], -1),
        sequences=pad(
            [[-1 if n is None else n for n in one.sequence_ids] for one in alignments], -1
        ),
    )


def _number_words(one: TokenAlignment) -> list[int]:
    """The number of each token's word, unique in both texts; −1 for special tokens."""
    return [
        -1 if word is None or sequence is None else 2 * word + sequence
        for word, sequence in zip(one.words, one.sequence_ids, strict=True)
    ]


def is_punctuation(token: str) -> bool:
    """Whether a token consists of punctuation marks and symbols, apart from subword marks."""
    letters = token.removeprefix("##").lstrip("Ġ▁").removesuffix("</w>")
    return bool(letters) and all(unicodedata.category(letter)[0] in "PS" for letter in letters)
