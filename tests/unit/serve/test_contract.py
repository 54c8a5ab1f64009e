"""The OpenAPI description is true: generated requests, and texts that break careless servers."""

import pytest

from contract import check_contract
from servers import run_server

HOSTILE = [
    b'{"text": "a \\ud800 [MASK]"}',
    b'{"text": ["a [MASK]", "\\udfff [MASK]"]}',
    b'{"text": "\\u0000 [MASK]"}',
    b'{"model": "\\udfff", "text": "a [MASK]"}',
    b'{"\\udfff": 1, "text": "a [MASK]"}',
    b'{"text": "a [MASK]", "top": 1e400}',
    b'{"text": "a [MASK]", "top": ' + b"9" * 5000 + b"}",
    b'{"text":' * 20_000,
    b"[" * 50_000,
    b"\xff\xfe",
    b"",
]


def test_generated_requests_are_answered_as_described(server):
    assert check_contract(server, examples=1) > 60


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: body[:20].decode("latin-1"))
def test_hostile_bodies_are_refused_or_answered(server, body):
    for path in ("/api/fill", "/api/tokenize", "/embed", "/v1/embeddings", "/v2/embed"):
        answer = server.client.post(
            path, content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (200, 400, 404), (path, answer.text)
        assert answer.json()


def test_one_of_several_texts_with_a_lone_surrogate_fails_alone(server):
    found = server.client.post(
        "/api/fill",
        content=HOSTILE[1],
        headers={"Content-Type": "application/json"},
    ).json()
    assert found[0]["masks"]
    assert "surrogate" in found[1]["error"]
    assert found[1]["text"] == "\ufffd [MASK]"


def test_an_internal_error_keeps_the_connection(folders):
    def load(source):
        raise RuntimeError(f"a secret of {source}")

    with run_server({"mlm": folders["mlm"]}, load_model=load) as server:
        for _ in range(2):
            failed = server.post("/api/fill", {"text": "a [MASK]"})
            assert failed.status_code == 500
            assert failed.json()["error"]["code"] == "internal"
            assert "secret" not in failed.text
            assert "connection" not in failed.headers
        assert 'code="internal"} 2.0' in server.client.get("/metrics").text
