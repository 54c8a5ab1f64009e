"""The real checkpoint and generated folders against sentence-transformers."""

import random
import re

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import cloze
from cloze.checkpoint.model import Model
from cloze.data.streams import rows
from cloze.interop.sentence_transformers import Pooling
from cloze.models import BertConfig, fresh
from helpers import PIECES, scramble, tiny_tokenizer

pytestmark = pytest.mark.parity


@pytest.mark.data
def test_embed_equals_encode_on_real_sentences(minilm, data_dir):
    found = []
    for row in rows([data_dir / "text" / "wiki-short-01.txt.xz"]):
        found += [s for s in re.split(r"(?<=[.!?])\s+", row.text) if s.strip()]
        if len(found) > 20_000:
            break
    texts = random.Random(0).sample(found, 997)
    # longer than the folder's limit, one word, nothing at all
    texts += [" ".join(found[:200]), "word", ""]
    ours = cloze.embed(cloze.load(minilm), texts)
    theirs = SentenceTransformer(str(minilm), device="cpu").encode(texts)
    assert ours.shape == (1000, 384)
    assert np.abs(ours - theirs).max() <= 1e-5


@pytest.mark.parametrize(
    "pooling",
    [
        Pooling(modes=("cls",)),
        Pooling(modes=("max",), normalize=True),
        Pooling(modes=("cls", "max", "mean"), limit=7),
        Pooling(modes=("mean",), prompt="the cat: ", normalize=True),
    ],
    ids=lambda pooling: "+".join(pooling.modes),
)
def test_they_read_what_we_write(pooling, tmp_path):
    config = BertConfig(vocab_size=len(PIECES), width=8, layers=2, heads=2, hidden=16, positions=32)
    module = scramble(fresh(config, rng=torch.Generator())).eval()
    model = Model(module=module, tokenizer=tiny_tokenizer(), config=config, pooling=pooling)
    folder = model.save(tmp_path / "m")
    texts = ["the cat sat.", "a b c d e f g h i j a b c", "cat", "猫 sat, the cats"]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(cloze.embed(model, texts) - theirs).max() <= 1e-5
    assert np.abs(cloze.embed(cloze.load(folder), texts) - theirs).max() <= 1e-5


def test_we_read_what_they_write(minilm, tmp_path):
    peer = SentenceTransformer(str(minilm), device="cpu")
    peer.max_seq_length = 12
    peer.save(str(tmp_path / "m"))
    model = cloze.load(tmp_path / "m")
    assert model.pooling.normalize
    assert model.limit == 12
    texts = ["A sentence that is surely longer than twelve of the pieces of it.", "Short."]
    assert np.abs(cloze.embed(model, texts) - peer.encode(texts)).max() <= 1e-5
