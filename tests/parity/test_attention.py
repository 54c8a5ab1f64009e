"""Attention weights equal those of transformers' eager attention."""

import numpy as np
import pytest
import torch
import transformers

from cloze.checkpoint.model import Model
from cloze.interpret.attention import compute_attention
from cloze.models.build import build
from cloze.models.registry import get_family
from helpers import scramble, tiny_tokenizer

pytestmark = pytest.mark.parity
SHAPE = {
    "vocab_size": 60,
    "num_heads": 3,
    "hidden_size": 24,
    "num_layers": 3,
    "intermediate_size": 32,
    "max_positions": 40,
}
CASES = {
    "bert": ("BertModel", {}),
    "bert-causal": ("BertModel", {"is_causal": True}),
    "distilbert": ("DistilBertModel", {}),
    "roberta": ("RobertaModel", {}),
    "modernbert": ("ModernBertModel", {"window_size": 6, "global_attention_every": 2}),
    "gpt2": ("GPT2Model", {}),
    "openai-gpt": ("OpenAIGPTModel", {"intermediate_size": 96}),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_equal_those_of_transformers(case, tmp_path):
    theirs, changes = CASES[case]
    family = case.removesuffix("-causal")
    config = get_family(family).config_class(**(SHAPE | changes))
    module = scramble(build(config, (), rng=torch.Generator()), scale=0.4).eval()
    model = Model(module=module, config=config, tokenizer=tiny_tokenizer())
    model.save(tmp_path / "model")
    other = getattr(transformers, theirs).from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    )
    ids = torch.randint(5, 60, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = other.eval()(ids, output_attentions=True).attentions
    (found,) = compute_attention(model, ids[0].tolist())
    assert (found.layers, found.heads) == ((1, 2, 3), (1, 2, 3))
    for ours, wanted in zip(found.weights, expected, strict=True):
        np.testing.assert_allclose(ours, wanted[0].numpy(), atol=1e-5)
    assert (found.weights == 0).any() == (changes != {} or family in ("gpt2", "openai-gpt"))
