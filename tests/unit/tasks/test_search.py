"""`index` and `search`: results, changes, errors, damage."""

import json

import numpy as np
import pytest

import cloze
from cloze.errors import ConfigError, FolderError, InputError
from cloze.retrieval.folder import read_manifest
from helpers import raises, tiny_model
from stores import STORES, start_postgresql

ROWS = [
    {
        "id": "fox",
        "title": "Foxes",
        "text": "The cat sat. The dog ran far. A cat slept.",
        "year": 1,
    },
    {"id": "owl", "title": None, "text": "The dog sat on the mat.", "year": "2"},
    {"id": 3, "title": "", "text": "it ran", "year": None},
    {"id": "empty", "text": " \n"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("mlm").save(folder)
    return cloze.load(folder)


def choose_store(name):
    return start_postgresql() if name == "postgresql" else name


@pytest.mark.parametrize("store", STORES)
def test_index_update_delete_and_search(model, tmp_path, store):
    out = tmp_path / "index"
    made = cloze.index(model, ROWS, out, store=choose_store(store), chunk_tokens=6, overlap=0)
    assert (made.num_documents, made.added, made.store) == (4, 4, store)
    with cloze.open_index(out) as index:
        check_search(index)
        again = cloze.index(None, ROWS, out, update=True)
        assert (again.unchanged, again.added, again.updated, again.model_seconds) == (4, 0, 0, 0)
        changed = [{**ROWS[0], "text": "A mat ran."}, {"id": "new", "text": "The cat sat."}]
        result = cloze.index(None, changed, out, update=True, delete=["owl"])
        assert (result.added, result.updated, result.deleted, result.num_documents) == (1, 1, 1, 4)
        found = index.search("cat", mode="bm25")
        assert [hit.id for hit in found.hits] == ["new"]
        assert {hit.id for hit in index.search("mat").hits} == {"fox", "new", "3"}
        index.documents.store.drop()


def test_pages_are_documents_and_other_files_are_counted(model, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "fox.html").write_text("<title>Foxes</title><nav>Home</nav><p>The dog ran.")
    (docs / "cat.docx").write_text("The cat sat.")
    made = cloze.index(model, docs, tmp_path / "index", store="exact")
    assert (made.num_documents, made.left_out) == (1, {".docx": 1})
    assert made.to_dict()["left_out"] == {".docx": 1}
    (hit,) = cloze.search(tmp_path / "index", "dog", mode="bm25").hits
    assert (hit.id, hit.title, hit.text) == (str(docs / "fox.html"), "Foxes", "The dog ran.")


def check_search(index):
    query = "dog mat"
    dense = index.search(query, mode="dense", k=10)
    vectors = cloze.embed(index.model, [query, "Foxes\nThe cat sat. The dog ran far."])
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    by_id = {hit.id: hit for hit in dense.hits}
    assert by_id.keys() == {"fox", "owl", "3"}
    assert dense.hits[0].score == max(hit.score for hit in dense.hits)
    chunk = index.search(query, mode="dense", chunks=True, filter={"id": "fox"}).hits
    assert len(chunk) > 1
    first = next(hit for hit in chunk if hit.chunk == 0)
    source = ROWS[0]["text"]
    assert source[first.start : first.end] == first.text
    expected = cloze.embed(index.model, [f"Foxes\n{first.text}"])[0]
    cosine = expected @ vectors[0] / np.linalg.norm(expected)
    np.testing.assert_allclose(first.score, cosine, atol=1e-5)
    words = index.search(query, mode="bm25")
    assert [hit.id for hit in words.hits] == ["owl", "fox"]
    low, high = words.hits[1].highlight
    assert words.hits[1].snippet[low:high] == "The dog ran far."
    both = index.search([query, "it"], k=2, filter=["year>=1"])
    assert [one.query for one in both] == [query, "it"]
    assert {hit.id for hit in both[0].hits} == {"fox", "owl"}
    assert set(both[0].hits[0].scores) == {"cosine", "bm25"}
    assert json.loads(json.dumps(both.to_dict()))[0]["hits"][0]["id"] == both[0].hits[0].id
    assert "<div" in both._repr_html_()
    assert len(both.to_records()) == sum(len(one.hits) for one in both)
    ranked = index.search(query, rerank=index.model)
    scores = [hit.scores["rerank"] for hit in ranked.hits]
    assert scores == sorted(scores, reverse=True)
    assert [one.hits for one in index.search(["", " \n"])] == [(), ()]
    assert index.search("", mode="dense").hits == index.search("", mode="bm25").hits == ()
    with raises(InputError, "'years'", fix="did you mean year"):
        index.search(query, filter={"years": 1})


def test_text_files_units_and_ids(model, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("The cat sat.\nIt ran.\n\nThe dog ran.\n")
    (folder / "b.md").write_text("a mat\n")
    options = {"store": "exact"}
    files = cloze.index(model, folder, tmp_path / "files", **options)
    assert files.num_documents == 2
    found = cloze.search(tmp_path / "files", "dog", mode="bm25").hits[0]
    assert found.id == str(folder / "a.txt")
    sections = cloze.index(model, folder, tmp_path / "sections", unit="section", **options)
    assert sections.num_documents == 3
    lines = cloze.index(model, folder, tmp_path / "lines", unit="line", **options)
    assert lines.num_documents == 4
    assert cloze.search(tmp_path / "lines", "dog", mode="bm25").hits[0].id.endswith("a.txt:4")


def test_requests_that_are_refused_leave_everything_as_it_was(model, tmp_path):
    out = tmp_path / "index"
    with raises(InputError, "no index"):
        cloze.index(model, None, out, delete=["a"])
    with raises(FolderError, fix="cloze index"):
        cloze.search(out, "cat")
    with raises(InputError, "a"):
        cloze.index(model, [{"id": "a", "text": "x"}, {"id": "a", "text": "b"}], out)
    assert not out.exists()
    cloze.index(model, ROWS[:2], out, store="exact")
    before = (out / "index.json").read_bytes()
    for change in (
        lambda: cloze.index(model, ROWS, out),
        lambda: cloze.index(None, None, out, delete=["nobody"]),
        lambda: cloze.index(None, [{"id": "x" * 2000, "text": "a"}], out, update=True),
        lambda: cloze.index(None, [{"id": "y", "text": "a\0b"}], out, update=True),
        lambda: cloze.index(None, [{"id": "y", "text": 5}], out, update=True),
        lambda: cloze.index(None, [{"id": "y", "text": "a", "m": "x" * 2**21}], out, update=True),
        lambda: cloze.index(None, ROWS, out, update=True, store="lancedb"),
    ):
        with raises((InputError, ConfigError)):
            change()
    assert (out / "index.json").read_bytes() == before
    errors = []
    rows = [{"id": "y", "text": 5}, {"id": "z", "text": "a cat"}]
    made = cloze.index(None, rows, out, update=True, on_error=errors.append)
    assert (made.added, len(errors)) == (1, 1)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keep.txt").write_text("mine")
    with raises(InputError, "not overwritten"):
        cloze.index(model, ROWS, tmp_path / "data", force=True)
    assert cloze.index(model, ROWS[:1], out, store="exact", force=True).num_documents == 1


def test_another_model_is_refused(model, tmp_path):
    out = tmp_path / "index"
    cloze.index(model, ROWS, out, store="exact")
    other = tmp_path / "other"
    tiny_model("mlm", hidden_size=32).save(other)
    with raises(InputError, "model"):
        cloze.open_index(out, model=other).search("cat")
    with raises(InputError, "model"):
        cloze.index(other, ROWS, out, update=True)
    moved = tmp_path / "moved"
    model.save(moved)
    assert cloze.open_index(out, model=moved).search("cat").hits
    with raises(InputError, fix="save"):
        cloze.index(tiny_model("mlm"), ROWS, tmp_path / "unsaved")


@pytest.mark.parametrize(
    "damage",
    [
        {"format_version": 9},
        {"size": -1},
        {"store": "pickle"},
        {"state": {"segments": ["../../etc"]}},
        {"state": {"segments": ["missing"]}},
        {"more": 1},
    ],
)
def test_a_damaged_index_is_an_error(model, tmp_path, damage):
    out = tmp_path / "index"
    cloze.index(model, ROWS, out, store="exact")
    values = json.loads((out / "index.json").read_text())
    (out / "index.json").write_text(json.dumps(values | damage))
    with raises(FolderError):
        cloze.search(out, "cat")


def test_columns_and_settings_are_recorded(model, tmp_path):
    (tmp_path / "rows.csv").write_text("nr,head,body,lang\n7,Cats,A cat sat.,en\n")
    made = cloze.index(
        model, tmp_path / "rows.csv", tmp_path / "i", id_column="nr", title_column="head",
        text_column="body", store="exact", chunk_tokens=8, overlap=2,
    )  # fmt: skip
    manifest = read_manifest(tmp_path / "i")
    assert (manifest.chunk_tokens, manifest.overlap, manifest.size) == (8, 2, 16)
    hit = cloze.search(made.folder, "cat").hits[0]
    assert (hit.id, hit.title, dict(hit.metadata)) == ("7", "Cats", {"lang": "en"})
