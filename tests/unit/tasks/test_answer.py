"""`answer`: windows, targets, candidates, no answer."""

import pytest
import torch

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Answer, Origin, QuestionExample
from cloze.data.labelled.questions import read_question_examples
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.tasks.answer import encode_examples, predict
from cloze.text.words import expand_to_words
from helpers import raises, tiny_model

WINDOW = Task(name="answer", truncation="window")
SHORT = "the cat sat. a b c"
LONG = "a b c d e the cats sat, f g h i j abc " * 3


@pytest.fixture(scope="module")
def model():
    return tiny_model("span")


def asked(context, *answers, question="the cat", **more):
    given = tuple(Answer(text=text, start=start) for text, start in answers)
    return QuestionExample(question=question, context=context, answers=given, **more)


def scores_of(model, encoding):
    with torch.no_grad():
        vectors = model.module(
            torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids])
        )
        return model.module.logits("span", vectors[0])


def brute_force(model, question, context, stride, longest, whole_words):
    """Every span of every window, the slow way: text -> (score, start, end), and the null score."""
    windows = model.tokenizer.encode_windows(
        question, context, max_length=model.max_length, overlap=stride
    )
    everything = model.tokenizer.encode(context, add_special_tokens=False)
    words = everything.word_spans()
    best, nulls = {}, []

    def context_around(window, number):
        span = window.kept_ranges[1][0]
        inside = number in span
        around = min(number - span.start, span.stop - 1 - number) + 0.01 * len(span)
        return around if inside else -1

    for n, window in enumerate(windows):
        scores = scores_of(model, window)
        nulls.append(float(scores[0].sum()))
        inside = window.token_range(1)
        for i in inside:
            number = window.kept_ranges[1][0].start + i - inside.start
            around = [context_around(other, number) for other in windows]
            if around.index(max(around)) != n:
                continue
            for j in range(i, min(i + longest, inside.stop)):
                score = float(scores[i, 0] + scores[j, 1])
                start, end = window.offsets[i][0], window.offsets[j][1]
                if whole_words:
                    start = words[everything.words[number]][0]
                    end = words[everything.words[number + j - i]][1]
                if score > best.get(context[start:end], (-1e9,))[0]:
                    best[context[start:end]] = (score, start, end)
    return sorted(best.values(), reverse=True), min(nulls)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize(("context", "stride"), [(SHORT, 4), (LONG, 4), (LONG, 12)])
@pytest.mark.parametrize("longest", [1, 5, 30])
@pytest.mark.parametrize("whole", [True, False])
def test_the_best_spans_of_all_windows(family, context, stride, longest, whole):
    model = tiny_model("span", family=family)
    expected, null = brute_force(model, "the cat", context, stride, longest, whole)
    found = cloze.answer(
        model,
        "the cat",
        context,
        top=8,
        max_answer_tokens=longest,
        overlap=stride,
        whole_words=whole,
    )
    assert [(c.start, c.end) for c in found.candidates] == [(s, e) for _, s, e in expected[:8]]
    assert [c.logit for c in found.candidates] == pytest.approx(
        [score for score, _, _ in expected[:8]], abs=1e-4
    )
    assert found.no_answer_margin == pytest.approx(null - expected[0][0], abs=1e-4)
    assert (found.text, found.start, found.end) == (
        context[found.start : found.end],
        *expected[0][1:],
    )
    twenty = torch.tensor([score for score, _, _ in expected[:20]]).softmax(-1)
    assert [c.probability for c in found.candidates] == pytest.approx(twenty[:8].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("text", "part", "whole"),
    [
        ("the king of Spain, once", "king of Sp", "king of Spain"),
        ("a well-known caf\u0065\u0301!", "now", "known"),
        ("a well-known caf\u0065\u0301!", "l-k", "well-known"),
        ("a well-known caf\u0065\u0301!", "cafe", "cafe\u0301"),
        ("in 1,000.50 or 20% o'neil", "00", "000"),
        ("in 1,000.50 or 20% o'neil", "%", "%"),
        ("西班牙国王abc很老。", "班牙", "班牙"),
        ("西班牙国王abc很老。", "b", "abc"),
        ("これはスペインです", "ペ", "ペ"),
        ("한국어를 배운다", "국", "한국어를"),
        ("กรุงเทพมหานคร", "เทพ", "เทพ"),
    ],
)
def test_a_stretch_is_widened_to_its_words(text, part, whole):
    at = text.index(part)
    start, end = expand_to_words(text, at, at + len(part))
    assert text[start:end] == whole


