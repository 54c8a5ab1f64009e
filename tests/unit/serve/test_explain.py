"""`/api/explain`: every view of every model, as JSON and as a document; what is refused."""

import json

import pytest

import cloze
from cloze.serve.explain_routes import (
    MAX_TOKENS,
    count_cost,
    list_served_views,
    make_view_schema,
)
from cloze.tasks.explain.views import VIEWS, list_views

TEXTS = ["the cat sat", "a cat", "the cat", "a cat sat on the mat"] * 2


def make_body(name, view):
    body = {"view": view, "model": name, "text": "the cat sat"}
    if view in ("heads", "cka", "occurrences"):
        body["text"] = TEXTS
    if view == "occurrences":
        body["word"] = "cat"
    if view == "neighbors":
        body["text"] = "cat"
    if name == "mlm" and view in ("saliency", "ablation", "patching"):
        body["text"] = "the [MASK] sat"
    if view == "patching":
        body["from_text"] = body["text"].replace("the", "a")
    return body


@pytest.mark.parametrize("name", ["mlm", "tags", "gpt", "ngram", "translator", "vectors"])
def test_views_are_those_of_python(server, models, name):
    served = [view for view in list_views(models[name]) if view in list_served_views()]
    described = {one["name"]: one for one in server.client.get("/api/models").json()}[name]
    assert list(described["views"]) == served
    assert {*described["views"], *described["unsupported_views"]} == {*list_served_views()}
    for view in served:
        body = make_body(name, view)
        answer = server.post("/api/explain", body)
        assert answer.status_code == 200, (view, answer.text)
        options = {key: body[key] for key in ("word", "from_text") if key in body}
        expected = getattr(cloze.explain, view)(models[name], body["text"], **options)
        assert set(answer.json()) == set(expected.to_dict())
        if view in ("attention", "backoff", "neighbors"):
            assert answer.json() == json.loads(json.dumps(expected.to_dict()))
        if view == "saliency":
            for one, other in zip(answer.json()["targets"], expected.data["targets"], strict=True):
                assert one["saliency"] == pytest.approx(other["saliency"], abs=1e-5)


def test_a_view_as_a_document(server, models):
    body = make_body("mlm", "attention") | {"format": "html"}
    answer = server.post("/api/explain", body)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == "sandbox allow-scripts"
    assert answer.text == cloze.explain.attention(models["mlm"], "the cat sat").html()


def test_a_view_finds_its_model(server, models):
    found = server.post("/api/explain", {"view": "backoff", "text": "the cat"})
    assert found.json() == cloze.explain.backoff(models["ngram"], "the cat").to_dict()
    none = server.post("/api/explain", {"view": "gates", "text": "the cat"})
    assert none.json()["error"]["code"] == "unsupported_function"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"view": "attention", "model": "ngram", "text": "a"}, "does not apply to this model"),
        ({"view": "attention", "model": "mlm", "text": "cat " * 40}, "reads at most"),
        ({"view": "attention", "model": "mlm", "text": ["a"]}, "valid string"),
        ({"view": "attention", "model": "mlm", "text": "a", "word": "b"}, "Extra inputs"),
        ({"view": "saliency", "model": "mlm", "text": "a [MASK]", "steps": 10**6}, "less than"),
        ({"view": "saliency", "model": "choices", "text": "a", "options": []}, "no options"),
        ({"view": "probe", "model": "mlm", "text": "a"}, "probe"),
        ({"view": "heads", "model": "mlm", "text": "README.md"}, "valid list"),
        ({"view": "cka", "text": ["a"], "other_model": "/x"}, "Extra inputs"),
        ({"model": "mlm", "text": "a"}, "view"),
    ],
)
def test_what_is_refused(server, body, message):
    answer = server.post("/api/explain", body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["fix"]


def test_texts_are_never_files(server, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the secret cat sat\n" * 8, "utf-8")
    for view in list_served_views():
        body = make_body("vectors" if view == "neighbors" else "mlm", view)
        body["text"] = [str(file)] * 6 if isinstance(body["text"], list) else str(file)
        if view == "occurrences":
            body["word"] = "secret"
        assert "secret cat" not in server.post("/api/explain", body).text


def test_a_long_text_is_truncated_if_that_is_asked_for(server, models):
    body = {"view": "attention", "model": "mlm", "text": "cat " * 40, "truncate": True}
    tokens = server.post("/api/explain", body).json()["attention"][0]["queries"]["tokens"]
    assert len(tokens) == models["mlm"].max_length
    huge = {"view": "backoff", "model": "ngram", "text": "cat " * (MAX_TOKENS + 9)}
    answer = server.post("/api/explain", huge)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_many_tokens"


def test_the_cost_of_a_view_grows_with_its_options(models):
    views = list_served_views()
    cost = lambda name, **values: count_cost(models["mlm"], views[name], values)  # noqa: E731
    text = "the cat sat"
    assert cost("attention", text=text) == len(models["mlm"].tokenizer.encode(text).ids)
    assert cost("ablation", text=text) > 10 * cost("attention", text=text)
    steps = [cost("saliency", text=text, method="integrated", steps=n) for n in (10, 100)]
    assert steps[1] == 10 * steps[0]
    assert cost("saliency", text=text, faithfulness=True) > cost("saliency", text=text)
    assert cost("layer_weights") == 1


def test_no_option_reads_files_or_loads_models():
    assert set(list_served_views()) == set(VIEWS) - {"probe"}
    for view in list_served_views().values():
        names = set(make_view_schema(view).model_fields)
        assert not names & {"data", "corpus", "test", "other_model", "text_column", "label_column"}
        schema = json.dumps(make_view_schema(view).model_json_schema())
        assert "path" not in schema.lower().replace("path of integrated gradients", "")
