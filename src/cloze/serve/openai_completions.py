"""OpenAI's completions: requests and answers of /v1/completions."""

import secrets
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from cloze.decode.continuous import GeneratedRow
from cloze.serve.config import MAX_TEXTS
from cloze.serve.engine import Engine
from cloze.serve.errors_http import render_failure
from cloze.serve.failures import describe_error, refuse
from cloze.serve.generation import Prompt
from cloze.serve.responses import EventStream
from cloze.serve.streams import WorkStream

Ids = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(min_length=1)]
Inputs = (
    str
    | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    | Ids
    | Annotated[list[Ids], Field(min_length=1, max_length=MAX_TEXTS)]
)
_FINISH = {"end": "stop", "stop": "stop", "length": "length"}


class OpenAIRequest(BaseModel):
    """What every request has; fields that are not known are ignored, as clients expect."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str
    user: str | None = None


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    total_tokens: int


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = False


class CompletionsRequest(OpenAIRequest):
    """Prompts to continue."""

    prompt: Inputs = ""
    max_tokens: Annotated[int, Field(ge=1, le=1 << 20)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Field(ge=1, le=128)] | None = 1
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    best_of: int | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None
    suffix: str | None = None


class LogProbs(BaseModel):
    """Tokens of a text with their log-probabilities."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One continuation."""

    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: LogProbs | None


class CompletionUsage(Usage):
    """Tokens read and generated."""

    completion_tokens: int


