"""From the fields of a request to results: find the model, count tokens, queue, compute."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from cloze.checkpoint.model import Model
from cloze.decode.continuous import GeneratedRow
from cloze.errors import ClozeError
from cloze.serve.batcher import Batcher, Reservation, SeveralContinuations, run_isolated
from cloze.serve.config import ServeConfig
from cloze.serve.drawing import Drawing, DrawingKey, DrawingSteps, make_drawing
from cloze.serve.failures import refuse
from cloze.serve.functions import FUNCTIONS, Function
from cloze.serve.generation import GenerationBatches, GenerationKey, Prompt
from cloze.serve.log import LOGGER, REQUEST_LOG, log_request
from cloze.serve.metrics import Metrics
from cloze.serve.model_store import ModelStore, ServedModel
from cloze.serve.responses import dump_json
from cloze.serve.streams import WorkStream
from cloze.serve.tokens import (
    check_truncated,
    count_tokens,
    estimate_tokens,
    resolve_truncation,
    restore_options,
)
from cloze.tasks.generate import make_generator
from cloze.tasks.image_batches import DrawStep
from cloze.tasks.inference import BATCH_TOKENS, GPU_BATCH_TOKENS

T = TypeVar("T")
_TOKENIZER_THREADS = 2


@dataclass(frozen=True)
class BatchKey:
    """Inputs with the same key are computed in one call."""

    model: ServedModel
    function: str
    options: bytes  # as JSON
    given: tuple[bool, ...]  # which fields have a value


@dataclass(frozen=True)
class PromptScoresKey:
    """Prompts whose log-probabilities are computed."""

    model: ServedModel


@dataclass(frozen=True, eq=False)
class AloneKey:
    """A computation that is in no batch with others."""

    model: ServedModel
    compute: Callable[[Model], Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a request: an object, or an exception, for each input."""

    served: ServedModel
    results: list[Any]
    costs: list[int]  # tokens of each input
    is_single: bool

    def raise_first(self) -> "Outcome":
        """Itself, unless an input failed: its error is that of the request."""
        for one in self.results:
            if isinstance(one, BaseException):
                raise one
        return self


