"""The losses of the four tasks, packed and padded, equal those of transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.data.labelled.batch import EncodedExample, collate_examples
from cloze.models.configs.bert import BertConfig
from cloze.objectives.core import DeviceBatch, Learner
from cloze.objectives.labelled import (
    make_choice_objective,
    make_classification_objective,
    make_multi_label_objective,
    make_regression_objective,
    make_span_objective,
)
from helpers import scramble, tiny_tokenizer

pytestmark = pytest.mark.parity
LENGTHS = (5, 9, 7, 5, 3, 9)


def model_with(head, labels=("a", "b", "c"), problem=None):
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        max_positions=32,
        labels=labels,
        problem_type=problem,
    )
    made = Model.from_config(config, tokenizer, (head,), rng=torch.Generator().manual_seed(0))
    scramble(made.module)
    return made


def items(model, *, places, targets):
    rng = np.random.default_rng(0)
    size = model.tokenizer.vocab_size
    return [
        EncodedExample(
            ids=rng.integers(5, size, length).tolist(),
            type_ids=[0] * 2 + [1] * (length - 2),
            positions=places(length),
            targets=targets(number, length),
            example=number,
        )
        for number, length in enumerate(LENGTHS)
    ]


def pad_rows(rows, padding=0):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])


def inputs(rows):
    return {
        "input_ids": pad_rows([row.ids for row in rows]),
        "token_type_ids": pad_rows([row.type_ids for row in rows]),
        "attention_mask": pad_rows([[1] * len(row.ids) for row in rows]),
    }


def peer(model, tmp_path, name):
    import transformers

    return getattr(transformers, name).from_pretrained(model.save(tmp_path / "m")).eval()


def assert_same(model, objective, name, groups, theirs):
    """The mean loss is the peer's, however the batch is cut."""
    batch = collate_examples(name, groups)
    terms = objective(model.module, batch)
    ours = terms[name] / batch.counts[name]
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert sum(b.counts[name] for b in batch.split(3)) == batch.counts[name]
    parts = [objective(model.module, part)[name] for part in batch.split(3)]
    assert torch.stack(parts).sum().item() == pytest.approx(terms[name].item(), abs=1e-4)


def test_classes_of_texts(tmp_path):
    model = model_with("sequence", problem="single_label_classification")
    rows = items(model, places=lambda _: (0,), targets=lambda n, _: (n % 3,))
    labels = torch.tensor([row.targets[0] for row in rows])
    found = peer(model, tmp_path, "BertForSequenceClassification")(**inputs(rows), labels=labels)
    assert_same(
        model,
        make_classification_objective("sequence"),
        "classify",
        [[row] for row in rows],
        found.loss,
    )


def test_several_labels_of_texts(tmp_path):
    model = model_with("sequence", problem="multi_label_classification")
    rows = items(
        model, places=lambda _: (0,), targets=lambda n, _: ((n % 2, float(n == 3), n % 3 / 2 > 0),)
    )
    labels = torch.tensor([row.targets[0] for row in rows], dtype=torch.float)
    theirs = peer(model, tmp_path, "BertForSequenceClassification")
    assert theirs.config.problem_type == "multi_label_classification"
    found = theirs(**inputs(rows), labels=labels)
    assert_same(
        model,
        make_multi_label_objective("sequence"),
        "classify",
        [[row] for row in rows],
        found.loss,
    )
    theirs.save_pretrained(tmp_path / "theirs")
    model.tokenizer.save(tmp_path / "theirs")
    back = cloze.load(tmp_path / "theirs")
    assert back.config.problem_type == "multi_label_classification"
    with torch.no_grad():
        text = "the cat sat ."
        encoding = model.tokenizer.encode(text)
        logits = theirs(torch.tensor([encoding.ids])).logits[0]
    scores = cloze.classify(back, text)
    want = dict(zip(back.labels, logits.sigmoid().tolist(), strict=True))
    assert dict(scores.scores) == pytest.approx(want, abs=1e-6)
    assert set(scores.labels) == {label for label in want if want[label] >= 0.5}


def test_numbers(tmp_path):
    model = model_with("sequence", labels=("LABEL_0",), problem="regression")
    rows = items(model, places=lambda _: (0,), targets=lambda n, _: (n / 3,))
    labels = torch.tensor([row.targets[0] for row in rows])
    found = peer(model, tmp_path, "BertForSequenceClassification")(**inputs(rows), labels=labels)
    assert_same(
        model,
        make_regression_objective("sequence"),
        "classify",
        [[row] for row in rows],
        found.loss,
    )


def test_tags(tmp_path):
    model = model_with("token")
    rows = items(
        model,
        places=lambda t: range(1, t - 1),
        targets=lambda n, t: [(n + k) % 3 for k in range(t - 2)],
    )
    labels = pad_rows([[-100, *row.targets, -100] for row in rows], -100)
    found = peer(model, tmp_path, "BertForTokenClassification")(**inputs(rows), labels=labels)
    assert_same(
        model, make_classification_objective("token"), "tag", [[row] for row in rows], found.loss
    )


