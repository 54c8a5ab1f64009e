import numpy as np
import pytest

from cloze.errors import InputError
from cloze.metrics.word_vectors import (
    AnalogyQuestion,
    read_pairs,
    read_questions,
    score_analogies,
    score_similarities,
)
from cloze.models.word2vec import WordVectors
from helpers import raises

# men to the right, women to the left; royal ones are above
PLACES = {"man": (1, 0.1), "woman": (-1, 0.1), "king": (1, 2), "queen": (-1, 2), "cabbage": (0, -3)}


def model(names=PLACES) -> WordVectors:
    table = np.array(list(PLACES.values()), np.float32)
    return WordVectors(words=list(names), vectors=table)


def question(*words, section="family") -> AnalogyQuestion:
    return AnalogyQuestion(section=section, words=words)


def test_answers_exclude_the_words_of_the_question():
    asked = [
        question("man", "king", "woman", "queen"),
        question("man", "king", "woman", "cabbage", section="wrong"),
        question("man", "king", "woman", "duchess"),
    ]
    found = score_analogies(model(), asked)
    assert found.correct.tolist() == [1, 0]
    assert found.unknown == 1
    assert found.accuracy == 0.5
    assert found.count_by_section() == {"family": (1, 1), "wrong": (0, 1)}


def test_case_does_not_matter():
    found = score_analogies(
        model(["Man", "WOMAN", "king", "Queen", "x"]), [question("MAN", "King", "woman", "queen")]
    )
    assert found.accuracy == 1


def test_an_answer_in_another_case_is_the_same_word():
    # KING, the nearest by far, is the word asked with, written otherwise: it is no answer
    words = ["man", "woman", "king", "queen", "KING"]
    table = np.array([*list(PLACES.values())[:4], (-0.9, 2.1)], np.float32)
    found = score_analogies(
        WordVectors(words=words, vectors=table), [question("man", "king", "woman", "queen")]
    )
    assert found.accuracy == 1


def test_only_the_first_words_are_searched():
    found = score_analogies(model(), [question("man", "king", "woman", "queen")], restrict=3)
    assert found.unknown == 1
    assert np.isnan(found.accuracy)


def test_questions_are_scored_in_batches():
    found = score_analogies(model(), [question("man", "king", "woman", "queen")] * 600)
    assert found.correct.tolist() == [1] * 600


def test_similarities_and_human_ratings():
    pairs = [("king", "queen", 9.0), ("Man", "woman", 5.0), ("king", "cabbage", 0.1), ("a", "b", 3)]
    found = score_similarities(model(), pairs)
    assert found.unknown == 1
    unit = model().unit_vectors
    assert found.cosines[0] == pytest.approx(float(unit[2] @ unit[3]))
    assert found.spearman == pytest.approx(0.5)
    assert -1 <= found.pearson <= 1


def test_too_few_pairs_are_an_error():
    with raises(InputError, "1 of 2"):
        score_similarities(model(), [("king", "queen", 1.0), ("king", "x", 1.0)])


def test_questions_from_a_file(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": capitals\nAthens Greece Oslo Norway\n\n: family\nboy girl man woman\n")
    assert read_questions(path) == [
        question("Athens", "Greece", "Oslo", "Norway", section="capitals"),
        question("boy", "girl", "man", "woman"),
    ]
    path.write_text(": a\none two three\n")
    with raises(InputError, "questions.txt:2", "3"):
        read_questions(path)


@pytest.mark.parametrize(
    "text",
    [
        ",word1,word2,similarity\n0,a,b,1.5\n1,,,\n2,c,d,2\n",
        "# a comment\na\tb\t1.5\nc\td\t2\n",
        'Word 1,Word 2,Human\n"a",b,1.5\nc,d,2\n',
    ],
)
def test_pairs_from_a_file(tmp_path, text):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    assert read_pairs(path) == [("a", "b", 1.5), ("c", "d", 2.0)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("a,b\n", ("pairs.csv:1", "2")), ("a,b,1\nc,d,x\n", ("pairs.csv:2", "x"))],
)
def test_invalid_files_of_pairs(tmp_path, text, wrong):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with raises(InputError, wrong):
        read_pairs(path)
