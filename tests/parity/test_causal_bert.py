"""A causal BERT and transformers' `is_decoder`, in both directions."""

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.model import Model
from cloze.decode.language import language_model
from cloze.interop.encoders import BERT
from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from helpers import PIECES, scramble, tiny_tokenizer

pytestmark = pytest.mark.parity
TOLERANCE = 1e-5
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=32,
    max_positions=24,
    is_causal=True,
)
CLASSES = {
    (): transformers.BertModel,
    ("mlm",): transformers.BertForMaskedLM,
    ("token",): transformers.BertForTokenClassification,
}


def assert_alike(module, peer):
    """Every layer at every real token, of rows padded on the right, on the left and not at all."""
    ids = torch.randint(5, len(PIECES), (3, 11), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1] * 11, [1] * 4 + [0] * 7, [0] * 5 + [1] * 6])
    types = (torch.arange(11) > 5).long().expand(3, -1)
    for real in (mask, None):
        with torch.no_grad():
            ours = list(module.hidden_states(ids, real, types))
            theirs = peer(
                input_ids=ids, attention_mask=real, token_type_ids=types, output_hidden_states=True
            ).hidden_states
        at = torch.ones_like(mask).bool() if real is None else real.bool()
        assert len(ours) == len(theirs) == CONFIG.num_layers + 1
        for own, other in zip(ours, theirs, strict=True):
            assert (own[at] - other[at]).abs().max() <= TOLERANCE
            assert own.isfinite().all()


@pytest.mark.parametrize("heads", CLASSES)
def test_transformers_loads_our_models(heads, tmp_path):
    module = scramble(build(CONFIG, heads, rng=torch.Generator())).eval()
    Model(module=module, config=CONFIG, tokenizer=tiny_tokenizer()).save(tmp_path / "m")
    peer, loading = CLASSES[heads].from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not any(loading.values()), loading
    assert peer.config.is_decoder
    assert_alike(module, peer.eval())


@pytest.mark.parametrize("kind", [*CLASSES.values(), transformers.BertLMHeadModel])
def test_we_load_their_models(kind, tmp_path):
    values = BERT.write_config(CONFIG, ())
    peer = scramble(kind(transformers.AutoConfig.for_model(**values))).eval()
    peer.save_pretrained(tmp_path / "m")
    tiny_tokenizer().save(tmp_path / "m")
    model = cloze.load(tmp_path / "m")
    assert not model.report.missing
    assert not model.report.unexpected
    assert model.config == CONFIG
    assert_alike(model.module, peer)


def test_next_tokens_have_the_same_probability(tmp_path):
    module = scramble(build(CONFIG, ("mlm",), rng=torch.Generator())).eval()
    model = Model(module=module, config=CONFIG, tokenizer=tiny_tokenizer())
    peer = transformers.BertLMHeadModel.from_pretrained(model.save(tmp_path / "m")).eval()
    language = language_model(model)
    (ids,) = language.encode_texts(["the cats sat, a b"])
    with torch.no_grad():
        theirs = peer(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = theirs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    (found,) = language.log_probs([ids])
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=TOLERANCE, rtol=1e-4)
