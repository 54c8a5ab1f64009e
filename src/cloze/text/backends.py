"""The four kinds of vocabulary as pipelines of the tokenizers library."""

from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

CONTINUATION_PREFIX = "##"  # marks a token that continues a word
END_OF_TEXT = "<|endoftext|>"
END_OF_WORD = "</w>"  # ends the last token of a word in the vocabulary of the first GPT
GPT_UNKNOWN = "<unk>"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # the library's names of bytes

# role -> token, in the order of their ids in vocabularies trained here
BERT_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
GPT2_TOKENS = {"bos": END_OF_TEXT, "eos": END_OF_TEXT}

# BERT treats longer words as unknown: the time to find the longest tokens of a word grows with the
# cube of its length.
MAX_WORD_CHARS = 100

# Every ideograph, every other run of letters and digits and every mark is a word; so is white
# space, which character vocabularies keep.
_CHAR_WORDS = r"\p{Han}|[\w&&[^\p{Han}]]+|\s+|[^\w\s]"
_CHAR_WORDS_NO_CHINESE = r"\w+|\s+|[^\w\s]"
_WORD_PARTS = f".{{{MAX_WORD_CHARS}}}"
# patterns that never cross a cut before a space: the first two split there (`text/long_texts.py`)
CUT_SAFE_PATTERNS = (_CHAR_WORDS, _CHAR_WORDS_NO_CHINESE, _WORD_PARTS)


def build_bert_normalizer(
    *, lowercase: bool, strip_accents: bool | None, chinese: bool
) -> Normalizer:
    """BERT's normalization; by default accents are stripped if `lowercase`."""
    return normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese
    )


def build_plain_normalizer(*, lowercase: bool, strip_accents: bool | None) -> Normalizer | None:
    """Case and accents only, for vocabularies that keep white space and control characters."""
    if not lowercase and not strip_accents:
        return None
    return normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=False,
        handle_chinese_chars=False,
    )


def build_wordpiece(
    vocab: Mapping[str, int], normalizer: Normalizer, *, byte_fallback: bool = False
) -> Tokenizer:
    """BERT's tokenizer; with `byte_fallback`, words are byte symbols, so none is unknown."""
    # a character has up to four bytes
    max_chars = MAX_WORD_CHARS * 4 if byte_fallback else MAX_WORD_CHARS
    model = models.WordPiece(
        dict(vocab),
        unk_token=BERT_TOKENS["unk"],
        continuing_subword_prefix=CONTINUATION_PREFIX,
        max_input_chars_per_word=max_chars,
    )
    split = build_byte_pre_tokenizer() if byte_fallback else pre_tokenizers.BertPreTokenizer()
    backend = _build_bert(model, normalizer, split)
    backend.decoder = (
        _build_byte_decoder() if byte_fallback else decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    )
    return backend


def build_byte_pre_tokenizer() -> PreTokenizer:
    """BERT's words as byte symbols. Words that are too long are split between characters."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Split(Regex(_WORD_PARTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def build_word_level(vocab: Mapping[str, int], normalizer: Normalizer) -> Tokenizer:
    """Whole words; words that are not in the vocabulary are unknown."""
    model = models.WordLevel(dict(vocab), unk_token=BERT_TOKENS["unk"])
    backend = _build_bert(model, normalizer, pre_tokenizers.BertPreTokenizer())
    backend.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)  # inserts the spaces
    return backend


def build_characters(
    vocab: Mapping[str, int], normalizer: Normalizer | None, *, chinese: bool, byte_fallback: bool
) -> Tokenizer:
    """One token per character, white space included: BPE without merges."""
    model = models.BPE(
        dict(vocab), [], unk_token=BERT_TOKENS["unk"], fuse_unk=False, byte_fallback=byte_fallback
    )
    pattern = _CHAR_WORDS if chinese else _CHAR_WORDS_NO_CHINESE
    backend = _build_bert(model, normalizer, pre_tokenizers.Split(Regex(pattern), "isolated"))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def build_byte_bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    normalizer: Normalizer | None = None,
) -> Tokenizer:
    """GPT-2's tokenizer: words include the space before them and consist of 256 byte symbols."""
    backend = Tokenizer(models.BPE(dict(vocab), list(merges)))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1")
    backend.add_special_tokens([END_OF_TEXT])
    return backend


def build_word_bpe(vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """The first GPT's tokenizer: BERT's words in lower case, as characters that are merged."""
    model = models.BPE(
        dict(vocab),
        list(merges),
        unk_token=GPT_UNKNOWN,
        continuing_subword_prefix="",
        end_of_word_suffix=END_OF_WORD,
    )
    backend = Tokenizer(model)
    backend.normalizer = build_bert_normalizer(lowercase=True, strip_accents=None, chinese=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
    backend.add_special_tokens([GPT_UNKNOWN])
    return backend


def to_byte_symbols(token: str) -> str:
    """A token in byte symbols: `##é` is `##Ã©`."""
    prefix = CONTINUATION_PREFIX if token.startswith(CONTINUATION_PREFIX) else ""
    body = token.removeprefix(CONTINUATION_PREFIX).encode()
    return prefix + "".join(BYTE_SYMBOLS[byte] for byte in body)


def _build_bert(model: Model, normalizer: Normalizer | None, split: PreTokenizer) -> Tokenizer:
    backend = Tokenizer(model)
    backend.normalizer = normalizer
    backend.pre_tokenizer = split
    cls, sep = BERT_TOKENS["cls"], BERT_TOKENS["sep"]
    special_tokens = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=special_tokens,
    )
    present = [token for token in BERT_TOKENS.values() if backend.token_to_id(token) is not None]
    backend.add_special_tokens(present)
    return backend


def _build_byte_decoder() -> decoders.Decoder:
    """Join tokens to words with a space before each, then decode byte symbols (`Ġ` is a space)."""
    return decoders.Sequence(
        [
            decoders.WordPiece(prefix=CONTINUATION_PREFIX, cleanup=False),
            decoders.Replace(" ", BYTE_SYMBOLS[ord(" ")]),
            decoders.ByteLevel(),
        ]
    )


def _make_byte_symbols() -> tuple[str, ...]:
    """The character that represents each byte in byte-level tokens (Radford et al. 2019).

    Printable bytes represent themselves; the others are represented by the characters from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return tuple(
        chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)
    )


BYTE_SYMBOLS = _make_byte_symbols()
