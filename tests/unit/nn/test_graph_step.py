"""Decoding steps with fixed buffers equal plain ones; on a GPU they are CUDA graphs.

On a CPU the same code runs without a graph.
"""

import copy
import gc
import weakref
from dataclasses import replace

import pytest
import torch

import cloze
from cloze.decode.beam import beam_search
from cloze.decode.config import BeamConfig
from cloze.decode.language import language_model
from cloze.decode.prompts import start_rows
from cloze.nn import graph_step
from helpers import tiny_model

FAMILIES = {
    "gpt2": ("lm", {"family": "gpt2"}),
    "gpt": ("lm", {"family": "openai-gpt"}),
    "gpt3": ("lm", {"family": "gpt3", "window_size": 4}),
    "music": ("lm", {"family": "music-transformer"}),
    "bert": ("mlm", {"is_causal": True}),
}
PROMPTS = [[2, 7, 8, 9, 10], [2, 11], [2, 12, 13]]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setattr(graph_step, "DEVICES", {"cpu", "cuda"})
    return request.param


def make_model(name, device, **changes):
    head, options = FAMILIES[name]
    model = tiny_model(head, **(options | changes))
    model.module.double().to(device)
    return model


def read_again(language, context):
    """Log-probabilities of the next token, without a cache."""
    module = language.module
    ids = torch.tensor([context], device=language.device)
    with torch.no_grad():
        scores = module.logits(module.lm_head, module(ids)[0, -1]).log_softmax(-1)
    return scores.index_fill(-1, language._banned_ids, -torch.inf)


def assert_step(language, log_probs, contexts):
    expected = torch.stack([read_again(language, context) for context in contexts])
    torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-10)


class Walk:
    """Decodes random tokens, each step compared with a whole pass over every row."""

    def __init__(self, language, prompts, rows=None, max_new_tokens=20):
        self.language = language
        rows = list(rows or range(len(prompts)))
        self.contexts = [prompts[row] for row in rows]
        self.rng = torch.Generator().manual_seed(1)
        self.tokens, self.state = start_rows(language, prompts, rows, max_new_tokens=max_new_tokens)

    def run(self, steps):
        for _ in range(steps):
            log_probs, self.state = self.language.step(self.tokens, self.state)
            assert_step(self.language, log_probs, self.contexts)
            ids = torch.randint(5, 20, (len(self.contexts),), generator=self.rng)
            self.tokens = ids.to(self.language.device)
            self.contexts = [[*old, int(id_)] for old, id_ in zip(self.contexts, ids, strict=True)]
        return self

    def reorder(self, *rows):
        indices = torch.tensor(rows, device=self.language.device)
        self.contexts = [self.contexts[row] for row in rows]
        self.tokens = self.tokens[indices]
        self.state = self.language.reorder(self.state, indices)
        return self

    @property
    def graph(self):
        return self.state.graph_rows and self.state.graph_rows.graph


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_equal_reading_again(name, device):
    language = language_model(make_model(name, device))
    walk = Walk(language, PROMPTS).run(8)
    assert walk.graph.rows == 4
    assert walk.graph.capacity == 128
    first = walk.graph
    assert walk.reorder(2, 0).run(3).graph is first  # fewer rows stay in the same buffers
    assert walk.reorder(1, 0, 0, 1).run(3).graph is first
    assert Walk(language, PROMPTS[:1]).run(6).graph is first  # as good for one row
    assert Walk(language, PROMPTS, rows=[0, 1, 1, 2, 2]).run(5).graph is not first


def test_a_batch_that_lost_its_buffers_or_forks_is_read_again(device):
    language = language_model(make_model("gpt2", device))
    one, two = Walk(language, PROMPTS).run(3), Walk(language, PROMPTS[::-1]).run(3)
    assert one.graph is two.graph
    for _ in range(3):
        one.run(1)
        two.run(1)
    old = replace(two.state), two.tokens, two.contexts
    two.run(3)
    newest = two.state, two.tokens, two.contexts
    for two.state, two.tokens, two.contexts in (old, newest, old):
        two.run(2)


