"""Documents to ids, fast: the work one process does on its part of a corpus."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from tokenizers import Encoding, Tokenizer

from cloze.data.shards import Array, Encoded
from cloze.errors import ConfigError, MissingExtraError
from cloze.text.sentences import sentences as split_sentences

Segmenter: TypeAlias = Callable[[str], list[str]]

BATCH = 2**18  # characters given to the tokenizer at once
CACHED = 2**24  # characters of distinct pieces whose ids are remembered, at PIECE more for each
PIECE = 32

# Tokenizers made of these treat what stands between two spaces alone, whatever surrounds it.
_LOCAL_NORMALIZERS = {"BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"}
_LOCAL_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


@dataclass(frozen=True, kw_only=True)
class Encoding_:
    """Placeholder."""
