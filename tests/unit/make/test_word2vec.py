import gzip

import numpy as np
import pytest
from safetensors.numpy import save_file

import cloze
from cloze.errors import FolderError, InputError
from cloze.models.configs.word2vec import CharNGrams, Word2VecConfig
from cloze.train.config import Word2VecRun, Word2VecVocabulary
from helpers import raises

pytest.importorskip("numba")

from cloze.make.word2vec import train_word2vec

LINES = "The cat sat on the mat.\n\nThe dog sat on the log!\na cat and a dog\n" * 40
SMALL = {
    "settings": Word2VecRun(epochs=1, threads=1),
    "config": Word2VecConfig(hidden_size=8),
}
ALL = Word2VecVocabulary(min_count=1)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    return path


def test_text_to_a_folder(source, tmp_path):
    stages = set()
    made = train_word2vec(
        source,
        tmp_path / "words",
        **SMALL,
        text=ALL,
        progress=lambda stage, *_: stages.add(stage),
    )
    opened = cloze.load(tmp_path / "words")
    assert (opened.module.vectors == made.module.vectors).all()
    assert opened.module.words[0] == "the"
    assert opened.module["The"].shape == (8,)
    assert opened.config.training["run"]["epochs"] == 1
    assert opened.config.training["vocabulary"]["min_count"] == 1
    assert stages >= {"words written", "words trained on"}
    with raises(InputError, "exists"):
        train_word2vec(source, tmp_path / "words", **SMALL, text=ALL)
    train_word2vec(source, tmp_path / "words", **SMALL, text=ALL, force=True)


def test_unseen_words_have_vectors_with_n_grams(source, tmp_path):
    how = SMALL | {"config": Word2VecConfig(hidden_size=8, char_ngrams=CharNGrams(buckets=100))}
    made = train_word2vec(source, tmp_path / "words", **how, text=ALL)
    made, opened = made.module, cloze.load(tmp_path / "words").module
    assert (opened["doggy"] == made["doggy"]).all()
    # a known word's vector is the mean of its own row and its n-grams', which is not theirs alone
    assert not np.allclose(
        made["dog"], made.ngram_vectors[made.char_ngrams.hash_ngrams("dog")].mean(0)
    )


def test_texts_in_memory_are_rows(tmp_path):
    made = train_word2vec([LINES.splitlines()], **SMALL, text=ALL)
    from_file = tmp_path / "text.txt"
    from_file.write_text(LINES)
    same = train_word2vec(from_file, **SMALL, text=ALL)
    assert (made.module.vectors == same.module.vectors).all()


@pytest.mark.parametrize("stream", ["-", iter(["a b"])])
def test_what_can_be_read_only_once_is_refused(stream):
    with raises(InputError, "once", fix="file"):
        train_word2vec(["x", stream] if stream == "-" else stream, **SMALL)


def test_a_bad_row_is_told(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "the cat the cat"}\nnot json\n' * 3)
    with raises(InputError, "JSON"):
        train_word2vec(path, **SMALL, text=ALL)


@pytest.mark.parametrize("grams", [None, CharNGrams(buckets=100)])
def test_snapshots_are_the_vectors_of_a_training_that_stopped_there(
    source, tmp_path, grams, monkeypatch
):
    monkeypatch.setattr("cloze.train.word2vec.corpus.EncodedCorpus.chunks.__defaults__", (60,))
    monkeypatch.setattr("cloze.train.word2vec.trainer.SNAPSHOT_WORDS", 5)
    settings = Word2VecRun(epochs=2, threads=1, snapshots=3)
    how = {"config": Word2VecConfig(hidden_size=8, char_ngrams=grams), "text": ALL}
    plain = train_word2vec(source, settings=Word2VecRun(epochs=2, threads=1), **how).module
    assert plain.snapshots is None
    made = train_word2vec(source, tmp_path / "words", settings=settings, **how).module
    assert (made.vectors == plain.vectors).all()  # they change nothing
    opened = cloze.load(tmp_path / "words").module.snapshots
    total = opened.words_read[-1]
    for read, fraction in zip(opened.words_read, (0.125, 0.25, 0.5, 1), strict=True):
        assert fraction * total <= read <= fraction * total + 70
    assert opened.vectors.shape == (4, 5, 8)
    assert (opened.vectors == made.snapshots.vectors).all()
    assert (opened.vectors[-1] == made.vectors[:5].astype(np.float32)).all()
    distances = np.linalg.norm(opened.vectors - made.vectors[:5], axis=-1).mean(1)
    assert (np.diff(distances) < 0).all()


def test_training_again_removes_old_snapshots(source, tmp_path):
    settings = Word2VecRun(epochs=1, threads=1, snapshots=1)
    how = {"config": Word2VecConfig(hidden_size=8), "text": ALL}
    train_word2vec(source, tmp_path / "words", settings=settings, **how)
    assert cloze.load(tmp_path / "words").module.snapshots is not None
    train_word2vec(source, tmp_path / "words", **SMALL, text=ALL, force=True)
    assert cloze.load(tmp_path / "words").module.snapshots is None


def test_damaged_snapshots_are_told(source, tmp_path):
    train_word2vec(source, tmp_path / "words", **SMALL, text=ALL)
    file = tmp_path / "words" / "snapshots.safetensors"
    for name, shape in (("one", (3, 8)), ("7", (3, 9)), ("7", (300, 8))):
        save_file({name: np.zeros(shape, np.float32)}, file)
        with raises(FolderError, "snapshots.safetensors"):
            cloze.load(tmp_path / "words")
