"""Fine-tuning over HTTP: a real job, and every way in which one ends."""

import itertools
import json
import signal
import sys
import time
from typing import get_args

import httpx
import pytest

import cloze
from cloze.errors import ConfigError
from cloze.serve.config import ServeConfig
from cloze.serve.finetune_jobs import FinetuneJob, JobStore
from cloze.serve.finetune_routes import FinetuneOptions, FinetuneRequest
from helpers import raises
from servers import run_server

KEY = "a-secret-key"
ROWS = "".join(
    json.dumps({"text": f"{one} {two} {three}", "label": "yes" if one in "abc" else "no"}) + "\n"
    for one, two, three in itertools.islice(itertools.permutations("abcdefghij", 3), 0, 720, 24)
)
# Behaves as its training data say: waits for SIGTERM, fails, or succeeds.
PROCESS = """
import json, pathlib, signal, sys, time
given = dict(one[2:].split("=", 1) for one in sys.argv if one.startswith("--") and "=" in one)
run = pathlib.Path(given["out"])
what = "resume" if "--resume" in sys.argv else pathlib.Path(given["train"]).read_text().strip()
def stop(*_):
    (run / "state" / "000001").mkdir(parents=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
run.mkdir(exist_ok=True)
row = {"kind": "train", "step": 1, "fraction": 0.5}
(run / "metrics.jsonl").write_text(json.dumps(row) + "\\n")
if what == "fail":
    print("error: the data in " + given["train"] + " are bad\\nfix: repair them", file=sys.stderr)
    sys.exit(1)
if what == "crash":
    raise ValueError("unexpected")
while what == "wait":
    time.sleep(0.01)
print(json.dumps({"folder": str(run), "score": 1.0, "what": what}))
"""


def make_store(folder, **options):
    script = folder.parent / "process.py"
    script.write_text(PROCESS)
    return JobStore(folder, command=(sys.executable, str(script)), **options)


def add_job(store, what, name):
    file, path = store.new_file("jsonl")
    path.write_text(what)
    job = FinetuneJob(
        id=name, name=f"model-{name}", task="classify", model="mlm", source="mlm", train=file,
        created_at=time.time(),
    )  # fmt: skip
    return store.create(job, [])


def wait_for(store, name, *statuses):
    while (status := store.find_status(store.find_job(name))) not in statuses:
        assert status in ("queued", "running", "cancelling"), status
        time.sleep(0.01)
    return status


def wait_for_metrics(store, name):
    while not store.read_metrics(store.find_job(name)):
        time.sleep(0.01)


def test_jobs_run_in_turn_and_their_end_is_read_from_their_files(tmp_path):
    store = make_store(tmp_path / "jobs")
    for name, what in (("a", "ok"), ("b", "fail"), ("c", "crash"), ("d", "ok")):
        add_job(store, what, name)
    assert [wait_for(store, name, "succeeded", "failed") for name in "abcd"] == [
        *("succeeded", "failed", "failed", "succeeded")
    ]
    error = store.read_error(store.find_job("b"))
    assert "files/" in error["message"]
    assert str(tmp_path) not in error["message"]  # no path of the server
    assert error["fix"] == "repair them"
    assert "unexpected" in store.read_error(store.find_job("c"))["message"]
    assert list(store.list_models()) == ["model-a", "model-d"]
    again = make_store(tmp_path / "jobs")  # another worker, or the server after a restart
    assert list(again.list_models()) == ["model-a", "model-d"]
    assert again.cancel("a") is None
    assert list(store.list_models()) == ["model-d"]


def test_a_running_job_is_cancelled_and_resumed(tmp_path):
    store, other = make_store(tmp_path / "jobs"), make_store(tmp_path / "jobs")
    add_job(store, "wait", "a")
    add_job(store, "ok", "b")
    wait_for_metrics(store, "a")
    assert other.find_status(other.find_job("a")) == "running"
    assert other.find_status(other.find_job("b")) == "queued"
    other.cancel("a")  # a worker that did not start it
    assert wait_for(store, "a", "cancelled") == "cancelled"
    wait_for(store, "b", "succeeded")
    store.resume("a")
    wait_for(store, "a", "succeeded")
    assert store.read_result(store.find_job("a"))["what"] == "resume"  # from its saved state
    add_job(store, "wait", "c")
    add_job(store, "ok", "d")
    store.cancel("d")  # before it began
    assert store.find_status(store.find_job("d")) == "cancelled"
    store.cancel("c")
    wait_for(store, "c", "cancelled")


