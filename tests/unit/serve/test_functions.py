"""Native routes: their JSON is that of `to_dict()` in Python, for one input and for several."""

import json
import math

import pytest

import cloze
from cloze.data.embedding_records import EmbeddingRecord
from cloze.serve.functions import FUNCTIONS, make_schema
from translators import TEXTS

LONG = "a b c d e f g h i j " * 8
MASKED = ["a [MASK]", "[MASK] b [MASK]"]
TWO = ["the cat", "a b"]
# function: model, fields of a request with several inputs, options
CASES = {
    "fill": ("mlm", {"text": MASKED}, {"top": 2}),
    "embed": ("mlm", {"text": TWO}, {"pooling": "max"}),
    "classify": ("labels", {"text": TWO, "pair": ["c", "d"]}, {}),
    "tag": ("tags", {"text": TWO}, {"aggregation": "simple"}),
    "answer": ("spans", {"question": ["cat", "a b"], "context": ["the cat sat", "a b c"]}, {}),
    "choose": ("choices", {"text": TWO, "options": [["c", "d"], ["a", "b", "c"]]}, {}),
    "translate": ("translator", {"text": TEXTS[:2]}, {"beam": 2, "n_best": 2}),
    "summarize": ("summarizer", {"text": TEXTS[:2]}, {"beam": 2}),
    "draw": ("pictures", {"text": TWO}, {"steps": 2, "samples": 2, "seed": 4}),
    "generate": ("gpt", {"text": TWO}, {"max_new_tokens": 6, "seed": 3, "samples": 2}),
    "suggest": ("ngram", {"text": TWO}, {"top": 3}),
    "score": ("ngram", {"text": TWO}, {}),
    "similar": ("vectors", {"word": ["cat", "dog"]}, {"top": 2}),
    "similarity": ("mlm", {"text": TWO, "pair": ["c"]}, {}),
    "rerank": ("labels", {"query": TWO, "documents": ["a", "b c"]}, {"top": 1}),
    "tokenize": ("mlm", {"text": TWO}, {}),
}


def call_python(name, model, fields, options):
    """What the Python function gives, as JSON."""
    function = FUNCTIONS[name]
    given = {function.python_names.get(one, one): value for one, value in fields.items()}
    found = getattr(cloze, name)(model, **given, **options)
    if name == "embed":
        texts = given["texts"]
        records = zip([texts], [found], strict=True)
        if not isinstance(texts, str):
            records = zip(texts, found, strict=True)
        rows = [EmbeddingRecord(text=text, vectors=one).to_dict() for text, one in records]
        return rows[0] if isinstance(texts, str) else rows
    return json.loads(json.dumps(found.to_dict()))


