"""The average of the weights of NT-ASGD."""

import pytest
import torch
from torch import nn

from cloze.train.averaging import WeightAverage
from cloze.train.config import OptimizerConfig
from cloze.train.optim import build_optimizer
from cloze.train.schedule import Progress
from cloze.train.state import TrainState
from cloze.train.step import AsyncValues, Step


def make_state():
    model = nn.Linear(1, 1, bias=False)
    return TrainState(
        learner=model,
        model=model,
        optimizer=build_optimizer(model, OptimizerConfig(name="sgd", lr=1.0)),
    )


def run(state, average, scores):
    """The weight after step n is n; every step is evaluated."""

    def steps():
        for number in range(1, len(scores) + 1):
            nn.init.constant_(state.model.weight, number)
            state.progress = Progress(step=number)
            yield Step(
                number=number,
                tokens=0,
                seconds=0.0,
                lr=1.0,
                is_last=False,
                sample_ids=[],
                names=(),
                numbers=AsyncValues(torch.zeros(2)),
            )

    seen = []
    for step in average.average_steps(steps()):
        seen.append(0.0)

        def evaluate(number=step.number):
            seen[-1] = state.model.weight.item()
            return {"score": scores[number - 1]}

        average.evaluate(evaluate)
        assert state.model.weight.item() == step.number  # training goes on from the last weights
    return seen


def test_averaging_begins_when_the_score_is_below_one_before_the_last_n():
    state = make_state()
    # 3 is below the best (4), but not of those at least two evaluations ago, until step 5
    seen = run(state, WeightAverage(state, 2), [1, 4, 3, 3.5, 3, 3, 3])
    assert state.notes["averaging"]["start"] == 5
    assert seen == [1, 2, 3, 4, 5, 6, pytest.approx(6.5)]
    assert state.extra["average.weight"].item() == pytest.approx(6.5)


def test_a_run_that_improves_is_never_averaged():
    state = make_state()
    assert run(state, WeightAverage(state, 1), [1, 2, 3, 4]) == [1, 2, 3, 4]
    assert not state.extra


def test_the_average_is_swapped_in_for_saving():
    state = make_state()
    average = WeightAverage(state, 1)
    run(state, average, [2, 1, 1, 1, 1])
    with average.swap_in():
        assert state.model.weight.item() == pytest.approx(4.5)
    assert state.model.weight.item() == 5


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_is_gradient_descent(weight_decay):
    model = nn.Linear(2, 1)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    config = OptimizerConfig(name="sgd", lr=0.5, weight_decay=weight_decay)
    optimizer = build_optimizer(model, config)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight, weight - 0.5 * (1 + weight_decay * weight))
    torch.testing.assert_close(model.bias, bias - 0.5)
