"""The queue and the thread of a server: every input once, in order, alone in its failure."""

import asyncio
import threading

from hypothesis import given
from hypothesis import strategies as st

from cloze.serve.batcher import Batcher
from cloze.serve.fair_queue import MAX_CANCELLED, FairQueue, Job

JOBS = st.lists(
    st.tuples(
        st.sampled_from("xyz"),  # key
        st.lists(st.integers(1, 20), min_size=1, max_size=8),  # tokens of the inputs
        st.booleans(),  # whether it is cancelled
    ),
    min_size=1,
    max_size=12,
)


def make_job(number, key, costs):
    return Job(key=key, inputs=[(number, n) for n in range(len(costs))], costs=costs)


@given(JOBS, st.integers(1, 30), st.data())
def test_each_input_is_taken_once_in_order_with_others_of_its_key(jobs, limit, data):
    queue, taken, pushed = FairQueue(), [], []
    waiting = [make_job(n, key, costs) for n, (key, costs, _) in enumerate(jobs)]
    cancelled = {n for n, (*_, is_cancelled) in enumerate(jobs) if is_cancelled}
    while waiting or queue:
        if waiting and (not queue or data.draw(st.booleans())):
            job = waiting.pop(0)
            queue.push(job)
            if len(pushed) in cancelled:
                queue.cancel(job)
            pushed.append(job)
            continue
        batch = queue.pop_batch(lambda _: limit)
        assert len({entry.job.key for entry in batch}) <= 1
        assert sum(entry.cost for entry in batch) <= limit or len(batch) == 1
        taken += [entry.value for entry in batch]
    assert not queue
    assert queue.tokens == 0
    expected = [
        (n, index)
        for n, (_, costs, is_cancelled) in enumerate(jobs)
        if not is_cancelled
        for index in range(len(costs))
    ]
    assert sorted(taken) == expected
    for number in range(len(jobs)):
        own = [index for n, index in taken if n == number]
        assert own == sorted(own)


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(1, 20)), max_size=60))
def test_requests_that_are_cancelled_take_no_memory(jobs):
    """Also if nothing of their key is computed meanwhile."""
    queue = FairQueue()
    stays = make_job(0, "x", [1, 1])
    queue.push(stays)
    for number, (key, size) in enumerate(jobs, 1):
        job = make_job(number, key, [1] * size)
        queue.push(job)
        queue.cancel(job)
        assert len(queue) <= 2 * 2 + 2 * (MAX_CANCELLED + 20)
    values = []
    while batch := queue.pop_batch():
        values += [entry.value for entry in batch]
    assert values == [(0, 0), (0, 1)]
    assert queue.tokens == len(queue) == 0


@given(st.integers(1, 50), st.integers(1, 10), st.lists(st.integers(1, 10), max_size=5))
def test_a_short_request_waits_for_no_long_one(long, cost, others):
    queue = FairQueue()
    queue.push(make_job(0, "x", [cost] * long))
    queue.pop_batch(lambda _: cost)
    for number, other in enumerate(others, 1):
        queue.push(make_job(number, "x", [other]))
    queue.push(make_job(99, "y", [1]))
    before = 0  # tokens of the long request that are taken before the short one
    while queue:
        (entry,) = queue.pop_batch(lambda _: 1)
        if entry.job.key == "y":
            break
        before += entry.cost if entry.value[0] == 0 else 0
    assert before <= cost


@given(JOBS, st.integers(1, 30))
def test_the_thread_answers_every_request_with_its_own_results(jobs, batch_tokens):
    """Inputs divisible by seven fail; requests of cancelled callers get nothing."""

    def run(key, values):
        if any(is_poison(value) for value in values):
            raise ValueError(key)
        return [(key, value) for value in values]

    def is_poison(value):
        return (3 * value[0] + value[1]) % 7 == 0

    async def ask(batcher, number, key, costs, is_cancelled):
        job = make_job(number, key, costs)
        task = asyncio.ensure_future(batcher.submit(key, job.inputs, costs))
        if is_cancelled:
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        found = await task
        for value, one in zip(job.inputs, found, strict=True):
            if is_poison(value):
                assert isinstance(one, ValueError)
            else:
                assert one == (key, value)

    async def ask_all():
        batcher = Batcher(run, batch_tokens=batch_tokens, max_tokens=1 << 20)
        batcher.start()
        try:
            requests = (ask(batcher, n, *job) for n, job in enumerate(jobs))
            await asyncio.wait_for(asyncio.gather(*requests), 30)
        finally:
            batcher.close()

    asyncio.run(ask_all())


class BrokenContinuations:
    """Texts that fail when they join, or at their first step."""

    def __init__(self):
        self.running = []

    def __bool__(self):
        return bool(self.running)

    def accepts(self, key):
        return key == "text"

    def room(self, _):
        return 100

    def start(self, entries):
        if any(entry.value == "start" for entry in entries):
            raise ValueError("start")
        self.running += entries

    def step(self):
        if any(entry.value == "step" for entry in self.running):
            raise ValueError("step")
        return [(entry, entry.value) for entry in self.clear()]

    def clear(self):
        cleared, self.running = self.running, []
        return cleared


def test_the_thread_survives_continuations_that_fail():
    async def ask():
        batcher = Batcher(
            lambda _, values: values, batch_tokens=10, max_tokens=100,
            continuations=BrokenContinuations(),
        )  # fmt: skip
        batcher.start()
        try:
            for value in ("start", "step", "fine"):
                (found,) = await asyncio.wait_for(batcher.submit("text", [value], [1]), 20)
                assert found == value if value == "fine" else isinstance(found, ValueError)
            assert await batcher.submit("other", [1], [1]) == [1]
        finally:
            batcher.close()

    asyncio.run(ask())


def test_batches_form_while_the_thread_is_busy():
    started, go_on, sizes = threading.Event(), threading.Event(), []

    def run(_, values):
        sizes.append(len(values))
        started.set()
        go_on.wait(20)
        return values

    async def ask():
        batcher = Batcher(run, batch_tokens=100, max_tokens=1000)
        batcher.start()
        first = asyncio.ensure_future(batcher.submit("x", [0], [1]))
        await asyncio.to_thread(started.wait, 20)
        others = [asyncio.ensure_future(batcher.submit("x", [n], [1])) for n in range(1, 9)]
        await asyncio.sleep(0)
        go_on.set()
        assert await asyncio.gather(first, *others) == [[n] for n in range(9)]
        batcher.close()

    asyncio.run(ask())
    assert sizes == [1, 8]
