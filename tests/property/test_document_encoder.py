"""Encoding with the table of fragments equals encoding whole sentences."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from cloze.data import document_encoder, prepare
from cloze.data.config import CorpusOptions
from cloze.data.document_chunks import DocumentChunks
from cloze.data.document_encoder import (
    DocumentEncoder,
    EncoderSettings,
    find_word_boundaries,
    is_separable_at_spaces,
)
from cloze.text import backends
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from generated_examples import examples
from helpers import PIECES, SPECIAL

VOCAB = {
    token: n for n, token in enumerate([*PIECES, "é", "e", "##e", "(", ")", "a.b", "##.", "-"])
}
BYTE_VOCAB = {
    p: n
    for n, p in enumerate([*SPECIAL, *(f for s in backends.BYTE_SYMBOLS for f in (s, f"##{s}"))])
}


def word_level(normalizer, splitter) -> Backend:
    backend = Backend(models.WordPiece(VOCAB, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    return backend


def bert(lowercase: bool, strip: bool | None = None) -> normalizers.Normalizer:
    return backends.build_bert_normalizer(lowercase=lowercase, strip_accents=strip, chinese=True)


LOCAL = {
    "uncased": backends.build_wordpiece(VOCAB, bert(True)),
    "cased": backends.build_wordpiece(VOCAB, bert(False)),
    "bytes": backends.build_wordpiece(BYTE_VOCAB, bert(True), byte_fallback=True),
    "words": backends.build_word_level(VOCAB, bert(True)),
    "composed": word_level(
        normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
        pre_tokenizers.Whitespace(),
    ),
    "sequence": word_level(
        normalizers.NFKD(),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
    ),
}
OTHERS = {
    "characters": backends.build_characters(VOCAB, None, chinese=True, byte_fallback=False),
    "gpt2": backends.build_byte_bpe({s: n for n, s in enumerate(backends.BYTE_SYMBOLS)}, []),
    "stripping": word_level(normalizers.Strip(), pre_tokenizers.BertPreTokenizer()),
    "unsplit": word_level(None, None),
    "metaspace": word_level(None, pre_tokenizers.Metaspace()),
}
MARKS = st.sampled_from(
    [*" \t\n\u00a0\u3000\u0301\u0338\u200d\x1c\x85\x00.,()-=<猫éEΣs", "[SEP]", "cats", "a.b", "  "]
)
SENTENCES = st.lists(
    st.one_of(st.text(max_size=20), st.lists(MARKS, max_size=20).map("".join)), max_size=8
)


def make_settings(backend: Backend, **changed) -> EncoderSettings:
    plain = Tokenizer(
        backend, special_tokens={"unk": "[UNK]"} if "[UNK]" in backend.get_vocab() else {}
    )
    return EncoderSettings.from_tokenizer(plain, "lines", changed.get("segmenter"))


def expected(backend: Backend, sentences: list[str]):
    whole = Backend.from_str(backend.to_str())
    whole.encode_special_tokens = True
    found = whole.encode_batch(sentences, add_special_tokens=False)
    ids = [i for encoding in found for i in encoding.ids]
    starts = []
    for encoding in found:
        words = encoding.word_ids
        starts += [n == 0 or words[n] != words[n - 1] for n in range(len(words))]
    return ids, starts, [len(e.ids) for e in found]


@pytest.mark.parametrize("name", [*LOCAL, *OTHERS])
@given(SENTENCES)
def test_ids_and_word_starts_equal_those_of_the_tokenizer(name, sentences):
    backend = {**LOCAL, **OTHERS}[name]
    ids, starts, lengths = DocumentEncoder(make_settings(backend))._encode_sentences(sentences)
    assert (ids.tolist(), starts.tolist(), lengths.tolist()) == expected(backend, sentences)


@pytest.mark.parametrize("name", [*LOCAL, *OTHERS])
def test_is_separable_at_spaces(name):
    assert is_separable_at_spaces(json.loads({**LOCAL, **OTHERS}[name].to_str())) == (name in LOCAL)


def test_an_added_token_with_a_space_is_found_in_the_whole_sentence():
    backend = Backend.from_str(LOCAL["uncased"].to_str())
    backend.add_tokens(["the cat"])
    assert not is_separable_at_spaces(json.loads(backend.to_str()))


PHRASES = ["The cat sat.", "A dog ran!", "Why?", "it", "No. 5", "e.g. a"]
RUNNING_TEXT = st.lists(st.sampled_from(PHRASES), min_size=1).flatmap(
    lambda words: st.sampled_from([" ", "  "]).map(lambda space: space.join(words))
)
MERGED = train_tokenizer([" ".join(PHRASES)] * 3, kind="bpe", vocab_size=300)


@pytest.mark.parametrize("splitting", ["split", "lines"])
@given(st.lists(st.lists(RUNNING_TEXT, min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_tokenizer_that_encodes_white_space_reads_running_text(splitting, documents):
    settings = EncoderSettings.from_tokenizer(
        Tokenizer(OTHERS["gpt2"], special_tokens={}), splitting, None
    )
    encoded = DocumentEncoder(settings)([[one.encode() for one in some] for some in documents])
    backend = OTHERS["gpt2"]
    expected = [i for some in documents for i in backend.encode("\n".join(some)).ids]
    assert encoded.ids.tolist() == expected
    assert encoded.sentences.sum() == len(expected)


@pytest.mark.parametrize("splitting", ["split", "lines"])
@examples(25)
@given(
    st.lists(st.lists(RUNNING_TEXT, min_size=1, max_size=8), min_size=1, max_size=3),
    st.integers(1, 60),
)
def test_a_document_in_several_shards_is_read_as_running_text(splitting, documents, min_bytes):
    text = "\n\n".join("\n".join(document) for document in documents)
    options = CorpusOptions(sentences=splitting, hold_out=0.0)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(prepare, "DocumentChunks", partial(DocumentChunks, min_bytes=min_bytes))
        source = Path(folder) / "text.txt"
        source.write_text(text, encoding="utf-8")
        corpus = prepare.prepare_corpus(source, MERGED, Path(folder) / "corpus", options, workers=1)
        ids, _ = corpus.read_tokens(0, len(corpus))
        starts = corpus.sentence_starts[corpus.document_starts]
        found = [ids[first:last].tolist() for first, last in pairwise(starts)]
    assert found == [MERGED.backend.encode("\n".join(one)).ids for one in documents]


def test_characters_without_a_line_break_join_paragraphs_by_a_space():
    vocab = {token: number for number, token in enumerate([*SPECIAL, " ", ".", *"Aaisto"])}
    backend = backends.build_characters(vocab, None, chinese=True, byte_fallback=False)
    plain = Tokenizer(backend, special_tokens={"unk": "[UNK]"})
    settings = EncoderSettings.from_tokenizer(plain, "split", None)
    encoded = DocumentEncoder(settings)([[b"A sat. A is.", b"A toast."]])
    text = "".join(list(vocab)[i] for i in encoded.ids)
    assert text == "A sat. A is. A toast."


def test_other_tokenizers_read_sentences_without_white_space():
    document = [b"The cat sat. A dog ran.", b" Why? "]
    for name, backend in LOCAL.items():
        settings = EncoderSettings.from_tokenizer(
            Tokenizer(backend, special_tokens={"unk": "[UNK]"}), "split", None
        )
        found = list(DocumentEncoder(settings)._split_sentences(document))
        assert found == ["The cat sat.", "A dog ran.", "Why?"], name


@given(st.lists(SENTENCES, min_size=2, max_size=5))
def test_clearing_the_cache_changes_nothing(batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_encoder, "MAX_CACHED_CHARS", 100)
        cleared = DocumentEncoder(make_settings(LOCAL["uncased"]))
        results = [cleared._encode_sentences(batch) for batch in batches]
    cached = DocumentEncoder(make_settings(LOCAL["uncased"]))
    for batch, result in zip(batches, results, strict=True):
        again = cached._encode_sentences(batch)
        assert all(np.array_equal(a, b) for a, b in zip(result, again, strict=True))


@given(st.text("我爱北京 a", max_size=20), st.lists(st.integers(1, 4), max_size=20))
def test_word_boundaries_are_those_of_the_segmenter(text, sizes):
    words, rest = [], text
    for size in sizes:
        words.append(rest[:size])
        rest = rest[size:]
    words = [word for word in [*words, rest] if word]
    edges = {0, *np.cumsum([len(word) for word in words]).tolist()}
    assert find_word_boundaries(text, lambda _: words) == (edges if words else set())
    # Segmenters may drop blanks.
    bare, position = set(), 0
    for word in words:
        first = position + len(word) - len(word.lstrip())
        bare |= {first, first + len(word.strip())} if word.strip() else set()
        position += len(word)
    assert find_word_boundaries(text, lambda _: [w.strip() for w in words if w.strip()]) == bare
