"""Scores equal what the functions and adapters of the models compute."""

import pytest
import torch

import cloze
from cloze.decode.language import language_model
from cloze.interpret.scores import (
    Batch,
    HeadScore,
    NextTokenScore,
    TranslationScore,
    join_scores,
)
from helpers import tiny_model
from languages import elmo_model, neural_model
from recurrent import recurrent_encoder
from translators import module_of, some_ids

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 0]])
MASK = IDS != 0


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2"])
def test_a_class_is_the_logit_that_classify_turns_into_a_probability(family):
    model = tiny_model("sequence", family=family)
    score = HeadScore("sequence", 0, torch.tensor([0, 1]))
    with torch.no_grad():
        found = score.log_probability(model.module, Batch(IDS, MASK)).exp()
    first = cloze.classify(model, "a b c").scores["no"]
    second = cloze.classify(model, "d e").scores["yes"]
    assert found.tolist() == pytest.approx([first, second], abs=1e-6)


def test_joined_scores_are_those_of_the_rows_alone():
    model = tiny_model("mlm", "token", "span", labels=("O", "B-X", "I-X"))
    for parts in (
        [HeadScore("mlm", 2, 7), HeadScore("mlm", 1, 9)],
        [HeadScore("token", 2, 1), HeadScore("token", 1, 2)],
        [HeadScore("span", 2, 0), HeadScore("span", 1, 1)],
    ):
        joined = join_scores(parts)
        with torch.no_grad():
            scores = joined(model.module, Batch(IDS, MASK))
            probabilities = joined.log_probability(model.module, Batch(IDS, MASK))
            for row, part in enumerate(parts):
                batch = Batch(IDS[row : row + 1, : int(MASK[row].sum())])
                assert scores[row] == pytest.approx(part(model.module, batch).item(), abs=1e-5)
                alone = part.log_probability(model.module, batch).item()
                assert probabilities[row] == pytest.approx(alone, abs=1e-5)


def test_the_start_of_an_answer_competes_with_the_other_tokens():
    model = tiny_model("span")
    batch = Batch(IDS, MASK)
    with torch.no_grad():
        found = HeadScore("span", 1, 0).log_probabilities(model.module, batch)
        logits = model.module.logits("span", model.module(IDS, MASK))[..., 0]
    assert found.exp().sum(-1).tolist() == pytest.approx([1, 1])
    assert found[1, 4] == -torch.inf  # padding
    assert torch.allclose(found[1, :4], logits[1, :4].log_softmax(-1))


def test_an_option_competes_with_the_others():
    model = tiny_model("choice", labels=("no",))
    score = join_scores(
        [HeadScore("choice", 0, 0, others=torch.tensor(rest)) for rest in ([0.5, 2.0], [1.0])]
    )
    with torch.no_grad():
        logits = score(model.module, Batch(IDS, MASK))
        found = score.log_probability(model.module, Batch(IDS, MASK)).exp()
    assert found[0] == pytest.approx(torch.tensor([logits[0], 0.5, 2.0]).softmax(0)[0].item())
    assert found[1] == pytest.approx(torch.tensor([logits[1], 1.0]).softmax(0)[0].item())


def test_several_labels_and_numbers_have_no_softmax():
    model = tiny_model("sequence", labels=("a", "b", "c"))
    with torch.no_grad():
        logits = HeadScore("sequence", 0, 0).logits(model.module, Batch(IDS, MASK))
        several = HeadScore("sequence", 0, 1, activation="sigmoid")
        number = HeadScore("sequence", 0, 1, activation="none")
        probability = several.log_probability(model.module, Batch(IDS, MASK)).exp()
        value = number.log_probability(model.module, Batch(IDS, MASK))
    assert torch.allclose(probability, logits[:, 1].sigmoid())
    assert torch.equal(value, logits[:, 1])


def test_a_recurrent_classifier_reads_the_whole_row():
    model = recurrent_encoder()
    (ids,) = model.tokenizer.encode_ids(["the cat sat"])
    with torch.no_grad():
        found = HeadScore("sequence", 0, 1).log_probability(
            model.module, Batch(torch.tensor([ids]))
        )
    assert found.exp().item() == pytest.approx(
        cloze.classify(model, "the cat sat").scores["yes"], abs=1e-6
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny_model("lm", family="gpt2"),
        lambda: tiny_model("mlm", is_causal=True),
        lambda: neural_model("nnlm"),
        lambda: neural_model("direct"),
        lambda: neural_model("lstm"),
        lambda: neural_model("gru"),
    ],
)
def test_the_next_token_is_that_of_suggest(make):
    model = make()
    lm = language_model(model)
    prompts = [lm.encode_prompt("the cat sat"), lm.encode_prompt("cat")]
    ids = torch.zeros(2, len(prompts[0]), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    last = torch.tensor([len(prompt) - 1 for prompt in prompts])
    mask = torch.arange(ids.shape[1]) <= last[:, None]
    with torch.no_grad():
        found = NextTokenScore(last, 5).log_probability(model.module, Batch(ids, mask))
    wanted = [float(lm.next_log_probs(prompt)[5]) for prompt in prompts]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("output", ["softmax", "cnn"])
def test_elmo_predicts_from_characters(output):
    model = elmo_model(output=output)
    lm = language_model(model)
    wanted = lm.next_log_probs(lm.encode_prompt("the cat"))
    rows = model.tokenizer.encode("the cat").ids[:-1]  # without the end symbol
    with torch.no_grad():
        found = NextTokenScore(2, 5).log_probabilities(model.module, Batch(torch.tensor([rows])))
    assert found[0].tolist() == pytest.approx(wanted.tolist(), abs=1e-5)


@pytest.mark.parametrize("variety", ["transformer", "bahdanau", "plain-lstm", "separate"])
def test_a_word_of_a_translation_is_that_of_a_decoding_step(variety):
    module = module_of(variety)
    source, target = some_ids(2, 5), some_ids(2, 3, seed=4)
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[1, 3:] = False
    batch = Batch(target, source_ids=source, source_mask=mask)
    with torch.no_grad():
        found = TranslationScore(torch.tensor([2, 1]), 7).log_probability(module, batch)
        state = module.init_state(source, mask)
        steps = []
        for token in target.unbind(1):
            logs, state = module.step(token, state)
            steps.append(logs[:, 7])
    assert found.tolist() == pytest.approx([steps[2][0].item(), steps[1][1].item()], abs=1e-9)
