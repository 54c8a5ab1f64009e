"""Images over HTTP: base64 only, limits, one that fails alone."""

import base64

import numpy as np
import pytest

import cloze
from cloze.data.images.decode import encode_png
from images import drawings, make_bomb
from servers import run_server

KEY = "a-secret-key"
LABELS = ["a", "b c"]
MANY = map(str, range(2000))
PNGS = [encode_png(one.content) for one in drawings(3, size=20)]
IMAGES = [base64.b64encode(one).decode() for one in PNGS]


def check_embedding(found, expected):
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


def test_embed_and_classify_equal_the_functions(server, models):
    model = models["clip"]
    expected = cloze.embed(model, images=PNGS)
    found = server.post("/api/embed", {"image": IMAGES}).json()  # the model is found
    for one, row, number in zip(found, expected, (1, 2, 3), strict=True):
        check_embedding(one, row)
        assert one["image"] == f"image {number}"
    url = f"data:image/png;base64,{IMAGES[1]}"
    check_embedding(server.post("/api/embed", {"image": url}).json(), expected[1])
    text = server.post("/api/embed", {"model": "clip", "text": "the cat"}).json()
    check_embedding(text, cloze.embed(model, "the cat"))
    body = {"image": IMAGES, "labels": LABELS, "template": ["{} a", "the {}"]}
    labels = server.post("/api/classify", body).json()
    made = cloze.classify(model, images=PNGS, labels=LABELS, template=body["template"])
    for one, other in zip(labels, made.to_dict(), strict=True):
        assert one["image"] == other["image"]
        assert [row["label"] for row in one["labels"]] == [row["label"] for row in other["labels"]]
        scores = [row["score"] for row in other["labels"]]
        assert [row["score"] for row in one["labels"]] == pytest.approx(scores, abs=1e-5)
    single = server.post("/api/classify", {"image": IMAGES[0], "labels": LABELS}).json()
    assert single["image"] == "image 1"
    described = {one["name"]: one for one in server.client.get("/api/models").json()}
    assert [described[name]["reads_images"] for name in ("clip", "mlm")] == [True, False]
    text = server.post("/api/classify", {"text": "a b"})  # of a model for texts
    assert text.status_code == 200
    assert text.json()["text"] == "a b"


def test_similarity_of_texts_and_images(server, models):
    model, texts = models["clip"], ["the cat", "a"]
    expected = cloze.similarity(model, texts, images=PNGS)
    found = server.post("/api/similarity", {"text": texts, "image": IMAGES}).json()
    assert found["texts"] == texts
    assert found["pairs"] == ["image 1", "image 2", "image 3"]
    np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-5)
    one = server.post("/api/similarity", {"text": "a", "image": IMAGES[2]}).json()
    assert one["pair"] == "image 1"
    assert one["score"] == pytest.approx(float(expected.scores[1, 2]), abs=1e-5)
    plain = server.post("/api/similarity", {"text": "a", "pair": "b"})  # of a model for texts
    assert plain.json()["pair"] == "b"


