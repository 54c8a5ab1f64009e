"""What a server refuses, and how: size, tokens, queue, time, keys, hosts, other sites."""

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

import cloze
from cloze.errors import ConfigError
from cloze.serve.config import ServeConfig
from cloze.serve.functions import FUNCTIONS
from helpers import raises
from servers import run_server

KEY = "a-secret-key"


@pytest.fixture(scope="module")
def mlm(folders):
    return {"mlm": folders["mlm"]}


def make_slow(model, seconds=0.0, started=None, go_on=None):
    """Make the first batch of a model wait, so that others form a queue behind it."""
    forward = model.module.forward

    def wait(*arguments, **options):
        if started is not None:
            started.set()
        if go_on is not None:
            go_on.wait(20)
        time.sleep(seconds)
        return forward(*arguments, **options)

    model.module.forward = wait
    return model


def test_every_route_needs_the_key(mlm):
    with run_server(mlm, api_keys=(KEY, "another-key")) as server, httpx.Client() as plain:
        description = server.client.get("/openapi.json").json()
        assert description["security"] == [{"key": []}]
        routes = [
            (method, path.replace("{model}", "mlm"))
            for path, methods in description["paths"].items()
            for method in methods
        ]
        assert len(routes) > len(FUNCTIONS) + 10
        for method, path in [*routes, ("get", "/openapi.json"), ("get", "/"), ("get", "/none")]:
            for header in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": f"Basic {KEY}"},
            ):
                answer = plain.request(method, server.url + path, headers=header)
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith(
                    "Basic realm=" if path == "/" else "Bearer"
                )
                assert KEY not in answer.text
        for key in (KEY, "another-key"):
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key) as client:
                assert client.models.list().data[0].id == "mlm"
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()


