"""How well a language model foretells a text: perplexity, and bits per byte."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cloze.errors import InputError
from cloze.models.language import LanguageModel, batches


def perplexity(loss: float) -> float:
    """E to the mean loss in nats; infinity where no number is large enough."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, kw_only=True)
class LanguageScore:
    """What a model made of a text, and the counts that its measures divide by."""

    texts: int  # lines; blank ones are left out of every count
    tokens: int  # pieces foretold, one end for each text among them
    words: int  # between white space, and one end for each text
    bytes: int  # of the raw text in UTF-8, and a newline for each text
    unknown: int  # tokens outside the vocabulary, an <unk> of the text's own among them
    log_p: float  # natural, of the whole text

    @property
    def perplexity(self) -> float:
        """exp(−log p / tokens): to compare models that share a vocabulary."""
        return perplexity(-self.log_p / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """exp(−log p / words), whatever pieces the model works with."""
        return perplexity(-self.log_p / self.words)

    @property
    def bits_per_byte(self) -> float:
        """−log₂ p / bytes: to compare any two models.

        An unknown word costs its <unk> alone, not its spelling: with many of them this is too low.
        """
        return -self.log_p / math.log(2) / self.bytes


def score_language(model: LanguageModel, texts: Iterable[str]) -> LanguageScore:
    """Score a text, a sentence to a line; whether lines depend on those before is the model's way.

    A line may come with its newline, as from an open file, or without.
    """
    counts = Counter(dict.fromkeys(("texts", "tokens", "words", "bytes", "unknown"), 0))

    def sequences() -> Iterator[list[int]]:
        for batch in batches(text.removesuffix("\n") for text in texts if text.strip()):
            counts["texts"] += len(batch)
            counts["words"] += sum(len(text.split()) + 1 for text in batch)
            counts["bytes"] += sum(len(text.encode()) + 1 for text in batch)
            for sequence in model.encode_texts(batch):
                counts["unknown"] += sum(id_ == model.unk_id for id_ in sequence)
                yield sequence

    log_p = 0.0
    for found in model.log_probs(sequences()):
        counts["tokens"] += len(found)
        log_p += float(found.sum(dtype="float64"))
    if not counts["texts"]:
        raise InputError("there is no text to score", fix="give some text that is not blank")
    return LanguageScore(**counts, log_p=log_p)