def test_a_server_that_stops_interrupts_its_jobs(tmp_path):
    store = make_store(tmp_path / "jobs")
    add_job(store, "wait", "a")
    add_job(store, "ok", "b")
    wait_for_metrics(store, "a")
    store.close()
    assert store.find_status(store.find_job("a")) == "interrupted"
    assert store.find_status(store.find_job("b")) == "queued"
    again = make_store(tmp_path / "jobs")
    again.start_waiting()
    wait_for(again, "b", "succeeded")
    again.resume("a")
    wait_for(again, "a", "succeeded")


def test_a_process_that_is_killed_leaves_an_interrupted_job(tmp_path):
    store = make_store(tmp_path / "jobs")
    add_job(store, "wait", "a")
    wait_for_metrics(store, "a")
    (process,) = store._processes.values()
    process.send_signal(signal.SIGKILL)
    assert wait_for(store, "a", "interrupted") == "interrupted"


def test_files_jobs_and_names_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.serve.finetune_jobs.MAX_WAITING", 1)
    store = make_store(tmp_path / "jobs")
    first = add_job(store, "wait", "a")
    add_job(store, "ok", "b")
    for arguments, status in ((("ok", "c"), 429), (("ok", "b"), 429)):
        with pytest.raises(Exception, match=r"waiting|already") as caught:
            add_job(store, *arguments)
        assert caught.value.failure.status == status
    with pytest.raises(Exception, match="used by the job") as caught:
        store.remove_file(first.train)
    assert caught.value.failure.status == 409
    store.cancel("b")
    with pytest.raises(Exception, match="already a model or a job") as caught:
        add_job(store, "ok", "b")
    assert caught.value.failure.status == 409
    monkeypatch.setattr("cloze.serve.finetune_jobs.MAX_KEPT", 2)
    with pytest.raises(Exception, match="already") as caught:
        store.new_file("csv")
    assert caught.value.failure.status == 429
    store.cancel("a")
    wait_for(store, "a", "cancelled")


def test_tasks_and_options_are_those_of_the_command():
    from cloze.cli.finetune import finetune
    from cloze.cli.flags import add_flags
    from cloze.make.recipe.finetune import TASKS

    assert get_args(FinetuneRequest.model_fields["task"].annotation) == TASKS

    flags = add_flags(finetune, "finetune").__signature__.parameters
    assert FinetuneOptions.model_fields.keys() <= flags.keys()


def test_fine_tuning_needs_a_key_and_is_off_by_default(folders, tmp_path):
    with raises(ConfigError, "HTTP", fix=("CLOZE_API_KEYS", "--allow-finetuning")):
        ServeConfig(finetuning_folder=str(tmp_path))
    with run_server({"mlm": folders["mlm"]}) as server:
        assert server.post("/api/finetune", {}).status_code in (404, 405)
        assert "/api/finetune" not in server.client.get("/openapi.json").json()["paths"]


