"""A published checkpoint and generated folders against sentence-transformers."""

import random
import re

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import cloze
from cloze.checkpoint.model import Model
from cloze.data.sources import read_rows
from cloze.interop.sentence_transformers import Pooling
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from helpers import PIECES, scramble, tiny_tokenizer

pytestmark = [
    pytest.mark.parity,
    # both libraries truncate at the limit of the folder; only ours warns
    pytest.mark.filterwarnings("ignore::cloze.errors.TruncationWarning"),
]


@pytest.mark.data
def test_embed_equals_encode_on_real_sentences(minilm, data_dir):
    found = []
    for row in read_rows([data_dir / "text" / "wiki-short-01.txt.xz"]):
        found += [s for s in re.split(r"(?<=[.!?])\s+", row.text) if s.strip()]
        if len(found) > 2000:
            break
    texts = random.Random(0).sample(found, 57)
    # longer than the folder's limit, one word, nothing at all
    texts += [" ".join(found[:100]), "word", ""]
    ours = cloze.embed(cloze.load(minilm), texts)
    theirs = SentenceTransformer(str(minilm), device="cpu").encode(texts)
    assert ours.shape == (60, 384)
    assert np.abs(ours - theirs).max() <= 1e-5


@pytest.mark.parametrize(
    "pooling",
    [
        Pooling(modes=("cls",)),
        Pooling(modes=("max",), normalize=True),
        Pooling(modes=("cls", "max", "mean"), max_seq_length=7),
        Pooling(prompts={"a": "the cat: "}, default_prompt="a", normalize=True),
        Pooling(modes=("mean_sqrt_len_tokens",)),
        Pooling(modes=("weightedmean",), normalize=True),
        Pooling(
            modes=("lasttoken", "mean_sqrt_len_tokens", "weightedmean", "cls"), max_seq_length=5
        ),
    ],
    ids=lambda pooling: "+".join(pooling.modes),
)
def test_sentence_transformers_loads_our_models(pooling, tmp_path):
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_layers=2,
        num_heads=2,
        intermediate_size=16,
        max_positions=32,
    )
    module = scramble(build(config, rng=torch.Generator())).eval()
    model = Model(module=module, tokenizer=tiny_tokenizer(), config=config, pooling=pooling)
    folder = model.save(tmp_path / "m")
    texts = ["the cat sat.", "a b c d e f g h i j a b c", "cat", "猫 sat, the cats"]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(cloze.embed(model, texts) - theirs).max() <= 1e-5
    assert np.abs(cloze.embed(cloze.load(folder), texts) - theirs).max() <= 1e-5


def bert_with(pooling, tokenizer):
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_layers=2,
        num_heads=2,
        intermediate_size=16,
        max_positions=64,
    )
    module = scramble(build(config, rng=torch.Generator())).eval()
    return Model(module=module, tokenizer=tokenizer, config=config, pooling=pooling)


def test_max_seq_length_takes_precedence(tmp_path):
    model = bert_with(Pooling(max_seq_length=64), tiny_tokenizer().with_max_length(32))
    folder = model.save(tmp_path / "m")
    texts = ["a b c d e f g h i j " * 5, "a b c d e f g h i j " * 9]  # of 52 and of 92 pieces
    peer = SentenceTransformer(str(folder), device="cpu")
    assert peer.max_seq_length == cloze.load(folder).max_length == 64
    assert np.abs(cloze.embed(cloze.load(folder), texts) - peer.encode(texts)).max() <= 1e-5


def test_prompts_and_similarity_are_kept(tmp_path):
    prompts = {"query": "the cat: ", "document": "a b: "}
    model = bert_with(Pooling(prompts=prompts, similarity="dot"), tiny_tokenizer())
    peer = SentenceTransformer(str(model.save(tmp_path / "ours")), device="cpu")
    assert (peer.prompts, peer.similarity_fn_name) == (prompts, "dot")
    peer.save(str(tmp_path / "theirs"))
    opened = cloze.load(tmp_path / "theirs").pooling
    assert (opened.prompts, opened.similarity, opened.prompt) == (prompts, "dot", "")


def test_a_body_in_a_subfolder(tmp_path):
    folder = bert_with(Pooling(max_seq_length=12), tiny_tokenizer()).save(tmp_path / "m")
    (folder / "0_Transformer").mkdir()
    for file in [one for one in folder.iterdir() if one.is_file() and "modules" not in one.name]:
        file.rename(folder / "0_Transformer" / file.name)
    modules = folder / "modules.json"
    modules.write_text(modules.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    texts = ["the cat sat on a b c d e f g h i j", "cat"]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(cloze.embed(cloze.load(folder), texts) - theirs).max() <= 1e-5


def test_we_load_models_of_sentence_transformers(minilm, tmp_path):
    peer = SentenceTransformer(str(minilm), device="cpu")
    peer.max_seq_length = 12
    peer.save(str(tmp_path / "m"))
    model = cloze.load(tmp_path / "m")
    assert model.pooling.normalize
    assert model.max_length == 12
    texts = ["A sentence that is surely longer than twelve of the pieces of it.", "Short."]
    assert np.abs(cloze.embed(model, texts) - peer.encode(texts)).max() <= 1e-5


def test_a_trained_folder_opens_with_equal_vectors(tmp_path):
    """What `cloze finetune embed` writes: pooling, normalization, the limit, the masked-LM head."""
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=24,
    )
    rng = torch.Generator().manual_seed(0)
    base = Model.from_config(config, tokenizer, ["mlm"], rng=rng)
    scramble(base.module)
    pairs = [(f"the cat {a}", f"{a} sat") for a in "abcdefghij"] * 2
    texts = ["the cat sat.", "a b c", "", "the cat " * 40]
    for number, options in enumerate(
        ({"mlm_weight": 0.1, "max_length": 12}, {"pooling": "cls", "normalize": False})
    ):
        out = tmp_path / str(number)
        cloze.finetune(
            "embed", base, pairs, out, steps=2, batch_size=8, dev=pairs, progress=False, **options
        )
        ours = cloze.embed(out, texts)
        theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
        assert np.abs(ours - theirs).max() <= 1e-6
