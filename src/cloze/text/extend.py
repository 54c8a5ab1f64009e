"""More words for a vocabulary that is there: those of a new domain, which it cuts to pieces."""

import json
from collections.abc import Iterable
from functools import partial

import tokenizers

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.text.counting import MAX_WORDS, Told, count_chunks, count_words, split_bert
from cloze.text.tokenizer import Tokenizer


def extend(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    count: int,
    *,
    min_count: int = 5,
    progress: Told | None = None,
) -> Tokenizer:
    """The same tokenizer with up to `count` whole words more, numbered after the old pieces.

    Chosen are the words that save the most pieces over the text: how often a word stands there,
    times the pieces it is cut into now, less the one it will be. Old ids stay what they were.
    """
    if tokenizer.kind != "wordpiece":
        raise ConfigError(
            f"a vocabulary of kind {tokenizer.kind} cannot take words in",
            fix="start from a wordpiece model, or leave its vocabulary as it is",
        )
    in_range("count", count, 1, 1_000_000)
    backend = tokenizer.backend
    split = partial(split_bert, chinese=True)
    chunks = count_chunks(texts, split, max_words=MAX_WORDS, progress=progress)
    words = count_words(chunks, backend.pre_tokenizer, backend.normalizer)
    known = backend.get_vocab()
    common = [word for word, times in words.items() if times >= min_count and word not in known]
    saved = {word: words[word] * (_cost(tokenizer, word) - 1) for word in common}
    useful = sorted((word for word in common if saved[word]), key=lambda word: (-saved[word], word))
    return with_pieces(tokenizer, useful[:count])


def _cost(tokenizer: Tokenizer, word: str) -> int:
    """Pieces that a word is cut into; one that is lost to [UNK] counts as two."""
    pieces = [token.value for token in tokenizer.backend.model.tokenize(word)]
    return 2 if pieces == [tokenizer.unk_token] else len(pieces)


def with_pieces(tokenizer: Tokenizer, pieces: Iterable[str]) -> Tokenizer:
    """The same tokenizer with these pieces after the old ones."""
    described = json.loads(tokenizer.backend.to_str())
    vocab = described["model"]["vocab"]
    vocab.update({piece: tokenizer.size + n for n, piece in enumerate(pieces)})
    backend = tokenizers.Tokenizer.from_str(json.dumps(described))
    return Tokenizer(backend, tokens=tokenizer.tokens, limit=tokenizer.limit)
