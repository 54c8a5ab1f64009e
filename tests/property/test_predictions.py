"""For any texts: as many predictions as examples, in their order, and places that slice back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import (
    Answer,
    ChoiceExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.tasks import answer, choose, classify, tag
from generated_examples import examples
from helpers import tiny_model
from texts import ANY_TEXT

TEXT = st.one_of(ANY_TEXT, st.sampled_from(["", "the cat sat", "猫" * 40, "a b " * 30]))
TEXTS = st.lists(TEXT, max_size=4)
LABELS = ("O", "B-PER", "I-PER")
MODELS = {
    (head, family): tiny_model(head, family=family, labels=LABELS)
    for head in ("sequence", "token", "span", "choice")
    for family in ("bert", "distilbert")
}
FAMILY = st.sampled_from(["bert", "distilbert"])


def task(name, policy="window"):
    return Task(name=name, truncation=policy)


@examples(60)
@given(texts=TEXTS, family=FAMILY, policy=st.sampled_from(["head", "tail", "head+tail", "window"]))
def test_classify(texts, family, policy):
    model = MODELS["sequence", family]
    examples = [TextExample(text=text) for text in texts]
    found = classify.predict(model, examples, task=task("classify", policy))
    assert len(found) == len(texts)
    for one, example in zip(found, examples, strict=True):
        (alone,) = classify.predict(model, [example], task=task("classify", policy))
        assert one.scores == pytest.approx(alone.scores, abs=1e-5)
        assert one.truncated_chars == alone.truncated_chars
        assert sum(one.scores.values()) == pytest.approx(1.0, abs=1e-5)


@examples(60)
@given(
    texts=TEXTS,
    family=FAMILY,
    how=st.sampled_from(["none", "simple", "first", "average", "max"]),
    policy=st.sampled_from(["head", "tail", "head+tail", "window"]),
)
def test_tag(texts, family, how, policy):
    model = MODELS["token", family]
    examples = tag.make_examples(model, texts)
    found = tag.predict(model, examples, task=task("tag", policy), aggregation=how)
    assert [one.text for one in found] == texts
    for one, example in zip(found, examples, strict=True):
        assert len(one.tags) == len(one.scores) == len(example.words)
        assert one.untagged == one.scores.count(0.0)
        if policy == "window":
            assert one.untagged == 0
        for span in one.spans:
            assert one.text[span.start : span.end] == span.text
            assert 0 <= span.start <= span.end <= len(one.text)


@examples(60)
@given(
    text=TEXT,
    marks=st.lists(st.integers(0, 200), max_size=12),
    context=st.booleans(),
    data=st.data(),
)
def test_any_words_have_their_tags_and_at_most_one_place(text, marks, context, data):
    """Words of whatever borders, also such as no tokenizer would draw."""
    model = MODELS["token", "bert"]
    cuts = sorted(min(mark, len(text)) for mark in marks)
    words = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    tags = tuple(data.draw(st.sampled_from(LABELS)) for _ in words)
    examples = [TaggedExample(text=text, words=words, tags=tags)] * 2
    asked = Task(name="tag", truncation="window", context=context)
    for group in tag.encode_examples(model, examples, asked):
        places = [word for item in group for word in item.words]
        assert places == sorted(set(places))
        for item in group:
            assert len(item.ids) == len(item.type_ids) <= model.max_length
            assert [LABELS[target] for target in item.targets] == [tags[w] for w in item.words]
            assert all(0 < place < len(item.ids) - 1 for place in item.positions)
    for one in tag.predict(model, examples, task=asked):
        assert len(one.tags) == len(words)


@examples(60)
@given(
    pairs=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    family=FAMILY,
    none=st.booleans(),
    longest=st.integers(1, 40),
)
def test_answer(pairs, family, none, longest):
    model = MODELS["span", family]
    examples = [QuestionExample(question=q, context=c) for q, c in pairs]
    found = answer.predict(model, examples, allow_no_answer=none, top=5, max_answer_tokens=longest)
    assert len(found) == len(pairs)
    for one, example in zip(found, examples, strict=True):
        for candidate in one.candidates:
            assert example.context[candidate.start : candidate.end] == candidate.text
        texts = [candidate.text for candidate in one.candidates]
        assert len(set(texts)) == len(texts) >= 1
        if not none:
            assert "" not in texts or texts == [""]


@examples(60)
@given(context=TEXT, question=TEXT, cut=st.tuples(st.integers(0, 200), st.integers(0, 200)))
def test_targets_cover_the_answer(context, question, cut):
    model = MODELS["span", "bert"]
    start, end = sorted(min(place, len(context)) for place in cut)
    given_answer = Answer(text=context[start:end], start=start)
    example = QuestionExample(question=question, context=context, answers=(given_answer,))
    whole = model.tokenizer.encode(context).tokens_in_span(start, end)
    (group,) = answer.encode_examples(model, [example], task("answer"))
    for item in group:
        assert len(item.ids) <= model.max_length
        first, last = item.targets
        if (first, last) == (0, 0):
            continue
        assert first in item.context
        assert last in item.context
        assert last - first + 1 == len(whole)  # none of its pieces lies in another window
    if len(group) == 1 and whole:
        assert group[0].targets != (0, 0)


@examples(40)
@given(
    rows=st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=3)), max_size=3),
    family=FAMILY,
)
def test_choose(rows, family):
    model = MODELS["choice", family]
    examples = [ChoiceExample(text=text, options=tuple(options)) for text, options in rows]
    found = choose.predict(model, examples, task=task("choose", "head"))
    assert [len(one.scores) for one in found] == [len(options) for _, options in rows]
    for one, (_, options) in zip(found, rows, strict=True):
        assert one.text == options[one.option]
        assert sum(one.scores) == pytest.approx(1.0, abs=1e-5)
