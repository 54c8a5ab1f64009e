"""Text to token ids with alignment, and back: a small interface to the tokenizers library."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import normalizers

from cloze.config import one_of
from cloze.errors import InputError
from cloze.text import tokenizer_files as files
from cloze.text.alignment import TokenAlignment, select_parts
from cloze.text.backends import BYTES
from cloze.text.checks import check_text, check_texts, convert_errors, read_lines
from cloze.text.encodings import count_text_tokens, restore_whole, truncate_encoding
from cloze.text.long_texts import LongTextRules, ShortText, is_long
from cloze.text.long_words import FAILED
from cloze.text.music import EVENT_WORDS, check_events
from cloze.text.truncation import TRUNCATIONS, split_windows
from cloze.text.windows import Windows, check_fixed_tokens, iterate_windows

_KINDS = {"WordPiece": "wordpiece", "WordLevel": "word", "BPE": "bpe", "Unigram": "unigram"}


class Tokenizer:
    """A vocabulary and its pipeline. Immutable; `with_max_length` returns a new tokenizer.

    `max_length` is the maximum input length of the model, special tokens included. It is for
    information only: `encode` truncates, or raises, at the length it is given.
    """

    backend: tokenizers.Tokenizer
    max_length: int | None
    kind: str  # wordpiece, bpe, word, char or midi; unigram in tokenizers of other libraries
    sample_word = "a"  # to find out which tokens are added to a text
    vocab_size: int  # number of ids
    lowercase: bool
    special_tokens: Mapping[str, str]  # role ("pad", "cls" …) -> token
    special_ids: frozenset[int]
    unk_token: str | None
    pad_token: str | None
    cls_token: str | None
    sep_token: str | None
    mask_token: str | None
    bos_token: str | None
    eos_token: str | None
    unk_id: int | None
    pad_id: int | None
    cls_id: int | None
    sep_id: int | None
    mask_id: int | None
    bos_id: int | None
    eos_id: int | None

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str],
        max_length: int | None = None,
    ) -> None:
        self.backend = backend
        self.max_length = max_length
        self.special_tokens = dict(special_tokens)
        vocab = backend.get_vocab()
        self.vocab_size = 1 + max(vocab.values())
        self.kind = _detect_kind(backend, vocab)
        if self.kind == "midi":
            self.sample_word = EVENT_WORDS[0]
        normalizer = backend.normalizer
        self.lowercase = normalizer is not None and normalizer.normalize_str("ABC") == "abc"
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(number for number, token in added.items() if token.special)
        for role in files.ROLES:
            token = special_tokens.get(role)
            setattr(self, f"{role}_token", token)
            setattr(self, f"{role}_id", None if token is None else vocab[token])

    def __repr__(self) -> str:
        return (
            f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size:,}, "
            f"max_length={self.max_length})"
        )

    @property
    def start_id(self) -> int | None:
        """The token that begins a sequence: [CLS], or else the beginning of a text."""
        return self.bos_id if self.cls_id is None else self.cls_id

    @property
    def end_id(self) -> int | None:
        """The token that ends a sequence: [SEP], or else the end of a text."""
        return self.eos_id if self.sep_id is None else self.sep_id

    # Loading and saving.

    @classmethod
    def load(cls, path: str | PathLike[str], *, lowercase: bool | None = None) -> Self:
        """Load from a folder or a file: tokenizer.json, vocab.txt, or vocab.json with merges.txt.

        `lowercase` is for a bare vocab.txt without settings: by default, a vocabulary without
        capital letters is uncased.
        """
        parts = files.read_tokenizer(Path(path), lowercase=lowercase)
        return cls(parts.backend, special_tokens=parts.special_tokens, max_length=parts.max_length)

    @classmethod
    def from_vocab(
        cls,
        vocab: str | PathLike[str] | Sequence[str],
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        chinese: bool = True,
    ) -> Self:
        """BERT's tokenizer from a `vocab.txt` or a list of tokens, with these settings only."""
        path = Path(vocab) if isinstance(vocab, str | PathLike) else None
        backend = files.build_bert_backend(
            read_lines(path) if path else list(vocab),  # type: ignore[arg-type]
            source=str(path or "this vocabulary"),
            lowercase=lowercase,
            strip_accents=strip_accents,
            chinese=chinese,
        )
        return cls(backend, special_tokens=files.find_special_tokens(backend, {}))

    @classmethod
    def from_gpt2(cls, encoder_json: str | PathLike[str], vocab_bpe: str | PathLike[str]) -> Self:
        """GPT-2's or GPT's tokenizer from `encoder.json` and `vocab.bpe`, under any names."""
        backend = files.build_gpt_backend(Path(encoder_json), Path(vocab_bpe))
        return cls(backend, special_tokens=files.find_special_tokens(backend, {}))

    def save(self, folder: str | PathLike[str], *, token_types: bool = True) -> None:
        """Write the files from which this package and transformers load the same tokenizer.

        Without `token_types` the tokenizer of transformers returns none, for models without them.
        """
        parts = files.TokenizerFiles(
            backend=self.backend,
            special_tokens=dict(self.special_tokens),
            max_length=self.max_length,
        )
        files.write_tokenizer(Path(folder), parts, token_types=token_types)

    def with_max_length(self, max_length: int | None) -> Self:
        """The same tokenizer for a model with another maximum input length."""
        return type(self)(self.backend, special_tokens=self.special_tokens, max_length=max_length)

    def to_lowercase(self) -> Self:
        """The same tokenizer, which converts text to lower case first."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(steps)
        return type(self)(backend, special_tokens=self.special_tokens, max_length=self.max_length)

    # Encoding.

    def check_texts(self, texts: Sequence[str]) -> list[str]:
        """Raise if one of the texts cannot be encoded; of music, that are words but no events."""
        checked = check_texts(texts)
        if self.kind == "midi":
            for text in checked:
                check_events(text, self._special_words)
        return checked

    def _check_text(self, text: str) -> str:
        check_text(text, "the text")
        return self.check_texts([text])[0]

    @cached_property
    def _special_words(self) -> frozenset[str]:
        return frozenset(map(self.id_to_token, self.special_ids))

    @cached_property
    def _long_texts(self) -> LongTextRules:
        return LongTextRules(self.backend)

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        max_length: int | None = None,
        truncation: str | None = None,
        add_special_tokens: bool = True,
    ) -> TokenAlignment:
        """Encode a text or a pair of texts.

        Tokens beyond `max_length` are removed by the strategy `truncation`; by default they are an
        error.
        """
        pairs = None if pair is None else [pair]
        return self.encode_batch(
            [text],
            pairs,
            max_length=max_length,
            truncation=truncation,
            add_special_tokens=add_special_tokens,
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncation: str | None = None,
        add_special_tokens: bool = True,
        limit: int | None = None,
    ) -> list[TokenAlignment]:
        """Encode many texts, or many pairs, on all cores.

        With `limit`, the alignment of a text with more tokens has more than `limit` tokens, but
        maybe not all of them: enough to see that it is too long.
        """
        if truncation is not None:
            one_of("truncation", truncation, TRUNCATIONS)
        ends = truncation in ("tail", "head+tail")
        short = self._shorten(texts, max_length, limit, needs_end=ends)
        seconds = None if pairs is None else self._shorten(pairs, max_length, limit, needs_end=ends)
        found = self._encode(
            [one.text for one in short],
            None if seconds is None else [one.text for one in seconds],
            special=add_special_tokens,
        )
        others = [ShortText(text="")] * len(short) if seconds is None else seconds
        parts = list(zip(short, others, strict=True))
        if max_length is None:
            return [restore_whole(whole, both) for whole, both in zip(found, parts, strict=True)]
        many = len(found) > 1
        return [
            truncate_encoding(
                whole, both, max_length, truncation, f"text {number:,}" if many else "the text"
            )
            for number, (whole, both) in enumerate(zip(found, parts, strict=True), 1)
        ]

    def shorten(self, text: str, max_length: int) -> ShortText:
        """A long text without its middle, of which truncation to `max_length` keeps nothing."""
        return self._shorten([text], max_length, None, needs_end=True)[0]

    def find_context(self, text: str, start: int, stop: int, num_tokens: int) -> tuple[int, int]:
        """Where the part of a long text starts and ends with so many tokens around a span.

        Its tokens are those of the whole text.
        """
        self._check_text(text)
        if not self.is_long(text):
            return 0, len(text)
        first, last = self._long_texts.find_context(text, start, stop, num_tokens)
        self._long_texts.check_parts(text[first:last])
        return first, last

    def take_tail(self, text: str, num_tokens: int) -> str:
        """The end of a long text, with at least so many of its tokens."""
        length = len(self._check_text(text))
        return text[self.find_context(text, length, length, num_tokens)[0] :]

    is_long = staticmethod(is_long)

    def _shorten(
        self,
        texts: Sequence[str],
        max_length: int | None,
        limit: int | None,
        needs_end: bool = False,
    ) -> list[ShortText]:
        """Long texts without what truncation to `max_length` removes, or with `limit` the heads."""
        return [
            self._shorten_text(text, max_length, limit, needs_end)
            if self.is_long(text) and (max_length is not None or limit is not None)
            else ShortText(text=text)
            for text in self.check_texts(texts)
        ]

    def _shorten_text(
        self, text: str, max_length: int | None, limit: int | None, needs_end: bool
    ) -> ShortText:
        rules = self._long_texts
        if max_length is not None:
            found = rules.shorten(text, 2 * max_length, needs_end=needs_end)
        else:
            found = rules.take_head(text, (limit or 0) + 1)
        rules.check_parts(found.text)
        return found

    def encode_windows(
        self, text: str, pair: str | None = None, *, max_length: int, overlap: int
    ) -> list[TokenAlignment]:
        """Encode all of a text in windows that overlap by `overlap` tokens.

        Of a pair, every window contains the whole first text (a question) and a window of the
        second.
        """
        return list(self.iterate_windows(text, pair, max_length=max_length, overlap=overlap))

    def iterate_windows(
        self, text: str, pair: str | None = None, *, max_length: int, overlap: int
    ) -> Windows:
        """Like `encode_windows`; of a long text only the tokens of a few windows are in memory."""
        if pair is not None and self.is_long(self._check_text(text)):
            count = self.count_tokens(text) + self.num_special_tokens(pair=True)
            check_fixed_tokens(count, max_length)
        if self.is_long(target := self._check_text(text if pair is None else pair)):
            word = self.sample_word
            frame = self.encode(word) if pair is None else self.encode(text, word)
            return iterate_windows(self._long_texts, target, frame, max_length, overlap)
        whole = self._encode([text], None if pair is None else [pair])[0]
        counts = count_text_tokens(whole)
        fixed = len(whole) - counts[0 if pair is None else 1]
        check_fixed_tokens(fixed, max_length)
        spans = split_windows(len(whole) - fixed, max_length - fixed, overlap)
        first = (range(counts[0]),)
        kept = [((span,), ()) if pair is None else (first, (span,)) for span in spans]
        return Windows(spans=spans, alignments=select_parts(whole, kept))

    def encode_ids(
        self, texts: Sequence[str], *, add_special_tokens: bool = True, limit: int | None = None
    ) -> list[list[int]]:
        """Ids only, without alignment or truncation: the fastest method.

        With `limit`, a text with more tokens has more than `limit` ids, but maybe not all of them.
        """
        checked = self.check_texts(texts)
        if limit is not None and any(map(self.is_long, checked)):
            checked = [one.text for one in self._shorten(checked, None, limit)]
        with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
            found = self.backend.encode_batch_fast(checked, add_special_tokens=add_special_tokens)
            return [encoding.ids for encoding in found]

    def encode_ids_and_types(
        self, texts: Sequence[str], pairs: Sequence[str | None], *, limit: int | None = None
    ) -> list[tuple[list[int], list[int]]]:
        """Ids and type ids of texts, each with a pair or None, without alignment or truncation.

        For `limit` see `encode_ids`.
        """
        given = [pair for pair in pairs if pair is not None]
        second = (one.text for one in self._shorten(given, None, limit))
        both = zip(self._shorten(texts, None, limit), pairs, strict=True)
        inputs = [one.text if pair is None else (one.text, next(second)) for one, pair in both]
        with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
            found = self.backend.encode_batch_fast(inputs)
            return [(encoding.ids, encoding.type_ids) for encoding in found]

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, without special tokens; long texts are not kept."""
        return self._long_texts.count_tokens(self._check_text(text))

    def num_special_tokens(self, *, pair: bool = False) -> int:
        """Number of special tokens added to a text, or to a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    # Decoding.

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, as closely as the vocabulary allows."""
        with convert_errors(
            InputError, "the ids cannot be decoded", fix=f"use ids below {self.vocab_size:,}"
        ):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def id_to_token(self, id: int) -> str:
        """The token of an id."""
        token = self.backend.id_to_token(id) if 0 <= id < self.vocab_size else None
        if token is None:
            raise InputError(
                f"there is no token with id {id:,}", fix=f"use ids below {self.vocab_size:,}"
            )
        return token

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, or None if it is not in the vocabulary."""
        return self.backend.token_to_id(token)

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[tokenizers.Encoding]:
        checked = self.check_texts(texts)
        inputs: list[str] | list[tuple[str, str]] = checked
        if pairs is not None:
            if len(pairs) != len(texts):
                raise InputError(
                    f"got {len(texts):,} texts and {len(pairs):,} pairs",
                    fix="pass one pair for each text",
                )
            inputs = list(zip(checked, self.check_texts(pairs), strict=True))
        with convert_errors(InputError, "the tokenizer failed", fix=FAILED):
            return self.backend.encode_batch(inputs, add_special_tokens=special)


def _detect_kind(backend: tokenizers.Tokenizer, vocab: Mapping[str, int]) -> str:
    kind = _KINDS.get(type(backend.model).__name__, "unknown")
    special = {token.content for token in backend.get_added_tokens_decoder().values()}
    if kind == "bpe" and all(len(token) == 1 for token in vocab.keys() - special - set(BYTES)):
        return "char"
    if kind == "word" and vocab.keys() - special == {*EVENT_WORDS}:
        return "midi"
    return kind
