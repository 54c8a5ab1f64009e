import pickle
import subprocess
import sys

import numpy as np

from cloze.data.config import CorpusOptions
from cloze.data.corpus import Corpus
from cloze.data.prepare import choose_held_out, prepare_corpus
from cloze.errors import ClozeError, ConfigError, InputError, MissingExtraError
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import train_tokenizer
from corpora import (
    LINES,
    contents,
    numbered_tokenizer,
    only_shard,
    small_corpus,
    some_documents,
    write_documents,
)
from helpers import raises, tiny_tokenizer
from segmenters import by_two, give_up, talk_and_refuse


def test_ids_words_sentences_and_documents(tmp_path):
    documents = [["w1 w2 wx", "w3"], ["w4, w5"]]
    corpus = small_corpus(tmp_path, documents)
    tokenizer = numbered_tokenizer()
    ids, starts = corpus.read_tokens(0, len(corpus))
    assert [tokenizer.id_to_token(int(i)) for i in ids] == [
        *("w1", "w2", "w", "##x", "w3", "w4", "[UNK]", "w5")
    ]
    assert starts.tolist() == [True, True, True, False, True, True, True, True]
    assert corpus.sentence_starts.tolist() == [0, 4, 5, 8]
    assert corpus.document_starts.tolist() == [0, 2, 3]
    summary = corpus.summary
    assert (summary.documents, summary.sentences, summary.tokens, summary.words) == (2, 3, 8, 7)
    assert (summary.unknown, summary.longest_sentence, summary.longest_document) == (1, 4, 5)
    assert summary.unknown_rate == 1 / 8


def test_paragraphs_are_split_into_sentences(tmp_path):
    source = write_documents(tmp_path / "a.txt", [["A cat sat. The cat, Mr. A, sat."], ["B."]])
    corpus = prepare_corpus(
        source, tiny_tokenizer(), tmp_path / "c", CorpusOptions(hold_out=0.0), workers=1
    )
    assert corpus.document_starts.tolist() == [0, 2, 3]


def test_the_corpus_does_not_depend_on_the_number_of_workers(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    for workers in (1, 2, 3):
        prepare_corpus(
            source, numbered_tokenizer(), tmp_path / f"{workers}", LINES, workers=workers
        )
    one = contents(tmp_path / "1")
    assert len(one) > 10
    assert contents(tmp_path / "2") == one
    assert contents(tmp_path / "3") == one


def test_a_document_longer_than_a_chunk_is_one_document(tmp_path, many_shards):
    long = [f"w{n} w{n + 1} w{n + 2}" for n in range(400)]
    corpus = small_corpus(tmp_path, [["w1"], long, ["w2"]])
    assert len(list((corpus.folder / "shards").iterdir())) > 3
    assert np.diff(corpus.document_starts).tolist() == [1, 400, 1]
    ids, starts = corpus.read_tokens(0, len(corpus))  # over the edges of shards
    words = " ".join(["w1", *long, "w2"]).split()
    assert [numbered_tokenizer().id_to_token(int(i)) for i in ids] == words
    assert starts.all()
    assert all(corpus.read_tokens(n, n + 1)[0] == ids[n] for n in range(0, len(ids), 7))


def test_a_document_longer_than_a_chunk_keeps_its_line_breaks(tmp_path, many_shards):
    lines = ["the cat sat. a dog ran."] * 300
    source = write_documents(tmp_path / "a.txt", [lines, ["the cat"]])
    tokenizer = train_tokenizer(lines[:3], kind="bpe", vocab_size=280)
    for workers in (1, 2):
        folder = tmp_path / f"{workers}"
        corpus = prepare_corpus(
            source, tokenizer, folder, CorpusOptions(hold_out=0.0), workers=workers
        )
        assert len(list((folder / "shards").iterdir())) > 2
        ids, _ = corpus.read_tokens(0, len(corpus))
        expected = [*tokenizer.backend.encode("\n".join(lines)).ids]
        expected += tokenizer.backend.encode("the cat").ids
        assert ids.tolist() == expected


def test_a_token_takes_two_bytes_and_one_bit(tmp_path):
    corpus = small_corpus(tmp_path, [["w1 " * 5000]] * 3)
    shard = only_shard(corpus)
    assert shard.stat().st_size <= 2.2 * len(corpus) + 1000


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    source = write_documents(tmp_path / "a.txt", [["w69999 w3"]])
    tokenizer = numbered_tokenizer(70_000)
    corpus = prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1)
    ids, _ = corpus.read_tokens(0, 2)
    assert ids.dtype == np.uint32
    assert tokenizer.id_to_token(int(ids[0])) == "w69999"


