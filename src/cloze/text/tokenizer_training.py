"""Train tokenizers on text. The same texts always give the same file, on every machine."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from cloze.config import in_range, one_of
from cloze.errors import ConfigError, InputError
from cloze.progress import ProgressCallback
from cloze.text import backends
from cloze.text.backends import (
    BERT_TOKENS,
    BYTE_SYMBOLS,
    BYTES,
    CONTINUATION_PREFIX,
    END_OF_TEXT,
    GPT2_TOKENS,
)
from cloze.text.bpe import learn_merges
from cloze.text.counting import (
    MAX_WORDS,
    count_characters,
    count_chunks,
    count_words,
    split_bert_words,
    split_with_spaces,
)
from cloze.text.music import EVENT_WORDS
from cloze.text.tokenizer import Tokenizer

WHITESPACE_TOKENS = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
# The alphabet covers all but one in this many characters of the text. That is about 400 characters
# for English with its foreign names, and 9,000 for Chinese.
_UNCOVERED = 20_000


def train_tokenizer(  # noqa: PLR0913 - the options are keyword-only arguments
    texts: Iterable[str],
    *,
    kind: str = "wordpiece",
    vocab_size: int = 30_000,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
    byte_fallback: bool = False,
    min_count: int = 2,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Train a tokenizer with at most `vocab_size` tokens in one pass over the texts.

    Args:
        texts: any iterable: lines of files, documents. Memory use does not depend on its length.
        kind: `wordpiece` (BERT), `bpe` (byte-level, GPT-2), `word`, `char`, or `midi` (the events
            of music; nothing is learned from the texts).
        vocab_size: maximum number of ids, special tokens included.
        lowercase: defaults to True for wordpiece and word (as in the first BERT), else False.
        strip_accents: defaults to the value of `lowercase`.
        chinese: treat every ideograph as a word.
        byte_fallback: encode rare characters as bytes instead of [UNK]. Byte-level BPE always does
            this; whole-word vocabularies cannot.
        min_count: minimum number of occurrences of a token.
        progress: called with the stage, the number of items done, and their total if known.
    """
    check_vocabulary(
        kind=kind, vocab_size=vocab_size, min_count=min_count, byte_fallback=byte_fallback
    )
    if kind == "bpe" and not chinese:
        raise ConfigError("chinese=False has no effect on bpe", fix="leave chinese out")
    options = _Options(
        vocab_size=vocab_size,
        lowercase=kind in ("wordpiece", "word") if lowercase is None else lowercase,
        strip_accents=strip_accents,
        chinese=chinese,
        byte_fallback=byte_fallback,
        min_count=min_count,
        progress=progress,
    )
    count = partial(count_chunks, texts, max_words=MAX_WORDS, progress=progress)
    return _TRAINERS[kind](count, options)


