"""KenLM reads our ARPA files and gives every word the same probability."""

import math

import pytest

from cloze.checkpoint.ngram import save_arpa
from cloze.decode.language import language_model
from grams import text_model

kenlm = pytest.importorskip("kenlm", reason="pip install kenlm")
pytestmark = pytest.mark.parity


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_the_same_scores(tmp_path, order):
    """Order 1 is left out: KenLM's reader starts at 2. Tolerance 1e-5 in log p, both float32."""
    model = text_model(order)
    peer = kenlm.Model(str(save_arpa(model, tmp_path / "model.arpa")))
    model = language_model(model)
    assert peer.order == order
    for text in ("the cat sat on the mat", "mat dog never the the cat", "zebra", ""):
        theirs = list(peer.full_scores(text))
        (ours,) = model.log_probs(model.encode_texts([text]))
        assert ours == pytest.approx([score * math.log(10) for score, _, _ in theirs], abs=1e-5)
        context = model.encode_prompt(text)
        for at, (_, length, unknown) in enumerate(theirs[:-1], 1):
            assert len(model.backoff_path(context[:at], context[at])[-1].context) + 1 == length
            assert (context[at] == model.unk_id) == unknown
