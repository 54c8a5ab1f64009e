"""A batching FastAPI loop around sentence-transformers, as tutorials have it: for bench/serve.py.

    python bench/serve_baseline.py MODEL PORT

Requests wait in a queue. A task takes up to 32 texts of all that wait, or of those that arrive
within 2 milliseconds, and encodes them in a thread.
"""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from sentence_transformers import SentenceTransformer

MAX_TEXTS, WAIT_SECONDS = 32, 0.002
THREAD = ThreadPoolExecutor(1)  # torch has a pool of threads for each thread that calls it
Job = tuple[list[str], asyncio.Future[Any]]
Queue = asyncio.Queue[Job]


async def collect(queue: Queue) -> list[Job]:
    jobs = [await queue.get()]
    while sum(len(texts) for texts, _ in jobs) < MAX_TEXTS:
        try:
            jobs.append(await asyncio.wait_for(queue.get(), WAIT_SECONDS))
        except TimeoutError:
            break
    return jobs


async def work(queue: Queue, model: SentenceTransformer) -> None:
    while True:
        jobs = await collect(queue)
        texts = [text for some, _ in jobs for text in some]
        encode = partial(model.encode, batch_size=MAX_TEXTS, normalize_embeddings=True)
        vectors = await asyncio.get_running_loop().run_in_executor(THREAD, encode, texts)
        start = 0
        for some, future in jobs:
            if not future.done():
                future.set_result(np.asarray(vectors[start : start + len(some)]))
            start += len(some)


def create_app(folder: str) -> FastAPI:
    """The application."""
    model = SentenceTransformer(folder, device="cpu")
    queue: Queue = asyncio.Queue()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(work(queue, model))
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        body = await request.json()
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await queue.put((texts, future))
        rows = [base64.b64encode(row.tobytes()).decode() for row in await future]
        data = [
            {"object": "embedding", "index": index, "embedding": row}
            for index, row in enumerate(rows)
        ]
        content = orjson.dumps({"object": "list", "data": data, "model": body["model"]})
        return Response(content, media_type="application/json")

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), log_level="error")