def test_there_are_as_many_candidates_as_different_answers(model):
    """Whichever pieces of a word are chosen, it is one answer."""
    found = cloze.answer(model, "a", "abcabcabc", top=5).candidates
    assert [one.text for one in found] == ["abcabcabc"]
    assert found[0].probability == 1.0
    found = cloze.answer(model, "a", "abcabcabc the", top=5).candidates
    assert {one.text for one in found} == {"abcabcabc", "the", "abcabcabc the"}


def test_none_is_the_answer_when_it_leads_by_more_than_the_threshold(model):
    best = cloze.answer(model, "the cat", SHORT, allow_no_answer=False)
    assert best.text
    for shift, text in ((-0.01, ""), (0.01, best.text)):
        task = Task(
            name="answer",
            truncation="window",
            allow_no_answer=True,
            threshold=best.no_answer_margin + shift,
        )
        (found,) = predict(model, [asked(SHORT)], task=task, top=30)
        assert found.text == text
        assert found.no_answer_margin == best.no_answer_margin
        assert sum(c.text == "" for c in found.candidates) == 1
        assert sum(c.probability for c in found.candidates) == pytest.approx(1.0)
        (refused,) = predict(model, [asked(SHORT)], task=task, allow_no_answer=False)
        assert refused.text == best.text
    (found,) = predict(model, [asked(SHORT)], task=WINDOW, top=30)
    assert all(c.text for c in found.candidates), "a model that has not learned it never says none"


def test_an_empty_context_tells_nothing(model):
    (found,) = predict(model, [asked("")])  # of a data file
    assert (found.text, found.start, found.end, found.no_answer_margin) == ("", 0, 0, float("inf"))
    assert found.candidates[0].probability == 1.0
    assert cloze.answer(model, "", "the cat").text in "the cat"


def test_the_question_is_never_part_of_an_answer(model):
    for candidate in cloze.answer(model, "a b c d", "the cat", top=30).candidates:
        assert candidate.text == "the cat"[candidate.start : candidate.end]


def test_targets_are_the_tokens_of_the_answer(model):
    ((item,),) = encode_examples(model, [asked(SHORT, ("cat sat", 4))], WINDOW)
    first, last = item.targets
    assert [model.tokenizer.id_to_token(item.ids[n]) for n in range(first, last + 1)] == [
        "cat",
        "sat",
    ]
    assert list(item.positions) == list(range(len(item.ids)))
    ((item,),) = encode_examples(model, [asked("the cats", ("at", 5))], WINDOW)
    assert item.targets == (item.context.start + 1,) * 2  # the piece that holds it
    ((item,),) = encode_examples(model, [asked(SHORT)], WINDOW)
    assert item.targets == (0, 0)
    unknown = QuestionExample(question="a", context="b")
    assert encode_examples(model, [unknown], WINDOW)[0][0].targets == ()
    ((item,),) = encode_examples(model, [asked("a \x00 b", ("\x00", 2))], WINDOW)
    assert item.targets == (0, 0)  # nothing of it can be read


def test_an_answer_is_learned_where_it_is_whole(model):
    start = LONG.index("cats sat")
    (group,) = encode_examples(model, [asked(LONG, ("cats sat", start))], WINDOW)
    assert len(group) > 2
    held = [item for item in group if item.targets != (0, 0)]
    assert held
    for item in group:
        chars = item.chars.tolist()
        begins, ends = chars[0][0], chars[-1][1]
        whole = begins <= start and start + len("cats sat") <= ends
        assert (item.targets != (0, 0)) == whole
        if whole:
            first, last = (target - item.context.start for target in item.targets)
            assert LONG[chars[first][0] : chars[last][1]] == "cats sat"


