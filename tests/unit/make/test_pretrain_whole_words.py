"""Whole-word masking of Chinese with jieba, on the host and on the device."""

import jieba
import numpy as np
import pytest
import torch

from cloze.data.batch import IGNORE_INDEX
from cloze.data.config import Batching
from cloze.data.device_corpus import CorpusSliceBatches, DeviceCorpus
from cloze.data.packing import PackedBatches
from cloze.data.samples import Sampling
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.objectives.masking import Masking, mask_batch, mask_row
from cloze.text.tokenizer import Tokenizer
from corpora import small_corpus
from helpers import SPECIAL
from smallruns import SMALL, check_resumed, metrics

SENTENCES = [
    "使用语言模型来预测下一个词的概率。",
    "哈尔滨是黑龙江的省会，国际冰雪文化名城。",
    "我们在北京大学学习自然语言处理。",
    "小明今天没有来上课，因为他生病了。",
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_vocab([*SPECIAL, *sorted(set("".join(SENTENCES)))])


@pytest.fixture
def corpus(tmp_path, tokenizer):
    return small_corpus(tmp_path, [SENTENCES], tokenizer=tokenizer, segmenter="jieba")


def test_words_start_where_jieba_begins_them(corpus):
    _, starts = corpus.read_tokens(0, len(corpus))
    words = [word for sentence in SENTENCES for word in jieba.cut(sentence)]
    assert "北京大学" in words
    lengths = np.diff(np.append(np.flatnonzero(starts), len(corpus)))
    assert lengths.tolist() == [len(word) for word in words]


def test_the_characters_of_a_word_are_masked_together(corpus, tokenizer):
    batches = PackedBatches(
        corpus.train,
        tokenizer,
        Sampling(pairs="none", max_length=128),
        Batching(tokens=128, window=None),
    )
    masking = Masking.from_tokenizer(tokenizer, mlm_probability=0.3, whole_word=True)
    device = torch.device("cpu")
    resident = CorpusSliceBatches(
        DeviceCorpus(corpus, tokenizer, device, with_words=True),
        batches,
        max_seqlen=128,
        mlm_probability=0.3,
    )
    plain = batches.batch(0)
    spans = np.split(np.arange(plain.size), np.flatnonzero(plain.word_starts)[1:])
    replacements = torch.from_numpy(masking.replacement_ids)
    for seed in range(20):
        (made,) = resident.step(0)
        on_device = mask_row(
            made.gather_tokens(),
            masking,
            replacements,
            max_masked=made.max_masked,
            num_masked=made.num_masked,
            rng=torch.Generator().manual_seed(seed),
        )
        on_host = mask_batch(plain, masking, seed=seed)
        is_target = on_device.targets != IGNORE_INDEX
        for positions in (on_device.positions[is_target].numpy(), on_host.masked_positions):
            chosen = np.zeros(plain.size, bool)
            chosen[positions] = True
            assert chosen.any()
            assert all(chosen[span].all() or not chosen[span].any() for span in spans)


@pytest.mark.parametrize("fast", ["true", "false"])
def test_a_run_with_whole_words_learns_and_resumes_exactly(tmp_path, fast):
    text = tmp_path / "zh.txt"
    text.write_text("\n\n".join("\n".join(SENTENCES[n % 4 :] * 2) for n in range(60)))
    settings = [
        *SMALL,
        "data.segmenter=jieba",
        "masking.whole_word=true",
        f"run.fast={fast}",
        "optimizer.lr=0.01",
    ]
    pretrain(text, tmp_path / "m", recipe(settings=settings))
    rows = [row for row in metrics(tmp_path / "m") if "loss" in row]
    assert rows[-1]["loss"] < rows[0]["loss"]
    check_resumed(tmp_path / "m", text, settings, tmp_path / "n")
