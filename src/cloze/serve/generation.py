"""Continuations of texts for many requests: they join and leave the running batch at every step."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.decode.continuation import TextChunks
from cloze.decode.continuous import ContinuousBatch, GeneratedRow
from cloze.decode.generator import TextGenerator
from cloze.decode.prompts import BATCH_TOKENS, GPU_BATCH_TOKENS
from cloze.serve.fair_queue import Entry
from cloze.serve.model_store import ServedModel
from cloze.tasks.generate import Generations, make_result


@dataclass(frozen=True)
class GenerationKey:
    """The key of texts to continue with a model; their options may differ."""

    model: ServedModel


@dataclass(eq=False, kw_only=True)
class Prompt:
    """A text to continue, as an input of a job."""

    generator: TextGenerator  # of this text alone
    truncated_chars: int
    top_log_probs: int = 0
    # called from the thread with the number of the sample, a chunk of text and its row
    on_chunk: Callable[[int, str, GeneratedRow], None] | None = None
    rows: list[GeneratedRow] = field(default_factory=list)
    chunks: list[TextChunks] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin again; what was streamed is not streamed twice."""
        (self.rows,) = self.generator.make_rows(self.top_log_probs)
        continuation = self.generator.continuations[0]
        self.chunks = self.chunks or [TextChunks(continuation) for _ in self.rows]

    @property
    def cost(self) -> int:
        """Tokens of the prompt and to be generated, for every sample."""
        one = len(self.generator.prompts[0]) + self.generator.max_new_tokens
        return one * self.generator.samples

    @property
    def is_finished(self) -> bool:
        return all(row.is_finished for row in self.rows)

    def send_chunks(self, reached: set[int]) -> None:
        """Stream what is new of the rows with these ids."""
        if self.on_chunk is None:
            return
        for number, (row, chunks) in enumerate(zip(self.rows, self.chunks, strict=True)):
            if id(row) in reached:
                text = chunks.read(row.sampled.tokens, is_last=row.is_finished)
                if text or row.is_finished:
                    self.on_chunk(number, text, row)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return self.make_result().to_dict()

    def make_result(self) -> Generations:
        """What `generate` returns."""
        hypotheses = [row.sampled.make_hypothesis() for row in self.rows]
        return make_result(self.generator, 0, hypotheses, self.truncated_chars)


class _Running:
    """The batch of one model."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - a LanguageModel
        device = getattr(model, "device", None)
        is_cpu = device is None or device.type == "cpu"
        self.max_tokens = BATCH_TOKENS if is_cpu else GPU_BATCH_TOKENS
        self.batch = ContinuousBatch(model)
        self.entries: list[Entry] = []

    @property
    def tokens(self) -> int:
        return sum(entry.cost for entry in self.entries)

    def start(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.batch.add(entry.value.rows)
            self.entries.append(entry)

    def step(self) -> list[tuple[Entry, Any]]:
        for entry in [one for one in self.entries if one.job.is_cancelled]:
            self.batch.remove(entry.value.rows)
            self.entries.remove(entry)
        if not self.entries:
            return []
        try:
            reached = {id(row) for row in self.batch.step()}
        except Exception as error:
            return self._retry(error)
        for entry in self.entries:
            entry.value.send_chunks(reached)
        done = [entry for entry in self.entries if entry.value.is_finished]
        self.entries = [entry for entry in self.entries if entry not in done]
        return [(entry, entry.value) for entry in done]

    def _retry(self, error: Exception) -> list[tuple[Entry, Any]]:
        """Continue every text alone, because one of them made the step of all fail."""
        self.batch.clear()
        failed, self.entries = self.entries, []
        if len(failed) == 1:
            return [(failed[0], error)]
        results: list[tuple[Entry, Any]] = []
        for entry in failed:
            entry.value.restart()
            self.start([entry])
            while self.entries:
                results += self.step()
        return results


class GenerationBatches:
    """The running batches of all models."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _Running] = {}

    def __bool__(self) -> bool:
        return any(running.entries for running in self._running.values())

    def accepts(self, key: Hashable) -> bool:
        """Whether inputs with this key are texts to continue."""
        return isinstance(key, GenerationKey)

    def room(self, key: Hashable) -> int:
        """Tokens that may join now; a text that is longer than all of it runs alone."""
        running = self._running.get(key)
        if running is None:
            return BATCH_TOKENS
        return running.max_tokens - running.tokens

    def start(self, entries: Sequence[Entry]) -> None:
        """Let texts join the batch of their model."""
        key = entries[0].job.key
        if key not in self._running:
            assert isinstance(key, GenerationKey)
            self._running[key] = _Running(key.model.language_model)
        self._running[key].start(entries)

    def step(self) -> list[tuple[Entry, Any]]:
        """One more token of every text; returns those that are finished."""
        return [found for running in self._running.values() for found in running.step()]

    def clear(self) -> list[Entry]:
        """Forget all texts, and return them."""
        found = [entry for running in self._running.values() for entry in running.entries]
        self._running.clear()
        return found
