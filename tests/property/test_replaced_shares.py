"""Whatever the share that detects: every step has it, and as many tokens as before."""

from hypothesis import given
from hypothesis import strategies as st

from cloze.data.packing import Batching
from cloze.make.pretrain.tables import FINEST, ObjectiveTable
from cloze.objectives.replaced import detects


@given(st.floats(1 / FINEST, 1.0), st.integers(1, 12), st.integers(0, 200))
def test_every_step_has_its_share(share, per_step, step):
    table = ObjectiveTable(kind="both", share=share, correction=1.0)
    made = table.shared(Batching(tokens=4096, per_step=per_step))
    numbers = range(step * made.per_step, (step + 1) * made.per_step)
    found = sum(detects(number, table.detecting) for number in numbers)
    assert found == table.detecting * made.per_step > 0
    assert abs(found / made.per_step - share) <= 1 / FINEST
    assert 0 <= 4096 * per_step - made.tokens * made.per_step < made.per_step
