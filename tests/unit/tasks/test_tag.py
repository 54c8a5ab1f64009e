"""`tag`: positions of words, long sentences, document context, spans."""

import pytest
import torch

import cloze
from cloze.checkpoint.modules import build_feature_head
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.data.labelled.examples import Origin, TaggedExample
from cloze.data.labelled.tags import read_tagged_examples
from cloze.errors import ConfigError, InputError, TruncationWarning
from cloze.tasks.tag import encode_examples, predict
from cloze.text.truncation import find_max_context_windows
from helpers import raises, tiny_model

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TASK = Task(name="tag")
SENTENCE = "the cats sat, abc"
WORDS = ((0, 3), (4, 8), (9, 13), (14, 17))  # "sat," is one word of two of the tokenizer's
LONG = "the cats sat, abc a b c d " * 5


@pytest.fixture(scope="module")
def model():
    return tiny_model("token", labels=LABELS)


def words_of(text):
    """The words between blanks."""
    marks, start = [], 0
    for word in text.split(" "):
        if word:
            marks.append((start, start + len(word)))
        start += len(word) + 1
    return tuple(marks)


def example(text, **more):
    return TaggedExample(text=text, words=words_of(text), **more)


def test_words_are_read_at_their_first_piece(model):
    assert words_of(SENTENCE) == WORDS
    tags = ("O", "B-PER", "I-PER", "B-LOC")
    ((item,),) = encode_examples(model, [example(SENTENCE, tags=tags)], TASK)
    pieces = [model.tokenizer.id_to_token(item.ids[place]) for place in item.positions]
    assert pieces == ["the", "cat", "sat", "a"]
    assert list(item.words) == [0, 1, 2, 3]
    assert list(item.targets) == [0, 1, 2, 3]
    ((item,),) = encode_examples(model, [example(SENTENCE)], TASK)
    assert list(item.targets) == []


def test_the_tag_is_that_of_the_first_piece(model):
    encoding = model.tokenizer.encode(SENTENCE)
    with torch.no_grad():
        vectors = model.module(torch.tensor([encoding.ids]))
        chances = model.module.logits("token", vectors[0]).softmax(-1)
    (found,) = predict(model, [example(SENTENCE)])
    for (start, end), tag, score in zip(found.words, found.tags, found.scores, strict=True):
        row = chances[encoding.tokens_in_span(start, end)[0]]
        assert tag == LABELS[int(row.argmax())]
        assert score == pytest.approx(row.max().item(), abs=1e-6)
    assert found.untagged == 0


def test_a_word_without_pieces_keeps_its_tag_o(model):
    text = "the \x00\x01 cat"
    marks = ((0, 3), (4, 6), (7, 10), (10, 10))
    given = TaggedExample(text=text, words=marks, tags=("O", "B-PER", "O", "O"))
    ((item,),) = encode_examples(model, [given], TASK)
    assert list(item.words) == [0, 2]
    assert list(item.targets) == [0, 0]
    (found,) = predict(model, [given])
    assert len(found.tags) == len(found.scores) == 4
    assert (found.tags[1], found.scores[1], found.untagged) == ("O", 0.0, 2)


def test_windows_read_each_word_once_where_it_has_most_context(model):
    given = example(LONG, tags=("O",) * len(words_of(LONG)))
    (group,) = encode_examples(model, [given], Task(name="tag", truncation="window"))
    windows = model.tokenizer.encode_windows(LONG, max_length=24, overlap=5)  # a quarter of 22
    assert [item.ids for item in group] == [window.ids for window in windows]
    assert [w for item in group for w in item.words] == list(range(len(given.words)))
    whole = model.tokenizer.encode(LONG)
    owners = find_max_context_windows([window.kept_ranges[0][0] for window in windows])
    for n, item in enumerate(group):
        assert len(item.targets) == len(item.words)
        for word, place in zip(item.words, item.positions, strict=True):
            first = whole.tokens_in_span(*given.words[word])[0] - 1
            assert owners[first] == n
            assert windows[n].offsets[place][0] == given.words[word][0]
    (found,) = predict(model, [given], task=Task(name="tag", truncation="window"))
    assert found.untagged == 0


