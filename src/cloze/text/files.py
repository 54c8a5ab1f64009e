"""Tokenizers on disk: `tokenizer.json`, a bare `vocab.txt`, GPT-2's two files; and back."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import BertNormalizer

from cloze.errors import FolderError
from cloze.files import write_json, write_text
from cloze.text import backends
from cloze.text.guard import library, open_backend, probe, read_lines, read_object

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")

# What the token of a role is called where no setting names it.
_CUSTOMARY = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", backends.END_OF_TEXT),
    "eos": ("</s>", backends.END_OF_TEXT),
}
_MERGES = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
_MERGE = re.compile("[^ ]+ [^ ]+")
_BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer")
_BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_NAMES = ("tokenizer.json", "vocab.txt", *_MERGES)
_MAX_LIMIT = 10_000_000  # transformers writes 1e30 where it means "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a folder says about its tokenizer."""

    backend: Backend
    tokens: dict[str, str]  # role -> token
    limit: int | None


def read(path: Path, *, lowercase: bool | None = None) -> Parts:
    """The tokenizer in a folder, or in one of its files together with the settings beside it."""
    file = _find(path)
    settings = _settings(file.parent)
    if file.suffix == ".txt":
        backend = vocab_backend(
            read_lines(file),
            source=str(file),
            lowercase=settings.get("do_lower_case") if lowercase is None else lowercase,
            strip_accents=settings.get("strip_accents"),
            chinese=settings.get("tokenize_chinese_chars", True),
        )
    elif file.name in _MERGES:
        backend = gpt2_backend(file, file.with_name(_MERGES[file.name]))
    else:
        backend = open_backend(file)
        _follow(backend, settings)
    tokens = find_tokens(backend, settings)
    return Parts(backend=backend, tokens=tokens, limit=_limit(settings.get("model_max_length")))