def check_close(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            check_close(found[name], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert found == expected


def test_every_function_has_a_case_and_a_route(server):
    assert CASES.keys() == FUNCTIONS.keys()
    paths = server.client.get("/openapi.json").json()["paths"]
    assert {f"/api/{name}" for name in FUNCTIONS} <= paths.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_route_gives_what_python_gives(server, models, name):
    model, fields, options = CASES[name]
    answer = server.post(f"/api/{name}", {"model": model, **fields, **options})
    assert answer.status_code == 200, answer.text
    check_close(answer.json(), call_python(name, models[model], fields, options))


@pytest.mark.parametrize("name", [name for name, one in FUNCTIONS.items() if not one.is_whole])
def test_a_single_input_gives_an_object(server, models, name):
    model, fields, options = CASES[name]
    shared = FUNCTIONS[name].shared
    one = {
        key: value if key in shared and key == "documents" else value[0]
        for key, value in fields.items()
    }
    answer = server.post(f"/api/{name}", {"model": model, **one, **options})
    assert answer.status_code == 200, answer.text
    check_close(answer.json(), call_python(name, models[model], one, options))
    assert set(FUNCTIONS[name].result) <= answer.json().keys()


def test_two_texts_have_one_similarity(server, models):
    found = server.post("/api/similarity", {"model": "mlm", "text": "a b", "pair": "c"}).json()
    check_close(found, cloze.similarity(models["mlm"], "a b", "c").to_dict())


def test_beam_search_is_that_of_python(server, models):
    options = {"beam": 3, "n_best": 2, "max_new_tokens": 5}
    found = server.post("/api/generate", {"model": "gpt", "text": "the cat", **options}).json()
    check_close(found, cloze.generate(models["gpt"], "the cat", **options).to_dict())


def test_a_model_is_found_by_what_it_does(server, models):
    assert server.post("/api/tag", {"text": "a b"}).json() == (
        cloze.tag(models["tags"], "a b").to_dict()
    )
    described = {one["name"]: one for one in server.client.get("/api/models").json()}
    functions = models["spans"].capabilities
    assert list(described["spans"]["functions"]) == [one for one in FUNCTIONS if one in functions]
    assert "cloze finetune tag" in described["spans"]["unsupported"]["tag"]
    assert "attention" in described["spans"]["views"]
    assert "n-gram" in described["spans"]["unsupported_views"]["backoff"]
    assert [described[name]["mask_token"] for name in ("mlm", "ngram")] == ["[MASK]", None]
    unknown = server.post("/api/tag", {"model": "nothing", "text": "a"})
    assert unknown.status_code == 404
    assert "spans" in unknown.json()["error"]["fix"]


def test_a_bad_input_fails_alone(server, models):
    found = server.post("/api/fill", {"model": "mlm", "text": ["a [MASK]", "no mask", LONG]}).json()
    check_close(found[0], cloze.fill(models["mlm"], "a [MASK]").to_dict())
    assert found[1]["text"] == "no mask"
    assert "[MASK]" in found[1]["error"]
    assert found[2]["text"] == LONG
    assert "error" in found[2]
    single = server.post("/api/fill", {"model": "mlm", "text": "no mask"})
    assert single.status_code == 400
    assert single.json()["error"]["code"] == "invalid_input"
    assert single.json()["error"]["fix"]


def test_a_function_that_the_model_lacks_is_an_error_that_names_others(server):
    found = server.post("/api/tag", {"model": "mlm", "text": "a"})
    assert found.status_code == 400
    assert "fill" in found.json()["error"]["fix"]


@pytest.mark.parametrize("name", [n for n in CASES if "truncation" in FUNCTIONS[n].options])
def test_long_inputs_are_an_error_unless_truncation_is_asked_for(server, name):
    model, fields, options = CASES[name]
    first = next(iter(fields))
    long = (TEXTS[0] + " ") * 40 if name in ("translate", "summarize") else LONG
    given = {**{key: value[0] for key, value in fields.items()}, first: long}
    if name in ("rerank", "similarity"):
        given = {**fields, first: long}
    if name == "fill":
        given["text"] = "a [MASK] " + LONG
    if name == "suggest":
        model = "gpt"
    refused = server.post(f"/api/{name}", {"model": model, **given, **options})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["code"] == "invalid_input"
    if name == "answer":  # the long question cannot be cut, a long context is read in windows
        given = {"question": "a", "context": LONG}
    accepted = server.post(f"/api/{name}", {"model": model, **given, **options, "truncate": True})
    assert accepted.status_code == 200, accepted.text
    if name != "answer":
        assert accepted.json()["truncated_chars"] > 0


def test_options_are_those_of_the_function_with_its_help(server):
    fields = make_schema("fill").model_fields
    assert {"top", "candidates", "joint", "truncation", "truncate"} <= fields.keys()
    assert not {"progress", "batch_tokens", "text_column"} & fields.keys()
    assert fields["top"].default == 5
    assert "number" in fields["top"].description.lower()
    refused = server.post("/api/fill", {"text": "a [MASK]", "tops": 3})
    assert refused.status_code == 400
    assert "tops" in refused.json()["error"]["message"]
    refused = server.post("/api/fill", {"model": "mlm", "text": "a [MASK]", "top": 0})
    assert refused.status_code == 400
    assert "top" in refused.json()["error"]["message"]


def test_a_stream_gives_chunks_and_then_the_result(server, models):
    options = {"max_new_tokens": 8, "seed": 2}
    body = {"model": "gpt", "text": "the cat", "stream": True, **options}
    with server.client.stream("POST", "/api/generate", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    alone = cloze.generate(models["gpt"], "the cat", **options)
    check_close(events[-1]["result"], json.loads(json.dumps(alone.to_dict())))
    assert "".join(event["text"] for event in events[:-1]) == alone[0].continuation
    refused = server.post("/api/generate", {**body, "text": ["a", "b"]})
    assert refused.status_code == 400


def test_numbers_that_are_not_finite_are_null(server):
    found = server.post("/api/score", {"model": "ngram", "text": "xyzzy unknown"}).json()
    values = [one["log_probability"] for one in found["tokens"]]
    assert all(value is None or math.isfinite(value) for value in values)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_option_names_a_path_on_the_server(name):
    assert not {"database", "out", "predictions"} & FUNCTIONS[name].options.keys()
