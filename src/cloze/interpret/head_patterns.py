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


class PatternSums:
    """Sums of the attention of every head to the keys of each pattern, over any number of batches.

    Only sums are kept: for each layer, head and pattern a number.
    """

    def __init__(self, patterns: Sequence[str] | None = None) -> None:
        self.patterns = list(PATTERNS if patterns is None else patterns)
        self._sums: dict[int, Tensor] = {}  # by layer: h (p + 2)
        self._uniform = torch.zeros(len(self.patterns), dtype=torch.float64)
        self._counts = torch.zeros(len(self.patterns) + 1, dtype=torch.float64)
        self.num_tokens = 0
        self.num_texts = 0

    def add_batch(self, tokens: TokenFeatures, visible: Tensor) -> "BatchPatterns":
        """Count the queries of a batch; `visible` (b q k) is True where a query may attend.

        The sums of each layer are then added by the object that is returned.
        """
        queries = tokens.real & ~tokens.special
        keys = visible & tokens.real[:, None]
        number_of_keys = keys.sum(-1).double().clamp(min=1)  # b q
        members, scales = [], []
        for number, name in enumerate(self.patterns):
            member = PATTERNS[name][0](tokens) & keys
            has_key = (member.any(-1) & queries).double()
            self._counts[number] += has_key.sum().cpu()
            uniform = member.sum(-1) / number_of_keys * has_key
            self._uniform[number] += uniform.sum().cpu()
            members.append(member)
            scales.append(has_key)
        several = queries & (number_of_keys > 1)  # the entropy of one weight is zero
        self._counts[-1] += several.sum().cpu()
        self.num_tokens += int(tokens.real.sum())
        self.num_texts += len(tokens.ids)
        return BatchPatterns(
            members=members,
            counted=scales,
            entropy_scale=several / number_of_keys.log().clamp(min=1e-9),
            sums=self._sums,
        )

    def compute(self) -> "HeadPatterns":
        """The mean attention of each head to each pattern."""
        names = [*self.patterns, BROAD]
        layers = sorted(self._sums)
        sums = torch.stack([self._sums[layer] for layer in layers]).cpu()  # l h p
        counts = self._counts
        means = torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)
        uniform = torch.where(counts[:-1] > 0, self._uniform / counts[:-1].clamp(min=1), torch.nan)
        return HeadPatterns(
            names=names,
            weights=means.permute(2, 0, 1).numpy(),
            uniform=[*uniform.tolist(), 1.0],
            num_queries=[int(count) for count in counts],
            num_tokens=self.num_tokens,
            num_texts=self.num_texts,
        )


@dataclass(frozen=True, kw_only=True)
class BatchPatterns:
    """The keys of each pattern in one batch; adds the attention that each layer pays to them."""

    members: list[Tensor]  # b q k of each pattern
    counted: list[Tensor]  # b q, 1 where a query counts
    entropy_scale: Tensor  # b q
    sums: dict[int, Tensor]

    def add_layer(self, layer: int, weights: Tensor) -> None:
        """Add the weights (b h q k) of one layer, which need not be kept."""
        found = [
            _sum_over_members(weights, member, counted)
            for member, counted in zip(self.members, self.counted, strict=True)
        ]
        entropy = torch.special.entr(weights).sum(-1).double()  # b h q
        found.append((entropy * self.entropy_scale[:, None]).sum((0, 2)))
        total = torch.stack(found, -1)  # h p
        self.sums[layer] = self.sums[layer] + total if layer in self.sums else total


def _sum_over_members(weights: Tensor, member: Tensor, counted: Tensor) -> Tensor:
    """The attention of counted queries to the member keys: b h q k -> h."""
    selected = torch.where(member[:, None], weights, 0).sum(-1, dtype=torch.float64)  # b h q
    return (selected * counted[:, None]).sum((0, 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadPatterns:
    """The mean attention of every head to each pattern."""

    names: list[str]
    weights: NDArray[np.float64]  # p l h; NaN if no query has such a key
    uniform: list[float]  # of a head that attends to all tokens equally
    num_queries: list[int]
    num_tokens: int
    num_texts: int

    def rank(self, name: str) -> list[tuple[int, int, float]]:
        """Layer and head (from 1) and weight of all heads, the largest weight first."""
        weights = self.weights[self.names.index(name)]
        order = np.argsort(-weights, axis=None, kind="stable")
        layers, heads = np.unravel_index(order, weights.shape)
        return [
            (int(layer) + 1, int(head) + 1, float(weights[layer, head]))
            for layer, head in zip(layers, heads, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: for each pattern, layers × heads."""
        return {
            "num_texts": self.num_texts,
            "num_tokens": self.num_tokens,
            "patterns": [
                {
                    "name": name,
                    "uniform": None if np.isnan(uniform) else uniform,
                    "queries": count,
                    "weights": None if np.isnan(weights).any() else weights.tolist(),
                }
                for name, uniform, count, weights in zip(
                    self.names, self.uniform, self.num_queries, self.weights, strict=True
                )
            ],
        }


def describe_tokens(
    alignments: Sequence[TokenAlignment], special_ids: frozenset[int], end_id: int | None
) -> TokenFeatures:
    """The features of a padded batch of encoded texts."""
    longest = max(map(len, alignments), default=0)

    def pad(rows: Sequence[Sequence[int | bool]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])

    special = [
        [sequence is None or id_ in special_ids for id_, sequence in _pairs(one)]
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


def _pairs(one: TokenAlignment) -> zip[tuple[int, int | None]]:
    return zip(one.ids, one.sequence_ids, strict=True)


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
