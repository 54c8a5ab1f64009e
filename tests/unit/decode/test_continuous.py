"""Continuous batching: each row is continued as it would be alone, whenever it joins."""

from functools import partial

import pytest

import cloze
from cloze.decode.continuous import ContinuousBatch
from cloze.tasks.generate import make_generator, make_result
from grams import text_model
from helpers import tiny_model
from languages import neural_model

TEXTS = ["the cat", "a", "the cat sat on a b c d", "c"]
MODELS = {
    "bert": partial(tiny_model, "mlm", is_causal=True),
    "gpt2": partial(tiny_model, "lm", family="gpt2"),
    "gpt3": partial(tiny_model, "lm", family="gpt3"),
    "ngram": text_model,
    "lstm": partial(neural_model, "lstm"),
    "nnlm": partial(neural_model, "nnlm"),
}
OPTIONS = [
    {"temperature": 0.0},
    {"seed": 3},
    {"seed": 5, "top_k": 5, "temperature": 0.8, "samples": 2},
    {"seed": 1, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
]


def generate_joining(model, requests, *, every=2, remove=()):
    """Each request (text, options) joins some steps after the one before it."""
    waiting = [make_generator(model, *one[:1], **one[1]) for one in requests]
    batch = ContinuousBatch(waiting[0][0].model)
    rows = [generator.make_rows()[0] for generator, _ in waiting]
    joined = steps = 0
    while joined < len(rows) or len(batch):
        if steps % every == 0 and joined < len(rows):
            batch.add(rows[joined])
            joined += 1
        batch.step()
        steps += 1
        for number in remove:
            if steps == 3:
                batch.remove(rows[number])
    return [
        make_result(generator, 0, [row.sampled.make_hypothesis() for row in some], unread[0])
        for (generator, unread), some in zip(waiting, rows, strict=True)
    ]


def strip_scores(result):
    return [(one.continuation, one.tokens, one.finish_reason) for one in result]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("every", [1, 3])
def test_rows_that_join_get_what_generate_gives(name, every):
    model = MODELS[name]()
    requests = [
        (text, {"max_new_tokens": 4 + 2 * number, **options})
        for number, (text, options) in enumerate(zip(TEXTS, OPTIONS, strict=True))
    ]
    found = generate_joining(model, requests, every=every)
    for (text, options), one in zip(requests, found, strict=True):
        alone = cloze.generate(model, text, **options)
        assert strip_scores(one) == strip_scores(alone)
        assert [row.log_probability for row in one] == pytest.approx(
            [row.log_probability for row in alone], abs=1e-4
        )


def test_a_row_that_leaves_changes_no_other():
    model = MODELS["gpt2"]()
    requests = [(text, {"seed": 2, "max_new_tokens": 9}) for text in TEXTS]
    whole = generate_joining(model, requests, every=1)
    found = generate_joining(model, requests, every=1, remove=[1])
    assert [strip_scores(one) for n, one in enumerate(found) if n != 1] == [
        strip_scores(one) for n, one in enumerate(whole) if n != 1
    ]


def test_rows_longer_than_the_model_join_others():
    model = MODELS["gpt2"]()
    long = "a b c d e f g h i j " * 8
    tail = {"truncation": "tail"}
    requests = [
        ("the", {"seed": 1, "max_new_tokens": 12, **tail}),
        (long, {"seed": 2, **tail}),
        ("a", {"seed": 3, **tail}),
    ]
    found = generate_joining(model, requests)
    for (text, options), one in zip(requests, found, strict=True):
        alone = cloze.generate(model, text, **options)
        assert strip_scores(one) == strip_scores(alone)
        assert one.truncated_chars == alone.truncated_chars


def test_stop_strings_and_alternatives_are_those_of_the_row():
    model = MODELS["ngram"]()
    whole = cloze.generate(model, "the", seed=4, max_new_tokens=20)[0]
    generator, _ = make_generator(
        model, "the", seed=4, max_new_tokens=20, stop_strings=[whole.tokens[1]]
    )
    ((row,),) = generator.make_rows(top_log_probs=3)
    batch = ContinuousBatch(generator.model)
    batch.add([row])
    while len(batch):
        batch.step()
    assert row.sampled.finish_reason == "stop"
    assert len(row.log_probs) == len(row.alternatives) == len(row.sampled.tokens)
    assert sum(row.log_probs) == pytest.approx(row.sampled.log_probability)
    for some in row.alternatives:
        assert len(some) == 3
        assert [value for _, value in some] == sorted((v for _, v in some), reverse=True)
