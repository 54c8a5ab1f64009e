"""Metrics for Prometheus."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from cloze.serve.config import WORKERS_VARIABLE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_INPUTS = tuple(2**n for n in range(13))
_TOKENS = tuple(2**n for n in range(3, 20))


class Metrics:
    """Counts and times of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._histogram("request_seconds", "Time of a request", "route", "status")
        self._tokenizing = self._histogram("tokenize_seconds", "Time to tokenize a request")
        self._queue = self._histogram("queue_seconds", "Time of a request in the queue")
        self._inference = self._histogram("inference_seconds", "Time of a batch")
        self._batch_size = self._histogram("batch_size", "Inputs of a batch", buckets=_INPUTS)
        self._batch_tokens = self._histogram("batch_tokens", "Tokens of a batch", buckets=_TOKENS)
        self._failures = Counter(
            "cloze_failures", "Requests that failed", ["code"], registry=self.registry
        )
        self._queue_tokens = Gauge(
            "cloze_queue_tokens",
            "Tokens of open requests",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def _histogram(
        self, name: str, help_text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(
            f"cloze_{name}", help_text, labels, registry=self.registry, buckets=buckets
        )

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).observe(seconds)

    def observe_tokenizing(self, seconds: float) -> None:
        """Count the tokenizing of a request."""
        self._tokenizing.observe(seconds)

    def observe_queue(self, seconds: float) -> None:
        """Count the time of a request between its arrival in the queue and its first batch."""
        self._queue.observe(seconds)

    def observe_batch(self, seconds: float, inputs: int, tokens: int) -> None:
        """Count a batch."""
        self._inference.observe(seconds)
        self._batch_size.observe(inputs)
        self._batch_tokens.observe(tokens)

    def observe_admitted(self, tokens: int) -> None:
        """Set the number of tokens of open requests."""
        self._queue_tokens.set(tokens)

    def count_failure(self, code: str) -> None:
        """Count a request that failed."""
        self._failures.labels(code).inc()

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus; those of several workers are added up."""
        if WORKERS_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
