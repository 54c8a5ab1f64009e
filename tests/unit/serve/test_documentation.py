"""The examples of docs/serve.md, with a server."""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cloze.data.images.decode import encode_png
from cloze.serve.app import create_app
from cloze.serve.config import ServeConfig
from cloze.serve.errors_http import TEI_ROUTES
from cloze.serve.finetune_routes import FinetuneRequest
from cloze.serve.model_store import ModelStore
from document_examples import read_examples
from images import drawings
from servers import run_server

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/serve.md").read_text("utf-8")


@pytest.fixture(scope="module")
def documented(folders):
    sources = {"cloze-en": "cloze-en", "clip": folders["clip"]}
    sources |= {"ner": folders["tags"], "gpt": folders["gpt"], "emoji": folders["pictures"]}
    with run_server(sources) as server:
        yield server


def test_the_python_examples_run(documented):
    ran = 0
    for example in read_examples(TEXT):
        if example.kind != "python":
            continue
        code = example.text.replace("http://localhost:8000", documented.url)
        names: dict[str, object] = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "docs/serve.md", "exec"), names)
        assert printed.getvalue()
        for one in names.values():
            if hasattr(one, "close") and not isinstance(one, type):
                one.close()
        wrapper = getattr(names.get("client"), "_client_wrapper", None)
        if wrapper is not None:
            wrapper.httpx_client.httpx_client.close()
        ran += 1
    assert ran == 3


def test_the_curl_examples_are_accepted(documented):
    commands = re.findall(r"^curl (?!-H \"\$AUTH)(?!.*@-)(.*)$", TEXT, re.M)
    assert len(commands) == 6
    for command in commands:
        *_, address = [one for one in shlex.split(command) if one.startswith("localhost")]
        body = json.loads(shlex.split(command)[-1])
        answer = documented.post(address.removeprefix("localhost:8000"), body)
        assert answer.status_code == 200, answer.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_command_that_sends_an_image_runs(documented, tmp_path):
    (command,) = re.findall(r"^curl .* -d @- <<END\n.*\nEND$", TEXT, re.M)
    (tmp_path / "heart.png").write_bytes(encode_png(drawings(1)[0].content))
    command = command.replace("localhost:8000", documented.url)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=True)
    assert {one["label"] for one in json.loads(done.stdout)["labels"]} == {"a red heart", "a dog"}


def test_the_examples_of_fine_tuning_name_routes_and_fields(trainer_paths):
    commands = re.findall(r"^curl -H \"\$AUTH\" (.*)$", TEXT, re.M)
    assert len(commands) == 5
    for command in map(shlex.split, commands):
        (address,) = [one for one in command if one.startswith("localhost")]
        path = address.removeprefix("localhost:8000").replace("JOB", "{job}")
        methods = trainer_paths[path]
        method = "delete" if "DELETE" in command else "get" if "-N" in command else "post"
        assert method in methods
        if path == "/api/finetune":
            FinetuneRequest(**json.loads(command[-1]))


@pytest.fixture(scope="module")
def trainer_paths(folders, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("finetuning"))
    config = ServeConfig(api_keys=("a-secret-key",), finetuning_folder=folder)
    app = create_app(config, ModelStore({"mlm": str(folders["mlm"])}))
    app.state.engine.store.close()
    return app.openapi()["paths"]


def test_all_routes_are_documented(trainer_paths):
    paths = trainer_paths
    rows = re.search(r"## Routes\n\n(.*?)\n\n", TEXT, re.S)
    assert rows
    named = set(re.findall(r"[/\w{}]+", " ".join(re.findall(r"`([^`]+)`", rows[1]))))
    for path in paths:
        last = path.removeprefix("/api/")
        assert {path, last} & named or path in ("/v1/models/{model}", "/embed_sparse"), path
    assert set(TEI_ROUTES) <= {*paths}