def test_answers(tmp_path):
    model = model_with("span", labels=("LABEL_0", "LABEL_1"))
    rows = items(model, places=range, targets=lambda n, t: (0, 0) if n == 2 else (1, t - 1))
    first, last = (torch.tensor([row.targets[k] for row in rows]) for k in (0, 1))
    found = peer(model, tmp_path, "BertForQuestionAnswering")
    given = inputs(rows)
    out = found(**given)
    hidden = ~given["attention_mask"].bool()  # the peer's own loss lets padding take part
    losses = [
        torch.nn.functional.cross_entropy(scores.masked_fill(hidden, -torch.inf), wanted)
        for scores, wanted in ((out.start_logits, first), (out.end_logits, last))
    ]
    assert_same(
        model, make_span_objective("span"), "answer", [[row] for row in rows], sum(losses) / 2
    )


def test_choices(tmp_path):
    model = model_with("choice", labels=("LABEL_0",))
    rows = items(model, places=lambda _: (0,), targets=lambda n, _: (n % 2,))
    groups = [rows[:3], rows[3:]]
    labels = torch.tensor([group[0].targets[0] for group in groups])
    given = {name: value.unflatten(0, (2, 3)) for name, value in inputs(rows).items()}
    found = peer(model, tmp_path, "BertForMultipleChoice")(**given, labels=labels)
    assert_same(model, make_choice_objective("choice"), "choose", groups, found.loss)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_and_smoothing(smoothing):
    model = model_with("sequence")
    rows = items(model, places=lambda _: (0,), targets=lambda n, _: (n % 3,))
    weights = torch.tensor([1.0, 2.0, 0.5])
    batch = collate_examples("classify", [[row] for row in rows])
    terms = make_classification_objective("sequence", weights=weights, smoothing=smoothing)(
        model.module, batch
    )
    found = []
    for row in rows:
        vector = model.module(torch.tensor([row.ids]), None, torch.tensor([row.type_ids]))[:, 0]
        scores = model.module.logits("sequence", vector)[0].log_softmax(-1)
        spread = torch.full((3,), smoothing / 3)
        spread[row.targets[0]] += 1 - smoothing
        found.append(-(spread * scores * weights).sum())
    assert terms["classify"].item() == pytest.approx(sum(found).item(), abs=1e-5)


def test_smoothing_of_choices():
    """Over a question's own options, however many another question of the batch has."""
    model = model_with("choice", labels=("LABEL_0",))
    rows = items(model, places=lambda _: (0,), targets=lambda n, _: (n % 2,))
    groups = [rows[:4], rows[4:]]
    terms = make_choice_objective("choice", smoothing=0.3)(
        model.module, collate_examples("choose", groups)
    )
    terms["choose"].backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.module.parameters())
    found = 0.0
    for group in groups:
        vectors = [
            model.module(torch.tensor([row.ids]), None, torch.tensor([row.type_ids]))[0, 0]
            for row in group
        ]
        logs = model.module.logits("choice", torch.stack(vectors))[:, 0].log_softmax(-1)
        found -= (0.7 * logs[group[0].targets[0]] + 0.3 * logs.mean()).item()
    assert terms["choose"].item() == pytest.approx(found, abs=1e-5)


RECTANGLES = {  # the objective, the places of a sequence of t tokens, the targets of number n
    "sequence": (
        lambda: make_classification_objective("sequence", smoothing=0.1),
        lambda _: (0,),
        lambda n, _: (n % 3,),
    ),
    "regression": (
        lambda: make_regression_objective("sequence"),
        lambda _: (0,),
        lambda n, _: (n / 3,),
    ),
    "token": (
        lambda: make_classification_objective("token"),
        lambda t: range(1, t - 1),
        lambda n, t: [n % 3] * (t - 2),
    ),
    "span": (lambda: make_span_objective("span"), lambda t: range(t), lambda n, t: (n % 3, t - 1)),
    "choice": (lambda: make_choice_objective("choice"), lambda _: (0,), lambda n, _: (n % 2,)),
}


@pytest.mark.parametrize("kind", RECTANGLES)
def test_rectangles_for_a_gpu_say_the_same_as_packed_rows(kind):
    made, places, targets = RECTANGLES[kind]
    head = "sequence" if kind == "regression" else kind
    labels = ("n",) if kind == "regression" else ("a", "b", "c")
    model = model_with(head, labels, problem="regression" if kind == "regression" else None)
    rows = items(model, places=places, targets=targets)
    groups = [rows[:2], rows[2:5], rows[5:]] if kind == "choice" else [[row] for row in rows]
    if kind == "choice":
        groups[2][0] = replace(groups[2][0], targets=(0,))
    batch = collate_examples("task", groups)
    learner = Learner(model.module, made())
    found = []
    for given in (batch, DeviceBatch.from_batch(torch.device("cpu"), batch)):
        terms = learner(given)
        terms["task"].backward()
        weights = model.module.parameters()
        found.append((terms, [w.grad.clone() for w in weights if w.grad is not None]))
        model.module.zero_grad()
    (packed, ours), (rectangle, theirs) = found
    assert packed.keys() == rectangle.keys()
    for name in packed:
        assert packed[name].item() == pytest.approx(rectangle[name].item(), abs=1e-5)
    assert max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) <= 1e-5


def test_rectangles_have_few_shapes():
    model = model_with("token")
    rows = items(model, places=lambda t: range(t), targets=lambda _, t: [0] * t)
    shapes = {
        tuple(array.shape for array in collate_examples("tag", [[a], [b]]).arrays().values())
        for a in rows
        for b in rows
    }
    assert len(shapes) == 1