class Engine:
    """Everything that computes; routes call it and contain no logic of their own."""

    def __init__(self, config: ServeConfig, store: ModelStore) -> None:
        self.config, self.store = config, store
        self.is_draining = False
        self._preloading: set[str] = set()
        self.metrics = Metrics()
        self._tokenizers = ThreadPoolExecutor(
            _TOKENIZER_THREADS, thread_name_prefix="cloze-tokenize"
        )
        self.batcher = Batcher(
            self._compute,
            batch_tokens=config.batch_tokens or _find_batch_tokens(config),
            max_tokens=config.max_queue_tokens,
            observer=self.metrics,
            continuations=SeveralContinuations(GenerationBatches(), DrawingSteps()),
        )

    def close(self) -> None:
        """Stop the threads."""
        self.batcher.close()
        self._tokenizers.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def preload(self, name: str) -> "asyncio.Task[None]":
        """Load a model before its first request; an error is that of the requests."""

        async def load() -> None:
            try:
                await self.store.get(self.store.models[name])
            except ClozeError as error:
                LOGGER.error("%s could not be loaded: %s", name, error)
            finally:
                self._preloading.discard(name)

        self._preloading.add(name)
        return asyncio.get_running_loop().create_task(load())

    @property
    def is_preloading(self) -> bool:
        return bool(self._preloading)

    async def load(self, name: str | None, function: str) -> Model:
        """The loaded model of this name."""
        loaded: Model = await self._limit_time(self.store.get(self.store.find(name, function)))
        return loaded

    async def score_prompts(self, served: ServedModel, prompts: Sequence[Prompt]) -> list[Any]:
        """For each prompt the log-probability of every token but the first."""
        costs = [len(prompt.generator.prompts[0]) for prompt in prompts]
        with self.batcher.admit(sum(costs)):
            ids = [prompt.generator.prompts[0] for prompt in prompts]
            work = self.batcher.submit(PromptScoresKey(served), ids, costs)
            found: list[Any] = await self._limit_time(work)
        return found

    async def compute_alone(
        self,
        served: ServedModel,
        function: str,
        count: Callable[[Model], int],
        compute: Callable[[Model], Any],
        estimate: int,
    ) -> Any:  # noqa: ANN401
        """Compute one result on the thread of the batcher.

        `count` gives the tokens that it costs; `estimate` is that number before the model is known.
        """
        with self.batcher.admit(estimate) as reservation:
            loaded = await self._limit_time(self.store.get(served))
            cost = await self._tokenize(count, loaded)
            self._check_tokens(reservation, cost)
            log_request(model=served.name, function=function, inputs=1, tokens=cost)
            work = self.batcher.submit(AloneKey(served, compute), [None], [cost])
            (found,) = await self._limit_time(work)
        if isinstance(found, BaseException):
            raise found
        return found

    async def call(
        self, name: str, values: Mapping[str, Any], *, model: str | None = None
    ) -> Outcome:
        """Compute a function; `values` are the fields of its request."""
        function = FUNCTIONS[name]
        reads_images = function.reads_images and values.get("image") is not None
        served = self.store.find(model, name, reads_images=reads_images)
        inputs, is_single = function.split(values)
        options = {key: values[key] for key in function.options if key in values}
        if name == "generate" and options.get("beam") in (None, 1):
            async with self._prepare_prompts(served, inputs, values, options) as prepared:
                prompts, costs, errors = prepared
                found = await self._limit_time(
                    self.batcher.submit(GenerationKey(served), prompts, costs)
                )
            done = iter(found)
            results = [error or next(done) for error in errors]
            return Outcome(served=served, results=results, costs=costs, is_single=is_single)
        if name == "draw":
            async with self._prepare_drawing(served, inputs, options) as (drawing, costs):
                work = self.batcher.submit(DrawingKey(served), [drawing], [sum(costs)])
                (found,) = await self._limit_time(work)
            if isinstance(found, BaseException):
                raise found
            return Outcome(served=served, results=found, costs=costs, is_single=is_single)
        with self.batcher.admit(estimate_tokens(function, inputs, options)) as reservation:
            loaded = await self._limit_time(self.store.get(served))
            options = resolve_truncation(loaded, function, values, options)
            costs = await self._tokenize(count_tokens, loaded, function, inputs, options)
            self._check_tokens(reservation, sum(costs))
            log_request(model=served.name, function=name, inputs=len(inputs), tokens=sum(costs))
            if not function.computes:
                found = await self._tokenize(
                    run_isolated, lambda some: function.compute(loaded, some, options), inputs
                )
                return Outcome(served=served, results=found, costs=costs, is_single=is_single)
            key_options = orjson.dumps(options, option=orjson.OPT_SORT_KEYS | _NON_STR)
            found = await self._limit_time(
                self._submit_groups(served, function, inputs, costs, key_options)
            )
        found = [check_truncated(one, values) for one in found]
        return Outcome(served=served, results=found, costs=costs, is_single=is_single)

    async def _submit_groups(
        self,
        served: ServedModel,
        function: Function,
        inputs: Sequence[tuple[Any, ...]],
        costs: Sequence[int],
        options: bytes,
    ) -> list[Any]:
        """Inputs of a request have the same fields, except where one is None."""
        groups: dict[tuple[bool, ...], list[int]] = {}
        for number, one in enumerate(inputs):
            groups.setdefault(tuple(value is not None for value in one), []).append(number)
        found = await asyncio.gather(
            *(
                self.batcher.submit(
                    BatchKey(served, function.name, options, given),
                    [inputs[n] for n in numbers],
                    [costs[n] for n in numbers],
                )
                for given, numbers in groups.items()
            )
        )
        results: list[Any] = [None] * len(inputs)
        for numbers, some in zip(groups.values(), found, strict=True):
            for number, one in zip(numbers, some, strict=True):
                results[number] = one
        return results

    def _compute(self, key: Any, inputs: list[Any]) -> Sequence[Any]:  # noqa: ANN401
        """Called by the thread of the batcher."""
        if isinstance(key, PromptScoresKey):
            return _score_prompts(key.model.language_model, inputs)
        model = key.model.model
        assert model is not None
        if isinstance(key, AloneKey):
            return [key.compute(model)]
        options = restore_options(orjson.loads(key.options))
        return FUNCTIONS[key.function].compute(model, inputs, options)

    @asynccontextmanager
    async def _prepare_prompts(
        self,
        served: ServedModel,
        inputs: Sequence[tuple[Any, ...]],
        values: Mapping[str, Any],
        options: dict[str, Any],
        on_chunk: Callable[[int, str, GeneratedRow], None] | None = None,
    ) -> AsyncIterator[tuple[list[Prompt], list[int], list[BaseException | None]]]:
        """Prompts that are ready to be continued, their tokens, and the error of each input."""
        function = FUNCTIONS["generate"]
        top_log_probs = values.get("top_log_probs", 0)
        with self.batcher.admit(estimate_tokens(function, inputs, options)) as reservation:
            loaded = await self._limit_time(self.store.get(served))
            options = resolve_truncation(loaded, function, values, options)
            options.pop("stream", None)

            def prepare(some: list[tuple[Any, ...]]) -> list[Prompt]:
                language = _open_language_model(served, loaded)
                made = (make_generator(language, text, **options) for (text,) in some)
                return [
                    Prompt(
                        generator=generator,
                        truncated_chars=unread[0],
                        top_log_probs=top_log_probs,
                        on_chunk=on_chunk,
                    )
                    for generator, unread in made
                ]

            made = await self._tokenize(run_isolated, prepare, list(inputs))
            errors = [one if isinstance(one, BaseException) else None for one in made]
            prompts = [one for one in made if isinstance(one, Prompt)]
            costs = [prompt.cost for prompt in prompts]
            self._check_tokens(reservation, max(1, sum(costs)))
            log_request(
                model=served.name, function="generate", inputs=len(inputs), tokens=sum(costs)
            )
            yield prompts, costs, errors

    @asynccontextmanager
    async def _prepare_drawing(
        self,
        served: ServedModel,
        inputs: Sequence[tuple[Any, ...]],
        options: Mapping[str, Any],
        on_step: Callable[[DrawStep], None] | None = None,
    ) -> AsyncIterator[tuple[Drawing, list[int]]]:
        """A drawing that is ready to begin, and the tokens of its texts."""
        function, texts = FUNCTIONS["draw"], [text for (text,) in inputs]
        with self.batcher.admit(estimate_tokens(function, inputs, options)) as reservation:
            loaded = await self._limit_time(self.store.get(served))
            costs = await self._tokenize(count_tokens, loaded, function, inputs, options)
            self._check_tokens(reservation, sum(costs))
            log_request(model=served.name, function="draw", inputs=len(inputs), tokens=sum(costs))
            yield await self._tokenize(make_drawing, loaded, texts, options, on_step), costs

    async def stream(
        self, name: str, values: Mapping[str, Any], *, model: str | None = None
    ) -> WorkStream:
        """Start the continuation or the drawing of one text; errors are raised here."""
        served, function = self.store.find(model, name), FUNCTIONS[name]
        inputs, is_single = function.split(values)
        options = {key: values[key] for key in function.options if key in values}
        if not is_single or options.get("beam") is not None:
            raise refuse(
                400, "invalid_input", "several texts or beam search cannot be streamed",
                fix="leave out stream, or send one text without beam",
            )  # fmt: skip
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def send(*event: Any) -> None:  # noqa: ANN401
            loop.call_soon_threadsafe(events.put_nowait, event)

        stack = AsyncExitStack()
        value: Prompt | Drawing
        try:
            if name == "draw":
                value, costs = await stack.enter_async_context(
                    self._prepare_drawing(served, inputs, options, send)
                )
                work = self.batcher.submit(DrawingKey(served), [value], [sum(costs)])
            else:
                prompts, costs, errors = await stack.enter_async_context(
                    self._prepare_prompts(served, inputs, values, options, send)
                )
                if errors[0] is not None:
                    raise errors[0]
                (value,) = prompts
                work = self.batcher.submit(GenerationKey(served), prompts, costs)
            task = loop.create_task(self._limit_time(work))
            task.add_done_callback(lambda _: events.put_nowait(None))
        except BaseException:
            await stack.aclose()
            raise
        return WorkStream(served, value, events, task, stack)

    def _check_tokens(self, reservation: Reservation, tokens: int) -> None:
        limit = self.config.max_request_tokens
        if tokens > limit:
            raise refuse(
                413,
                "too_many_tokens",
                f"the request has {tokens:,} tokens, but the limit is {limit:,}",
                fix="send several smaller requests",
            )
        self.batcher.resize(reservation, tokens)

    async def _tokenize(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Run something on a thread, so that other requests are answered meanwhile."""
        since = time.perf_counter()
        loop = asyncio.get_running_loop()
        found = await self._limit_time(loop.run_in_executor(self._tokenizers, function, *arguments))
        self.metrics.observe_tokenizing(time.perf_counter() - since)
        return found

    async def render(self, function: Callable[[], Any], size: int) -> bytes:
        """JSON; large answers are written on a thread."""
        if size <= _SMALL_ANSWER:
            return dump_json(function())
        return await self.run_on_thread(lambda: dump_json(function()))

    async def run_on_thread(self, function: Callable[[], T]) -> T:
        """Run something that takes long, so that other requests are answered meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tokenizers, function)

    async def _limit_time(self, work: Any) -> Any:  # noqa: ANN401
        """Wait until the deadline of the request."""
        log = REQUEST_LOG.get()
        seconds = self.config.deadline
        if log is not None:
            seconds = log["deadline"] - time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            loading = self.store.is_loading
            raise refuse(
                503,
                "loading" if loading else "deadline_exceeded",
                "the model is still being loaded" if loading else "the deadline has passed",
                fix="try again later" + ("" if loading else ", or send smaller requests"),
                retry_after=1.0,
            ) from None


_NON_STR = orjson.OPT_NON_STR_KEYS
_SMALL_ANSWER = 4  # results


def _find_batch_tokens(config: ServeConfig) -> int:
    from cloze.device import resolve_device

    is_cpu = resolve_device(config.device).type == "cpu"
    return 2 * BATCH_TOKENS if is_cpu else 4 * GPU_BATCH_TOKENS


def _score_prompts(model: Any, prompts: Sequence[Sequence[int]]) -> list[list[float]]:  # noqa: ANN401
    score = getattr(model, "sentence_log_probs", model.log_probs)  # each prompt alone
    return [values.tolist() for values in score(prompts)]


def _open_language_model(served: ServedModel, model: Model) -> Any:  # noqa: ANN401
    from cloze.tasks.inputs import open_language_model

    open_language_model(model, "generate")  # an error if it is none
    return served.language_model