@pytest.fixture(scope="module")
def trainer(folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetuning")
    with run_server(
        {"mlm": folders["mlm"]}, api_keys=(KEY,), finetuning_folder=str(folder),
        max_upload_bytes=10_000, max_body_bytes=2000,
    ) as server:  # fmt: skip
        yield server


def upload(server, content=ROWS, **options):
    answer = server.client.post("/api/finetune/files", content=content, **options)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_every_route_of_fine_tuning_needs_the_key(trainer):
    paths = trainer.client.get("/openapi.json").json()["paths"]
    routes = [
        (method, path.format(job="a", file="a"))
        for path, methods in paths.items()
        if path.startswith("/api/finetune")
        for method in methods
    ]
    assert len(routes) == 9
    with httpx.Client(base_url=trainer.url) as plain:
        for method, path in routes:
            assert plain.request(method, path).status_code == 401, path
            assert plain.request(method, path, headers={"Authorization": "Bearer x"}).is_error


def test_files_are_uploaded_as_they_arrive_up_to_a_limit(trainer):
    found = upload(trainer, "text,label\na,b\n", headers={"Content-Type": "text/csv"})
    assert found["format"] == "csv"
    assert found["bytes"] == 15
    assert upload(trainer, params={"format": "tsv"})["format"] == "tsv"
    assert upload(trainer, (b"x" * 1000 for _ in range(8)))["bytes"] == 8000  # over max_body_bytes
    before = trainer.client.get("/api/finetune/files").json()
    large = trainer.client.post("/api/finetune/files", content=b"x" * 20_000)
    assert large.status_code == 413
    assert trainer.client.post("/api/finetune/files", content=b"").status_code == 400
    assert trainer.client.get("/api/finetune/files").json() == before  # nothing is left of it
    gone = trainer.client.delete(f"/api/finetune/files/{found['id']}")
    assert gone.status_code == 200
    for name in (found["id"], "nothing", "..%2f..%2fetc"):
        assert trainer.client.delete(f"/api/finetune/files/{name}").status_code == 404


def test_requests_for_a_job_are_checked(trainer):
    file = upload(trainer)["id"]
    good = {"task": "classify", "model": "mlm", "train": file}
    for change, status in (
        ({"task": "fly"}, 400),
        ({"model": "other"}, 404),
        ({"train": "other"}, 404),
        ({"train": "../../etc/passwd"}, 404),
        ({"name": "../x"}, 400),
        ({"name": "mlm"}, 409),
        ({"options": {"out": "/etc"}}, 400),
        ({"options": {"lr": -1}}, 400),
    ):
        answer = trainer.post("/api/finetune", {**good, **change})
        assert answer.status_code == status, answer.text
    assert trainer.client.get("/api/finetune/nothing").status_code == 404


def test_a_fine_tuned_model_can_be_used_by_its_name(trainer):
    """The whole way, with a real process; then a job whose data are bad."""
    body = {"task": "classify", "model": "mlm", "train": upload(trainer)["id"], "name": "new"}
    created = trainer.post("/api/finetune", {**body, "options": {"epochs": 1, "seed": 3}})
    assert created.status_code == 201, created.text
    job = created.json()
    bad = {**body, "train": upload(trainer, '{"text": "a"}\n' * 20)["id"], "name": "bad"}
    failing = trainer.post("/api/finetune", bad).json()
    assert job["status"] == "running"
    assert failing["status"] == "queued"
    url = f"/api/finetune/{job['id']}/events"
    with trainer.client.stream("GET", url, timeout=120) as stream:
        lines = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    *rows, last = (json.loads(line) for line in lines[:-1])
    assert last["job"]["status"] == "succeeded", last
    assert {row["kind"] for row in rows} == {"train", "eval"}
    assert last["job"]["progress"]["fraction"] == 1.0
    assert last["job"]["scores"]["accuracy"] == last["job"]["result"]["scores"]["accuracy"]
    names = [one["name"] for one in trainer.client.get("/api/models").json()]
    assert names == ["mlm", "new"]
    assert "new" in {one["id"] for one in trainer.client.get("/v1/models").json()["data"]}
    found = trainer.post("/api/classify", {"model": "new", "text": "a b c"}).json()
    folder = trainer.app.state.jobs.list_models()["new"]
    assert found == cloze.classify(folder, "a b c").to_dict()
    url = f"/api/finetune/{failing['id']}"
    while (failed := trainer.client.get(url).json())["status"] in ("queued", "running"):
        time.sleep(0.05)
    assert failed["status"] == "failed"
    assert "label" in failed["error"]["message"]
    assert failed["error"]["fix"]
    gone = trainer.client.delete(f"/api/finetune/{job['id']}").json()
    assert gone["status"] == "deleted"
    assert trainer.post("/api/classify", {"model": "new", "text": "a"}).status_code == 404
    assert [one["name"] for one in trainer.client.get("/api/finetune").json()] == ["bad"]
