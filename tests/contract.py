"""Check that a server behaves as its OpenAPI description says, with generated requests."""

from contextlib import suppress

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

MODELS = {
    "/v1/embeddings": "mlm",
    "/v1/completions": "gpt",
    "/v2/embed": "mlm",
    "/v2/rerank": "labels",
}  # routes whose requests must name a model; others find one


def has_no_server_error(_, response, case):
    """No 5xx but 503, which says when to come back."""
    assert response.status_code < 500 or response.status_code == 503, (case, response.text)
    assert response.status_code != 503 or "retry-after" in response.headers


CHECKS = [
    has_no_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def check_contract(server, *, examples, skip=()):
    """Send generated requests to every route, valid ones and invalid ones; returns their number."""
    headers = {"X-Timeout-Seconds": "5"}
    if "authorization" in server.client.headers:
        headers["Authorization"] = server.client.headers["authorization"]
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in skip:
            continue
        for mode in GenerationMode:
            model = MODELS.get(operation.path)
            count += check_operation(operation, mode, headers, examples, model)
    return count


def check_operation(operation, mode, headers, examples, model=None):
    """Requests to one route; every fourth has the name of a model as it was generated."""
    count = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        nonlocal count
        count += 1
        case.headers = {**(case.headers or {}), **headers}
        if isinstance(case.body, dict) and "model" in case.body and count % 4:
            case.body = {**case.body, "model": model}
        case.call_and_validate(checks=CHECKS, timeout=30)

    with suppress(Unsatisfiable):  # a route without parameters has no invalid requests
        check()
    return count
