"""From real text to batches."""

import numpy as np
import pytest

from cloze.data.config import Batching
from cloze.data.packing import PackedBatches
from cloze.data.prepare import prepare_corpus
from cloze.data.samples import Sampling
from cloze.data.sources import read_rows
from cloze.objectives.masking import Masking, mask_batch
from cloze.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.data, pytest.mark.stress]


@pytest.fixture(scope="module")
def tokenizer(data_dir):
    return Tokenizer.load(data_dir / "vocab" / "bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def corpus(data_dir, tokenizer, tmp_path_factory):
    source = data_dir / "text" / "wiki-short-01.txt.xz"
    return prepare_corpus(source, tokenizer, tmp_path_factory.mktemp("c") / "corpus", workers=2)


def test_a_real_corpus_has_the_expected_size(corpus):
    assert corpus.is_intact()
    summary = corpus.summary
    assert summary.bytes <= 2.4 * summary.tokens  # 2.125 for ids and words, the rest is index
    assert summary.unknown_rate < 1e-3
    assert 0.005 < summary.held_out / summary.documents < 0.02


def test_the_ids_equal_those_of_the_tokenizer(corpus, data_dir, tokenizer):
    lines = []
    for row in read_rows(data_dir / "text" / "wiki-short-01.txt.xz"):
        if not row.text:
            break
        lines.append(row.text)
    expected = [i for ids in tokenizer.encode_ids(lines, add_special_tokens=False) for i in ids]
    first, last = corpus.sentence_starts[corpus.document_starts[:2]].tolist()
    assert corpus.read_tokens(first, last)[0].tolist() == expected


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
@pytest.mark.parametrize("length", [128, 512])
def test_real_batches_are_full(corpus, tokenizer, pairs, length):
    sampling = Sampling(pairs=pairs, max_length=length)
    epoch = PackedBatches(corpus.train, tokenizer, sampling, Batching(tokens=8192)).epoch(0)
    assert epoch.packing.non_padding_fraction >= 0.98
    batch = mask_batch(
        epoch[len(epoch) // 2], Masking.from_tokenizer(tokenizer, whole_word=True), seed=0
    )
    assert len(batch.input_ids) >= 0.98 * 8192
    assert batch.lengths.max() <= length
    chosen = batch.counts["mlm"] / len(batch.input_ids)
    assert 0.14 < chosen < 0.16
    assert not np.isin(batch.targets, list(tokenizer.special_ids)).any()
