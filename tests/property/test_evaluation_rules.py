"""Whatever the rows: every one is predicted, in order, or passed over and told."""

from hypothesis import given
from hypothesis import strategies as st

from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Origin, TextExample
from cloze.tasks.classify import predict
from cloze.tasks.evaluate import evaluate
from helpers import tiny_model

MODEL = tiny_model("sequence", task=Task(name="classify"))
TEXT = st.text("abc cat猫", max_size=80)  # some too long for the model
LABEL = st.sampled_from(["no", "yes", "maybe", None])


@given(st.lists(st.tuples(TEXT, LABEL), max_size=12))
def test_good_rows_stay_in_order_and_bad_ones_are_told(rows):
    rows = [("a", "no"), *rows]
    examples = [
        TextExample(text=text, label=label, origin=Origin(file="f", line=line))
        for line, (text, label) in enumerate(rows, 1)
    ]
    made = evaluate(MODEL, examples, skip_bad=True)
    assert len(made.predictions) == made.count == len(made.examples)
    kept = [one.origin.line for one in made.examples]
    told = [int(error.problem.split(":")[1]) for error in made.skipped]
    assert kept == sorted(kept)
    assert sorted([*kept, *told]) == list(range(1, len(rows) + 1))
    for example in examples:
        limit = len(MODEL.tokenizer.encode(example.text)) <= MODEL.max_length
        assert (example.origin.line in kept) == (limit and example.label in ("no", "yes"))
    alone = [predict(MODEL, [example])[0].label for example in made.examples]
    assert [one.label for one in made.predictions] == alone
    assert made.score == sum(
        one.label == label for one, label in zip(made.examples, alone, strict=True)
    ) / len(alone)
