"""The words of our own language models: a tokenizer's pieces, and symbols for begin and end."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cloze.checkpoint.own import Saved
from cloze.models.configs.ngram import BOS, EOS, SYMBOLS, UNK
from cloze.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """<unk>, <s>, </s>, then a tokenizer's pieces in their order.

    Its special tokens are left out: none is ever counted. In a text they are unknown words.
    """

    tokenizer: Tokenizer

    @cached_property
    def words(self) -> list[str]:
        return [*SYMBOLS, *self._pieces]

    @cached_property
    def _pieces(self) -> dict[str, int]:
        tokenizer = self.tokenizer
        pieces = sorted(tokenizer.backend.get_vocab().items(), key=lambda item: item[1])
        return {piece: id_ for piece, id_ in pieces if id_ not in tokenizer.special_ids}

    @cached_property
    def _numbers(self) -> list[int]:
        """The model's id for each of the tokenizer's."""
        found = [UNK] * self.tokenizer.vocab_size
        for number, id_ in enumerate(self._pieces.values(), len(SYMBOLS)):
            found[id_] = number
        return found

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The words of texts."""
        numbers = self._numbers
        return [
            [numbers[id_] for id_ in ids]
            for ids in self.tokenizer.encode_ids(texts, add_special_tokens=False)
        ]

    def shown(self, number: int) -> str:
        """A word for a reader: of byte-level pieces the text."""
        word = self.words[number]
        if number < len(SYMBOLS):
            return word
        return (
            self.tokenizer.decode([self._pieces[word]], skip_special_tokens=False).strip() or word
        )

    def text(self, numbers: Sequence[int]) -> str:
        """The text of words, without <s> and </s>; what is unknown stays so."""
        unknown = self.tokenizer.unk_id
        ids = [
            unknown if n == UNK else self._pieces[self.words[n]]
            for n in numbers
            if n not in (BOS, EOS)
        ]
        return self.tokenizer.decode(
            [id_ for id_ in ids if id_ is not None], skip_special_tokens=False
        )


class ReadsWords(Saved):
    """How a model over such words reads and writes text: that part of a `LanguageModel`."""

    tokenizer: Tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer)

    @property
    def words(self) -> Sequence[str]:
        return self.vocabulary.words

    @property
    def unknown(self) -> int:
        return UNK

    @property
    def end(self) -> int:
        return EOS

    @property
    def first(self) -> int:
        """What stands before a sentence."""
        return BOS

    def begin(self, text: str) -> list[int]:
        """The words of a text, and what stands before them."""
        return [self.first, *self.vocabulary.ids([text])[0]]

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts with their begin and their end."""
        return [[self.first, *ids, EOS] for ids in self.vocabulary.ids(texts)]

    def shown(self, id: int) -> str:
        """A word for a reader."""
        return self.vocabulary.shown(id)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of words."""
        return self.vocabulary.text(ids)