def test_a_public_address_needs_a_key():
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with raises(ConfigError, host, fix=("CLOZE_API_KEYS", "--allow-no-key")):
            ServeConfig(host=host)
        assert ServeConfig(host=host, api_keys=(KEY,)).hosts == ("*",)
        ServeConfig(host=host, allow_no_key=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        assert "localhost" in ServeConfig(host=host).hosts
    with raises(ConfigError, "key"):
        ServeConfig(api_keys=("short",))


def test_other_hosts_and_other_sites_are_refused(server):
    get = server.client.get
    assert get("/health", headers={"Host": "evil.example"}).status_code == 421
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert get("/health", headers={"Host": host}).status_code == 200
    assert get("/health", headers={"Origin": "https://evil.example"}).status_code == 403
    assert get("/health", headers={"Origin": "null"}).status_code == 403
    assert get("/health", headers={"Origin": server.url}).status_code == 200
    answer = server.client.options(
        "/api/fill", headers={"Origin": server.url, "Access-Control-Request-Method": "POST"}
    )
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_large_bodies_are_refused_while_they_arrive(mlm):
    with run_server(mlm, max_body_bytes=10_000) as server:
        declared = server.client.post("/api/fill", content=b"x" * 20_000)
        assert declared.status_code == 413
        assert declared.json()["error"]["code"] == "body_too_large"
        sent = 0

        def chunks():
            nonlocal sent
            for _ in range(100_000):
                sent += 1000
                yield b"x" * 1000

        try:
            status = server.client.post("/api/fill", content=chunks()).status_code
        except (httpx.WriteError, httpx.RemoteProtocolError):  # it closed while we were sending
            status = 413
        assert status == 413
        assert sent < 50_000_000
        small = server.post("/api/fill", {"text": "a [MASK]"})
        assert small.status_code == 200


def test_requests_with_too_many_tokens_are_refused(mlm):
    with run_server(mlm, max_request_tokens=30) as server:
        refused = server.post("/api/embed", {"text": ["a b c d e f g h"] * 4})
        assert refused.status_code == 413
        assert refused.json()["error"]["code"] == "too_many_tokens"
        assert server.post("/api/embed", {"text": ["a b c d e f g h"] * 2}).status_code == 200


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(mlm):
    started, go_on = threading.Event(), threading.Event()

    def load(source):
        return make_slow(cloze.load(source), started=started, go_on=go_on)

    settings = {"max_queue_tokens": 36, "batch_tokens": 10}
    with run_server(mlm, load_model=load, **settings) as server, ThreadPoolExecutor(8) as pool:
        body = {"text": "a [MASK] c d e f"}
        first = pool.submit(server.post, "/api/fill", body)
        assert started.wait(20)
        waiting = [pool.submit(server.post, "/api/fill", body) for _ in range(3)]
        while server.engine.batcher.admitted_tokens < 32:
            time.sleep(0.005)
        for path, given in (("/api/fill", body), ("/v1/embeddings", {"input": "a b c d e f"})):
            refused = server.post(path, {"model": "mlm", **given})
            assert refused.status_code == 429, refused.text
            assert int(refused.headers["retry-after"]) >= 1
            assert float(refused.headers["retry-after-ms"]) > 0
            assert refused.json()["error"]["code"] == "queue_full"
        assert server.client.get("/health").status_code == 200
        go_on.set()
        assert all(one.result().status_code == 200 for one in [first, *waiting])
        assert server.engine.batcher.admitted_tokens == 0
        assert server.post("/api/fill", body).status_code == 200
        metrics = server.client.get("/metrics").text
        assert 'cloze_failures_total{code="queue_full"} 2.0' in metrics
        assert "cloze_queue_tokens 0.0" in metrics


def test_requests_end_at_their_deadline_and_when_the_client_leaves(mlm):
    started, go_on = threading.Event(), threading.Event()
    computed = []

    def load(source):
        model = cloze.load(source)
        forward = model.module.forward

        def record(ids, *arguments, **options):
            computed.append(len(ids))
            started.set()
            go_on.wait(20)
            return forward(ids, *arguments, **options)

        model.module.forward = record
        return model

    with run_server(mlm, load_model=load) as server, ThreadPoolExecutor(4) as pool:
        first = pool.submit(server.post, "/api/fill", {"text": "a [MASK]"})
        assert started.wait(20)
        late = server.post(
            "/api/fill", {"text": "a b [MASK]"}, headers={"X-Timeout-Seconds": "0.05"}
        )
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "deadline_exceeded"
        assert "retry-after" in late.headers
        with pytest.raises(httpx.ReadTimeout):
            server.post("/api/fill", {"text": "a b c [MASK]"}, timeout=0.2)
        while server.engine.batcher.admitted_tokens > 5:
            time.sleep(0.005)
        go_on.set()
        assert first.result().status_code == 200
        assert server.post("/api/fill", {"text": "[MASK]"}).status_code == 200
        assert computed == [4, 3]  # nothing of those that have left
        wrong = server.post("/api/fill", {"text": "a"}, headers={"X-Timeout-Seconds": "soon"})
        assert wrong.status_code == 400


def test_a_model_that_is_being_loaded_is_waited_for_until_the_deadline(mlm):
    go_on = threading.Event()

    def load(source):
        go_on.wait(20)
        return cloze.load(source)

    with run_server(mlm, load_model=load, ready=False) as server, ThreadPoolExecutor(2) as pool:
        ready = server.client.get("/ready")
        assert ready.status_code == 503
        assert ready.json() == {"status": "loading"}
        body = {"text": "a [MASK]"}
        refused = server.post("/api/fill", body, headers={"X-Timeout-Seconds": "0.05"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "loading"
        assert "retry-after" in refused.headers
        waiting = pool.submit(server.post, "/api/fill", body)
        go_on.set()
        assert waiting.result().status_code == 200
        assert server.client.get("/ready").json() == {"status": "ready"}


def test_models_are_loaded_when_they_are_needed(folders):
    loaded = []

    def load(source):
        loaded.append(source.rpartition("/")[2])
        return cloze.load(source)

    sources = {name: folders[name] for name in ("mlm", "tags", "spans")}
    with run_server(sources, load_model=load) as server:
        assert loaded == ["mlm"]
        for _ in range(2):
            assert server.post("/api/tag", {"text": "a"}).status_code == 200
        assert loaded == ["mlm", "tags"]


def test_a_stopping_server_answers_what_it_accepted(mlm):
    started, go_on = threading.Event(), threading.Event()

    def load(source):
        return make_slow(cloze.load(source), started=started, go_on=go_on)

    with run_server(mlm, load_model=load) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, "/api/fill", {"text": "a [MASK]"})
        assert started.wait(20)
        server.engine.is_draining = True
        refused = server.post("/api/fill", {"text": "a [MASK]"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert refused.headers["connection"] == "close"
        assert "retry-after" in refused.headers
        assert server.client.get("/ready").json() == {"status": "draining"}
        assert server.client.get("/health").status_code == 200
        go_on.set()
        assert first.result().status_code == 200


def test_one_poisoned_input_fails_alone_in_a_batch_of_several_requests(mlm):
    started, go_on = threading.Event(), threading.Event()

    def load(source):
        model = cloze.load(source)
        forward = model.module.forward
        poison = model.tokenizer.encode("j").ids[1]

        def fail(ids, *arguments, **options):
            started.set()
            go_on.wait(20)
            if poison in ids:
                raise RuntimeError("out of memory")
            return forward(ids, *arguments, **options)

        model.module.forward = fail
        return model

    with run_server(mlm, load_model=load) as server, ThreadPoolExecutor(8) as pool:
        first = pool.submit(server.post, "/api/fill", {"text": "a [MASK]"})
        assert started.wait(20)
        texts = ["a [MASK]", "b [MASK]", "j [MASK]", "c [MASK]"]
        others = [pool.submit(server.post, "/api/fill", {"text": text}) for text in texts]
        while server.engine.batcher.admitted_tokens < 20:
            time.sleep(0.005)
        go_on.set()
        assert first.result().status_code == 200
        answers = [one.result() for one in others]
        assert [one.status_code for one in answers] == [200, 200, 500, 200]
        assert answers[2].json()["error"]["code"] == "internal"
        assert "memory" not in answers[2].text


def test_the_log_has_a_line_of_json_for_each_request_and_no_texts(mlm, caplog):
    logger = logging.getLogger("cloze.serve")
    with run_server(mlm, log_format="json") as server, caplog.at_level(logging.INFO):
        logger.propagate = True
        server.post("/api/fill", {"text": "a secret [MASK]"}, headers={"Authorization": "x"})
    lines = [json.loads(one.message) for one in caplog.records if one.message.startswith("{")]
    line = next(one for one in lines if one["path"] == "/api/fill")
    assert line["status"] == 200
    assert {"time", "request", "seconds", "model", "function", "inputs", "tokens"} <= line.keys()
    assert "secret" not in caplog.text