def test_one_of_several_images_fails_alone(server):
    given = [IMAGES[0], "no base64!", base64.b64encode(b"no image").decode(), IMAGES[1]]
    for body in ({"image": given}, {"image": given, "labels": LABELS}):
        path = "/api/classify" if "labels" in body else "/api/embed"
        found = server.post(path, body).json()
        assert ["error" in one for one in found] == [False, True, True, False]
        assert [one["image"] for one in found] == [f"image {n}" for n in (1, 2, 3, 4)]
        assert given[1] not in str(found)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("embed", {}),
        ("embed", {"text": "a", "image": IMAGES[0]}),
        ("embed", {"image": []}),
        ("embed", {"image": IMAGES[:1] * 65}),
        ("embed", {"image": "/etc/passwd"}),
        ("embed", {"image": "http://localhost/x.png"}),
        ("embed", {"image": "file:///etc/passwd"}),
        ("embed", {"image": make_bomb()}),
        ("embed", {"model": "mlm", "image": IMAGES[0]}),
        ("embed", {"image": IMAGES[0], "pooling": "cls"}),
        ("similarity", {"image": IMAGES[0]}),
        ("similarity", {"text": "a", "pair": "b", "image": IMAGES[0]}),
        ("similarity", {"text": "a", "image": [IMAGES[0], "no base64!"]}),
        ("similarity", {"text": "a", "image": "/etc/passwd"}),
        ("similarity", {"text": "a", "image": [make_bomb()]}),
        ("similarity", {"text": "a", "image": IMAGES[:1] * 65}),
        ("similarity", {"text": "a", "image": IMAGES[0], "pooling": "cls"}),
        ("similarity", {"model": "mlm", "text": "a", "image": IMAGES[0]}),
        ("classify", {"image": IMAGES[0]}),
        ("classify", {"image": IMAGES[0], "labels": []}),
        ("classify", {"image": IMAGES[0], "labels": ["a", "a"]}),
        ("classify", {"image": IMAGES[0], "labels": LABELS, "pair": "b"}),
        ("classify", {"image": IMAGES[0], "labels": LABELS, "template": "none"}),
        ("classify", {"image": IMAGES[0], "labels": ["a " * 100]}),
        ("classify", {"model": "labels", "text": "a", "labels": LABELS}),
        ("classify", {"image": IMAGES[0], "labels": list(MANY), "template": ["{}", "a {}"]}),
    ],
)  # fmt: skip
def test_mistakes(server, route, body):
    answer = server.post(f"/api/{route}", body)
    assert answer.status_code in (400, 413), answer.text
    assert answer.json()["error"]["message"]
    assert "root:" not in answer.text


def test_search_and_index(folders, tmp_path):
    rows = [{"image": png, "caption": f"word{n}"} for n, png in enumerate(PNGS)]
    cloze.index(str(folders["clip"]), rows, tmp_path / "pictures", store="exact")
    settings = {
        "indexes": (str(tmp_path / "pictures"),), "allow_indexing": True, "api_keys": (KEY,)
    }  # fmt: skip
    with run_server({"mlm": folders["mlm"]}, **settings) as server:
        (described,) = server.client.get("/api/indexes").json()
        assert described["content"] == "images"
        found = server.post("/api/search", {"image": IMAGES[1], "k": 2, "thumbnails": True}).json()
        assert found["hits"][0]["text"] == "word1"
        assert base64.b64decode(found["hits"][0]["thumbnail"]).startswith(b"\x89PNG")
        several = server.post("/api/search", {"image": IMAGES[:2], "k": 1}).json()
        assert [one["hits"][0]["text"] for one in several] == ["word0", "word1"]
        by_text = server.post("/api/search", {"query": "word2", "mode": "bm25"}).json()
        assert [hit["text"] for hit in by_text["hits"]] == ["word2"]
        added = {"id": "new", "text": "another", "image": IMAGES[2], "metadata": {"year": 1}}
        made = server.post("/api/index", {"documents": [added]}).json()
        assert made["added"] == 1
        hits = server.post("/api/search", {"query": "another", "mode": "bm25"}).json()["hits"]
        assert (hits[0]["id"], hits[0]["metadata"]) == ("new", {"year": 1})
        for route, body in (
            ("search", {}),
            ("search", {"image": IMAGES[0], "query": "a"}),
            ("search", {"image": "pictures/0.png"}),
            ("search", {"image": IMAGES[0], "mode": "bm25"}),
            ("index", {"documents": [{"id": "x", "text": "no image"}]}),
            ("index", {"documents": [{**added, "image": "/etc/passwd"}]}),
            ("index", {"documents": [{**added, "metadata": {"image": "x"}}]}),
        ):
            assert server.post(f"/api/{route}", body).status_code == 400, body
