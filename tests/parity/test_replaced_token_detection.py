"""transformers loads a model pre-trained with replaced-token detection as a masked LM."""

import pytest
import torch
import transformers

import cloze
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe

pytestmark = pytest.mark.parity
SETTINGS = [
    *("objective.kind=both", "objective.correction_weight=1.0", "run.fast=true", "run.device=cpu"),
    *("model.preset=tiny", "model.num_layers=2", "model.hidden_size=16", "model.max_positions=32"),
    *(
        "vocabulary.size=120",
        "sampling.max_length=32",
        "sampling.pairs=none",
        "run.batch_tokens=256",
    ),
    *("data.hold_out=0.2", "data.workers=1", "run.steps=4"),
]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_transformers_loads_a_masked_lm(family, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(f"the cat number {n} sat.\nthe dog ran." for n in range(150)))
    pretrain(text, tmp_path / "m", recipe(settings=[*SETTINGS, f"model.family={family}"]))
    theirs, told = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "m", output_loading_info=True, attn_implementation="eager"
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    ours = cloze.load(tmp_path / "m")
    ids = torch.tensor(ours.tokenizer.encode_ids(["the [MASK] sat."]))
    with torch.no_grad():
        scores = theirs.eval()(ids, attention_mask=torch.ones_like(ids)).logits[0]
        expected = ours.module.logits("mlm", ours.module(ids)[0])
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