def test_special_tokens_in_the_text_are_text(tmp_path):
    tokenizer = numbered_tokenizer()
    source = write_documents(tmp_path / "a.txt", [["w1 [SEP] w2 [MASK]"]])
    ids, _ = prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1).read_tokens(0, 8)
    assert tokenizer.special_ids & set(ids.tolist()) == {tokenizer.unk_id}


def test_truncation_and_padding_of_the_tokenizer_are_ignored(tmp_path):
    tokenizer = numbered_tokenizer()
    tokenizer.backend.enable_truncation(3)
    tokenizer.backend.enable_padding(length=20)
    source = write_documents(tmp_path / "a.txt", [["w1 w2 w3 w4 w5 w6"]])
    assert len(prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1)) == 6


# Once is enough.


def test_invalid_rows_are_reported_or_skipped(tmp_path):
    source = tmp_path / "a.txt"
    source.write_bytes(b"w1 w2\n\xff\xfe broken\nw3\n")
    tokenizer = numbered_tokenizer()
    with raises(InputError, "a.txt:2", "UTF-8"):
        prepare_corpus(source, tokenizer, tmp_path / "c", LINES, workers=1)
    options = CorpusOptions(sentences="lines", hold_out=0.0, skip_bad=True)
    summary = prepare_corpus(source, tokenizer, tmp_path / "c", options, workers=1).summary
    assert (summary.skipped, summary.tokens) == (1, 3)


def test_empty_sources_are_reported(tmp_path):
    empty, control, binary = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt"
    empty.touch()
    control.write_text("\x01\x02\n")
    binary.write_bytes(b"\x7fELF\0\0\0\1")
    for source, message in (
        (empty, "a.txt"),
        (control, "sources"),
        (binary, "binary"),
        (tmp_path / "missing.txt", "no such file"),
    ):
        with raises(InputError, message):
            prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", LINES, workers=1)


