"""Work whose parts are sent to the client while the rest is computed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from cloze.serve.model_store import ServedModel


class WorkStream:
    """The events of a continuation (number of the sample, text, row) or of a drawing (a step)."""

    def __init__(
        self,
        served: ServedModel,
        value: Any,  # noqa: ANN401 - a `Prompt` or a `Drawing`
        events: "asyncio.Queue[Any]",
        task: "asyncio.Task[list[Any]]",
        stack: AsyncExitStack,
    ) -> None:
        self.served, self.value = served, value
        self._events, self._task, self._stack = events, task, stack

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (event := await self._events.get()) is not None:
            yield event
        for one in await self._task:
            if isinstance(one, BaseException):
                raise one

    async def aclose(self) -> None:
        """Stop computing, if the client has left, and give back the tokens."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()