@pytest.mark.parametrize("policy", ["head", "tail", "head+tail"])
def test_words_that_a_policy_cuts_are_o_and_counted(model, policy):
    text = LONG[: LONG.rindex("the")] + "a b c"
    given = example(text)
    (found,) = predict(model, [given], task=Task(name="tag", truncation=policy))
    ((item,),) = encode_examples(model, [given], Task(name="tag", truncation=policy))
    assert len(found.tags) == len(given.words)
    read = [n for n, score in enumerate(found.scores) if score]
    assert read == list(item.words)
    assert found.untagged == len(given.words) - len(read) > 0
    assert 0 < found.truncated_chars < len(text)
    assert all(found.tags[n] == "O" for n in range(len(given.words)) if n not in read)
    encoding = model.tokenizer.encode(text, max_length=24, truncation=policy)
    assert [encoding.offsets[p][0] for p in item.positions] == [given.words[w][0] for w in read]


def test_long_text_is_truncated_with_one_warning(model):
    with pytest.warns(TruncationWarning) as told:
        found = cloze.tag(model, [LONG, "the cat"])
    assert [one.truncated_chars > 0 for one in found] == [True, False]
    assert found == cloze.tag(model, [LONG, "the cat"], truncation="head")
    assert len(told) == 1
    assert cloze.tag(model, LONG, truncation="window").truncated_chars == 0


def test_too_long_a_text_is_an_error_on_request(model):
    task = Task(name="tag", truncation="error")
    with raises(InputError, "x.txt:9", "62", "24"):
        predict(model, [example(LONG, origin=Origin(file="x.txt", line=9))], task=task)


def test_the_sentences_around_fill_the_room(model):
    texts = ["a b c d", "e f g h", "the cat", "i j a b", "c d e f", "g h i j a"]
    given = [example(text, document=0, tags=("O",) * len(text.split())) for text in texts]
    made = encode_examples(model, given, Task(name="tag", context=True))
    flat = model.tokenizer.encode_ids([" ".join(texts)], add_special_tokens=False)[0]
    for (item,), text in zip(made, texts, strict=True):
        assert len(item.ids) == len(item.type_ids) == 24
        start = " ".join(map(str, flat)).find(" ".join(map(str, item.ids[1:-1])))
        assert start >= 0, "a stretch of the document"
        pieces = [model.tokenizer.id_to_token(item.ids[place]) for place in item.positions]
        assert pieces == text.split()
    (third,) = made[2]
    assert third.positions == [9, 10]  # both neighbours before it, 8 pieces, and 12 after it


def test_context_ends_with_the_document_and_the_file(model):
    def one(text, document, file="x"):
        return example(text, document=document, origin=Origin(file=file))

    given = [
        one("a b", 0),
        one("c d", 0),
        one("e f", 1),
        one("g h", 1, "y"),
        one("the " * 40, 1, "y"),
    ]
    made = encode_examples(model, given, Task(name="tag", context=True, truncation="window"))
    decoded = [model.tokenizer.decode(group[0].ids) for group in made]
    assert decoded[:3] == ["a b c d", "a b c d", "e f"]
    assert decoded[3] == "g h" + " the" * 20
    plain = encode_examples(model, given[4:], Task(name="tag", truncation="window"))
    assert [i.ids for i in made[4]] == [i.ids for i in plain[0]]  # it fills the model by itself


def test_plain_texts_are_no_document():
    model = tiny_model("token", labels=LABELS, task=Task(name="tag", context=True))
    for text, found in zip(
        ["the cat", "a b c"], cloze.tag(model, ["the cat", "a b c"]), strict=True
    ):
        alone = cloze.tag(model, text)
        assert (found.text, found.words, found.tags) == (text, alone.words, alone.tags)
        assert found.scores == pytest.approx(alone.scores, abs=1e-6)


