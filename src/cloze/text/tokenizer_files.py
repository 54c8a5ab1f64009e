"""Read and write tokenizer files: `tokenizer.json`, a bare `vocab.txt`, the two files of a GPT."""

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
from cloze.text.checks import (
    check_backend,
    convert_errors,
    load_backend,
    read_json_object,
    read_lines,
)

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")

# Customary tokens of each role, used if the settings do not name one.
_DEFAULT_TOKENS = {
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
_FILE_NAMES = ("tokenizer.json", "vocab.txt", *_MERGES)
_MAX_LIMIT = 10_000_000  # transformers writes 1e30 for "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """The contents of a tokenizer folder."""

    backend: Backend
    special_tokens: dict[str, str]  # role -> token
    max_length: int | None


def read_tokenizer(path: Path, *, lowercase: bool | None = None) -> TokenizerFiles:
    """Read a tokenizer from a folder, or from one of its files and the settings next to it."""
    file = _find_file(path)
    settings = _read_settings(file.parent)
    if file.suffix == ".txt":
        backend = build_bert_backend(
            read_lines(file),
            source=str(file),
            lowercase=settings.get("do_lower_case") if lowercase is None else lowercase,
            strip_accents=settings.get("strip_accents"),
            chinese=settings.get("tokenize_chinese_chars", True),
        )
    elif file.name in _MERGES:
        backend = build_gpt_backend(file, file.with_name(_MERGES[file.name]))
    else:
        backend = load_backend(file)
        _apply_bert_settings(backend, settings)
    tokens = find_special_tokens(backend, settings)
    return TokenizerFiles(
        backend=backend,
        special_tokens=tokens,
        max_length=_parse_max_length(settings.get("model_max_length")),
    )


def build_bert_backend(
    tokens: Sequence[str],
    *,
    source: str,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> Backend:
    """BERT's tokenizer for a list of tokens; uncased if no token has a capital letter."""
    duplicates = [token for token, count in Counter(tokens).items() if count > 1]
    if duplicates:
        raise FolderError(
            f"{source} has the token {duplicates[0]!r} more than once", fix="remove the duplicates"
        )
    for token in (backends.BERT_TOKENS[role] for role in ("unk", "cls", "sep")):
        if token not in tokens:
            raise FolderError(
                f"{source} has no {token}",
                fix="use a BERT vocabulary, one token per line, or a tokenizer.json",
            )
    if lowercase is None:
        lowercase = not any(token != token.lower() for token in tokens if token[:1] not in "[<")
    with convert_errors(FolderError, f"{source} is not a vocabulary, or its settings are wrong"):
        normalizer = backends.build_bert_normalizer(
            lowercase=lowercase, strip_accents=strip_accents, chinese=chinese
        )
        backend = backends.build_wordpiece(
            {token: number for number, token in enumerate(tokens)}, normalizer
        )
    check_backend(backend, source)
    return backend


def build_gpt_backend(encoder: Path, merges: Path) -> Backend:
    """The tokenizer of a GPT or GPT-2 from two files: token ids as JSON, one merge per line."""
    vocab = read_json_object(encoder)
    if not all(isinstance(number, int) and number >= 0 for number in vocab.values()):
        raise FolderError(
            f"{encoder} has a token id that is not an integer", fix="give each token an integer id"
        )
    ends_words = any(token.endswith(backends.END_OF_WORD) for token in vocab)
    is_gpt2 = backends.END_OF_TEXT in vocab
    if not (is_gpt2 or (backends.GPT_UNKNOWN in vocab and ends_words)):
        raise FolderError(
            f"{encoder} is neither a GPT-2 vocabulary (it has no {backends.END_OF_TEXT}) nor that "
            f"of a GPT ({backends.GPT_UNKNOWN}, and tokens that end with {backends.END_OF_WORD})",
            fix="other BPE tokenizers need a tokenizer.json",
        )
    lines = [line for line in read_lines(merges) if not line.startswith("#version")]
    for line in lines:
        if not _MERGE.fullmatch(line):
            raise FolderError(
                f"{merges} has the invalid line {line[:50]!r}",
                fix="write one merge of two tokens per line",
            )
    with convert_errors(FolderError, f"{encoder.name} and {merges} do not match"):
        pairs = [(left, right) for left, right in (line.split(" ") for line in lines)]
        build = backends.build_byte_bpe if is_gpt2 else backends.build_word_bpe
        backend = build(vocab, pairs)
    check_backend(backend, str(encoder))
    return backend


def write_tokenizer(folder: Path, parts: TokenizerFiles, *, token_types: bool = True) -> None:
    """Write the files from which this package and transformers load the same tokenizer.

    Without `token_types` the tokenizer of transformers returns none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = parts.backend.to_str(pretty=True)
    class_settings = _make_transformers_settings(json.loads(text), parts)
    settings = {
        **class_settings,
        **{
            f"{role}_token": parts.special_tokens[role]
            for role in ROLES
            if role in parts.special_tokens
        },
    }
    if not token_types:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if parts.max_length is not None:
        settings["model_max_length"] = parts.max_length
    write_text(folder / "tokenizer.json", text)
    write_json(folder / "tokenizer_config.json", settings, indent=2)
    vocab = parts.backend.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    # In vocab.txt the line number is the id, so there can be no ids without a token.
    if (
        class_settings["tokenizer_class"] == "BertTokenizer"
        and vocab[tokens[-1]] == len(tokens) - 1
    ):
        write_text(folder / "vocab.txt", "\n".join(tokens) + "\n")


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise FolderError(f"{path} does not exist", fix="check the path")
        return path
    for name in _FILE_NAMES:
        if (path / name).is_file():
            return path / name
    raise FolderError(
        f"{path} contains no tokenizer",
        fix="a tokenizer is a tokenizer.json, a vocab.txt, or a vocab.json and a merges.txt",
    )


def _read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, completed by special_tokens_map.json."""
    files = (folder / "special_tokens_map.json", folder / "tokenizer_config.json")
    found = [read_json_object(file) for file in files if file.is_file()]
    return {key: value for part in found for key, value in part.items() if value is not None}


def _apply_bert_settings(backend: Backend, settings: Mapping[str, Any]) -> None:
    """Apply BERT's settings for case and accents, which override tokenizer.json in transformers."""
    normalizer = backend.normalizer
    bert = str(settings.get("tokenizer_class")).removesuffix("Fast") in _BERT_CLASSES
    if not bert or not isinstance(normalizer, BertNormalizer):
        return
    for setting, name in _BERT_SETTINGS.items():
        if isinstance(settings.get(setting), bool):
            setattr(normalizer, name, settings[setting])
    backend.normalizer = normalizer


def _parse_max_length(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= _MAX_LIMIT else None


def find_special_tokens(backend: Backend, settings: Mapping[str, Any]) -> dict[str, str]:
    """The token of each role that the vocabulary has, marked as special if it was not.

    A role that the settings do not name gets its customary token, unless that has another role.
    """
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = {role: _get_token_text(settings.get(f"{role}_token")) for role in ROLES}
    free = added - set(named.values())
    tokens = {}
    for role, token in named.items():
        defaults = [name for name in _DEFAULT_TOKENS[role] if name in free]
        for candidate in ([] if token is None else [token]) + defaults:
            with convert_errors(FolderError, f"the {role}_token {candidate!r} is not a valid text"):
                known = backend.token_to_id(candidate) is not None
            if known:
                tokens[role] = candidate
                break
    backend.add_special_tokens([token for token in tokens.values() if token not in added])
    return tokens


def _get_token_text(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _make_transformers_settings(saved: dict[str, Any], parts: TokenizerFiles) -> dict[str, Any]:
    """The transformers class that loads an equivalent tokenizer from the files, and its settings.

    Its BERT and GPT-2 classes rebuild the pipeline and use only the vocabulary and the template of
    tokenizer.json. Pipelines that they would rebuild differently use the generic class.
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
        if _is_same_pipeline(
            saved, backends.build_wordpiece(vocab, backends.build_bert_normalizer(**flags))
        ):
            return {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": flags["lowercase"],
                "strip_accents": flags["strip_accents"],
                "tokenize_chinese_chars": flags["chinese"],
            }
    if known == {backends.END_OF_TEXT} and _is_same_pipeline(
        saved, backends.build_byte_bpe({backends.END_OF_TEXT: 0}, [])
    ):
        return {"tokenizer_class": "GPT2Tokenizer"}
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def _is_same_pipeline(saved: dict[str, Any], built: Backend) -> bool:
    """Whether two pipelines are equal except for vocabulary and template."""
    other = json.loads(built.to_str())
    for pipeline in (saved, other):
        pipeline["model"] = {
            key: value for key, value in pipeline["model"].items() if key not in ("vocab", "merges")
        }
    parts = ("normalizer", "pre_tokenizer", "decoder", "model")
    return all(saved[part] == other[part] for part in parts)