def check_vocabulary(
    *, kind: str, vocab_size: int, min_count: int, byte_fallback: bool = False
) -> None:
    """Reject invalid options before any text is read."""
    one_of("kind of vocabulary", kind, _TRAINERS)
    if byte_fallback and kind == "word":
        raise ConfigError(
            "byte_fallback=True does not work with a vocabulary of whole words",
            fix="use kind='wordpiece'",
        )
    in_range(
        "vocab_size", vocab_size, _get_min_vocab_size(kind, byte_fallback=byte_fallback), 10_000_000
    )
    in_range("min_count", min_count, 1, 1 << 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The validated arguments of `train_tokenizer`."""

    vocab_size: int
    lowercase: bool
    strip_accents: bool | None
    chinese: bool
    byte_fallback: bool
    min_count: int
    progress: ProgressCallback | None


CountChunks = Callable[[Callable[[str], Iterable[str]]], Counter[str]]


def _train_wordpiece(count: CountChunks, options: _Options) -> Tokenizer:
    normalizer = backends.build_bert_normalizer(
        lowercase=options.lowercase, strip_accents=options.strip_accents, chinese=options.chinese
    )
    chunks = count(partial(split_bert_words, chinese=options.chinese))
    words = _check_not_empty(count_words(chunks, pre_tokenizers.BertPreTokenizer(), normalizer))
    fixed = [*BERT_TOKENS.values()]
    if options.byte_fallback:
        symbols = sorted(BYTE_SYMBOLS)
        fixed += [*symbols, *(CONTINUATION_PREFIX + symbol for symbol in symbols)]
    inner = {character for word in words for character in word[1:]}

    def cost(character: str) -> int:
        """Tokens a character needs: itself, and one with the prefix if it continues words."""
        free = options.byte_fallback and character.isascii()  # a byte symbol already
        return 0 if free else 1 + (character in inner)

    alphabet = _choose_alphabet(
        count_characters(words), options, options.vocab_size - len(fixed), cost
    )
    symbols = [
        *alphabet,
        *(CONTINUATION_PREFIX + character for character in alphabet if character in inner),
    ]
    free = len(symbols) - sum(map(cost, alphabet))
    learned = learn_merges(
        words,
        symbols,
        vocab_size=options.vocab_size - len(fixed) + free,
        min_count=options.min_count,
        prefix=CONTINUATION_PREFIX,
        progress=options.progress,
    )
    tokens = (
        map(backends.to_byte_symbols, learned.tokens) if options.byte_fallback else learned.tokens
    )
    vocab = _assign_ids([*fixed, *tokens])
    backend = backends.build_wordpiece(vocab, normalizer, byte_fallback=options.byte_fallback)
    return Tokenizer(backend, special_tokens=BERT_TOKENS)


def _train_bpe(count: CountChunks, options: _Options) -> Tokenizer:
    normalizer = backends.build_plain_normalizer(
        lowercase=options.lowercase, strip_accents=options.strip_accents
    )
    chunks = count(partial(split_with_spaces, normalizer=normalizer))
    words = _check_not_empty(count_words(chunks, pre_tokenizers.ByteLevel(add_prefix_space=False)))
    learned = learn_merges(
        words,
        sorted(BYTE_SYMBOLS),
        vocab_size=options.vocab_size - 1,
        min_count=options.min_count,
        progress=options.progress,
    )
    vocab = _assign_ids([END_OF_TEXT, *learned.tokens])
    backend = backends.build_byte_bpe(vocab, learned.merges, normalizer)
    return Tokenizer(backend, special_tokens=GPT2_TOKENS)


def _train_word_level(count: CountChunks, options: _Options) -> Tokenizer:
    normalizer = backends.build_bert_normalizer(
        lowercase=options.lowercase, strip_accents=options.strip_accents, chinese=options.chinese
    )
    chunks = count(partial(split_bert_words, chinese=options.chinese))
    words = _check_not_empty(count_words(chunks, pre_tokenizers.BertPreTokenizer(), normalizer))
    ranked = [word for word in _sort_by_count(words) if words[word] >= options.min_count]
    vocab = _assign_ids([*BERT_TOKENS.values(), *ranked][: options.vocab_size])
    return Tokenizer(backends.build_word_level(vocab, normalizer), special_tokens=BERT_TOKENS)


def _train_characters(count: CountChunks, options: _Options) -> Tokenizer:
    normalizer = backends.build_plain_normalizer(
        lowercase=options.lowercase, strip_accents=options.strip_accents
    )
    counts = _check_not_empty(count_characters(count(str), normalizer))
    fixed = [*BERT_TOKENS.values(), *(BYTES if options.byte_fallback else ())]
    alphabet = _choose_alphabet(counts, options, options.vocab_size - len(fixed), lambda _: 1)
    backend = backends.build_characters(
        _assign_ids([*fixed, *alphabet]),
        normalizer,
        chinese=options.chinese,
        byte_fallback=options.byte_fallback,
    )
    return Tokenizer(backend, special_tokens=BERT_TOKENS)


def _make_event_vocabulary(count: CountChunks, options: _Options) -> Tokenizer:  # noqa: ARG001
    """The events of music: always the same ones, whatever the text."""
    normalizer = backends.build_bert_normalizer(lowercase=True, strip_accents=None, chinese=False)
    vocab = _assign_ids([*BERT_TOKENS.values(), *EVENT_WORDS])
    return Tokenizer(backends.build_word_level(vocab, normalizer), special_tokens=BERT_TOKENS)


_TRAINERS = {
    "wordpiece": _train_wordpiece,
    "bpe": _train_bpe,
    "word": _train_word_level,
    "char": _train_characters,
    "midi": _make_event_vocabulary,
}


def _choose_alphabet(
    counts: Counter[str], options: _Options, max_tokens: int, cost: Callable[[str], int]
) -> list[str]:
    """The most frequent characters that fit into `max_tokens` tokens, sorted by code point."""
    uncovered = sum(counts.values())
    allowed = uncovered // _UNCOVERED
    chosen: list[str] = []
    for character in _sort_by_count(counts):
        too_rare = counts[character] < options.min_count
        if uncovered <= allowed or too_rare or cost(character) > max_tokens:
            break
        chosen.append(character)
        uncovered -= counts[character]
        max_tokens -= cost(character)
    return sorted(chosen)


def _get_min_vocab_size(kind: str, *, byte_fallback: bool) -> int:
    """The number of special tokens, of byte tokens if there is a byte fallback, and one."""
    if kind == "bpe":
        return 1 + len(BYTE_SYMBOLS)
    symbols_per_byte = {"wordpiece": 2, "char": 1}.get(kind, 0) if byte_fallback else 0
    return len(BERT_TOKENS) + symbols_per_byte * len(BYTES) + 1


def extend_tokenizer(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    count: int,
    *,
    min_count: int = 5,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """Add up to `count` whole words of a new domain, with ids after the existing ones.

    The words chosen save the most tokens over the texts: occurrences of the word times the number
    of tokens it is split into now, minus one. Existing ids do not change.
    """
    if tokenizer.kind != "wordpiece":
        raise ConfigError(
            f"words cannot be added to a {tokenizer.kind} vocabulary",
            fix="use a wordpiece model, or keep its vocabulary",
        )
    in_range("count", count, 1, 1_000_000)
    backend = tokenizer.backend
    split = partial(split_bert_words, chinese=True)
    chunks = count_chunks(texts, split, max_words=MAX_WORDS, progress=progress)
    words = count_words(chunks, backend.pre_tokenizer, backend.normalizer)
    known = backend.get_vocab()
    common = [word for word, times in words.items() if times >= min_count and word not in known]
    saved = {word: words[word] * (_count_tokens(tokenizer, word) - 1) for word in common}
    useful = sorted((word for word in common if saved[word]), key=lambda word: (-saved[word], word))
    return add_tokens(tokenizer, useful[:count])


def add_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> Tokenizer:
    """The same tokenizer with these tokens appended to its vocabulary."""
    serialized = json.loads(tokenizer.backend.to_str())
    vocab = serialized["model"]["vocab"]
    vocab.update({token: tokenizer.vocab_size + n for n, token in enumerate(tokens)})
    backend = tokenizers.Tokenizer.from_str(json.dumps(serialized))
    return Tokenizer(
        backend, special_tokens=tokenizer.special_tokens, max_length=tokenizer.max_length
    )


def add_special_token(tokenizer: Tokenizer, token: str) -> Tokenizer:
    """The same tokenizer with one more special token, unless its vocabulary has it."""
    if tokenizer.token_to_id(token) in tokenizer.special_ids:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([token])
    return Tokenizer(
        backend, special_tokens=tokenizer.special_tokens, max_length=tokenizer.max_length
    )


def add_bos_and_eos(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer with tokens that begin and end a sequence.

    The vocabulary of the first GPT has neither; <|endoftext|> is both, as in GPT-2.
    """
    ids = {"bos": tokenizer.start_id, "eos": tokenizer.end_id}
    missing = [role for role, id_ in ids.items() if id_ is None]
    if not missing:
        return tokenizer
    extended = add_special_token(tokenizer, END_OF_TEXT)
    return Tokenizer(
        extended.backend,
        special_tokens={**tokenizer.special_tokens, **dict.fromkeys(missing, END_OF_TEXT)},
        max_length=tokenizer.max_length,
    )


def _count_tokens(tokenizer: Tokenizer, word: str) -> int:
    """Number of tokens a word is split into; an unknown word counts as two."""
    tokens = [token.value for token in tokenizer.backend.model.tokenize(word)]
    return 2 if tokens == [tokenizer.unk_token] else len(tokens)


def train_whitespace_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 1_000_000,
    min_count: int = 1,
    progress: ProgressCallback | None = None,
) -> Tokenizer:
    """A tokenizer of the words between white space, for text that is tokenized already.

    The most frequent words come first. `<unk>` in the text is the tokenizer's own unknown token,
    as in the Penn Treebank corpus of Mikolov et al.
    """
    check_whitespace_vocabulary(vocab_size=vocab_size, min_count=min_count)
    chunks = count_chunks(texts, str.split, max_words=MAX_WORDS, progress=progress)
    counts = _check_not_empty(chunks)
    special = WHITESPACE_TOKENS.values()
    ranked = [
        word for word in _sort_by_count(counts) if counts[word] >= min_count and word not in special
    ]
    return build_whitespace_tokenizer(ranked[: vocab_size - len(special)])


def build_whitespace_tokenizer(words: Sequence[str]) -> Tokenizer:
    """The tokenizer of these words; their ids follow those of <unk>, <s> and </s>."""
    special = WHITESPACE_TOKENS
    vocab = {word: number for number, word in enumerate([*special.values(), *words])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=special["unk"]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(
        prefix=CONTINUATION_PREFIX, cleanup=False
    )  # inserts the spaces
    backend.add_special_tokens(list(special.values()))
    return Tokenizer(backend, special_tokens=special)


def check_whitespace_vocabulary(*, vocab_size: int, min_count: int) -> None:
    """Reject invalid options before any text is read."""
    in_range("vocab_size", vocab_size, len(WHITESPACE_TOKENS) + 1, 10_000_000)
    in_range("min_count", min_count, 1, 1 << 40)


def _sort_by_count(counts: Counter[str]) -> list[str]:
    """By count, then by spelling: the order of ties in a `Counter` depends on the text."""
    return sorted(counts, key=lambda item: (-counts[item], item))


def _assign_ids(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _check_not_empty(counts: Counter[str]) -> Counter[str]:
    if not counts:
        raise InputError("the texts are empty", fix="provide text to train a vocabulary on")
    return counts
