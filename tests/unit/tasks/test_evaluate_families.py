"""`evaluate`, `compare`, `info` and `export` of n-grams, word vectors, LSTMs and translators."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.ngram import load_arpa
from cloze.checkpoint.task import Task
from cloze.checkpoint.word2vec import import_vectors
from cloze.decode.language import language_model
from cloze.errors import ConfigError, FolderError, InputError, TruncationWarning
from cloze.make.ngram import train_ngram
from cloze.metrics.perplexity import score_language_model
from cloze.plot.format import format_percent
from grams import TEXT, text_model
from helpers import raises, tiny_model, word_model
from languages import neural_model
from translators import TEXTS, translator

VECTORS = word_model(
    words=("man", "king", "woman", "queen", "cat"),
    vectors=np.array([[1, 0, 1], [1, 0, 9], [0, 1, 1], [0, 1, 9], [0, 5, -3]], np.float32),
)

SUMMARIZER = replace(translator("learned"), task=Task(name="summarize"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return path


def test_a_language_model(text, tmp_path):
    model = neural_model("nnlm")
    made = cloze.evaluate(model, text)
    wanted = score_language_model(language_model(model), TEXT)
    assert made.scores == {
        "perplexity": wanted.perplexity,
        "word_perplexity": wanted.word_perplexity,
        "bits_per_byte": wanted.bits_per_byte,
        "bits_per_character": wanted.bits_per_character,
    }
    assert made.counts["texts"] == len(TEXT)
    assert made.to_dict()["kind"] == "language"
    assert "perplexity" in made.save(tmp_path / "page.html").read_text(encoding="utf-8")
    with raises(InputError, "truncation", "language model", fix="skip_bad"):
        cloze.evaluate(model, text, truncation="head")


def test_a_language_model_passes_over_what_cannot_be_read(tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "the cat sat"}\nno JSON\n', encoding="utf-8")
    with raises(InputError, "text.jsonl:2"):
        cloze.evaluate(text_model(2), path)
    made = cloze.evaluate(text_model(2), path, skip_bad=True)
    assert made.counts["texts"] == 1
    assert len(made.skipped) == len(made.to_dict()["skipped"]) == 1


def test_a_translator_by_length_too(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"test.{side}").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    files = [tmp_path / "test.en", tmp_path / "test.de"]
    made = cloze.evaluate(translator("transformer"), files, beam=1, swap=False, overlap=None)
    assert made.notes["beam"] == "1"
    assert made.scores.keys() == {
        "bleu",
        "brevity_penalty",
        *(f"precision_{n}" for n in range(1, 5)),
    }
    assert made.counts == {
        "sentences": 60,
        "blank_pairs_left_out": 0,
        "too_long": 0,
        "truncated": 0,
        "empty_translations": 0,
    }
    assert made.notes["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    page = made.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "<dt>1-gram precision</dt>" in page
    assert "precision_1" not in page
    with raises(InputError, "translator", "1"):
        cloze.evaluate(translator("transformer"), files[:1])


def test_a_translator_that_says_nothing_is_found_out():
    model, side = translator("transformer"), [*TEXTS[:3], " "]
    norm = model.module.decoder[-1].ffn_norm
    with torch.no_grad():  # whatever it reads, the sentence ends
        norm.weight.zero_()
        norm.bias.copy_(100 * model.module.target_embeddings.weight[model.tokenizer.eos_id])
    counts = cloze.evaluate(model, [side, side]).counts
    assert (counts["empty_translations"], counts["blank_pairs_left_out"]) == (3, 1)


def test_translators_side_by_side():
    models = {name: translator(name) for name in ("transformer", "bahdanau")}
    pairs = [TEXTS[:20], [text.upper() for text in TEXTS[:20]]]
    made = cloze.compare(models, pairs, resamples=50)
    for entry in made.entries:
        alone = cloze.evaluate(models[entry.name], pairs)
        assert entry.intervals["bleu"].value == alone.scores["bleu"]
        assert entry.intervals["bleu"].low <= alone.scores["bleu"] <= entry.intervals["bleu"].high
    assert made.entries[0].difference is None
    assert (made.metric, made.count) == ("bleu", 20)
    with raises(InputError, "translator"):
        cloze.compare({"t": models["transformer"], "n": text_model(2)}, pairs)


def test_too_long_a_sentence_counts_as_blank_in_both_verbs():
    model, long = translator("learned"), " ".join(TEXTS[:9])
    pairs = [[*TEXTS[:4], long], [*TEXTS[:4], "a"]]
    alone = cloze.evaluate(model, pairs, truncation="error")
    made = cloze.compare({"t": model}, pairs, resamples=5, truncation="error")
    assert alone.counts["too_long"] == made.entries[0].too_long == 1
    assert made.entries[0].intervals["bleu"].value == alone.scores["bleu"]
    assert made.to_dict()["models"][0]["too_long"] == 1
    assert "1 too long for t and counted as empty" in made.note
    empty = sum(not one.text.strip() for one in cloze.translate(model, TEXTS[:4]))
    assert alone.counts["empty_translations"] == empty  # the long one is not counted twice
    assert cloze.evaluate(model, pairs, truncation="head").counts["too_long"] == 0
    assert (
        cloze.compare({"t": model}, pairs, truncation="head", resamples=5).entries[0].too_long == 0
    )
    with pytest.warns(TruncationWarning) as told:
        assert cloze.evaluate(model, pairs).counts["truncated"] == 1
    assert len(told) == 1
    with pytest.warns(TruncationWarning) as told:
        cloze.compare({"t": model, "u": model}, pairs, resamples=5)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        (text_model(2), {"truncation": "head"}, "truncation"),
        (text_model(2), {"resamples": 9}, "resamples"),
        (text_model(2), {"tag_column": "a"}, "tag_column"),
        (text_model(2), {"bleu": "13a"}, "bleu"),
        (translator("learned"), {"overlap": 2}, ("overlap", "translator")),
        (translator("learned"), {"skip_bad": True}, "skip_bad"),
        (translator("learned"), {"tag_column": 2}, ("tag_column", "translator")),
        (SUMMARIZER, {"label_column": 2}, ("label_column", "summarizes")),
        (tiny_model("sequence", labels="ab"), {"bleu": "zh"}, "bleu"),
        (VECTORS, {"bleu": "13a"}, "word vectors"),
    ],
)
def test_compare_refuses_what_changes_nothing(model, options, problem):
    with raises(InputError, problem):
        cloze.compare({"it": model}, [["a"], ["a"]], **options)


@pytest.mark.parametrize("options", [{"beam": 2}, {"bleu": "13a"}, {"skip_bad": True}])
def test_word_vectors_leave_nothing_to_choose(options):
    with raises(InputError, "word vectors"):
        cloze.evaluate(VECTORS, ["questions.txt"], **options)


def test_words(tmp_path):
    questions, pairs = tmp_path / "questions.txt", tmp_path / "pairs.csv"
    questions.write_text(
        ": family\nman king woman queen\nman king dog bitch\n: odd\nman king queen cat\n"
    )
    pairs.write_text("word1,word2,score\nman,woman,9\nking,queen,10\nman,cat,2\n")
    made = cloze.evaluate(VECTORS, [questions, pairs])
    assert made.scores["questions accuracy"] == 0.5
    assert made.scores["questions: family"] == 1.0
    assert made.scores["questions: odd"] == 0.0
    assert made.scores["pairs spearman"] == 1.0
    assert made.counts["questions unknown"] == 1
    with raises(InputError, "no such file"):
        cloze.evaluate(VECTORS, [tmp_path / "nowhere"])


def test_word_vectors_side_by_side(tmp_path):
    questions, pairs = tmp_path / "questions.txt", tmp_path / "pairs.csv"
    questions.write_text("man king woman queen\nman king queen cat\nman woman king queen\n" * 9)
    pairs.write_text("man,woman,9\nking,queen,10\nman,cat,2\nman,dog,3\n")
    words = VECTORS.module.words
    fewer = replace(VECTORS.module, words=[*words[:-1], "DOG"])  # and no cat
    assert words[-1] == "cat"
    made = cloze.compare({"one": VECTORS, "two": VECTORS}, [questions, pairs], resamples=50)
    alone = cloze.evaluate(VECTORS, [questions, pairs])
    for entry in made.entries:
        assert list(entry.intervals) == ["questions accuracy", "pairs spearman"]
        for measure, found in entry.intervals.items():
            assert found.value == pytest.approx(alone.scores[measure])
            assert found.low <= found.value <= found.high
        assert entry.parameters == VECTORS.module.vectors.size
    assert made.entries[0].difference is None
    assert (made.entries[1].difference.value, made.entries[1].difference.p) == (0.0, 1.0)
    assert (made.metric, made.count, made.unknown) == ("questions accuracy", 27 + 3, 1)
    assert made.save(tmp_path / "page.html").is_file()

    # what one does not know is asked of none
    other = cloze.compare({"one": VECTORS, "two": fewer}, questions, resamples=50)
    assert (other.count, other.unknown, other.to_dict()["unknown"]) == (18, 9, 9)
    assert "9 left out" in other.note
    assert other.entries[0].intervals["questions accuracy"].value == 1.0
    pairs.write_text("man,woman,9\nman,cat,2\n")
    with raises(InputError, "pairs.csv", "2", "1"):
        cloze.compare({"one": VECTORS, "two": fewer}, pairs)
    with raises(InputError, "two files"):
        cloze.compare({"one": VECTORS}, [questions, questions])
    with raises(InputError, "vectors"):
        cloze.compare({"one": VECTORS, "n": text_model(2)}, questions)


def test_the_table_of_language_models(text, tmp_path):
    models = {"count": text_model(2), "net": neural_model("lstm")}
    made = cloze.compare(models, text)
    assert [one.kind for one in made.entries] == ["ngram", "lstm"]
    assert [one.name for one in made.entries] == ["count", "net"]
    assert made.entries[0].same_tokens
    rows = list(made.rows())
    assert len(rows[0]) == len(made.columns)
    assert (
        rows[0][5]
        == f"{score_language_model(language_model(models['count']), TEXT).perplexity:.2f}"
    )
    assert "An LSTM reads the lines as one text" in made.note
    assert json.loads(json.dumps(made.to_dict()))["models"][1]["kind"] == "lstm"
    assert made.save(tmp_path / "page.html").is_file()
    others = cloze.compare({"one": text_model(2), "two": text_model(2, TEXT[:4])}, text)
    assert [row[5] is None for row in others.rows()] == [False, True]
    assert rows[0][4] == format_percent(
        made.entries[0].score.unknown / made.entries[0].score.tokens, 2
    )
    with raises(InputError, "bert"):
        cloze.compare({**models, "bert": tiny_model("mlm")}, text)


def test_perplexity_is_not_told_where_a_text_is_split_otherwise(tmp_path):
    """An ARPA file has the words of its model, and splits at white space alone."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{one}.\n" for one in TEXT), encoding="utf-8")
    model = train_ngram(path, tmp_path / "run", order=2, min_count=1)  # parts full stops
    same = load_arpa(cloze.export("arpa", model, tmp_path / "x.arpa"))
    assert set(language_model(same).vocabulary) == set(language_model(model).vocabulary)
    made = cloze.compare({"folder": model, "file": same, "again": model}, path)
    assert [one.same_tokens for one in made.entries] == [True, False, True]
    assert [row[5] is None for row in made.rows()] == [False, True, False]