def vocab_backend(
    pieces: Sequence[str],
    *,
    source: str,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> Backend:
    """BERT's tokenizer over a list of pieces, without case if no piece has a capital."""
    twice = [piece for piece, count in Counter(pieces).items() if count > 1]
    if twice:
        raise FolderError(
            f"{source} has {twice[0]!r} more than once", fix="a piece has one id: remove the others"
        )
    for token in (backends.BERT_TOKENS[role] for role in ("unk", "cls", "sep")):
        if token not in pieces:
            raise FolderError(
                f"{source} has no {token}",
                fix="use a vocabulary for BERT, one piece on each line, or a tokenizer.json",
            )
    if lowercase is None:
        lowercase = not any(piece != piece.lower() for piece in pieces if piece[:1] not in "[<")
    with library(FolderError, f"{source} is not a vocabulary, or its settings are wrong"):
        normalizer = backends.bert_normalizer(
            lowercase=lowercase, strip_accents=strip_accents, chinese=chinese
        )
        backend = backends.wordpiece({p: number for number, p in enumerate(pieces)}, normalizer)
    probe(backend, source)
    return backend


def gpt2_backend(encoder: Path, merges: Path) -> Backend:
    """GPT-2's tokenizer from its two files: ids of pieces as JSON, merges as lines."""
    vocab = read_object(encoder)
    if not all(isinstance(number, int) and number >= 0 for number in vocab.values()):
        raise FolderError(f"{encoder} has an id that is no number", fix="give each piece one id")
    if backends.END_OF_TEXT not in vocab:
        raise FolderError(
            f"{encoder} has no {backends.END_OF_TEXT}, so it is not GPT-2's kind of vocabulary",
            fix="other kinds of byte-level BPE need a tokenizer.json, which says how they work",
        )
    lines = [line for line in read_lines(merges) if not line.startswith("#version")]
    for line in lines:
        if not _MERGE.fullmatch(line):
            raise FolderError(
                f"{merges} has the line {line[:50]!r}", fix="write one merge of two pieces on each"
            )
    with library(FolderError, f"{encoder.name} and {merges} do not fit together"):
        pairs = [(left, right) for left, right in (line.split(" ") for line in lines)]
        backend = backends.byte_bpe(vocab, pairs)
    probe(backend, str(encoder))
    return backend


def write(folder: Path, parts: Parts) -> None:
    """The files by which this package and transformers open the same tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    text = parts.backend.to_str(pretty=True)
    peer = _peer(json.loads(text), parts)
    settings = {
        **peer,
        **{f"{role}_token": parts.tokens[role] for role in ROLES if role in parts.tokens},
    }
    if parts.limit is not None:
        settings["model_max_length"] = parts.limit
    write_text(folder / "tokenizer.json", text)
    write_json(folder / "tokenizer_config.json", settings, indent=2)
    vocab = parts.backend.get_vocab()
    pieces = sorted(vocab, key=vocab.__getitem__)
    # In vocab.txt the line is the id, so there can be no ids without a piece.
    if peer["tokenizer_class"] == "BertTokenizer" and vocab[pieces[-1]] == len(pieces) - 1:
        write_text(folder / "vocab.txt", "\n".join(pieces) + "\n")


def _find(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise FolderError(f"there is no file or folder {path}", fix="check the path")
        return path
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    raise FolderError(
        f"{path} holds no tokenizer",
        fix="it takes a tokenizer.json, a vocab.txt, or a vocab.json with its merges.txt",
    )


def _settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json and, for what that leaves out, special_tokens_map.json."""
    files = (folder / "special_tokens_map.json", folder / "tokenizer_config.json")
    found = [read_object(file) for file in files if file.is_file()]
    return {key: value for part in found for key, value in part.items() if value is not None}


def _follow(backend: Backend, settings: Mapping[str, Any]) -> None:
    """Case and accents as BERT's settings say: transformers believes them over tokenizer.json."""
    normalizer = backend.normalizer
    bert = str(settings.get("tokenizer_class")).removesuffix("Fast") in _BERT_CLASSES
    if not bert or not isinstance(normalizer, BertNormalizer):
        return
    for setting, name in _BERT_SETTINGS.items():
        if isinstance(settings.get(setting), bool):
            setattr(normalizer, name, settings[setting])
    backend.normalizer = normalizer


def _limit(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= _MAX_LIMIT else None


def find_tokens(backend: Backend, settings: Mapping[str, Any]) -> dict[str, str]:
    """The token of each role that the vocabulary has, made special if it was not.

    A role that the settings leave out has its customary token, unless they give that another role.
    """
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = {role: _content(settings.get(f"{role}_token")) for role in ROLES}
    free = added - set(named.values())
    tokens = {}
    for role, token in named.items():
        customary = [name for name in _CUSTOMARY[role] if name in free]
        for candidate in ([] if token is None else [token]) + customary:
            with library(FolderError, f"the {role}_token {candidate!r} is no text"):
                known = backend.token_to_id(candidate) is not None
            if known:
                tokens[role] = candidate
                break
    backend.add_special_tokens([token for token in tokens.values() if token not in added])
    return tokens


def _content(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _peer(saved: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """The class by which transformers reads the files to the same effect, and its settings.

    Its BERT and GPT-2 classes rebuild the pipeline and take only vocabulary and template from
    tokenizer.json. What they would not rebuild alike is left to the class that reads it as it is.
    """
    known = {token.content for token in parts.backend.get_added_tokens_decoder().values()}
    normalizer = saved["normalizer"] or {}
    if known == set(backends.BERT_TOKENS.values()) and normalizer.get("type") == "BertNormalizer":
        flags = {
            "lowercase": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "chinese": normalizer["handle_chinese_chars"],
        }
        vocab = {token: number for number, token in enumerate(backends.BERT_TOKENS.values())}
        if _alike(saved, backends.wordpiece(vocab, backends.bert_normalizer(**flags))):
            return {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": flags["lowercase"],
                "strip_accents": flags["strip_accents"],
                "tokenize_chinese_chars": flags["chinese"],
            }
    if known == {backends.END_OF_TEXT} and _alike(
        saved, backends.byte_bpe({backends.END_OF_TEXT: 0}, [])
    ):
        return {"tokenizer_class": "GPT2Tokenizer"}
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def _alike(saved: dict[str, Any], built: Backend) -> bool:
    """The same pipeline, but for vocabulary and template."""
    other = json.loads(built.to_str())
    for pipeline in (saved, other):
        pipeline["model"] = {
            key: value for key, value in pipeline["model"].items() if key not in ("vocab", "merges")
        }
    parts = ("normalizer", "pre_tokenizer", "decoder", "model")
    return all(saved[part] == other[part] for part in parts)
