"""Very long texts: what is cut off is never tokenized."""

import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import cloze
from cloze.checkpoint.task import TASK_HEADS, Task
from cloze.data.labelled.batch import collate_examples
from cloze.data.labelled.examples import Answer, QuestionExample, TaggedExample, TextExample
from cloze.decode.language import language_model
from cloze.errors import InputError, TruncationWarning
from cloze.tasks import tag
from cloze.tasks.evaluate_labelled import TASK_FUNCTIONS, score_predictions
from cloze.text import long_texts
from helpers import raises, tiny_model

GOLDEN = Path(__file__).parents[2] / "golden"
SCRIPT = """
import sys
sys.path[:0] = sys.argv[1].split(":")
import cloze
from helpers import peak_memory, tiny_model
text = "the cat sat on the mat and it was a fine day " * 90_000  # 4 MB
models = {head: tiny_model(head) for head in ("sequence", "token", "span", "choice", "mlm")}
cloze.classify(models["sequence"], "the cat", truncation="head")
before = peak_memory()
assert cloze.embed(models["mlm"], text, truncation="head").shape == (16,)
assert cloze.classify(models["sequence"], text, truncation="head+tail").truncated_chars > 3_900_000
assert cloze.classify(models["sequence"], "a" * len(text)).truncated_chars == 0  # one unknown word
assert cloze.tag(models["token"], text, truncation="tail").untagged > 900_000
assert cloze.answer(models["span"], "the cat", text, truncation="head").truncated_chars > 3_900_000
chosen = cloze.choose(models["choice"], text, ["the", "cat"], truncation="head")
assert chosen.truncated_chars > 3_900_000
assert cloze.fill(models["mlm"], f"{text} [MASK] {text}").truncated_chars > 3_900_000
print((peak_memory() - before) >> 20)
"""


