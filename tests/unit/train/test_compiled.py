"""What is compiled for a run: every part that each token goes through, of a generator too."""

import pytest
import torch
from torch import nn
from torch.compiler import config as compiler

from cloze.models.build import build
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.objectives.detector import build_detector
from cloze.train.compiled import RECOMPILE_LIMIT, compile_diffusion, compile_encoders
from images import diffusion_model


@pytest.fixture
def compiled(monkeypatch):
    """The modules and functions that torch is asked to compile."""
    asked = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: asked.append(self))

    def instead(function, **options):
        asked.append(function.__func__)
        assert options == {"dynamic": False}
        return function

    monkeypatch.setattr(torch, "compile", instead)
    with compiler.patch(recompile_limit=8):
        yield asked


def model():
    config = ModernBertConfig(
        vocab_size=30,
        hidden_size=16,
        num_layers=3,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
        global_attention_every=3,
    )
    return build(config, ["mlm"], rng=torch.Generator().manual_seed(0))


def test_blocks_embeddings_and_what_comes_before_the_words(compiled):
    one = model()
    compile_encoders(one)
    assert compiled == [one.embeddings, one.norm, *one.blocks, type(one).lm_head_operands]
    assert compiler.recompile_limit == RECOMPILE_LIMIT


@pytest.mark.parametrize("width", [None, 8])
def test_a_generator_and_the_head_beside_a_model(compiled, width):
    both = build_detector(model(), num_layers=2, hidden_size=width, rng=torch.Generator())
    names = list(both.state_dict())
    compile_encoders(both)
    for part in (both.model, both.generator):
        assert part.embeddings in compiled
        assert all(block in compiled for block in part.blocks)
    assert compiled.count(type(both.model).lm_head_operands) == 2
    assert type(both).discriminator_logits in compiled
    assert list(both.state_dict()) == names


@pytest.mark.parametrize("trained", ["denoiser", "autoencoder"])
def test_what_a_stage_of_diffusion_uses(compiled, trained):
    module = diffusion_model().module
    compile_diffusion(module, [getattr(module, trained)])
    assert module.autoencoder.encoder in compiled
    is_second = trained == "denoiser"
    assert (module.denoiser in compiled) == is_second
    assert all((block in compiled) == is_second for block in module.text_encoder.blocks)
