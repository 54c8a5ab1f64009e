"""Models of transformers are taken directly: same attention, shared weights, same predictions."""

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.transformers_model import convert_transformers_model
from cloze.errors import InputError
from cloze.interpret.capture import capture
from helpers import PIECES, raises, tiny_tokenizer

pytestmark = pytest.mark.parity
SHAPE = {
    "vocab_size": len(PIECES),
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
GPT = {"vocab_size": len(PIECES), "n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": 40}
IDS = {
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
CLASSES = [
    *(f"Bert{head}" for head in (*HEADS, "ForPreTraining", "ForQuestionAnswering")),
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    *(f"DistilBert{head}" for head in HEADS),
    *(f"Roberta{head}" for head in HEADS),
    *(f"ModernBert{head}" for head in HEADS),
    "OpenAIGPTLMHeadModel",
    "GPT2Model",
    "GPT2LMHeadModel",
]


def make_peer(name):
    """A tiny random model of transformers, with large weights, so that attention is not uniform."""
    kind = getattr(transformers, name)
    options = (GPT if "GPT" in name else SHAPE) | IDS
    if name.startswith("DistilBert"):
        options = IDS | {"vocab_size": len(PIECES), "dim": 24, "n_layers": 3, "n_heads": 3}
        options |= {"hidden_dim": 32, "max_position_embeddings": 40}
    if name.startswith("Roberta"):
        options |= {"type_vocab_size": 1}
    if name.startswith("ModernBert"):
        options |= {"local_attention": 6, "global_attn_every_n_layers": 2}
    config = kind.config_class(**options, attn_implementation="eager")
    torch.manual_seed(0)
    peer = kind(config).eval()
    with torch.no_grad():
        for weight in peer.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return peer


def peer_tokenizer():
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer().backend,
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=40,
    )


@pytest.mark.parametrize("name", CLASSES)
def test_attention_equals_eager_transformers(name):
    peer, tokenizer = make_peer(name), peer_tokenizer()
    model = convert_transformers_model(peer, tokenizer)
    ids = torch.tensor([model.tokenizer.encode("the cat sat on the mat the dog").ids])
    given = ids[None] if "MultipleChoice" in name else ids
    with torch.inference_mode():
        expected = peer(given, output_attentions=True).attentions
        with capture(model.module, "attention") as captured:
            model.module(ids)
    assert len(captured) == len(expected) == 3
    for ours, theirs in zip(captured, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert (expected[0] - expected[0].mean(-1, keepdim=True)).abs().max() > 0.01


def test_a_view_takes_model_and_tokenizer():
    peer, tokenizer = make_peer("BertForMaskedLM"), peer_tokenizer()
    view = cloze.explain(peer, tokenizer, "the cat [MASK] on the mat", view="attention")
    same = cloze.explain.attention(peer, tokenizer, "the cat [MASK] on the mat")
    assert view.to_dict() == same.to_dict()
    both = cloze.explain.compare(
        (peer, tokenizer, "the cat"), (peer, tokenizer, "the dog"), view="attention"
    )
    assert len(both.data["views"]) == 2


def test_predictions_are_the_same_and_weights_are_shared():
    peer, tokenizer = make_peer("BertForMaskedLM"), peer_tokenizer()
    model = convert_transformers_model(peer, tokenizer)
    shared = {weight.data_ptr() for weight in peer.parameters()}
    ours = [weight for weight in model.module.parameters() if weight.data_ptr() in shared]
    assert sum(map(torch.numel, ours)) > 0.5 * sum(map(torch.numel, peer.parameters()))
    encoded = tokenizer("the cat [MASK] on the mat", return_tensors="pt")
    with torch.no_grad():
        logits = peer(**encoded).logits[0, 3].softmax(-1)
    best = cloze.fill(model, "the cat [MASK] on the mat", top=1).masks[0].predictions[0]
    assert best.score == pytest.approx(float(logits[best.ids[0]]))
    assert peer.training is False


def test_padding_and_truncation_of_their_tokenizer_have_no_effect():
    tokenizer = peer_tokenizer()
    tokenizer("the cat", padding="max_length", truncation=True, max_length=8)
    model = convert_transformers_model(make_peer("BertModel"), tokenizer)
    assert len(model.tokenizer.encode("the cat").ids) == 4
    assert model.max_length == 40
    assert tokenizer.backend_tokenizer.padding is not None


def test_mistakes_are_named():
    peer, tokenizer = make_peer("BertModel"), peer_tokenizer()
    with raises(InputError, "tokenizer", fix="tokenizer"):
        cloze.explain(peer, "the cat")
    with raises(InputError, "int", fix="AutoTokenizer"):
        cloze.explain(peer, 5, "the cat")
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    with raises(InputError, "llama", fix="bert"):
        cloze.explain(transformers.LlamaForCausalLM(config), tokenizer, "the cat")
    with raises(InputError, "view", "atention", fix="attention"):
        cloze.explain(peer, tokenizer, "the cat", view="atention")