@pytest.mark.stress
def test_memory_does_not_grow_with_the_length_of_a_text():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, ":".join(sys.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 150  # 4 MB, tokenized as a whole, take more than a gigabyte


@pytest.mark.stress
def test_memory_does_not_grow_with_the_number_of_windows():
    script = """
import sys
sys.path[:0] = sys.argv[1].split(":")
import cloze
from helpers import peak_memory, tiny_model
text = "the cat sat on the mat and it was a fine day " * 9000
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import TaggedExample
from cloze.tasks.tag import encode_examples
model = tiny_model("span", positions=128, num_layers=1)
words = [(n, n + 3) for n in range(0, len(text), 45)]
def read(text):
    cloze.answer(model, "the cat", text)
    assert cloze.embed(model, text, truncation="window").shape == (16,)
    for truncation in ("window", "head"):
        example = TaggedExample(text=text, words=words, tags=["no"] * len(words))
        encode_examples(model, [example], Task(name="tag", truncation=truncation))
read(text[:40_000])
before = peak_memory()
read(text)
print((peak_memory() - before) >> 20)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, ":".join(sys.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 60  # all windows at once take more than a hundred


def test_the_offsets_of_long_texts_are_those_of_the_whole_text():
    text = "the cat sat . " * 5000
    tagged = cloze.tag(tiny_model("token", labels=("O", "B-A")), text, truncation="head+tail")
    assert tagged.text == text
    assert {text[start:end] for start, end in tagged.words} == {"the", "cat", "sat", "."}
    assert tagged.words[-1][1] == len(text.rstrip())
    for span in tagged.spans:
        assert text[span.start : span.end] == span.text
    masked = f"{text}[MASK] {text}"
    with pytest.warns(TruncationWarning):
        (mask,) = cloze.fill(tiny_model("mlm"), masked).masks
    assert masked[mask.start : mask.end] == "[MASK]"
    assert len(mask.predictions[0].text) < len(text)


def test_a_long_prompt_is_continued_as_if_all_of_it_was_encoded(monkeypatch):
    prompt = "the cat sat . " * 3000 + "the cat"
    model = tiny_model("mlm", is_causal=True)
    options = {"max_new_tokens": 3, "truncation": "tail", "seed": 1}
    found = cloze.generate(model, prompt, **options)
    monkeypatch.setattr(long_texts, "LONG", 1 << 60)
    whole = cloze.generate(model, prompt, **options)
    assert [one.text for one in found] == [one.text for one in whole]


TEXT = "the cat sat . on a mat , un ##s ! the dog ran 123 the cats " * 30


def compute_both_ways(monkeypatch, function):
    """The results of windows one after the other, and of all windows at once."""
    found = []
    for limit in (500, 1 << 60):
        monkeypatch.setattr(long_texts, "LONG", limit)
        found.append(function())
    return found


@pytest.mark.parametrize("overlap", [None, 0, 15])
def test_windows_are_classified_one_after_the_other(monkeypatch, overlap):
    model = tiny_model("sequence")
    options = {"truncation": "window", "overlap": overlap}
    for texts in (["the cat", TEXT, TEXT[::2]],), (["the cat", "a"], [TEXT, "a"]):
        streamed, whole = compute_both_ways(
            monkeypatch, partial(cloze.classify, model, *texts, **options)
        )
        for one, other in zip(streamed, whole, strict=True):
            assert (one.text, one.pair, one.label) == (other.text, other.pair, other.label)
            assert one.scores == pytest.approx(other.scores, abs=1e-5)
    with raises(InputError, "fixed tokens", fix="shorten the first text"):
        cloze.classify(model, TEXT, "a", **options)


@pytest.mark.parametrize("overlap", [None, 0, 15])
@pytest.mark.parametrize("aggregation", ["first", "average", "max", "simple", "none"])
def test_windows_are_tagged_one_after_the_other(monkeypatch, overlap, aggregation):
    model = tiny_model("token", labels=("O", "B-A", "I-A", "B-B", "I-B"))
    options = {"truncation": "window", "overlap": overlap, "aggregation": aggregation}
    streamed, whole = compute_both_ways(
        monkeypatch, lambda: cloze.tag(model, ["the cat sat", TEXT, "cats"], **options)
    )
    for one, other in zip(streamed, whole, strict=True):
        assert (one.words, one.tags, one.untagged) == (other.words, other.tags, other.untagged)
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
        assert [replace(span, score=0) for span in one.spans] == [
            replace(span, score=0) for span in other.spans
        ]
    monkeypatch.setattr(long_texts, "LONG", 500)
    monkeypatch.setattr(tag, "LISTED_CHARS", 1000)
    short = cloze.tag(model, TEXT, **options)
    assert short.spans == streamed[1].spans
    assert list(short.tags) == [one for one in streamed[1].tags if one != "O"]


@pytest.mark.parametrize("overlap", [None, 0, 15])
@pytest.mark.parametrize(
    "pooling", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
)
def test_windows_are_embedded_one_after_the_other(monkeypatch, pooling, overlap):
    model = tiny_model("mlm")
    options = {"truncation": "window", "overlap": overlap, "pooling": pooling, "normalize": True}
    streamed, whole = compute_both_ways(
        monkeypatch, lambda: cloze.embed(model, ["the cat sat", TEXT, TEXT[::2]], **options)
    )
    assert streamed == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("overlap", [None, 0, 15])
@pytest.mark.parametrize("normalize", [False, True])
def test_token_vectors_of_windows_are_computed_one_after_the_other(monkeypatch, overlap, normalize):
    model = tiny_model("mlm")
    options = {"truncation": "window", "overlap": overlap, "layers": [0, -1]}
    options |= {"pooling": "none", "normalize": normalize, "batch_tokens": 50}
    streamed, whole = compute_both_ways(
        monkeypatch, lambda: cloze.embed(model, ["the cat sat", TEXT], **options)
    )
    for one, other in zip(streamed, whole, strict=True):
        assert one.encoding == other.encoding
        assert one.vectors == pytest.approx(other.vectors, abs=1e-5)


def test_token_vectors_of_more_than_a_million_characters_are_refused():
    texts, errors = ["the cat", "the cat " * 130_000], {}
    options = {"truncation": "window", "pooling": "none"}
    with raises(InputError, "text 2", "1,040,000", "1,000,000", fix="pooling mean"):
        cloze.embed(tiny_model("mlm"), texts, **options)
    found = cloze.embed(tiny_model("mlm"), texts, on_error=errors.__setitem__, **options)
    assert [one is None for one in found] == [False, True]
    assert list(errors) == [1]


def make_tagged(text):
    words = tuple(word.span() for word in re.finditer(r"[^\s.]+|[.]", text))
    return TaggedExample(
        text=text, words=words, tags=tuple("yes" if n % 2 else "no" for n in range(len(words)))
    )


LABELLED = {
    "classify": TextExample(text=TEXT, label="yes"),
    "answer": QuestionExample(
        question="the cat", context=TEXT, answers=(Answer(text="dog", start=TEXT.rindex("dog")),)
    ),
    "tag": make_tagged(TEXT),
}


@pytest.mark.parametrize("overlap", [None, 0, 7])
@pytest.mark.parametrize("name", LABELLED)
def test_training_and_evaluation_read_the_windows_of_a_long_text(monkeypatch, name, overlap):
    task = Task(name=name, truncation="window", overlap=overlap)
    model = tiny_model(TASK_HEADS[name], task=task)
    encode = TASK_FUNCTIONS[name].encode_examples
    streamed, whole = compute_both_ways(
        monkeypatch,
        lambda: collate_examples(name, [[one] for one in encode(model, [LABELLED[name]], task)[0]]),
    )
    for column in ("input_ids", "token_type_ids", "lengths", "positions", "targets"):
        assert getattr(streamed, column).tolist() == getattr(whole, column).tolist()
    scores, others = compute_both_ways(
        monkeypatch, lambda: score_predictions(model, [LABELLED[name]]).scores
    )
    assert scores == pytest.approx(others)


@pytest.mark.parametrize("truncation", ["head", "tail", "head+tail"])
@pytest.mark.parametrize("aggregation", ["first", "simple"])
def test_evaluation_truncates_long_tagged_texts_first(monkeypatch, truncation, aggregation):
    model = tiny_model("token")
    example = make_tagged("x" * 5000 + " the cat sat . " * 3000)
    task = Task(name="tag", truncation=truncation)
    found = tag.predict(model, [example], task=task, aggregation=aggregation)
    monkeypatch.setattr(long_texts, "LONG", 1 << 60)
    assert found == tag.predict(model, [example], task=task, aggregation=aggregation)


@pytest.mark.parametrize("overlap", [None, 0, 12])
def test_answers_are_found_window_by_window(monkeypatch, overlap):
    model = tiny_model("span", positions=20)
    options = {"overlap": overlap, "top": 30, "allow_no_answer": True}
    streamed, whole = compute_both_ways(
        monkeypatch, lambda: cloze.answer(model, ["the cat", "a"], ["the mat", TEXT], **options)
    )
    for one, other in zip(streamed, whole, strict=True):
        assert one.no_answer_margin == pytest.approx(other.no_answer_margin, abs=1e-4)
        assert [(c.text, c.start) for c in one.candidates] == [
            (c.text, c.start) for c in other.candidates
        ]


@pytest.mark.parametrize("name", ["ngram", "nnlm", "lstm"])
def test_a_language_model_reads_the_end_of_a_long_prompt(name, monkeypatch):
    model = cloze.load(GOLDEN / name / "model")
    prompt = " ".join(model.tokenizer.id_to_token(n) for n in range(10, 30)) + " "
    prompt *= 40_000 // len(prompt) + 1
    found = cloze.generate(model, prompt, max_new_tokens=3, seed=1)
    words = cloze.suggest(model, prompt, top=3)
    assert len(language_model(model).encode_prompt(prompt)) < 20_000 or name == "lstm"
    monkeypatch.setattr(long_texts, "LONG", 1 << 60)
    whole = cloze.generate(model, prompt, max_new_tokens=3, seed=1)
    assert found[0] == whole[0]
    assert [one.id for one in words.suggestions] == [
        one.id for one in cloze.suggest(model, prompt, top=3).suggestions
    ]
    assert found.truncated_chars == words.truncated_chars == 0


def test_an_lstm_reads_the_last_65536_tokens_of_a_prompt():
    model = cloze.load(GOLDEN / "lstm" / "model")
    word = model.tokenizer.id_to_token(20)
    prompt = f"{word} " * 70_000
    with pytest.warns(TruncationWarning, match="65,536"):
        found = cloze.suggest(model, prompt, top=3)
    assert found.truncated_chars == (70_000 - 65_536) * (len(word) + 1) - 1
    with raises(InputError, "text 1", "65,536", fix="tail"):
        cloze.generate(model, prompt, truncation="error")


@pytest.mark.parametrize("function", [cloze.tokenize, cloze.score])
def test_functions_with_a_result_for_each_token_refuse_very_long_texts(function):
    with raises(InputError, "text 2", "2,000,000", fix="split"):
        function(tiny_model("mlm"), ["the cat", "ab " * 666_666 + "ab"])
