"""`/api/draw`: step by step, from images in base64, cancelled when the client leaves."""

import asyncio
import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

import cloze
from cloze.data.images.decode import decode_image, encode_png
from cloze.serve.batcher import Batcher, SeveralContinuations
from cloze.serve.drawing import DrawingKey, DrawingSteps, make_drawing
from images import diffusion_model

SIZE = 16
BODY = {"model": "pictures", "text": "a b", "steps": 4, "samples": 2, "seed": 3}


def to_base64(content):
    return base64.b64encode(content).decode()


def read_events(server, body):
    with server.client.stream("POST", "/api/draw", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert answer.status_code == 200
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def pixels_of(picture):
    return decode_image(base64.b64decode(picture["png"]), "x")


def test_a_stream_has_the_images_after_each_step(server, models):
    *steps, last = read_events(server, {**BODY, "stream": True})
    assert [(event["step"], event["steps"]) for event in steps] == [(n, 4) for n in range(1, 5)]
    seen = []
    expected = cloze.draw(
        models["pictures"], "a b", steps=4, samples=2, seed=3,
        on_step=lambda _, __, images: seen.append(images),
    )  # fmt: skip
    assert last["result"] == json.loads(json.dumps(expected.to_dict()))
    for event, images in zip(steps, seen, strict=True):
        assert [one["seed"] for one in event["pictures"]] == [3, 4]
        for one, pixels in zip(event["pictures"], images, strict=True):
            assert np.array_equal(pixels_of(one), pixels)
    shown = read_events(server, {**BODY, "stream": True, "preview_every": 3})[:-1]
    assert [event["step"] for event in shown] == [3, 4]
    assert server.post("/api/draw", {**BODY, "stream": True, "text": ["a"]}).status_code == 400


def test_an_image_to_start_from_and_a_mask(server, models):
    image = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
    mask = np.zeros_like(image)
    mask[:, SIZE // 2 :] = 255
    files = {"image": to_base64(encode_png(image)), "mask": to_base64(encode_png(mask))}
    found = server.post("/api/draw", {**BODY, **files, "strength": 0.5}).json()
    expected = cloze.draw(
        models["pictures"], "a b", steps=4, samples=2, seed=3, image=image, mask=mask, strength=0.5
    )
    assert found == json.loads(json.dumps(expected.to_dict()))
    steps = read_events(server, {**BODY, **files, "strength": 0.5, "stream": True})[:-1]
    assert [(event["step"], event["steps"]) for event in steps] == [(1, 2), (2, 2)]


def large_png():
    stream = io.BytesIO()
    Image.new("1", (5000, 5000)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"image": "~/picture.png"}, "base64"),
        ({"image": to_base64(b"no image")}, "not a readable image"),
        ({"image": to_base64(large_png())}, "pixels"),
        ({"image": "A" * (6 << 20)}, "image"),
        ({"mask": to_base64(large_png())}, "pixels"),
        ({"sampler": "magic"}, "sampler"),
        ({"sampler": "euler"}, "euler"),
        ({"steps": 0}, "steps"),
        ({"preview_every": 0}, "preview_every"),
        ({"strength": 2}, "strength"),
    ],
    ids=lambda one: str(one)[:20],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_are_refused(server, fields, problem, stream):
    if problem == "preview_every" and not stream:
        pytest.skip("it has no meaning without a stream")
    refused = server.post("/api/draw", {**BODY, **fields, "stream": stream})
    assert refused.status_code == 400, refused.text
    assert problem in refused.json()["error"]["message"]
    assert len(refused.content) < 2000


def test_other_work_is_done_between_steps_and_a_client_that_leaves_ends_the_drawing():
    model = diffusion_model()
    drawn = []

    async def run():
        batcher = Batcher(
            lambda _, inputs: inputs, batch_tokens=9, max_tokens=10**9,
            continuations=SeveralContinuations(DrawingSteps()),
        )  # fmt: skip
        batcher.start()
        long = make_drawing(model, ["a"], {"steps": 1000}, lambda step: drawn.append(step.number))
        key = DrawingKey("pictures")
        try:
            task = asyncio.create_task(batcher.submit(key, [long], [1]))
            while len(drawn) < 2:
                assert not task.done()
                await asyncio.sleep(0.001)
            assert await batcher.submit("other", [7], [1]) == [7]
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            short = make_drawing(model, ["a", "b"], {"steps": 2})
            (found,) = await batcher.submit(key, [short], [1])
            assert [one.text for one in found] == ["a", "b"]
            count = len(drawn)
            await batcher.submit("other", [7], [1])
            assert len(drawn) == count < 1000
        finally:
            batcher.close()

    asyncio.run(run())
