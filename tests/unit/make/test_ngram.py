"""Text to a folder: vocabularies, what is refused, and the published perplexity."""

import pytest

import cloze
from cloze.data.sources import read_rows
from cloze.decode.language import language_model
from cloze.errors import ConfigError, InputError
from cloze.make.ngram import train_ngram
from cloze.metrics.perplexity import score_language_model
from grams import TEXT
from helpers import files_of, raises


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(TEXT), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["word", "spaced", "wordpiece", "bpe", "char"])
def test_every_kind_of_vocabulary(corpus, tmp_path, kind):
    size = 300 if kind == "bpe" else 40
    model = train_ngram(corpus, tmp_path / "out", order=3, kind=kind, size=size, min_count=1)
    assert files_of(tmp_path / "out") >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text.txt"]  # nothing left over
    found = cloze.suggest(model, "the cat", top=3)
    assert found == cloze.suggest(cloze.load(tmp_path / "out"), "the cat", top=3)
    assert score_language_model(language_model(model), TEXT).perplexity < 12


def test_rare_words_are_counted_as_unknown(corpus, tmp_path):
    often = train_ngram(corpus, tmp_path / "a", order=2, min_count=2)
    every = train_ngram(corpus, tmp_path / "b", order=2, min_count=1)
    assert set(language_model(every).vocabulary) - set(language_model(often).vocabulary) == {
        "zebra"
    }
    assert cloze.suggest(often, "").unk_probability > cloze.suggest(every, "").unk_probability


def test_a_given_tokenizer_needs_one_reading(corpus, tmp_path):
    first = train_ngram(corpus, tmp_path / "a", order=2)
    for given in (first.tokenizer, tmp_path / "a"):
        again = train_ngram(iter(TEXT), tmp_path / "b", order=2, tokenizer=given, force=True)
        assert cloze.suggest(again, "the") == cloze.suggest(first, "the")


def test_text_that_can_be_read_once(tmp_path):
    with raises(InputError, "once", fix="tokenizer"):
        train_ngram(iter(TEXT), tmp_path / "a")
    with raises(InputError, "once"):
        train_ngram(["-"], tmp_path / "a")


def test_blank_text(tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    with raises(InputError, "empty"):
        train_ngram(tmp_path / "blank.txt", tmp_path / "a")
    with raises(InputError, "empty"):
        train_ngram(tmp_path / "blank.txt", tmp_path / "a", kind="spaced")
    assert not (tmp_path / "a").exists()


def test_settings_out_of_range(corpus, tmp_path):
    for wrong, problem in [
        ({"order": 6}, ("order", "6")),
        ({"memory": 0}, ("memory", "0")),
        ({"kind": "wrd"}, ("wrd", "word")),
    ]:
        with raises(ConfigError, problem):
            train_ngram(corpus, tmp_path / "a", **wrong)


def test_it_overwrites_nothing_unasked(corpus, tmp_path):
    with raises(InputError, "exists"):
        train_ngram(corpus, corpus.parent)


@pytest.mark.data
def test_penn_treebank_has_its_published_perplexity(data_dir, tmp_path):
    """Modified Kneser–Ney of order 5 is published with about 148 on the validation part."""
    ptb = data_dir / "ptb"
    train = ptb / "ptb.train.txt.xz"
    model = train_ngram(train, tmp_path / "a", kind="spaced", min_count=1, memory=16)
    valid = (row.text for row in read_rows(ptb / "ptb.valid.txt.xz"))
    found = score_language_model(language_model(model), valid)
    assert (found.tokens, found.words) == (73_760, 73_760)
    assert found.perplexity == pytest.approx(148.008, abs=0.01)


def test_tables_give_the_same_model_as_files(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    path = tmp_path / "text.jsonl"
    frame = pandas.DataFrame({"number": range(len(TEXT)), "body": TEXT})
    frame.to_json(path, orient="records", lines=True)
    want = cloze.suggest(train_ngram(path, tmp_path / "file"), "the cat")
    rows = frame.to_dict("records")
    others = [frame, polars.DataFrame(rows), rows, frame["body"], frame.to_dict("list")]
    for number, source in enumerate(others):
        found = train_ngram(source, tmp_path / str(number))
        assert cloze.suggest(found, "the cat") == want, type(source)
    renamed = frame.rename(columns={"body": "words"})
    with raises(InputError, "<DataFrame>:1", "words", fix="text_column="):
        train_ngram(renamed, tmp_path / "unknown")
    found = train_ngram(renamed, tmp_path / "renamed", text_column="words")
    assert cloze.suggest(found, "the cat") == want
