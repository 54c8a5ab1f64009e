"""Text to ids with alignment, and back: the tokenizers library behind a small face."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import normalizers

from cloze.config import one_of
from cloze.errors import InputError
from cloze.text import files, length
from cloze.text.backends import BYTES
from cloze.text.encoding import Encoding, from_library, parts_of
from cloze.text.guard import check_text, library, read_lines

_KINDS = {"WordPiece": "wordpiece", "WordLevel": "word", "BPE": "bpe", "Unigram": "unigram"}
_FAILED = "leave this text out; the tokenizer's own files are at fault"


class Tokenizer:
    """A vocabulary and its pipeline. It does not change once made; `with_limit` makes another.

    The limit is the longest input the model takes, special tokens included. It is only a fact here:
    `encode` cuts, or refuses, by the limit it is given.
    """

    backend: tokenizers.Tokenizer
    limit: int | None
    kind: str  # wordpiece, bpe, word, char; unigram when someone else made it
    size: int  # all ids are below this
    lowercase: bool
    tokens: Mapping[str, str]  # role -> token, for the roles there are
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
        tokens: Mapping[str, str],
        limit: int | None = None,
    ) -> None:
        self.backend = backend
        self.limit = limit
        self.tokens = dict(tokens)
        vocab = backend.get_vocab()
        self.size = 1 + max(vocab.values())
        self.kind = _kind(backend, vocab)
        normalizer = backend.normalizer
        self.lowercase = normalizer is not None and normalizer.normalize_str("ABC") == "abc"
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(number for number, token in added.items() if token.special)
        for role in files.ROLES:
            token = tokens.get(role)
            setattr(self, f"{role}_token", token)
            setattr(self, f"{role}_id", None if token is None else vocab[token])

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size:,}, limit={self.limit})"

    # From disk and to disk.

    @classmethod
    def load(cls, path: str | PathLike[str], *, lowercase: bool | None = None) -> Self:
        """From a folder or a file: tokenizer.json, vocab.txt, or vocab.json with merges.txt.

        `lowercase` is for a bare vocab.txt whose folder does not say: without it, a vocabulary with
        no capital letters is taken to be one without case.
        """
        parts = files.read(Path(path), lowercase=lowercase)
        return cls(parts.backend, tokens=parts.tokens, limit=parts.limit)

    @classmethod
    def from_vocab(
        cls,
        vocab: str | PathLike[str] | Sequence[str],
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        chinese: bool = True,
    ) -> Self:
        """BERT's tokenizer from a `vocab.txt` or a list of pieces, with no settings but these."""
        path = Path(vocab) if isinstance(vocab, str | PathLike) else None
        backend = files.vocab_backend(
            read_lines(path) if path else list(vocab),  # type: ignore[arg-type]
            source=str(path or "this vocabulary"),
            lowercase=lowercase,
            strip_accents=strip_accents,
            chinese=chinese,
        )
        return cls(backend, tokens=files.find_tokens(backend, {}))

    @classmethod
    def from_gpt2(cls, encoder_json: str | PathLike[str], vocab_bpe: str | PathLike[str]) -> Self:
        """GPT-2's tokenizer from its `encoder.json` and `vocab.bpe`, by whatever names."""
        backend = files.gpt2_backend(Path(encoder_json), Path(vocab_bpe))
        return cls(backend, tokens=files.find_tokens(backend, {}))

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the files by which this package and transformers open the same tokenizer."""
        parts = files.Parts(backend=self.backend, tokens=dict(self.tokens), limit=self.limit)
        files.write(Path(folder), parts)

    def with_limit(self, limit: int | None) -> Self:
        """The same tokenizer for a model that takes inputs of another length."""
        return type(self)(self.backend, tokens=self.tokens, limit=limit)

    def lowered(self) -> Self:
        """The same tokenizer for text in lower case, whatever case it is given in."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(steps)
        return type(self)(backend, tokens=self.tokens, limit=self.limit)

    # Text to ids.

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        limit: int | None = None,
        policy: str | None = None,
        special: bool = True,
    ) -> Encoding:
        """Ids and alignment. What exceeds `limit` is cut by `policy`, and refused without one."""
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, limit=limit, policy=policy, special=special)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        policy: str | None = None,
        special: bool = True,
    ) -> list[Encoding]:
        """`encode` for many texts, or for many pairs, on all cores."""
        if policy is not None:
            one_of("length policy", policy, length.POLICIES)
        found = self._run(texts, pairs, special=special)
        if limit is None:
            return [from_library(whole) for whole in found]
        many = len(found) > 1
        return [
            _fit(whole, limit, policy, f"text {number:,}" if many else "the text")
            for number, whole in enumerate(found, 1)
        ]

    def windows(
        self, text: str, pair: str | None = None, *, limit: int, stride: int
    ) -> list[Encoding]:
        """Encodings that cover all of the text and overlap by `stride` pieces.

        Of a pair, the text (a question) is whole in every window, and the pair is what slides by.
        """
        whole = self._run([text], None if pair is None else [pair])[0]
        counts = _counts(whole)
        fixed = len(whole) - counts[0 if pair is None else 1]
        if fixed >= limit:
            raise InputError(
                f"{fixed:,} pieces stand in every window and the limit is {limit:,}",
                fix="shorten the first text, or raise the limit",
            )
        spans = length.windows(len(whole) - fixed, limit - fixed, stride)
        if pair is None:
            return list(parts_of(whole, (((span,), ()) for span in spans)))
        return list(parts_of(whole, (((range(counts[0]),), (span,)) for span in spans)))

    def ids(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Ids alone, the fastest way: no alignment, no limit."""
        checked = _checked(texts)
        with library(InputError, "the tokenizer failed", fix=_FAILED):
            found = self.backend.encode_batch_fast(checked, add_special_tokens=special)
            return [encoding.ids for encoding in found]

    def sequences(
        self, texts: Sequence[str], pairs: Sequence[str | None]
    ) -> list[tuple[list[int], list[int]]]:
        """Ids and type ids of texts, each with a pair or None; no alignment, no limit."""
        given = iter(_checked([pair for pair in pairs if pair is not None]))
        both = zip(_checked(texts), pairs, strict=True)
        inputs = [text if pair is None else (text, next(given)) for text, pair in both]
        with library(InputError, "the tokenizer failed", fix=_FAILED):
            found = self.backend.encode_batch_fast(inputs)
            return [(encoding.ids, encoding.type_ids) for encoding in found]

    def added(self, *, pair: bool = False) -> int:
        """How many special tokens are put around a text, or around a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    # Ids to text.

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ids, as near as the vocabulary allows."""
        with library(InputError, "these ids have no text", fix=f"use ids below {self.size:,}"):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special)

    def piece(self, id: int) -> str:
        """The piece of an id."""
        piece = self.backend.id_to_token(id) if 0 <= id < self.size else None
        if piece is None:
            raise InputError(f"there is no piece {id:,}", fix=f"use ids below {self.size:,}")
        return piece

    def id(self, piece: str) -> int | None:
        """The id of a piece, if it is in the vocabulary."""
        return self.backend.token_to_id(piece)

    def _run(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[tokenizers.Encoding]:
        inputs: list[str] | list[tuple[str, str]] = _checked(texts)
        if pairs is not None:
            if len(pairs) != len(texts):
                raise InputError(
                    f"{len(texts):,} texts have {len(pairs):,} pairs", fix="give each text one pair"
                )
            inputs = list(zip(_checked(texts), _checked(pairs), strict=True))
        with library(InputError, "the tokenizer failed", fix=_FAILED):
            return self.backend.encode_batch(inputs, add_special_tokens=special)


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("a batch is a list of texts, this is a single one", fix="put it in a list")
    return [check_text(text, f"text {number:,}") for number, text in enumerate(texts, 1)]


def _kind(backend: tokenizers.Tokenizer, vocab: Mapping[str, int]) -> str:
    kind = _KINDS.get(type(backend.model).__name__, "unknown")
    special = {token.content for token in backend.get_added_tokens_decoder().values()}
    if kind == "bpe" and all(len(piece) == 1 for piece in vocab.keys() - special - set(BYTES)):
        return "char"
    return kind


def _counts(whole: tokenizers.Encoding) -> tuple[int, int]:
    sequences = whole.sequence_ids
    return sequences.count(0), sequences.count(1)


def _fit(whole: tokenizers.Encoding, limit: int, policy: str | None, name: str) -> Encoding:
    """The whole encoding if it is short enough, else what the policy leaves of it."""
    if len(whole) <= limit:
        return from_library(whole)
    counts = _counts(whole)
    special = len(whole) - sum(counts)
    if policy is None:
        raise InputError(
            f"{name} has {len(whole):,} pieces, special tokens included; the limit is {limit:,}",
            fix=f"shorten it, or choose a length policy: {', '.join(length.POLICIES)}",
        )
    if special >= limit:
        raise InputError(
            f"a limit of {limit:,} leaves no room beside {special:,} special tokens",
            fix="raise the limit",
        )
    shares = length.longest_first(*counts, limit - special)
    first, second = (length.keep(policy, *both) for both in zip(counts, shares, strict=True))
    return from_library(whole, (first, second))
