"""One byte-level BPE vocabulary for both languages of a translator, and sentences as its tokens."""

from collections.abc import Sequence
from typing import Any

from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer


def train_joint_bpe(texts: Sequence[str], vocab_size: int, **options: Any) -> Tokenizer:  # noqa: ANN401
    """A vocabulary that represents every text, unseen ones in single bytes, without loss."""
    spaced = [_add_space(text) for text in texts]
    return train_tokenizer(spaced, kind="bpe", vocab_size=vocab_size, **options)


def encode_sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Sentences as ids, each with its end."""
    assert tokenizer.eos_id is not None
    spaced = [_add_space(text) for text in texts]
    return [[*ids, tokenizer.eos_id] for ids in tokenizer.encode_ids(spaced)]


def decode_sentence(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of ids; a byte that is no part of a character becomes �."""
    return tokenizer.decode(list(ids)).removeprefix(" ")


def _add_space(text: str) -> str:
    """A space before the first word too, so that it has the same tokens as elsewhere."""
    return f" {text}"
