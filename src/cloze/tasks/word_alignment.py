"""The alignment of a translation: how much each of its words attends to each source word.

s source tokens, t target tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.checkpoint.model import Model
from cloze.decode.translators import pad_sequences
from cloze.errors import InputError
from cloze.interpret.attention import merge_tokens
from cloze.interpret.capture import capture
from cloze.models.seq2seq import Seq2Seq
from cloze.nn.attention import CrossAttention
from cloze.plot.alignment import AlignmentLines
from cloze.text.tokenizer import Tokenizer

END = "⏎"  # symbol for the end of a sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """How much each word of the translation attends to each source word."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: NDArray[np.float32]  # target words × source words; rows sum to 1

    @property
    def hard(self) -> tuple[int, ...]:
        """For each target word the source word with the largest weight."""
        return tuple(int(n) for n in self.weights.argmax(1))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the alignment."""
        return {
            "source": self.source,
            "target": self.target,
            "weights": [[round(float(x), 6) for x in row] for row in self.weights],
            "hard": self.hard,
        }

    def plot_lines(self) -> AlignmentLines:
        """Two rows of words, and a line from each target word to its source word."""
        weights = self.weights.tolist()
        return AlignmentLines(
            title="Alignment", source=self.source, target=self.target, weights=weights
        )


def check_alignable(model: Model) -> None:
    """Raise unless the model has attention from the target to the source."""
    if model.family.kind != "translator":
        raise InputError(
            "this model has no cross-attention, which alignments need: it reads source and target "
            "as one sequence",
            fix="use an encoder–decoder: cloze finetune translate --recipe transformer",
        )
    if isinstance(model.module, Seq2Seq) and model.module.score is None:
        raise InputError(
            "this model has no attention, which alignments need", fix="use a model with attention"
        )


@torch.inference_mode()
def align_words(
    model: Model, source: Sequence[int], target: Sequence[int], *, ended: bool = True
) -> Alignment:
    """Compute how much each word of a translation attends to each source word, both given as ids.

    For a Transformer this is the mean over the heads of the second-to-last layer, whose
    cross-attention is closest to an alignment (Garg et al. 2019). Weights of the tokens of a source
    word are added, those of a target word averaged. An unfinished translation has no row for its
    end.
    """
    ids, real = pad_sequences([source], model.device)
    before = target if ended else target[:-1]  # the inputs of the decoder
    inputs = torch.tensor([[model.config.bos_id, *before]], device=model.device)
    if isinstance(model.module, Seq2Seq):
        weights = model.module.compute_alignment(ids, real, inputs)[0]  # t s
    else:
        with capture(model.module, CrossAttention) as captured:
            model.module(ids, real, inputs)
        weights = captured[max(len(captured) - 2, 0)][0].mean(0)
    columns = list(_split_words(model, source[:-1], ended=True))
    rows = list(_split_words(model, target, ended=ended))
    joined = merge_tokens(
        weights.float().cpu().numpy(),
        [(first, last) for _, first, last in rows],
        [(first, last) for _, first, last in columns],
    )
    return Alignment(
        source=tuple(word for word, _, _ in columns),
        target=tuple(word for word, _, _ in rows),
        weights=joined,
    )


def _split_words(
    model: Model, ids: Sequence[int], *, ended: bool
) -> Iterator[tuple[str, int, int]]:
    yield from join_words(model.tokenizer, ids)
    if ended:
        yield END, len(ids), len(ids) + 1


def join_words(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Join byte-level tokens to words, each with its first token and the one after its last.

    A word begins at a space, between letters and symbols, and, in scripts without spaces, at each
    token. A token that ends within a character is joined to the next.
    """
    first, word = 0, ""
    for index in range(len(ids)):
        extended = tokenizer.decode(ids[first : index + 1])
        added = extended[len(word) :]
        if word and _begins_word(word[-1], added[:1]):
            yield word.strip(), first, index
            first, extended = index, tokenizer.decode(ids[index : index + 1])
        word = extended
    if len(ids) > first:
        yield word.strip(), first, len(ids)


def _begins_word(before: str, letter: str) -> bool:
    if letter.isspace():
        return True
    if not letter or before == "�":  # the token continues a character
        return False
    wide = east_asian_width(before) in "WF" or east_asian_width(letter) in "WF"
    return wide or before.isalnum() != letter.isalnum()
