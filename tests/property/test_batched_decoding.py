"""Prompts decoded together give what each gives alone, for every kind of language model."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cloze
from cloze.decode import prompts as batching
from cloze.decode.config import SamplingOptions
from cloze.decode.language import language_model
from cloze.decode.sampling import filter_probabilities
from generated_examples import examples
from grams import text_model
from helpers import tiny_model
from languages import VARIETIES, elmo_model, neural_model

MODELS = {"ngram": text_model(3)} | {name: neural_model(name) for name in VARIETIES}
MODELS["elmo"] = elmo_model()  # unknown words have ids beyond the vocabulary
MODELS["bert"] = tiny_model("mlm", is_causal=True)
MODELS["short bert"] = tiny_model("mlm", positions=9, is_causal=True)  # texts are longer than it
TEXTS = st.lists(
    st.lists(st.sampled_from(["the", "cat", "sat", "a", "b", "dog", "unseen"]), max_size=12).map(
        " ".join
    ),
    min_size=1,
    max_size=6,
)
OPTIONS = st.fixed_dictionaries(
    {
        "max_new_tokens": st.integers(1, 7),
        "samples": st.integers(1, 3),
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
        "top_k": st.sampled_from([None, 3]),
        "top_p": st.sampled_from([0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "no_repeat_ngram_size": st.sampled_from([0, 0, 2]),
        "stop_strings": st.sampled_from([(), ("at",), ("e c", "b")]),
        "stop": st.booleans(),
        "seed": st.integers(0, 99),
        "truncation": st.just("tail"),
    }
)
BATCH_TOKENS = st.sampled_from([1, 40, 10_000])


def assert_same(generations, others):
    for one, other in zip(generations, others, strict=True):
        assert (one.tokens, one.finish_reason) == (other.tokens, other.finish_reason)
        assert one.continuation == other.continuation
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
@examples(25)
@given(texts=TEXTS, options=OPTIONS, batch_tokens=BATCH_TOKENS)
def test_samples_of_a_prompt_do_not_depend_on_its_batch(name, texts, options, batch_tokens):
    with patch.object(batching, "BATCH_TOKENS", batch_tokens):
        together = cloze.generate(MODELS[name], iter(texts), **options)
    assert [one.text for one in together] == texts
    for text, found in zip(texts, together, strict=True):
        assert_same(found, cloze.generate(MODELS[name], text, **options))


@pytest.mark.parametrize("name", MODELS)
@examples(20)
@given(texts=TEXTS, batch_tokens=BATCH_TOKENS, top=st.integers(1, 5))
def test_suggestions_do_not_depend_on_the_batch(name, texts, batch_tokens, top):
    with patch.object(batching, "BATCH_TOKENS", batch_tokens):
        together = cloze.suggest(MODELS[name], iter(texts), top=top, truncation="tail")
    for text, found in zip(texts, together, strict=True):
        alone = cloze.suggest(MODELS[name], text, top=top, truncation="tail")
        assert found.text == text
        assert [one.id for one in found.suggestions] == [one.id for one in alone.suggestions]
        np.testing.assert_allclose(
            [one.probability for one in found.suggestions],
            [one.probability for one in alone.suggestions],
            rtol=1e-4,
        )


@pytest.mark.parametrize("name", MODELS)
@examples(15)
@given(texts=TEXTS, batch_tokens=BATCH_TOKENS, beam=st.integers(2, 3), options=OPTIONS)
def test_beams_do_not_depend_on_the_batch(name, texts, batch_tokens, beam, options):
    sampling = ("samples", "temperature", "top_k", "top_p", "min_p")
    options = {key: options[key] for key in options.keys() - sampling} | {"beam": beam, "n_best": 2}
    with patch.object(batching, "BATCH_TOKENS", batch_tokens):
        together = cloze.generate(MODELS[name], iter(texts), **options)
    for text, found in zip(texts, together, strict=True):
        assert_same(found, cloze.generate(MODELS[name], text, **options))


@pytest.mark.parametrize("name", MODELS)
@examples(15)
@given(text=TEXTS.map(" ".join), options=OPTIONS)
def test_a_sample_is_drawn_from_the_next_token_probabilities(name, text, options):
    """One token after another, from `next_log_probs` of the whole context."""
    model = language_model(MODELS[name])
    options = options | {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "stop_strings": ()}
    names = ("temperature", "top_k", "top_p", "min_p")
    sampling = SamplingOptions(**{key: options[key] for key in names})
    rng = torch.Generator().manual_seed(options["seed"])
    size = (options["samples"], options["max_new_tokens"])
    draws = torch.rand(size, generator=rng, dtype=torch.float64).tolist()
    for row, found in zip(draws, cloze.generate(model, text, **options), strict=True):
        context, total, tokens = model.encode_prompt(text), 0.0, []
        for draw in row:
            log_probs = torch.from_numpy(np.array(model.next_log_probs(context)))[None]
            allowed = log_probs.clone()
            allowed[0, model.unk_id] = -torch.inf
            if not options["stop"]:
                allowed[0, model.eos_id] = -torch.inf
            (probs,), (ids,) = filter_probabilities(allowed, sampling)
            index = min(int((probs.cumsum(0) <= draw).sum()), int((probs > 0).sum()) - 1)
            context = [*context, int(ids[index])]
            total += float(log_probs[0, ids[index]])
            if options["stop"] and context[-1] == model.eos_id:
                break
            tokens.append(model.decode_token(context[-1]))
        assert found.tokens == tuple(tokens)
        assert found.finished == (context[-1] == model.eos_id and options["stop"])
        assert found.log_probability == pytest.approx(total, abs=1e-4)
