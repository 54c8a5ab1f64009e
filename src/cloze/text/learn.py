"""Learn a vocabulary from text. The same texts give the same file, every time and everywhere."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from tokenizers import pre_tokenizers

from cloze.config import in_range, one_of
from cloze.errors import ConfigError, InputError
from cloze.text import backends
from cloze.text.backends import BERT_TOKENS, BYTE_SYMBOLS, BYTES, END_OF_TEXT, GPT2_TOKENS, PREFIX
from cloze.text.counting import (
    MAX_WORDS,
    Told,
    count_characters,
    count_chunks,
    count_words,
    split_bert,
    split_spaced,
)
from cloze.text.subwords import learn_merges
from cloze.text.tokenizer import Tokenizer

# The alphabet covers all but one in so many characters of the text. That is some 400 characters for
# English with its foreign names, and 9,000 for Chinese.
_UNCOVERED = 20_000


def learn(  # noqa: PLR0913 - the choices of a vocabulary are keyword-only arguments
    texts: Iterable[str],
    *,
    kind: str = "wordpiece",
    size: int = 30_000,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
    byte_fallback: bool = False,
    min_count: int = 2,
    progress: Told | None = None,
) -> Tokenizer:
    """A tokenizer with at most `size` pieces from one pass over the texts.

    Args:
        texts: any stream: lines of files, documents. Memory does not grow with its length.
        kind: `wordpiece` (BERT), `bpe` (byte-level, GPT-2), `word` or `char`.
        size: ids in all, special tokens included.
        lowercase: by default so for wordpiece and word, as in the first BERT, not for the others.
        strip_accents: follows `lowercase` unless given.
        chinese: every ideograph is a word of its own.
        byte_fallback: spell rare characters in bytes instead of losing them to [UNK]. Byte-level
            BPE always does; whole words cannot.
        min_count: a piece is seen at least so often.
        progress: called with the stage, how far it is, and how far it goes if that is known.
    """
    check_pieces(kind=kind, size=size, min_count=min_count, byte_fallback=byte_fallback)
    if kind == "bpe" and not chinese:
        raise ConfigError("bpe sets no ideographs apart", fix="leave chinese out")
    plan = _Plan(
        size=size,
        lowercase=kind in ("wordpiece", "word") if lowercase is None else lowercase,
        strip_accents=strip_accents,
        chinese=chinese,
        byte_fallback=byte_fallback,
        min_count=min_count,
        progress=progress,
    )
    count = partial(count_chunks, texts, max_words=MAX_WORDS, progress=progress)
    return _KINDS[kind](count, plan)


def check_pieces(*, kind: str, size: int, min_count: int, byte_fallback: bool = False) -> None:
    """Refuse what no vocabulary can be learned by, before any text is read."""
    one_of("kind of vocabulary", kind, _KINDS)
    if byte_fallback and kind == "word":
        raise ConfigError(
            "byte_fallback is true, and a vocabulary of whole words has no bytes to fall back to",
            fix="use kind='wordpiece'",
        )
    in_range("size", size, _smallest(kind, byte_fallback=byte_fallback), 10_000_000)
    in_range("min_count", min_count, 1, 1 << 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The arguments of `learn`, checked."""

    size: int
    lowercase: bool
    strip_accents: bool | None
    chinese: bool
    byte_fallback: bool
    min_count: int
    progress: Told | None


Count = Callable[[Callable[[str], Iterable[str]]], Counter[str]]


def _wordpiece(count: Count, plan: _Plan) -> Tokenizer:
    normalizer = backends.bert_normalizer(
        lowercase=plan.lowercase, strip_accents=plan.strip_accents, chinese=plan.chinese
    )
    chunks = count(partial(split_bert, chinese=plan.chinese))
    words = _some(count_words(chunks, pre_tokenizers.BertPreTokenizer(), normalizer))
    fixed = [*BERT_TOKENS.values()]
    if plan.byte_fallback:
        symbols = sorted(BYTE_SYMBOLS)
        fixed += [*symbols, *(PREFIX + symbol for symbol in symbols)]
    inner = {character for word in words for character in word[1:]}

    def cost(character: str) -> int:
        """The pieces a character takes: itself, and with the prefix if it continues a word."""
        free = plan.byte_fallback and character.isascii()  # a byte symbol already
        return 0 if free else 1 + (character in inner)

    alphabet = _alphabet(count_characters(words), plan, plan.size - len(fixed), cost)
    symbols = [*alphabet, *(PREFIX + character for character in alphabet if character in inner)]
    free = len(symbols) - sum(map(cost, alphabet))
    found = learn_merges(
        words,
        symbols,
        room=plan.size - len(fixed) + free,
        min_count=plan.min_count,
        prefix=PREFIX,
        progress=plan.progress,
    )
    pieces = map(backends.to_bytes, found.pieces) if plan.byte_fallback else found.pieces
    vocab = _numbered([*fixed, *pieces])
    backend = backends.wordpiece(vocab, normalizer, byte_fallback=plan.byte_fallback)
    return Tokenizer(backend, tokens=BERT_TOKENS)