def test_the_words_of_a_plain_text_are_the_tokenizers(model):
    found = cloze.tag(model, "the cats sat, 猫猫 zzz [MASK]")
    words = [found.text[start:end] for start, end in found.words]
    assert words == ["the", "cats", "sat", ",", "猫", "猫", "zzz", "[MASK]"]
    assert len(found.tags) == len(words)


@pytest.mark.parametrize("how", ["none", "simple", "first", "average", "max"])
def test_spans_slice_back_to_the_text(model, how):
    found = cloze.tag(model, SENTENCE, aggregation=how)
    assert found.spans
    for span in found.spans:
        assert SENTENCE[span.start : span.end] == span.text
        assert 0 < span.score <= 1
    ends = [span.end for span in found.spans]
    assert ends == sorted(ends)


@pytest.mark.parametrize("how", ["first", "average", "max"])
def test_parts_of_speech_are_of_one_word_each(how):
    found = cloze.tag(tiny_model("token", labels=("NOUN",)), SENTENCE, aggregation=how)
    assert [(span.start, span.end) for span in found.spans] == list(found.words)
    assert tuple(span.label for span in found.spans) == found.tags


def test_lists(model):
    texts = ["the cat", "", "abc, abc"]
    found = cloze.tag(model, texts)
    assert [one.text for one in found] == texts
    assert [one.tags for one in found] == [cloze.tag(model, text).tags for text in texts]
    assert cloze.tag(model, []) == []


def test_mistakes(model):
    where = Origin(file="dev.txt", line=8)
    with raises(InputError, "dev.txt:8", "B-ORG"):
        predict(model, [TaggedExample(text="a", words=((0, 1),), tags=("B-ORG",), origin=where)])
    with raises(InputError, "dev.txt:8", "1", "2", fix="tag"):
        predict(model, [TaggedExample(text="a", words=((0, 1),), tags=("O", "O"), origin=where)])
    with raises(ConfigError, "aggregation", "mean"):
        cloze.tag(model, "a", aggregation="mean")
    with raises(InputError, "tag", "head", "span", fix="answer"):
        cloze.tag(tiny_model("span"), "a")


def test_a_reader_of_words():
    spec = FeatureSettings(input_size=16, kind="bilstm", hidden_size=4, num_layers=1)
    task = Task(name="tag", features=spec)
    body = tiny_model(labels=LABELS, task=task)
    model = type(body)(
        module=body.module,
        tokenizer=body.tokenizer,
        config=body.config,
        task=task,
        feature_head=build_feature_head(spec, len(LABELS)),
    )
    found = cloze.tag(model, ["the cat", "", "cats"])
    assert [len(one.tags) for one in found] == [2, 0, 1]
    with raises(InputError, "first", fix="aggregation"):
        cloze.tag(model, "cats", aggregation="max")


@pytest.mark.data
@pytest.mark.parametrize("context", [False, True])
def test_every_word_of_real_sentences_is_read_once(data_dir, context):
    tokenizer = cloze.Tokenizer.from_vocab(data_dir / "vocab/bert-base-cased-vocab.txt")
    examples = list(read_tagged_examples(data_dir / "conll2003/eng.testa.xz"))[:800]
    labels = sorted({tag for one in examples for tag in one.tags})
    model = tiny_model("token", labels=labels, positions=48, tokenizer=tokenizer)
    groups = encode_examples(
        model, examples, Task(name="tag", truncation="window", context=context)
    )
    assert max(map(len, groups)) > 1
    for one, group in zip(examples, groups, strict=True):
        assert [word for item in group for word in item.words] == list(range(len(one.words)))
        for item in group:
            for place, word, target in zip(item.positions, item.words, item.targets, strict=True):
                start, end = one.words[word]
                piece = tokenizer.id_to_token(item.ids[place])
                assert piece == "[UNK]" or one.text[start:end].startswith(piece)
                assert labels[target] == one.tags[word]
