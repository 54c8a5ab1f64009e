"""Properties of language models and of sampling."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.language_model_batches import BPTTBatches, ContextWindows
from cloze.decode import sampling as sampling_module
from cloze.decode.config import SamplingOptions
from cloze.decode.history import History
from cloze.decode.language import language_model
from cloze.decode.sampling import draw_tokens, filter_probabilities
from generated_examples import examples
from languages import VARIETIES, neural_model

MODELS = {name: language_model(neural_model(name)) for name in VARIETIES}
WORDS = st.lists(st.sampled_from([*MODELS["nnlm"].vocabulary[3:], "unseen"]), max_size=9)


@pytest.mark.parametrize("variety", VARIETIES)
@given(words=WORDS)
@examples(25)
def test_probabilities_sum_to_one(variety, words):
    model = MODELS[variety]
    logs = model.next_log_probs(model.encode_prompt(" ".join(words)))
    assert np.exp(logs.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


@given(
    logs=st.lists(st.floats(-20, 0), min_size=2, max_size=12),
    temperature=st.floats(0.0, 3.0),
    top_k=st.none() | st.integers(1, 15),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
)
def test_filters_keep_the_most_probable_tokens(logs, temperature, top_k, top_p, min_p):
    scores = torch.tensor([logs]).log_softmax(-1)
    how = SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found, ids = filter_probabilities(scores, how)
    assert found.sum().item() == pytest.approx(1, abs=1e-9)
    assert found[0, 0] > 0
    assert scores[0, ids[0, 0]] == scores.max()
    assert sorted(ids[0].tolist()) == list(range(len(logs)))
    assert (found[0].diff() <= 1e-12).all()
    assert top_k is None or (found > 0).sum() <= top_k


@given(
    size=st.integers(1, 60),
    batch=st.integers(1, 7),
    length=st.integers(1, 9),
    seed=st.integers(0, 5),
)
def test_an_epoch_of_bptt_batches_reads_no_token_twice(size, batch, length, seed):
    batches = BPTTBatches(np.arange(size), batch_size=batch, num_steps=length, seed=seed)
    read = np.concatenate([batches.batch(n).inputs.ravel() for n in range(batches.per_epoch)])
    if size >= batch * length:
        assert len(set(read.tolist())) == len(read)
        assert size - len(read) < batch * length


@given(
    ids=st.lists(st.integers(2, 6), min_size=1, max_size=40),
    order=st.integers(2, 6),
    batch=st.integers(1, 9),
)
def test_context_windows_contain_the_sentence_so_far(ids, order, batch):
    text = np.array(ids, np.int32)
    windows = ContextWindows(text, order=order, bos_id=1, eos_id=2, batch_size=batch)
    for row in range(windows.per_epoch):
        made = windows.batch(row)
        for position, context in zip(made.sample_ids, made.inputs.tolist(), strict=True):
            before = ids[:position]
            sentence = before[len(before) - before[::-1].index(2) :] if 2 in before else before
            assert context == ([1] * (order - 1) + sentence)[-(order - 1) :]


@given(
    logs=st.lists(
        st.lists(st.sampled_from([-9.0, -5.0, -3.0, -2.5, -1.0, 0.0, -np.inf]), min_size=17),
        min_size=3,
        max_size=3,
    ),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([None, 1, 3, 7, 8, 30]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    sizes=st.sampled_from([(8,), (2, 8)]),
    seed=st.integers(0, 99),
)
def test_tokens_are_drawn_as_if_all_were_sorted(logs, sizes, seed, **options):
    """Also with many equal probabilities, of which the most probable 8 tokens are a part."""
    size = min(map(len, logs))
    log_probs = torch.tensor([row[:size] for row in logs])
    log_probs[:, seed % size] = 0.0  # one is possible
    log_probs = log_probs.log_softmax(-1)
    draws = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sampling = SamplingOptions(**options)
    probs, ids = filter_probabilities(log_probs, sampling)
    indices = (probs.cumsum(-1) <= draws[:, None]).sum(-1).minimum((probs > 0).sum(-1) - 1)
    with patch.object(sampling_module, "_TOP_TOKENS", sizes):
        found = draw_tokens(log_probs, sampling, draws)
    assert found.tolist() == ids.gather(-1, indices[:, None])[:, 0].tolist()


def filter_plainly(logits, context, *, temperature, top_k, top_p, min_p, penalty, size):
    """The distribution of the next token by the definitions, one token after another."""
    values = list(logits)
    for token in set(context):
        values[token] = values[token] * penalty if values[token] < 0 else values[token] / penalty
    ngrams = {tuple(context[n : n + size]) for n in range(len(context) - size + 1)}
    for token in range(len(values)):
        if size and (*context[len(context) - size + 1 :], token) in ngrams:
            values[token] = -math.inf
    weights = [math.exp((value - max(values)) / temperature) for value in values]
    ranked = sorted(range(len(values)), key=lambda token: -weights[token])
    kept = ranked[: top_k or len(ranked)]
    total, mass, nucleus = sum(weights[token] for token in kept), 0.0, []
    for token in kept:
        if mass < top_p:
            nucleus.append(token)
        mass += weights[token] / total
    final = {token for token in nucleus if weights[token] >= min_p * weights[ranked[0]]}
    total = sum(weights[token] for token in final)
    return [weights[token] / total if token in final else 0.0 for token in range(len(values))]


@given(
    logits=st.lists(st.floats(-6, 6), min_size=5, max_size=9, unique=True),
    context=st.lists(st.integers(0, 4), min_size=1, max_size=9),
    temperature=st.floats(0.2, 3.0),
    top_k=st.none() | st.integers(1, 10),
    top_p=st.floats(0.05, 1.0),
    min_p=st.floats(0.0, 0.9),
    penalty=st.floats(0.5, 2.0),
    size=st.integers(0, 4),
)
def test_the_filtered_distribution_is_that_of_the_definition(logits, context, size, **options):
    """In float64, for all options together, in the order of `SamplingOptions`."""
    penalty = options.pop("penalty")
    expected = filter_plainly(logits, context, penalty=penalty, size=size, **options)
    history = History(
        [context, [0] * 12],  # beside a longer row
        torch.device("cpu"),
        repetition_penalty=penalty,
        no_repeat_ngram_size=size,
    )
    logits = torch.tensor([logits] * 2, dtype=torch.float64)
    constant = torch.full((2, 1), 1.25, dtype=torch.float64)
    found = history.apply(logits - constant, constant)
    probs, ids = filter_probabilities(found[:1], SamplingOptions(**options))
    probs = torch.zeros_like(probs).scatter(1, ids, probs)
    np.testing.assert_allclose(probs[0].numpy(), expected, atol=1e-9)
