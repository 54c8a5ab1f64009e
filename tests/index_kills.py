"""Indexing that is killed, in a process of its own: `python index_kills.py STORE FOLDER KILLS`.

Each attempt is a child that is killed by SIGKILL at one of its calls of Python functions in the
packages that write, or with `random` at any time. What another child then finds must be the old
version or the new one, and the same command again must complete it. `change` tries only one change
of each kind; STORE may be the address of a PostgreSQL server.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

TRACED = ("cloze/retrieval/", "cloze/checkpoint/atomic", "cloze/files", "cloze/tasks/index")
FIRST = {f"d{n}": f"The cat {n} sat." for n in range(6)}
CHANGES = {  # documents that are put, ids that are deleted
    "add": ({"new": "A dog ran.", "other": "It slept."}, ()),
    "update": ({"d1": "A mat ran.", "d2": "The dog sat. It ran far."}, ()),
    "delete": ({}, ("d3", "d4")),
    "all": ({"d0": "A cat.", "next": "The mat."}, ("d5",)),
}


def run_index(model: Path, out: Path, store: str, change: str) -> None:
    """The command that is killed."""
    import cloze

    if change == "create":
        cloze.index(model, make_rows(FIRST), out, store=store, chunk_tokens=5, overlap=0)
        return
    put, deleted = CHANGES[change]
    known = {one.id for one in read_ids(out)}
    left = [one for one in deleted if one in known]  # the command may be repeated
    rows = make_rows(put) or None
    if rows or left:
        cloze.index(None, rows, out, update=bool(rows), delete=left)


def read_ids(out: Path) -> list:
    from cloze.retrieval.folder import DocumentIndex

    index = DocumentIndex(out)
    try:
        return list(index.documents.values())
    finally:
        index.close()


def make_rows(documents: dict[str, str]) -> list[dict[str, str]]:
    return [{"id": id_, "text": text} for id_, text in documents.items()]


def apply_change(documents: dict[str, str], change: str) -> dict[str, str]:
    put, deleted = CHANGES[change]
    return {id_: text for id_, text in (documents | put).items() if id_ not in deleted}


def read_contents(out: Path) -> dict[str, str] | None:
    """The texts of all documents by their ids, found by both searches; None without an index."""
    from cloze.retrieval.folder import DocumentIndex, is_index_folder

    if not is_index_folder(out):
        return None
    import numpy as np

    index = DocumentIndex(out)
    try:
        vector = np.full(index.manifest.size, index.manifest.size**-0.5, np.float32)
        words = ("cat", "dog", "mat", "it", "ran", "sat")
        found = [index.search_vectors(vector, 100), index.search_terms(words, 100)]
        both = [
            {(one.chunk.document, one.chunk.number): one.chunk for one in some} for some in found
        ]
        assert both[0] == both[1], "vectors and terms are of one version"
        assert index.num_chunks == len(both[0])
        texts: dict[str, str] = {one.id: "" for one in index.documents.values()}
        for number, chunk in sorted(both[0].items()):
            texts[index.documents[number[0]].id] += f" {chunk.text}"
        return {id_: text.strip() for id_, text in texts.items()}
    finally:
        index.close()


def in_child(function, *arguments, kill_at: int | None = None, kill_after: float | None = None):
    """The result of a function in a child, its number of calls and seconds; None if killed."""
    read, write = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            import_store(arguments)
            os.write(write, b"\n")
            begin = time.monotonic()
            counter = count_calls(kill_at) if function is run_index else [0]
            result = function(*arguments)
            sys.setprofile(None)
            seconds = time.monotonic() - begin
            os.write(write, json.dumps([result, counter[0], seconds]).encode())
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as stream:
        stream.readline()  # it has imported what it needs
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        text = stream.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child failed: {code}"
    return json.loads(text) if code == 0 else None


def import_store(arguments) -> None:
    """Import LanceDB, which starts threads and so is not imported before a process is forked."""
    if "lancedb" in arguments:
        import lancedb  # noqa: F401


def count_calls(kill_at: int | None) -> list[int]:
    counter, is_traced = [0], {}

    def profile(frame, event, _):
        code = frame.f_code
        if code not in is_traced:
            is_traced[code] = any(one in code.co_filename for one in TRACED)
        if event in ("call", "return") and is_traced[code]:
            counter[0] += 1
            if counter[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    return counter


def kill_changes(
    store: str,
    folder: Path,
    kills: int,
    *,
    at_random: bool = False,
    changes: Iterable[str] = CHANGES,
) -> None:
    """Kill each change `kills` times: at calls spread over it, or at random moments."""
    from helpers import tiny_model

    import_packages(store)
    model, rng, outcomes = folder / "model", random.Random(kills), Counter[str]()
    tiny_model("mlm").save(model)
    in_child(run_index, model, folder / "first", store, "create")
    for change in ("create", *changes):
        out = copy_index(model, folder / f"{change}-whole", store, change)
        _, calls, seconds = in_child(run_index, model, out, store, change)
        in_child(check_index, model, out, store, change)
        for number in range(kills):
            out = copy_index(model, folder / f"{change}-{number}", store, change)
            where = {"kill_at": round((number + rng.random()) / kills * calls)}
            if number == kills - 1:
                where = {"kill_at": calls - rng.randrange(9)}  # about when the change is visible
            if at_random:
                where = {"kill_after": rng.uniform(0, 1.5 * seconds)}
            in_child(run_index, model, out, store, change, **where)
            version, *_ = in_child(check_index, model, out, store, change)
            outcomes[f"{change}: {version}"] += 1
    print(json.dumps(outcomes, sort_keys=True))  # noqa: T201


def import_packages(store: str) -> None:
    """What LanceDB imports and may be imported before a process is forked."""
    if store == "lancedb":
        for name in ("lance_namespace", "pandas", "pydantic", "pyarrow.dataset"):
            import_module(name)


def copy_index(model: Path, out: Path, store: str, change: str) -> Path:
    """A folder for the change: a copy of the first index, or a new one on a server."""
    if change != "create" and "://" in store:
        in_child(run_index, model, out, store, "create")
    elif change != "create":
        shutil.copytree(out.with_name("first"), out)
    return out


def check_index(model: Path, out: Path, store: str, change: str) -> str:
    """Whether the old or the new version is there; the same command again completes it."""
    old = None if change == "create" else FIRST
    new = FIRST if change == "create" else apply_change(FIRST, change)
    found = read_contents(out)
    assert found in (old, new), (change, found)
    if change != "create" or found is None:
        run_index(model, out, store, change)
    assert read_contents(out) == new, change
    drop(out)
    return "old" if found == old else "new"


def drop(out: Path) -> None:
    from cloze.retrieval.folder import DocumentIndex

    index = DocumentIndex(out)
    index.store.drop()
    index.close()


if __name__ == "__main__":
    words = sys.argv[4:]
    only = {"changes": ["all"]} if "change" in words else {}
    kill_changes(
        sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), at_random="random" in words, **only
    )