def _bpe(count: Count, plan: _Plan) -> Tokenizer:
    normalizer = backends.plain_normalizer(
        lowercase=plan.lowercase, strip_accents=plan.strip_accents
    )
    chunks = count(partial(split_spaced, normalizer=normalizer))
    words = _some(count_words(chunks, pre_tokenizers.ByteLevel(add_prefix_space=False)))
    found = learn_merges(
        words,
        sorted(BYTE_SYMBOLS),
        room=plan.size - 1,
        min_count=plan.min_count,
        progress=plan.progress,
    )
    vocab = _numbered([END_OF_TEXT, *found.pieces])
    return Tokenizer(backends.byte_bpe(vocab, found.merges, normalizer), tokens=GPT2_TOKENS)


def _words(count: Count, plan: _Plan) -> Tokenizer:
    normalizer = backends.bert_normalizer(
        lowercase=plan.lowercase, strip_accents=plan.strip_accents, chinese=plan.chinese
    )
    chunks = count(partial(split_bert, chinese=plan.chinese))
    words = _some(count_words(chunks, pre_tokenizers.BertPreTokenizer(), normalizer))
    ranked = [word for word in _ranked(words) if words[word] >= plan.min_count]
    vocab = _numbered([*BERT_TOKENS.values(), *ranked][: plan.size])
    return Tokenizer(backends.words(vocab, normalizer), tokens=BERT_TOKENS)


def _characters(count: Count, plan: _Plan) -> Tokenizer:
    normalizer = backends.plain_normalizer(
        lowercase=plan.lowercase, strip_accents=plan.strip_accents
    )
    seen = _some(count_characters(count(str), normalizer))
    fixed = [*BERT_TOKENS.values(), *(BYTES if plan.byte_fallback else ())]
    alphabet = _alphabet(seen, plan, plan.size - len(fixed), lambda _: 1)
    backend = backends.characters(
        _numbered([*fixed, *alphabet]),
        normalizer,
        chinese=plan.chinese,
        byte_fallback=plan.byte_fallback,
    )
    return Tokenizer(backend, tokens=BERT_TOKENS)


_KINDS = {"wordpiece": _wordpiece, "bpe": _bpe, "word": _words, "char": _characters}


def _alphabet(seen: Counter[str], plan: _Plan, room: int, cost: Callable[[str], int]) -> list[str]:
    """The most frequent characters that fit, in the order of their code points."""
    missing = sum(seen.values())
    enough = missing // _UNCOVERED
    chosen: list[str] = []
    for character in _ranked(seen):
        if missing <= enough or seen[character] < plan.min_count or cost(character) > room:
            break
        chosen.append(character)
        missing -= seen[character]
        room -= cost(character)
    return sorted(chosen)


def _smallest(kind: str, *, byte_fallback: bool) -> int:
    """The special tokens, the bytes if they are spelled, and one piece."""
    if kind == "bpe":
        return 1 + len(BYTE_SYMBOLS)
    spellings = {"wordpiece": 2, "char": 1}.get(kind, 0) if byte_fallback else 0
    return len(BERT_TOKENS) + spellings * len(BYTES) + 1


def _ranked(counts: Counter[str]) -> list[str]:
    """By count and then by spelling, because the order of equals in a `Counter` is the text's."""
    return sorted(counts, key=lambda item: (-counts[item], item))


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def _some(counts: Counter[str]) -> Counter[str]:
    if not counts:
        raise InputError("the texts are empty", fix="give some text to learn a vocabulary from")
    return counts
