"""`fill` against the pipeline of transformers."""

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.model import Model
from cloze.models.build import build
from cloze.models.registry import FAMILIES
from helpers import MASKED, PIECES, SPECIAL, scramble, tiny_tokenizer

pytestmark = pytest.mark.parity

TEXTS = [
    "the cat [MASK] .",
    "[MASK] [MASK] sat , a [MASK]",
    "The CAT sat[MASK]",
    "猫[MASK]猫。",
    "unknown zzz words [MASK] ✨ too",
]


@pytest.fixture(params=MASKED)
def pair(request, tmp_path):
    family = FAMILIES[request.param]
    config = family.config_class(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        max_positions=24,
        pad_id=PIECES.index("[PAD]"),
    )
    module = scramble(build(config, ("mlm",), rng=torch.Generator()), scale=0.5).eval()
    folder = Model(module=module, config=config, tokenizer=tiny_tokenizer()).save(tmp_path / "m")
    return cloze.load(folder), transformers.pipeline("fill-mask", str(folder), device="cpu")


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_words_with_the_same_probability(pair, text):
    model, peer = pair
    theirs = peer(text, top_k=len(PIECES))
    theirs = theirs if isinstance(theirs[0], list) else [theirs]
    # special tokens are no words to us
    theirs = [[one for one in row if one["token"] >= len(SPECIAL)][:6] for row in theirs]
    ours = cloze.fill(model, text, top=6)
    assert len(ours.masks) == len(theirs) == text.count("[MASK]")
    for blank, row in zip(ours.masks, theirs, strict=True):
        assert text[blank.start : blank.end] == "[MASK]"
        assert [guess.ids for guess in blank.predictions] == [(found["token"],) for found in row]
        for guess, found in zip(blank.predictions, row, strict=True):
            assert guess.score == pytest.approx(found["score"], abs=1e-6)
            assert guess.word == found["token_str"].strip()


def test_candidates(pair):
    model, peer = pair
    theirs = peer("the [MASK] sat", targets=["cat", "the", "a"], top_k=3)
    (blank,) = cloze.fill(model, "the [MASK] sat", candidates=["a", "cat", "the"]).masks
    assert [guess.word for guess in blank.predictions] == [found["token_str"] for found in theirs]
    for guess, found in zip(blank.predictions, theirs, strict=True):
        assert guess.score == pytest.approx(found["score"], abs=1e-6)
