"""`classify`, `tag`, `answer` and `choose` against transformers."""

import pytest
import torch
import transformers

import cloze
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import ChoiceExample, QuestionExample, TextExample
from cloze.tasks import answer, choose, classify
from cloze.tasks.inference import compute_logits
from helpers import MASKED, tiny_model

pytestmark = pytest.mark.parity

TEXTS = [
    "the cat sat .",
    "cats sat, a b abc",
    "The CAT sat. Cats!",
    "猫猫 the 猫。",
    "unknown zzz words ✨ too",
    "abcabc abca cats, the aab",
    "",
]
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def opened(tmp_path, *heads, **options):
    folder = tiny_model(*heads, **options).save(tmp_path / "m")
    return cloze.load(folder), str(folder)


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (("no", "yes", "perhaps"), None),
        (("no", "yes"), "multi_label_classification"),
        (("n",), "regression"),
        (("n",), None),
    ],
)
def test_classify(tmp_path, family, labels, problem):
    model, folder = opened(tmp_path, "sequence", family=family, labels=labels, problem=problem)
    peer = transformers.pipeline("text-classification", folder, device="cpu", top_k=None)
    for found, row in zip(cloze.classify(model, TEXTS), peer(TEXTS), strict=True):
        theirs = {one["label"]: one["score"] for one in row}
        assert found.scores == pytest.approx(theirs, abs=1e-5)
        assert found.label == row[0]["label"]


@pytest.mark.parametrize("family", MASKED)
def test_classify_pairs(tmp_path, family):
    model, folder = opened(tmp_path, "sequence", family=family)
    peer = transformers.pipeline("text-classification", folder, device="cpu", top_k=None)
    for text, pair in zip(TEXTS[:-1], reversed(TEXTS[:-1]), strict=True):
        theirs = peer({"text": text, "text_pair": pair})
        theirs = theirs[0] if isinstance(theirs[0], list) else theirs
        expected = {one["label"]: one["score"] for one in theirs}
        assert cloze.classify(model, text, pair).scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("heads", [("nsp",), ("mlm", "nsp")])
def test_the_next_sentence(tmp_path, heads):
    model, folder = opened(tmp_path, *heads)
    peer = transformers.BertForNextSentencePrediction.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, pair in zip(TEXTS[:-1], reversed(TEXTS[:-1]), strict=True):
        with torch.no_grad():
            scores = peer(**tokenizer(text, pair, return_tensors="pt")).logits[0]
        expected = dict(zip(("next", "not next"), scores.softmax(-1).tolist(), strict=True))
        assert cloze.classify(model, text, pair).scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize("how", ["none", "simple", "first", "average", "max"])
def test_tag(tmp_path, family, how):
    model, folder = opened(tmp_path, "token", family=family, labels=LABELS)
    peer = transformers.pipeline(
        "token-classification", folder, aggregation_strategy=how, device="cpu"
    )
    kinds = set()
    for text in TEXTS:
        theirs = peer(text)
        ours = cloze.tag(model, text, aggregation=how).spans
        name = "entity" if how == "none" else "entity_group"
        assert [(one.label, one.start, one.end) for one in ours] == [
            (one[name], one["start"], one["end"]) for one in theirs
        ]
        assert [one.score for one in ours] == pytest.approx(
            [float(one["score"]) for one in theirs], abs=1e-5
        )
        kinds |= {one.label for one in ours}
    assert kinds, "there was something to compare"


@pytest.mark.parametrize("family", MASKED)
def test_answer_scores(tmp_path, family):
    model, folder = opened(tmp_path, "span", family=family)
    peer = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    question, context = "the cat", "a b c d e f the cats sat, " * 4
    theirs = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=24,
        stride=4,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    theirs.pop("overflow_to_sample_mapping")
    with torch.no_grad():
        expected = peer(**theirs)
    example = QuestionExample(question=question, context=context)
    (group,) = answer.encode_examples(
        model, [example], Task(name="answer", truncation="window", overlap=4)
    )
    found = compute_logits(model, group, head="span")
    assert len(group) == len(theirs["input_ids"]) > 2
    for n, (item, scores) in enumerate(zip(group, found, strict=True)):
        real = theirs["attention_mask"][n].bool()
        assert item.ids == theirs["input_ids"][n][real].tolist()
        both = torch.stack([expected.start_logits[n][real], expected.end_logits[n][real]], -1)
        torch.testing.assert_close(scores, both, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", MASKED)
@pytest.mark.parametrize("whole", [True, False])
def test_answers_are_whole_words_as_in_the_pipeline(tmp_path, family, whole):
    """As transformers' question-answering pipeline did, with align_to_words and without."""
    model, folder = opened(tmp_path, "span", family=family, positions=64)
    peer = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    moved = 0
    for context in (*TEXTS[:-1], "abc-cats, cat's (abca) aab/acc.", "cats abc abca cac b-abc"):
        theirs = tokenizer("the cat", context, return_tensors="pt")
        with torch.no_grad():
            expected = peer(**theirs)
        starts, ends = expected.start_logits[0], expected.end_logits[0]
        inside = [n for n, one in enumerate(theirs.sequence_ids(0)) if one == 1]
        chosen = max(
            ((i, j) for i in inside for j in inside if 0 <= j - i < 30),
            key=lambda span: float(starts[span[0]] + ends[span[1]]),
        )
        spans = [theirs.token_to_chars(0, token) for token in chosen]
        words = [theirs.token_to_word(0, token) for token in chosen]
        aligned = [theirs.word_to_chars(0, word, sequence_index=1) for word in words]
        first, last = aligned if whole else spans
        found = cloze.answer(model, "the cat", context, whole_words=whole)
        assert (found.start, found.end) == (first.start, last.end)
        moved += aligned != spans
    assert moved, "an answer began or ended within a word"


@pytest.mark.parametrize("family", MASKED)
def test_choose_scores(tmp_path, family):
    model, folder = opened(tmp_path, "choice", family=family)
    peer = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text, options = "the cat sat .", ("a b", "cats, abc", "猫")
    theirs = tokenizer([text] * 3, list(options), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = peer(**{name: value[None] for name, value in theirs.items()}).logits[0]
    example = ChoiceExample(text=text, options=options)
    found = compute_logits(
        model, choose.encode_examples(model, [example], Task(name="choose"))[0], head="choice"
    )
    torch.testing.assert_close(torch.cat(found)[:, 0], expected, atol=1e-5, rtol=1e-4)
    assert cloze.choose(model, text, options).option == int(expected.argmax())


def test_pairs_are_truncated_as_in_transformers(tmp_path):
    model, folder = opened(tmp_path, "sequence")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text, pair = "a b c d e f g h i j " * 3, "the cat sat"
    theirs = tokenizer(text, pair, truncation="longest_first", max_length=24)
    example = TextExample(text=text, pair=pair)
    ((item,),) = classify.encode_examples(
        model, [example], Task(name="classify", truncation="head")
    )
    assert item.ids == theirs["input_ids"]
