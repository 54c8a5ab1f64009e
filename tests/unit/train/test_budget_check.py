"""Budgets that cannot work are called that, as early as it is known."""

import pytest

from cloze.train.budget_check import BudgetAdvice, check_budget
from cloze.train.schedule import Budget, Progress
from helpers import check_mentions

ADVICE = BudgetAdvice(faster_steps="--batch-size 4", more_steps="more --epochs")


class Step:
    def __init__(self, number, seconds):
        self.number, self.tokens, self.seconds = number, 100 * number, seconds


def warnings(budget, seconds, *, start=0, advice=ADVICE):
    """The warnings, each with the number of the steps that were passed on before it."""
    said, passed = [], [0]
    steps = (Step(number, at) for number, at in enumerate(seconds, start + 1))
    for _ in check_budget(
        steps, budget, Progress(step=start), advice, lambda text: said.append((passed[0], text))
    ):
        passed[0] += 1
    assert passed == [len(seconds)]
    return said


def test_few_steps_are_told_before_the_first():
    ((when, text),) = warnings(Budget(steps=9), [1, 2])
    assert when == 0
    check_mentions(text, "9 steps", "--epochs")
    assert not warnings(Budget(steps=30), [1, 2])
    assert not warnings(Budget(steps=9), [1, 2], start=4)  # it is resumed


def test_few_tokens_are_told_after_the_first_steps():
    ((when, text),) = warnings(Budget(tokens=900), [1, 2, 3, 4])
    assert when == 0
    check_mentions(text, "9 steps")
    assert not warnings(Budget(tokens=100 * 30), [1, 2, 3, 4])


def test_few_minutes_are_told_when_the_duration_of_a_step_is_known():
    ((when, text),) = warnings(Budget(minutes=1), [3.4, 5.8, 8.2, 10.6])  # the first is slower
    assert when == 2
    check_mentions(text, "25 steps", "1 minutes", "2.4 s", "--minutes 2", "--batch-size 4")
    ((when, text),) = warnings(Budget(minutes=1), [20.0, 40.0])
    assert when == 1
    check_mentions(text, "3 steps", "--minutes 10")
    ((when, text),) = warnings(Budget(minutes=1), [40.0, 80.0])
    assert when == 0
    assert not warnings(Budget(minutes=1), [1, 2, 3, 4])
    assert not warnings(Budget(minutes=1), [10, 10.1, 10.2])  # the first one compiled the model


def test_a_small_part_of_the_training_data_is_told():
    advice = BudgetAdvice(faster_steps="--batch-size 4", steps_per_epoch=5000)
    ((_, text),) = warnings(Budget(minutes=1), [0.5, 1.0, 1.5], advice=advice)
    check_mentions(text, "120 steps", "2.4 %", "--minutes 5")


@pytest.mark.parametrize("minutes", [1e-6, 1e-3])
def test_a_budget_that_the_first_step_spends_ends_without_a_warning(minutes):
    assert not warnings(Budget(minutes=minutes), [9.0])
