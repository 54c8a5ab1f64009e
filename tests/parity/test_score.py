"""`score` against minicons, on models that both open."""

import pytest
import transformers
from minicons.scorer import IncrementalLMScorer, MaskedLMScorer

import cloze
from cloze.tasks.score import PLL_METRICS
from helpers import MASKED, tiny_model

pytestmark = pytest.mark.parity
TEXTS = ["the cats sat.", "a", "unknown zzz 猫猫 words, too ✨", "cats cats abc"]


@pytest.mark.parametrize("pll_metric", PLL_METRICS)
@pytest.mark.parametrize("family", MASKED)
def test_pseudo_log_likelihoods(family, pll_metric, tmp_path):
    changes = {"pad_id": 0} if "roberta" in family else {}  # that of the tokenizer
    folder = tiny_model("mlm", family=family, **changes).save(tmp_path / "m")
    module = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    peer = MaskedLMScorer(module, "cpu", tokenizer)
    encoded = tokenizer(TEXTS, padding=True)
    expected = peer.compute_stats(peer.prepare_text(encoded, PLL_metric=pll_metric))
    found = cloze.score(folder, TEXTS, pll_metric=pll_metric)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.log_probability for one in ours.tokens] == pytest.approx(
            theirs, rel=1e-5, abs=1e-5
        )
        assert ours.log_probability == pytest.approx(sum(theirs), abs=1e-4)
    tokens = [
        [tokenizer.decode([id_]) for id_ in tokenizer(text, add_special_tokens=False)["input_ids"]]
        for text in TEXTS
    ]
    assert [[one.token for one in ours.tokens] for ours in found] == tokens


def test_both_metrics_differ_only_in_words_of_several_tokens():
    model = tiny_model("mlm")
    for text, differs in (("the cat sat", False), ("cats", True)):
        one, other = (cloze.score(model, text, pll_metric=metric) for metric in PLL_METRICS)
        assert (one.log_probability != other.log_probability) == differs


def test_a_causal_model(tmp_path):
    folder = tiny_model("mlm", is_causal=True).save(tmp_path / "m")
    module = transformers.BertLMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    peer = IncrementalLMScorer(module, "cpu", tokenizer)
    expected = peer.compute_stats(peer.prepare_text(TEXTS))  # all tokens but [CLS]
    found = cloze.score(folder, TEXTS)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.tokens[-1].token == "[SEP]"
        assert [one.log_probability for one in ours.tokens] == pytest.approx(
            theirs, rel=1e-5, abs=1e-5
        )