class CompletionsAnswer(BaseModel):
    """The continuations of all prompts."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage | None = None


def _make_values(body: CompletionsRequest, text: str | list[str]) -> dict[str, Any]:
    """The fields of a request to `generate`."""
    unsupported = {
        "suffix": body.suffix,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": body.logit_bias,
        "best_of": body.best_of if body.best_of != body.n else None,
    }
    for name, value in unsupported.items():
        if value:
            raise refuse(
                400, "unsupported_option", f"{name} is not supported", fix=f"leave out {name}"
            )
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    temperature = 1.0 if body.temperature is None else body.temperature
    seed = secrets.randbelow(1 << 63) if body.seed is None else body.seed % (1 << 63)
    return {
        "text": text,
        "max_new_tokens": body.max_tokens or 16,
        "temperature": temperature,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "samples": body.n or 1,
        "stop_strings": [one for one in stops if one],
        "seed": seed,
        "top_log_probs": body.logprobs or 0,
    }


def _make_head(body: CompletionsRequest) -> dict[str, Any]:
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model,
    }


async def compute_completions(engine: Engine, body: CompletionsRequest, texts: list[str]) -> bytes:
    """The JSON of the continuations of all prompts."""
    values = _make_values(body, texts)
    outcome = (await engine.call("generate", values, model=body.model)).raise_first()
    prompts: list[Prompt] = outcome.results
    beginnings: dict[int, list[float]] = {}
    if body.echo and _has_logs(body):
        scored = await engine.score_prompts(outcome.served, prompts)
        beginnings = {id(prompt): one for prompt, one in zip(prompts, scored, strict=True)}

    def render() -> dict[str, Any]:
        choices = [
            _make_choice(body, prompt, row, index * prompt.generator.samples + number, beginnings)
            for index, prompt in enumerate(prompts)
            for number, row in enumerate(prompt.rows)
        ]
        return {**_make_head(body), "choices": choices, "usage": _count_usage(prompts)}

    return await engine.render(render, len(texts))


def _has_logs(body: CompletionsRequest) -> bool:
    return body.logprobs is not None


def _count_usage(prompts: Sequence[Prompt]) -> dict[str, int]:
    read = sum(len(prompt.generator.prompts[0]) for prompt in prompts)
    written = sum(len(row.sampled.tokens) for prompt in prompts for row in prompt.rows)
    return {
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
    }  # fmt: skip


def _make_choice(
    body: CompletionsRequest,
    prompt: Prompt,
    row: GeneratedRow,
    index: int,
    beginnings: dict[int, list[float]],
) -> dict[str, Any]:
    hypothesis = row.sampled.make_hypothesis()
    text = prompt.generator.continuations[0].decode(hypothesis.tokens)
    before = prompt.generator.texts[0] if body.echo else ""
    logs = None
    if _has_logs(body):
        logs = _describe_tokens(body, prompt, row, len(before), 0)
        if body.echo:
            logs = _prepend_prompt(prompt, beginnings[id(prompt)], logs)
    return {
        "index": index,
        "text": before + text,
        "finish_reason": _FINISH[hypothesis.finish_reason],
        "logprobs": logs,
    }


def _describe_tokens(
    body: CompletionsRequest, prompt: Prompt, row: GeneratedRow, start: int, first: int
) -> dict[str, Any]:
    """The generated tokens from an index on; their texts joined are the continuation."""
    generator, ids = prompt.generator, row.sampled.tokens
    continuation, decode_token = generator.continuations[0], generator.model.decode_token
    ends = [len(continuation.decode(ids[:n])) for n in range(len(ids) + 1)]
    whole = continuation.decode(ids)
    spans = [(ends[n], max(ends[n], ends[n + 1])) for n in range(first, len(ids))]
    top = None
    if body.logprobs:
        top = [
            {decode_token(id_): value for id_, value in some}
            for some in row.alternatives[first : len(ids)]
        ]
    return {
        "tokens": [whole[low:high] for low, high in spans],
        "token_logprobs": row.log_probs[first:],
        "top_logprobs": top,
        "text_offset": [start + low for low, _ in spans],
    }


def _prepend_prompt(prompt: Prompt, scores: list[float], logs: dict[str, Any]) -> dict[str, Any]:
    """Tokens of the prompt; the first has no log-probability, the others no alternatives."""
    model, ids = prompt.generator.model, prompt.generator.prompts[0]
    tokens = [model.decode_token(id_) for id_ in ids]
    values: list[float | None] = [None, *scores]
    text, offsets, end = prompt.generator.texts[0], [], 0
    for token in tokens:
        found = text.find(token, end)
        offsets.append(max(found, end) if found >= 0 else end)
        end = found + len(token) if found >= 0 else end
    top = logs["top_logprobs"]
    if top is not None:
        first = [
            None if value is None else {token: value}
            for token, value in zip(tokens, values, strict=True)
        ]
        top = [*first, *top]
    return {
        "tokens": [*tokens, *logs["tokens"]],
        "token_logprobs": [*values, *logs["token_logprobs"]],
        "top_logprobs": top,
        "text_offset": [*offsets, *logs["text_offset"]],
    }


async def stream_completion(
    engine: Engine, request: Request, body: CompletionsRequest, texts: list[str]
) -> EventStream:
    """Events with the chunks of the continuations of one prompt."""
    if len(texts) > 1:
        raise refuse(
            400, "invalid_input", "several prompts cannot be streamed",
            fix="send one prompt, or leave out stream",
        )  # fmt: skip
    stream = await engine.stream("generate", _make_values(body, texts[0]), model=body.model)
    return EventStream(
        _write_events(body, stream),
        stream.aclose,
        lambda error: render_failure(request.url.path, describe_error(error)),
    )


async def _write_events(
    body: CompletionsRequest, stream: WorkStream
) -> AsyncIterator[dict[str, Any]]:
    head, prompt = _make_head(body), stream.value
    if body.echo:
        for number in range(len(prompt.rows)):
            yield {**head, "choices": [_make_part(number, prompt.generator.texts[0])]}
    sent = [0] * len(prompt.rows)  # tokens whose log-probabilities were sent
    async for number, chunk, row in stream:
        part = _make_part(number, chunk)
        if _has_logs(body):
            part["logprobs"] = _describe_tokens(body, prompt, row, 0, sent[number])
            sent[number] = len(row.sampled.tokens)
        if row.is_finished:
            part["finish_reason"] = _FINISH[row.sampled.make_hypothesis().finish_reason]
        yield {**head, "choices": [part]}
    if body.stream_options and body.stream_options.include_usage:
        yield {**head, "choices": [], "usage": _count_usage([prompt])}


def _make_part(number: int, text: str) -> dict[str, Any]:
    return {"index": number, "text": text, "finish_reason": None, "logprobs": None}
