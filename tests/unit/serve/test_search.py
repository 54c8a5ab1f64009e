"""`/api/search`, `/api/index` and `/api/indexes`."""

import pytest

import cloze
from cloze.errors import ConfigError
from cloze.serve.config import ServeConfig
from helpers import raises
from servers import run_server

KEY = "a-secret-key"
ROWS = [
    {"id": "a", "title": "One", "text": "The cat sat. The dog ran.", "year": 1},
    {"id": "b", "text": "The dog sat.", "year": 2},
]


@pytest.fixture
def index(folders, tmp_path):
    made = cloze.index(str(folders["mlm"]), ROWS, tmp_path / "notes", store="exact")
    return made.folder


def test_search_equals_the_function(folders, index):
    with run_server({"labels": folders["labels"]}, indexes=(index,)) as server:
        (described,) = server.client.get("/api/indexes").json()
        assert described["name"] == "notes"
        assert (described["num_documents"], described["store"]) == (2, "exact")
        models = {one["name"]: one for one in server.client.get("/api/models").json()}
        assert models[described["model"]]["indexes"] == ["notes"]
        assert models["labels"]["indexes"] == []
        for body in (
            {"query": "dog"},
            {"query": ["dog", "cat"], "mode": "bm25", "k": 1, "filter": {"year": {">": 1}}},
            {"query": "cat", "index": "notes", "chunks": True, "filter": ["id=a"]},
        ):
            options = {name: one for name, one in body.items() if name not in ("query", "index")}
            expected = cloze.search(index, body["query"], **options).to_dict()
            answer = server.post("/api/search", body)
            assert answer.status_code == 200
            found = answer.json()
            assert [one["id"] for one in list_hits(found)] == [
                one["id"] for one in list_hits(expected)
            ]
            assert list_hits(found)[0]["snippet"] == list_hits(expected)[0]["snippet"]
        ranked = server.post("/api/search", {"query": "cat", "rerank": "labels"}).json()
        assert all("rerank" in hit["scores"] for hit in ranked["hits"])
        for body, status in (
            ({"query": "x", "index": "none"}, 404),
            ({"query": "x", "model": "labels"}, 404),
            ({"query": "x", "k": 0}, 400),
            ({"query": "x", "mode": "sql"}, 400),
            ({"query": "x", "filter": {"a": {"like": 1}}}, 400),
            ({"query": "x", "rerank": "none"}, 404),
            ({}, 400),
        ):
            assert server.post("/api/search", body).status_code == status, body
        assert server.post("/api/index", {"delete": ["a"]}).status_code in (404, 405)


def list_hits(found):
    results = found if isinstance(found, list) else [found]
    return [hit for one in results for hit in one["hits"]]


def test_documents_are_added_replaced_and_deleted_with_a_key(folders, index):
    settings = {"indexes": (f"mine={index}",), "allow_indexing": True, "api_keys": (KEY,)}
    with run_server({"mlm": folders["mlm"]}, **settings) as server:
        assert server.post("/api/search", {"query": "mat", "mode": "bm25"}).json()["hits"] == []
        body = {
            "documents": [
                {"id": "a", "text": "a mat"},
                {"id": "c", "title": "Mat", "text": "it ran", "metadata": {"year": 3}},
            ],
            "delete": ["b"],
        }
        made = server.post("/api/index", body).json()
        assert (made["added"], made["updated"], made["deleted"]) == (1, 1, 1)
        hits = server.post("/api/search", {"query": "mat", "mode": "bm25"}).json()["hits"]
        assert {hit["id"]: hit["metadata"] for hit in hits} == {"a": {}, "c": {"year": 3}}
        for wrong in (
            {"delete": ["nobody"]},
            {},
            {"documents": [{"id": "a", "text": "x", "metadata": {"id": 1}}]},
            {"documents": [{"id": "x", "text": "a"}, {"id": "x", "text": "b"}]},
            {"documents": [{"id": "x", "text": "a\0"}]},
        ):
            assert server.post("/api/index", wrong).status_code == 400, wrong
        refused = server.client.post(
            "/api/index", json=body, headers={"Authorization": "Bearer no"}
        )
        assert refused.status_code == 401
    assert cloze.search(index, "mat", mode="bm25").hits


def test_indexing_needs_a_key():
    with raises(ConfigError, "key"):
        ServeConfig(allow_indexing=True)
