"""Every step has the fraction of batches that train detection, and as many tokens as before."""

from hypothesis import given
from hypothesis import strategies as st

from cloze.make.recipe.pretrain import PretrainRecipe
from cloze.make.recipe.run import PretrainRun
from cloze.objectives.config import MAX_DENOMINATOR, ObjectiveConfig
from cloze.objectives.replaced_tokens import is_detection_batch


@given(st.floats(1 / MAX_DENOMINATOR, 1.0), st.integers(1, 12), st.integers(0, 200))
def test_every_step_has_its_detection_fraction(fraction, accumulate, step):
    objective = ObjectiveConfig(kind="both", detection_fraction=fraction, correction_weight=1.0)
    run = PretrainRun(batch_tokens=4096, accumulate=accumulate)
    made = PretrainRecipe(objective=objective, run=run).batching
    numbers = range(step * made.per_step, (step + 1) * made.per_step)
    found = sum(
        is_detection_batch(number, objective.resolved_detection_fraction) for number in numbers
    )
    assert found == objective.resolved_detection_fraction * made.per_step > 0
    assert abs(found / made.per_step - fraction) <= 1 / MAX_DENOMINATOR
    assert 0 <= 4096 * accumulate - made.tokens * made.per_step < made.per_step
