"""transformers loads folders with float8 weights, with the same vectors."""

import pytest
import torch
import transformers

import cloze
from cloze.files import read_json
from cloze.make.float8 import save_float8
from helpers import MASKED, tiny_model

pytestmark = pytest.mark.parity
ENCODERS = sorted(
    name
    for name, folder in cloze.builtin().items()
    if read_json(folder / "config.json")["model_type"] != "diffusion"
)
IDS = torch.tensor([[2, 20, 21, 4, 5, 3]])


@pytest.mark.parametrize("family", MASKED)
def test_transformers_converts_float8_weights(family, tmp_path):
    folder = save_float8(tiny_model("mlm", family=family), tmp_path / "small")
    module = cloze.load(folder).module
    body = transformers.AutoModel.from_pretrained(folder).eval()
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert {weight.dtype for weight in theirs.parameters()} == {torch.float32}
    with torch.no_grad():
        hidden = module(IDS)
        assert (body(IDS).last_hidden_state - hidden).abs().max() <= 1e-5
        assert (theirs(IDS).logits - module.logits("mlm", hidden)).abs().max() <= 1e-4


@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_loads_the_built_in_models(name):
    folder = cloze.builtin()[name]
    ours, theirs = cloze.load(name), transformers.AutoModelForMaskedLM.from_pretrained(folder)
    text = "The capital of France is [MASK]."
    ids = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == list(ours.tokenizer.encode(text).ids)
    with torch.no_grad():
        logits = ours.module.logits("mlm", ours.module(ids))
        assert (theirs.eval()(ids).logits - logits).abs().max() <= 1e-3