def test_a_worker_that_dies_is_reported(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    options = CorpusOptions(sentences="lines", segmenter=give_up)
    with raises(ClozeError, "worker", "exit code 3", fix="fewer"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", options, workers=2)


def test_an_error_in_a_worker_is_reported(tmp_path, many_shards, capfd):
    source = write_documents(tmp_path / "a.txt", some_documents())
    options = CorpusOptions(sentences="lines", segmenter=talk_and_refuse)
    with raises(InputError, "more"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", options, workers=2)


def test_a_segmenter_that_workers_cannot_import_is_reported(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    options = CorpusOptions(sentences="lines", segmenter=lambda text: [text])
    with raises(ConfigError, "segmenter", fix="worker"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", options, workers=2)
    prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", options, workers=1)


def test_workers_segment_as_one_process_does(tmp_path, many_shards):
    source = write_documents(tmp_path / "a.txt", some_documents())
    options = CorpusOptions(sentences="lines", segmenter=by_two)
    for workers in (1, 2):
        prepare_corpus(
            source, numbered_tokenizer(), tmp_path / f"{workers}", options, workers=workers
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_settings_are_checked():
    with raises(ConfigError, "hold_out", "1"):
        CorpusOptions(hold_out=1)
    with raises(ConfigError, "sentences", "line", fix="lines"):
        CorpusOptions(sentences="line")
    with raises(ConfigError, "segmenter", "jeiba", fix="jieba"):
        CorpusOptions(segmenter="jeiba")


# Held out.


def test_held_out_documents_are_chosen_by_their_text_alone(tmp_path):
    documents = some_documents(120)
    for name, order in (("a", documents), ("b", documents[::-1]), ("c", documents[:60])):
        (tmp_path / name).mkdir()
        small_corpus(tmp_path / name, order, hold_out=0.2)
    held = {}
    for name in "abc":
        corpus = Corpus.open(tmp_path / name / "corpus")
        spans = corpus.sentence_starts[corpus.held_out.sentence_ranges].tolist()
        held[name] = {tuple(corpus.read_tokens(*span)[0].tolist()) for span in spans}
        assert len(corpus.held_out) + len(corpus.train) == corpus.summary.documents
        assert (
            corpus.held_out.count_token_ids().sum() + corpus.train.count_token_ids().sum()
            == len(corpus)
        )
    assert held["a"] == held["b"]
    assert held["c"] <= held["a"]
    assert 10 <= len(held["a"]) <= 40


def test_both_splits_have_documents():
    hashes = np.array([2**63, 2**64 - 1, 2**62], np.uint64)
    assert choose_held_out(hashes, 1e-9).tolist() == [False, False, True]
    assert choose_held_out(hashes, 0.999999999).tolist() == [True, False, True]
    four = np.append(
        hashes, np.uint64(1)
    )  # two documents make a pair that does not belong together
    assert choose_held_out(four, 1e-9).tolist() == [False, False, True, True]
    assert choose_held_out(four, 0.999999999).tolist() == [False, False, True, True]
    assert not choose_held_out(hashes, 0.0).any()
    assert not choose_held_out(hashes[:1], 0.1).any()


def test_count_token_ids(tmp_path):
    corpus = small_corpus(tmp_path, some_documents(), hold_out=0.3)
    counts = corpus.train.count_token_ids() + corpus.held_out.count_token_ids()
    ids, _ = corpus.read_tokens(0, len(corpus))
    assert counts.tolist() == np.bincount(ids, minlength=corpus.vocab_size).tolist()


# Words.


def test_a_segmenter_finds_words_without_spaces(tmp_path):
    tokenizer = Tokenizer.from_vocab(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"我爱北京", "ab", "##c"]
    )
    source = write_documents(tmp_path / "a.txt", [["我爱北京", "北京 abc"]])
    options = CorpusOptions(sentences="lines", hold_out=0.0, segmenter=by_two)
    corpus = prepare_corpus(source, tokenizer, tmp_path / "c", options, workers=1)
    _, starts = corpus.read_tokens(0, len(corpus))
    #                            我    爱     北    京     北    京     ab     ##c
    assert starts.tolist() == [True, False, True, False, True, False, False, False]
    assert corpus.fingerprint["segmenter"].endswith("by_two")


def test_a_segmenter_that_changes_the_text_is_reported(tmp_path):
    source = write_documents(tmp_path / "a.txt", [["w1 w2"]])
    options = CorpusOptions(sentences="lines", segmenter=lambda text: [text.upper()])
    with raises(InputError, "W1 W2"):
        prepare_corpus(source, numbered_tokenizer(), tmp_path / "c", options, workers=1)


def test_a_missing_jieba_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with raises(MissingExtraError, "Chinese", fix="cloze[chinese]"):
        prepare_corpus([], numbered_tokenizer(), tmp_path / "c", CorpusOptions(segmenter="jieba"))


def test_a_corpus_is_pickled_as_its_path(tmp_path):
    corpus = small_corpus(tmp_path, some_documents())
    sent = pickle.dumps(corpus)
    assert len(sent) < 500
    assert pickle.loads(sent).summary == corpus.summary


def test_torch_is_not_imported():
    code = "import sys, cloze.data.prepare, cloze.data.packing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