def test_longer_than_the_buffers_and_than_the_model(device):
    language = language_model(make_model("gpt2", device, positions=200))
    walk = Walk(language, PROMPTS[:2], max_new_tokens=None).run(4)
    assert walk.graph.capacity == 128
    walk.graph.capacity = 12  # as if it had been made for fewer
    walk.run(5)
    assert walk.state.graph_rows is None  # read again, because it was full
    language = language_model(make_model("gpt2", device, positions=12))
    found = cloze.generate(language, "a b", max_new_tokens=20, temperature=0, stop=False)
    assert len(found[0].tokens) == 20


def test_few_steps_and_hooks_use_no_graph(device):
    model = make_model("gpt2", device)
    language = language_model(model)
    assert Walk(language, PROMPTS, max_new_tokens=15).run(3).graph is None
    calls = []
    handle = model.module.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    assert Walk(language, PROMPTS).run(3).graph is None
    handle.remove()
    assert len(calls) > 3


def test_new_weights_are_used(device):
    model = make_model("gpt2", device)
    language = language_model(model)
    graph = Walk(language, PROMPTS).run(3).graph
    with torch.no_grad():
        model.module.blocks[0].ffn.up.weight.mul_(-1)
    assert Walk(language, PROMPTS).run(3).graph is graph  # the same memory
    model.module.blocks[0].ffn.up.weight.data = model.module.blocks[0].ffn.up.weight.data * 2
    assert Walk(language, PROMPTS).run(3).graph is not graph
    assert copy.deepcopy(model.module)._graph_steps is None


def test_a_failed_capture_falls_back(device, monkeypatch):
    def fail(self, model):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graph_step.GraphStep, "_capture", fail)
    language = language_model(make_model("gpt2", device))
    with pytest.warns(UserWarning, match="without CUDA graphs"):
        assert Walk(language, PROMPTS).run(4).graph is None
    assert Walk(language, PROMPTS).run(4).graph is None


def test_without_a_compiler_for_our_kernels(device, monkeypatch):
    def fail(*_):
        raise FileNotFoundError("gcc")

    monkeypatch.setattr(graph_step, "can_fuse_step", lambda *_: True)
    monkeypatch.setattr(graph_step, "compute_fused_step", fail)
    language = language_model(make_model("gpt2", device))
    with pytest.warns(UserWarning, match="gcc"):
        assert Walk(language, PROMPTS).run(4).graph is not None


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0}, {"top_p": 0.9, "samples": 3}, {"beam": 3}, {"repetition_penalty": 1.5}],
    ids=lambda options: next(iter(options)),
)
def test_generate_gives_the_same_tokens(device, options, monkeypatch):
    model = make_model("gpt2", device, positions=64)
    texts = ["a", "the cats sat", "b c d", "the"]
    found = cloze.generate(model, texts, max_new_tokens=20, **options)
    assert model.module._graph_steps is not None
    monkeypatch.setattr(graph_step, "DEVICES", set())
    plain = cloze.generate(model, texts, max_new_tokens=20, **options)
    assert [[one.tokens for one in some] for some in found] == [
        [one.tokens for one in some] for some in plain
    ]
    for some, other in zip(found, plain, strict=True):
        for one, two in zip(some, other, strict=True):
            assert one.log_probability == pytest.approx(two.log_probability, abs=1e-8)


def test_beams_equal_those_of_the_plain_path(device, monkeypatch):
    language = language_model(make_model("gpt", device))

    def search():
        tokens, state = start_rows(language, PROMPTS, range(3), max_new_tokens=16)
        settings = {"eos_id": language.eos_id, "max_lengths": [16] * 3}
        found = beam_search(language, state, tokens, BeamConfig(beam=3, n_best=3), **settings)
        return [[one.tokens for one in some] for some in found]

    found = search()
    monkeypatch.setattr(graph_step, "DEVICES", set())
    assert found == search()


@pytest.mark.gpu
def test_a_captured_model_is_freed():
    model = make_model("gpt2", "cuda")
    Walk(language_model(model), PROMPTS).run(3)
    module = weakref.ref(model.module)
    gc.collect()
    gc.disable()
    try:
        del model
        assert module() is None  # without a cycle that waits for the collector
    finally:
        gc.enable()
