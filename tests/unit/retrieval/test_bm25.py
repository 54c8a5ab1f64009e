import numpy as np
import pytest

from cloze.errors import FolderError
from cloze.retrieval.bm25 import BM25, Postings, find_terms
from cloze.retrieval.fusion import fuse_rankings


def test_terms_are_words_without_case_and_accents_and_pairs_of_ideographs():
    assert find_terms("The CAFÉS' x_2, 3.5") == ["the", "cafe", "x", "2", "3", "5"]
    assert find_terms("東京都 大 abc日本") == ["東京", "京都", "大", "abc", "日本"]
    assert find_terms("ﬁne  Straße\n") == ["fine", "straße"]
    assert len(find_terms("x" * 500)[0]) == 64


@pytest.mark.parametrize(
    ("plural", "singular"),
    [
        *[("studies", "study"), ("wings", "wing"), ("Houses", "house"), ("Cafés", "café")],
        *[("gas", "gas"), ("is", "is"), ("glass", "glass"), ("virus", "virus"), ("1990s", "1990")],
        *[("shoes", "shoes"), ("s", "s"), ("was", "was"), ("系s", "系s")],
    ],
)
def test_plurals_and_singulars_are_one_term(plural, singular):
    assert find_terms(plural) == find_terms(singular)


def test_deleted_texts_do_not_count():
    texts = ["red fox", "red red owl", "blue fox", "red"]
    whole = BM25.from_texts(["red fox", "blue fox", "red"])
    parts = [Postings.from_terms(map(find_terms, some)) for some in (texts[:2], texts[2:])]
    alive = [np.array([True, False]), np.array([True, True])]
    some = BM25(parts=parts, is_alive=alive)
    scores, rows = some.search(["red", "fox", "red"], 10)
    expected, _ = whole.search(["red", "fox"], 10)
    np.testing.assert_allclose(scores, expected)
    assert rows.tolist() == [0, 3, 2]
    assert some.search(["none"], 3)[1].tolist() == []
    assert some.search(["red"], 10, np.array([False, True, True, True]))[1].tolist() == [3]


def test_files_are_checked(tmp_path):
    made = Postings.from_terms([["a", "b", "a"], [], ["b"]])
    made.save(tmp_path / "terms.npz")
    read = Postings.load(tmp_path / "terms.npz")
    assert read.terms == made.terms
    assert read.lengths.tolist() == [3, 0, 1]
    assert [one.tolist() for one in read.find("a")] == [[0], [2]]
    Postings.from_terms([]).save(tmp_path / "empty.npz")
    assert Postings.load(tmp_path / "empty.npz").terms == {}
    content = (tmp_path / "terms.npz").read_bytes()
    (tmp_path / "terms.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(FolderError, match="damaged"):
        Postings.load(tmp_path / "terms.npz")
    np.savez(
        tmp_path / "bad.npz",
        terms=np.frombuffer(b"a", np.uint8),
        starts=np.array([0, 2]),
        rows=np.array([0, 9]),
        counts=np.array([1, 1]),
        lengths=np.array([1]),
    )
    with pytest.raises(FolderError, match="fit together"):
        Postings.load(tmp_path / "bad.npz")


def test_reciprocal_rank_fusion():
    found = fuse_rankings([["a", "b", "c"], ["c", "a"], ["d"]])
    assert list(found) == ["a", "c", "d", "b"]
    assert found["a"] == 1 / 61 + 1 / 62
    assert found["d"] == 1 / 61
    assert fuse_rankings([]) == {}