def test_an_answer_cut_by_the_edge_of_a_window_is_not_there():
    model = tiny_model("span", positions=10)
    context = "the cats sat the cats sat"  # windows part "cat" and "##s" somewhere
    for start in (4, 17):
        (group,) = encode_examples(model, [asked(context, ("cats", start), question="a")], WINDOW)
        for item in group:
            if item.targets != (0, 0):
                first, last = (target - item.context.start for target in item.targets)
                assert context[item.chars[first, 0] : item.chars[last, 1]] == "cats"


def test_a_long_question_is_cut_and_it_is_said(model):
    question = "a b c d e f g h i j " * 2
    ((item,),) = encode_examples(model, [asked("the cat", question=question)], WINDOW)
    assert len(item.ids) == 10 + 2 + 3  # half of the room of 21
    assert item.truncated_chars == len("a b c d e f g h i j")
    with pytest.warns(TruncationWarning, match="1 of 1 questions .* 19 characters"):
        found = cloze.answer(model, question, "the cat")
    assert found.truncated_chars == 19
    wide = tiny_model("span", positions=200)
    ((item,),) = encode_examples(wide, [asked("the cat", question=question * 5)], WINDOW)
    assert len(item.ids) == 64 + 2 + 3


@pytest.mark.parametrize("policy", ["head", "tail"])
def test_other_policies_cut_the_context(model, policy):
    found = cloze.answer(model, "the cat", LONG, truncation=policy)
    encoding = model.tokenizer.encode("the cat", LONG, max_length=24, truncation=policy)
    inside = encoding.token_range(1)
    first, last = encoding.offsets[inside.start][0], encoding.offsets[inside.stop - 1][1]
    left_out = LONG[last:] if policy == "head" else LONG[:first]
    assert found.truncated_chars == len(left_out.strip())
    assert LONG[found.start : found.end] == found.text
    with raises(InputError, "head+tail", fix="window"):
        cloze.answer(model, "the cat", LONG, truncation="head+tail")


def test_order_and_count(model):
    examples = [
        asked(context, question=question)
        for context in (SHORT, LONG, "", "猫")
        for question in ("a", "the cat")
    ]
    found = predict(model, examples, task=WINDOW)
    alone = [predict(model, [one], task=WINDOW)[0] for one in examples]
    assert [one.text for one in found] == [one.text for one in alone]
    assert predict(model, []) == []


def test_mistakes(model):
    with raises(ConfigError, "top", "0"):
        cloze.answer(model, "a", "b", top=0)
    with raises(ConfigError, "max_answer_tokens", "0"):
        cloze.answer(model, "a", "b", max_answer_tokens=0)
    where = Origin(file="dev.json", line=2)
    with raises(InputError, "dev.json:2"):
        predict(model, [asked(LONG, origin=where)], task=Task(name="answer", truncation="error"))
    with raises(InputError, "example 1", fix="window"):
        cloze.answer(model, "a", LONG, truncation="error")
    with raises(InputError, "answer", "head", "token", fix="tag"):
        cloze.answer(tiny_model("token"), "a", "b")


@pytest.mark.data
@pytest.mark.parametrize(("language", "vocabulary"), [("en", "uncased"), ("zh", "chinese")])
def test_every_real_answer_is_whole_in_a_window(data_dir, language, vocabulary):
    tokenizer = cloze.Tokenizer.from_vocab(data_dir / f"vocab/bert-base-{vocabulary}-vocab.txt")
    model = tiny_model("span", positions=128, tokenizer=tokenizer)
    examples = list(read_question_examples(data_dir / f"xquad/xquad.{language}.json.xz"))[:300]
    groups = encode_examples(model, examples, WINDOW)
    assert sum(map(len, groups)) > len(examples)
    for example, group in zip(examples, groups, strict=True):
        held = [item for item in group if item.targets != (0, 0)]
        assert held
        for item in held:
            first, last = (target - item.context.start for target in item.targets)
            covered = example.context[item.chars[first, 0] : item.chars[last, 1]]
            assert example.answers[0].text in covered
            assert len(covered) <= len(example.answers[0].text) + 10


@pytest.mark.parametrize(("contexts", "name"), [(" ", "context"), (["a b", ""], "context 2")])
def test_an_empty_context_is_an_error(model, contexts, name):
    question = "a" if isinstance(contexts, str) else ["a", "a"]
    with raises(InputError, name, "empty", fix="answer"):
        cloze.answer(model, question, contexts)
