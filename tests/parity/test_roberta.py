"""RoBERTa and XLM-R with tokenizers of their own kinds: fills and vectors equal the library's."""

import pytest
import torch
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import cloze
from helpers import scramble

pytestmark = pytest.mark.parity
TEXT = ["The cat sat on the mat.", "A dog saw the cat in the Café.", "The mat was red."] * 50
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_level_tokenizer():
    """RoBERTa's: byte-level BPE; the mask takes the space before it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXT, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.RobertaTokenizerFast(tokenizer_object=backend)


def unigram_tokenizer():
    """XLM-R's: a unigram model over words that begin with ▁."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(TEXT, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return transformers.XLMRobertaTokenizerFast(tokenizer_object=backend)


FAMILIES = {
    "roberta": (byte_level_tokenizer, transformers.RobertaConfig, transformers.RobertaForMaskedLM),
    "xlm-roberta": (
        unigram_tokenizer,
        transformers.XLMRobertaConfig,
        transformers.XLMRobertaForMaskedLM,
    ),
}


@pytest.fixture(params=FAMILIES)
def both(request, tmp_path):
    """Their model and tokenizer, and the folder they were saved in as our model."""
    make_tokenizer, config, peer_class = FAMILIES[request.param]
    tokenizer = make_tokenizer()
    peer = peer_class(
        config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=34,
            type_vocab_size=1,
            pad_token_id=1,
        )
    ).eval()
    scramble(peer)
    peer.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = cloze.load(tmp_path)
    assert model.family.name == request.param
    assert model.config.max_positions == 32
    return peer, tokenizer, model


@pytest.mark.parametrize("text", ["The <mask> sat on the mat.", "<mask> saw it", "in the <mask>"])
def test_fill_equals_transformers(both, text):
    peer, tokenizer, model = both
    given = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = peer(**given).logits[0, given["input_ids"][0] == tokenizer.mask_token_id][0]
    theirs = logits.softmax(-1)
    (mask,) = cloze.fill(model, text, top=10).masks
    assert text[mask.start : mask.end] == "<mask>"
    for one in mask.predictions:
        assert one.score == pytest.approx(float(theirs[one.ids[0]]), rel=1e-4)
        assert one.text == text.replace("<mask>", one.word)
        assert one.word.strip() == one.word
        assert one.ids[0] not in tokenizer.all_special_ids


def test_pairs_and_long_texts(both):
    peer, tokenizer, model = both
    ours = model.tokenizer.encode("The cat sat.", "A dog")
    assert ours.ids == tokenizer("The cat sat.", "A dog")["input_ids"]
    long = " ".join(TEXT)
    (vector,) = cloze.embed(model, [long], truncation="head")
    with torch.no_grad():
        body = peer.base_model(
            **tokenizer(long, truncation=True, max_length=32, return_tensors="pt")
        ).last_hidden_state
    torch.testing.assert_close(torch.tensor(vector), body[0].mean(0), rtol=1e-4, atol=1e-5)
