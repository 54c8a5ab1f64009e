"""`push_to_hub` against a local server that answers like the hub: the requests are real HTTP."""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from huggingface_hub import constants

import cloze
from cloze.checkpoint.source import _DOWNLOADED
from cloze.errors import InputError, MissingExtraError
from cloze.report.model_card import CARD, build_short_card
from grams import text_model
from helpers import check_mentions, raises, tiny_model, word_model
from images import clip_model, diffusion_model
from translators import translator


class Hub(BaseHTTPRequestHandler):
    """Creates repositories and takes commits, all files inline; `token` may write."""

    def log_message(self, *_) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        if self.headers.get("Authorization") != "Bearer right":
            self.reply({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            server.created.append(json.loads(body))
            self.reply({"url": f"{server.address}/someone/films"})
        elif "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for one in json.loads(body)["files"]
            ]
            self.reply({"files": files})
        elif "/commit/" in self.path:
            server.commits.append((self.path, [json.loads(line) for line in body.splitlines()]))
            address = f"{server.address}/someone/films/commit/abc"
            self.reply({"commitUrl": address, "commitOid": "abc", "pullRequestUrl": None})
        else:  # checks of the card
            self.reply({"errors": [], "warnings": []})

    def reply(self, content: dict, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.created, server.commits = [], []
        server.address = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def hub(monkeypatch):
    with serve() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


def read_commit(lines: list) -> tuple[dict, dict[str, bytes]]:
    """The header of a commit, and the contents of its files."""
    header = next(one["value"] for one in lines if one["key"] == "header")
    files = [one["value"] for one in lines if one["key"] == "file"]
    return header, {one["path"]: base64.b64decode(one["content"]) for one in files}


def test_a_pushed_model_is_the_saved_one_with_a_card(hub, tmp_path):
    model = tiny_model("mlm")
    address = model.push_to_hub(
        "someone/films", private=True, commit_message="First version", token="right"
    )
    assert address == f"{hub.address}/someone/films"
    assert hub.created[0]["name"] == "films"
    assert hub.created[0]["organization"] == "someone"
    assert "private" in json.dumps(hub.created[0])  # the key depends on the client's version
    ((path, lines),) = hub.commits
    header, files = read_commit(lines)
    assert path.endswith("/someone/films/commit/main")
    assert header["summary"] == "First version"
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert cloze.load(tmp_path).fill("a [MASK]").best == model.fill("a [MASK]").best
    check_mentions(files[CARD].decode(), 'cloze.load("someone/films")', "fill-mask", "BertForMas")


def test_the_card_of_the_folder_and_a_branch(hub, tmp_path):
    folder = tiny_model("mlm").save(tmp_path / "model")
    (folder / CARD).write_text("# My card\n", encoding="utf-8")
    cloze.push_to_hub(folder, "someone/films", revision="next", token="right")
    ((path, lines),) = hub.commits
    assert path.endswith("/commit/next")
    assert read_commit(lines)[1][CARD] == b"# My card\n"
    assert "private" not in json.dumps(hub.created[0])


def test_a_wrong_token_is_an_error(hub):
    with raises(InputError, "someone/films", "401", fix=("hf auth login", "token")):
        tiny_model("mlm").push_to_hub("someone/films", token="wrong")
    with raises(InputError, "a/b/c"):
        tiny_model("mlm").push_to_hub("a/b/c", token="right")
    assert not hub.commits


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with raises(MissingExtraError, "hub", fix="cloze[hub]"):
        tiny_model("mlm").push_to_hub("someone/films")


VECTORS = {"words": ["a"], "vectors": np.eye(1, dtype=np.float32)}


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: text_model(2), ("generate", "text-generation", "library_name: cloze", "order 2")),
        (lambda: word_model(**VECTORS), ("similar", "1 tokens")),
        (lambda: translator("transformer"), ("translate", "translation")),
        (lambda: tiny_model("sequence", labels=("good", "bad")), ("classify", "good, bad")),
        (clip_model, ("zero-shot-image-classification", "embed(images=", "classify(images=")),
        (diffusion_model, ("text-to-image", 'draw("a red heart"', "library_name: cloze")),
        (lambda: diffusion_model(with_text=False), ("text-to-image", 'draw("a red heart"')),
    ],
)
def test_every_kind_of_model_has_a_card_and_can_be_downloaded(make, names, tmp_path):
    model = make()
    check_mentions(build_short_card("someone/films", model.info()), *names)
    for path in model.save(tmp_path / "model").iterdir():
        assert any(fnmatch(path.name, pattern) for pattern in _DOWNLOADED), path.name
