"""Perplexity, bits per byte and bits per character of language models."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cloze.errors import InputError
from cloze.models.language import LanguageModel, batches, count_unknown


def perplexity(loss: float) -> float:
    """exp(loss) of a mean loss in nats; infinity if it overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, kw_only=True)
class LanguageModelScores:
    """The log probability of a text, and the counts that metrics divide it by."""

    texts: int  # lines; empty lines count nowhere
    tokens: int  # predicted tokens, including one end of text per text
    words: int  # separated by whitespace, plus one end of text per text
    bytes: int  # of the text in UTF-8, plus one newline per text
    characters: int  # of the text, plus one newline per text
    unknown: int  # tokens outside the vocabulary, and <unk> in the text itself
    log_p: float  # natural logarithm, of the whole text
    backward_log_p: float | None = None  # of a model that also predicts from right to left

    @property
    def perplexity(self) -> float:
        """exp(−log p / tokens), for models that share a vocabulary."""
        return perplexity(-self.log_p / self.tokens)

    @property
    def backward_perplexity(self) -> float:
        """The perplexity of the tokens, each given those after it."""
        return (
            math.nan
            if self.backward_log_p is None
            else perplexity(-self.backward_log_p / self.tokens)
        )

    @property
    def word_perplexity(self) -> float:
        """exp(−log p / words), for models with different tokens."""
        return perplexity(-self.log_p / self.words)

    @property
    def bits_per_byte(self) -> float:
        """−log₂ p / bytes, for any two models.

        Too low for texts with many unknown words, which are predicted as <unk> only.
        """
        return -self.log_p / math.log(2) / self.bytes

    @property
    def bits_per_character(self) -> float:
        """−log₂ p / characters; as bits per byte if the text is ASCII."""
        return -self.log_p / math.log(2) / self.characters


def score_language_model(model: LanguageModel, texts: Iterable[str]) -> LanguageModelScores:
    """Score texts, one sentence each; whether a text depends on those before depends on the model.

    Texts may end with a newline, as the lines of an open file do.
    """
    counts = Counter(
        dict.fromkeys(("texts", "tokens", "words", "bytes", "characters", "unknown"), 0)
    )

    def sequences() -> Iterator[list[int]]:
        for batch in batches(text.removesuffix("\n") for text in texts if text.strip()):
            counts["texts"] += len(batch)
            counts["words"] += sum(len(text.split()) + 1 for text in batch)
            counts["bytes"] += sum(len(text.encode()) + 1 for text in batch)
            counts["characters"] += sum(len(text) + 1 for text in batch)
            for sequence in model.encode_texts(batch):
                counts["unknown"] += count_unknown(model, sequence)
                yield sequence

    log_p, backward_log_p = 0.0, None
    backward = getattr(model, "backward_log_probs", None)
    # a model of both directions reads batches of texts twice
    parts = [sequences()] if backward is None else batches(sequences())
    for part in parts:
        for found in model.log_probs(part):
            counts["tokens"] += len(found)
            log_p += float(found.sum(dtype="float64"))
        if backward is not None:
            total = sum(float(found.sum(dtype="float64")) for found in backward(part))
            backward_log_p = (backward_log_p or 0.0) + total
    if not counts["texts"]:
        raise InputError("there is no text to score", fix="pass text that is not empty")
    return LanguageModelScores(**counts, log_p=log_p, backward_log_p=backward_log_p)