def test_what_a_folder_of_ours_is(tmp_path):
    VECTORS.save(tmp_path / "words")
    made = {
        "lstm": neural_model("lstm").save(tmp_path / "lstm"),
        "nnlm": neural_model("direct").save(tmp_path / "nnlm"),
        "ngram": text_model(3).save(tmp_path / "ngram"),
        "transformer": translator("learned").save(tmp_path / "transformer"),
        "word2vec": tmp_path / "words",
    }
    for family, folder in made.items():
        found = cloze.info(folder)
        assert found.family == family
        assert "evaluate" in found.capabilities
        assert found.total_parameters > 0
        assert found.vocabulary.size > 0
    assert cloze.info(made["lstm"]).config["embedding_size"] == 8
    assert cloze.info(made["ngram"]).parameters.keys() == {"1-grams", "2-grams", "3-grams"}
    assert cloze.info(made["transformer"]).max_length == 24
    assert cloze.info(made["nnlm"]).max_length is None


def test_formats_of_others(tmp_path):
    arpa = cloze.export("arpa", text_model(2), tmp_path / "x.arpa.gz")
    assert load_arpa(arpa).config.order == 2
    vectors = import_vectors(cloze.export("word2vec", VECTORS, tmp_path / "x.bin"))
    assert list(vectors.module.words) == list(VECTORS.module.words)
    folder = cloze.export("huggingface", tiny_model("mlm"), tmp_path / "bert")
    assert cloze.load(folder).task_heads == ("mlm",)
    with raises(InputError, "arpa", "n-gram") as error:
        cloze.export("arpa", VECTORS, tmp_path / "y")
    assert error.value.fix == "use the format word2vec"
    with raises(InputError, "arpa") as error:
        cloze.export("arpa", neural_model("lstm"), tmp_path / "y")
    assert "model folder" in error.value.fix
    with raises(ConfigError, "format", "onyx"):
        cloze.export("onyx", VECTORS, tmp_path / "y")
    with raises((InputError, FolderError), "x.bin"):
        cloze.export("word2vec", VECTORS, tmp_path / "x.bin")
