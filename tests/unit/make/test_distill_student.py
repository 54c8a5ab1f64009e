"""A student equals its teacher as long as nothing is cut, and begins with what is kept."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.checkpoint.model import Model
from cloze.errors import ConfigError, InputError
from cloze.interop.sentence_transformers import Pooling
from cloze.make.distill.student import build_student, choose_layers, plan_student, weights_digest
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.models.configs.modernbert import ModernBertConfig
from helpers import raises, scramble, tiny_model, tiny_tokenizer

SIZE = tiny_tokenizer().vocab_size
SHAPE = {
    "vocab_size": SIZE,
    "hidden_size": 16,
    "num_layers": 4,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_positions": 16,
}


def teacher_of(heads=("mlm", "nsp"), config=BertConfig, **changes):
    made = Model.from_config(
        config(**SHAPE | changes), tiny_tokenizer(), heads, rng=torch.Generator().manual_seed(0)
    )
    scramble(made.module)
    return made


IDS = torch.randint(0, SIZE, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", ["distilbert", "bert"])
@pytest.mark.parametrize("tied", [True, False])
def test_with_all_layers_it_is_the_teacher(family, tied):
    teacher = teacher_of(tie_embeddings=tied)
    made = build_student(teacher, layers=4, family=family)
    assert (made.config.family, made.task_heads) == (family, ("mlm",))
    ours, theirs = made.module(IDS), teacher.module(IDS)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    words = [
        each.module.logits("mlm", vectors) for each, vectors in ((made, ours), (teacher, theirs))
    ]
    torch.testing.assert_close(*words, atol=1e-5, rtol=0)


def test_a_student_of_a_student():
    teacher = teacher_of(("mlm",), DistilBertConfig, classifier_dropout=0.3)
    made = build_student(teacher)
    assert made.config == DistilBertConfig(**SHAPE | {"num_layers": 2}, classifier_dropout=0.3)
    same = build_student(teacher, layers=4)
    assert torch.equal(same.module(IDS), teacher.module(IDS))


def test_half_the_layers_are_copied_and_nothing_is_shared():
    teacher = teacher_of()
    made = build_student(teacher)
    assert made.config.num_layers == len(made.module.blocks) == 2
    for block, number in zip(made.module.blocks, (0, 3), strict=True):
        theirs = teacher.module.blocks[number].state_dict()
        for name, weight in block.state_dict().items():
            assert torch.equal(weight, theirs[name]), name
    before = weights_digest(teacher.module)
    with torch.no_grad():
        for weight in made.module.parameters():
            assert weight.requires_grad
            weight.add_(1.0)
    assert weights_digest(teacher.module) == before


@pytest.mark.parametrize(
    ("of", "wanted", "kept"),
    [
        (12, None, (0, 2, 4, 7, 9, 11)),  # the released script's choice
        (6, None, (0, 2, 5)),
        (4, None, (0, 3)),
        (3, None, (0,)),
        (5, 4, (0, 1, 3, 4)),
        (3, 3, (0, 1, 2)),
        (1, 1, (0,)),
    ],
)
def test_layers_are_evenly_spaced(of, wanted, kept):
    assert choose_layers(of, wanted) == kept


@pytest.mark.parametrize(
    ("of", "wanted", "every", "kept"),
    [
        (22, None, 3, (0, 2, 4, 6, 8, 10, 12, 14, 17, 18, 20)),
        (6, 3, 3, (0, 2, 5)),  # the even ones do
        (6, 4, 3, (0, 1, 2, 3)),  # a second global one at the fourth place: there is but layer 3
        (7, 2, 3, (0, 5)),
        (4, None, 2, (0, 3)),
        (3, 3, 2, (0, 1, 2)),
    ],
)
def test_layers_stay_what_they_were(of, wanted, every, kept):
    assert choose_layers(of, wanted, every=every) == kept


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_global_layers_come_to_global_places(of, wanted, every):
    kept = choose_layers(of, min(of, wanted), every=every)
    assert len(kept) == min(of, wanted)
    assert kept[0] == 0
    assert all(one < other for one, other in pairwise(kept))
    for place, layer in enumerate(kept):
        assert (layer % every == 0) == (place % every == 0)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("heads", [("mlm",), ()])
def test_a_modernbert_teaches_a_modernbert(every, heads):
    teacher = teacher_of(
        heads, ModernBertConfig, num_layers=6, global_attention_every=every, window_size=4
    )
    made = build_student(teacher)
    assert made.config == replace(teacher.config, num_layers=3)
    assert made.task_heads == heads
    kept = choose_layers(6, every=every)
    for block, number in zip(made.module.blocks, kept, strict=True):
        assert made.config.is_local(kept.index(number)) == teacher.config.is_local(number)
        for name, weight in block.state_dict().items():
            assert torch.equal(weight, teacher.module.blocks[number].state_dict()[name]), name
    same = build_student(teacher, layers=6, family="modernbert")
    assert torch.equal(same.module(IDS), teacher.module(IDS))


@pytest.mark.parametrize(
    ("config", "heads", "family"),
    [
        (ModernBertConfig, ("mlm",), "distilbert"),
        (ModernBertConfig, ("mlm",), "bert"),
        (BertConfig, ("mlm", "nsp"), "modernbert"),
    ],
)
def test_places_are_read_in_one_way(config, heads, family):
    with raises(ConfigError, config.family, family, fix="--family"):
        build_student(teacher_of(heads, config), family=family)


@pytest.mark.parametrize("family", ["distilbert", "bert"])
def test_an_embedder_keeps_how_it_pools(family):
    pooling = Pooling(modes=("mean",), normalize=True, max_seq_length=12)
    teacher = replace(teacher_of(()), pooling=pooling)
    made = build_student(teacher, family=family)
    assert (made.task_heads, made.pooling, made.max_length) == ((), pooling, 12)
    assert made.module.pooler is None  # nothing would teach it


def test_a_fingerprint_is_of_every_weight():
    module = teacher_of().module
    first = weights_digest(module)
    assert weights_digest(teacher_of().module) == first
    with torch.no_grad():
        module.task_heads["mlm"].bias[3] += 1e-6
    assert weights_digest(module) != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 5}, ("5", "layers", "teacher", "4", "1")),
        ({"layers": 0}, ("0", "layers")),
    ],
)
def test_layers_the_teacher_has_not(options, message):
    with raises(ConfigError, message):
        build_student(teacher_of(), **options)


def test_a_single_layer_cannot_be_halved():
    with raises(ConfigError, "one layer", fix="--num-layers 1"):
        build_student(teacher_of(num_layers=1))


def test_a_distilbert_makes_no_bert():
    with raises(ConfigError, "distilbert", "teacher", "BERT", fix="--family"):
        build_student(teacher_of(("mlm",), DistilBertConfig), family="bert")


def test_norms_a_distilbert_cannot_have():
    teacher = teacher_of(norm_eps=1e-5)
    with raises(ConfigError, "1e-05", fix="--family bert"):
        build_student(teacher)
    assert build_student(teacher, family="bert").config.norm_eps == 1e-5


@pytest.mark.parametrize("head", ["sequence", "token", "span", "choice"])
def test_a_fine_tuned_teacher(head):
    with raises(InputError, head):
        build_student(teacher_of((head,)))


def test_a_causal_teacher():
    for teacher in (
        tiny_model("lm", family="gpt2"),
        tiny_model("mlm", is_causal=True),
        tiny_model("sequence", family="openai-gpt"),
    ):
        with raises(ConfigError, "causal", fix="BERT") as caught:
            plan_student(teacher.config, teacher.task_heads)
        assert "fine-tuned" not in str(caught.value)
