"""Clients of text-embeddings-inference, calls as with sentence-transformers, and curl."""

import base64
import json
import shutil
import subprocess

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient

import cloze

TEXTS = ["the cat sat", "a b c", "j"]
LONG = "a b c d e f g h i j " * 8


def test_the_client_of_hugging_face_gets_what_python_gives(server, models, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it is this machine
    client = InferenceClient(model=f"{server.url}/embed", timeout=60)
    expected = cloze.embed(models["mlm"], TEXTS, normalize=True)
    found = client.feature_extraction(TEXTS, normalize=True)
    assert np.asarray(found) == pytest.approx(expected, abs=1e-5)
    assert client.feature_extraction(TEXTS[0], normalize=True)[0] == pytest.approx(
        expected[0], abs=1e-5
    )
    client = InferenceClient(model=f"{server.url}/similarity", timeout=60)
    scores = client.sentence_similarity(TEXTS[0], TEXTS[1:])
    expected = cloze.similarity(models["mlm"], TEXTS[0], TEXTS[1:]).scores[0]
    assert scores == pytest.approx(expected, abs=1e-5)


def test_a_function_as_the_encode_of_sentence_transformers(server, models):
    """What people write around a server in place of `SentenceTransformer.encode`."""

    def encode(sentences, *, batch_size=2, normalize_embeddings=False):
        given = [sentences] if isinstance(sentences, str) else list(sentences)
        rows = []
        for start in range(0, len(given), batch_size):
            body = {"inputs": given[start : start + batch_size], "normalize": normalize_embeddings}
            rows += server.post("/embed", {"model": "mlm", **body}).json()
        vectors = np.asarray(rows, dtype=np.float32)
        return vectors[0] if isinstance(sentences, str) else vectors

    for normalize in (False, True):
        expected = cloze.embed(models["mlm"], TEXTS, normalize=normalize)
        found = encode(TEXTS, normalize_embeddings=normalize)
        assert found == pytest.approx(expected, abs=1e-5)
    assert encode(TEXTS[0]).shape == expected[0].shape


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_gets_the_same_vectors_as_numbers_and_as_base64(server, models):
    def post(body):
        command = ["curl", "-sS", f"{server.url}/v1/embeddings", "-H"]
        command += ["Content-Type: application/json", "-d", json.dumps(body)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    numbers = post({"model": "mlm", "input": TEXTS})["data"]
    encoded = post({"model": "mlm", "input": TEXTS, "encoding_format": "base64"})["data"]
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in encoded]
    written = [np.array(one["embedding"], dtype=np.float32) for one in numbers]
    assert np.array_equal(decoded, written)  # bit by bit
    assert np.array(written) == pytest.approx(cloze.embed(models["mlm"], TEXTS), abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "is_cut"),
    [
        ("/v1/embeddings", {"input": LONG}, None),
        ("/embed", {"inputs": LONG}, {"truncate": True}),
        ("/embed_all", {"inputs": LONG}, {"truncate": True}),
        ("/similarity", {"inputs": {"source_sentence": LONG, "sentences": ["a"]}},
         {"parameters": {"truncate": True}}),
        ("/v2/embed", {"texts": [LONG], "truncate": "NONE"}, {"truncate": "END"}),
    ],
)  # fmt: skip
def test_long_texts_are_an_error_unless_the_client_asks_for_truncation(
    server, models, path, body, is_cut
):
    refused = server.post(path, {"model": "mlm", **body})
    assert refused.status_code == 400, refused.text
    assert "82 tokens" in refused.text
    if is_cut is not None:
        accepted = server.post(path, {"model": "mlm", **body, **is_cut})
        assert accepted.status_code == 200, accepted.text
    if path == "/embed":
        head, tail = (
            server.post(
                path, {"model": "mlm", **body, "truncate": True, "truncation_direction": side}
            ).json()
            for side in ("Right", "Left")
        )
        for found, policy in ((head, "head"), (tail, "tail")):
            expected = cloze.embed(models["mlm"], [LONG], normalize=True, truncation=policy)
            assert np.array(found) == pytest.approx(expected, abs=1e-5)


def test_errors_have_the_shape_that_each_client_reads(server):
    """OpenAI: error.message; text-embeddings-inference: error, error_type; Cohere: message."""
    wrong = {"model": "nothing"}
    cases = {
        "/v1/embeddings": ({"input": "a"}, lambda found: found["error"]["message"]),
        "/embed": ({"inputs": "a"}, lambda found: found["error"]),
        "/v2/embed": ({"texts": ["a"]}, lambda found: found["message"]),
        "/api/embed": ({"text": "a"}, lambda found: found["error"]["message"]),
    }
    for path, (body, read) in cases.items():
        answer = httpx.post(server.url + path, json={**wrong, **body})
        assert answer.status_code == 404
        assert "nothing" in read(answer.json())
