"""Sentences of translators as tokens; a byte-level BPE tokenizer for both languages.

The first word of a sentence is encoded with a space before it, as inside a text.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tokenizers

from cloze.text.tokenizer import Tokenizer


def train_joint_bpe(texts: Sequence[str], vocab_size: int, **options: Any) -> Tokenizer:  # noqa: ANN401
    """Train a byte-level BPE tokenizer, which encodes any text losslessly, on both languages."""
    from cloze.text.tokenizer_training import train_tokenizer  # not needed to translate

    spaced = [_add_space(text) for text in texts]
    return train_tokenizer(spaced, kind="bpe", vocab_size=vocab_size, **options)


@lru_cache(maxsize=8)
def add_prefix_space(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, which adds the space itself; offsets are those of the text without it."""
    settings = json.loads(tokenizer.backend.to_str())
    settings["pre_tokenizer"]["add_prefix_space"] = True
    backend = tokenizers.Tokenizer.from_str(json.dumps(settings))
    return Tokenizer(
        backend, special_tokens=tokenizer.special_tokens, max_length=tokenizer.max_length
    )


def encode_sentences(
    tokenizer: Tokenizer, texts: Sequence[str], limit: int | None = None
) -> list[list[int]]:
    """The token ids of sentences, each with an EOS token; for `limit` see `encode_ids`."""
    assert tokenizer.eos_id is not None
    spaced = [_add_space(text) for text in texts]
    return [[*ids, tokenizer.eos_id] for ids in tokenizer.encode_ids(spaced, limit=limit)]


def encode_plain(
    tokenizer: Tokenizer, texts: Sequence[str], limit: int | None = None
) -> list[list[int]]:
    """The token ids of texts without special tokens; for `limit` see `encode_ids`."""
    spaced = [_add_space(text) for text in texts]
    return tokenizer.encode_ids(spaced, add_special_tokens=False, limit=limit)


def truncate_plain(
    tokenizer: Tokenizer, text: str, max_length: int, truncation: str
) -> tuple[list[int], int]:
    """At most `max_length` ids without special tokens, and the number of characters left out."""
    kept = tokenizer.encode(
        _add_space(text), max_length=max_length, truncation=truncation, add_special_tokens=False
    )
    return list(kept.ids), kept.truncated_chars


def truncate_sentence(
    tokenizer: Tokenizer, text: str, max_length: int, truncation: str
) -> tuple[list[int], int]:
    """At most `max_length` token ids with EOS, and the number of characters left out."""
    assert tokenizer.eos_id is not None
    kept = tokenizer.encode(_add_space(text), max_length=max_length - 1, truncation=truncation)
    return [*kept.ids, tokenizer.eos_id], kept.truncated_chars


def decode_sentence(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of token ids; bytes that do not form a character become �."""
    return tokenizer.decode(list(ids)).removeprefix(" ")


def _add_space(text: str) -> str:
    """Add a space before the first word, so that it has the same tokens as inside a text."""
    return f" {text}"
