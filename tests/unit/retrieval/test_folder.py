"""A writer that dies, and readers while one writes."""

import os
import signal
import threading

import psycopg
import pytest

from cloze.errors import FolderError
from cloze.retrieval.folder import (
    REPLACED_FILE,
    DocumentIndex,
    IndexWriter,
    create_index,
    read_manifest,
    update_index,
)
from helpers import raises
from stores import (
    STORES,
    kill_indexing,
    list_best,
    make_manifest,
    make_vector,
    put,
    start_postgresql,
)

OLD = {n: (None, [f"{n} old"], {}) for n in "abc"}
NEW = {n: (None, [f"{n} new", "more"], {}) for n in "bcd"}


def list_texts(index):
    return sorted(hit.chunk.text for hit in index.search_vectors(make_vector("x"), 100))


@pytest.mark.parametrize("store", STORES)
def test_a_writer_that_dies_before_the_manifest_leaves_the_old_index(tmp_path, store):
    out = tmp_path / "index"
    with create_index(out, make_manifest(store)) as writer:
        put(writer, OLD)
    reader = DocumentIndex(out)
    manifest = reader.manifest
    dying = IndexWriter(manifest.open_store(out), manifest, out)
    put(dying, NEW)
    dying.delete(["a"])
    if store == "postgresql":
        dying.store.close()  # as the server does when the process is gone
    else:
        dying.store.commit()  # index.json is not written
    other = DocumentIndex(out)
    assert list_texts(reader) == list_texts(other) == ["a old", "b old", "c old"]
    other.close()
    with update_index(out) as writer:
        put(writer, {"a": NEW["b"]})
    reader.refresh()
    assert list_texts(reader) == ["b new", "b old", "c old", "more"]
    reader.store.drop()
    reader.close()


def test_a_new_index_that_fails_leaves_no_folder(tmp_path):
    def fail():
        with create_index(tmp_path / "i", make_manifest("exact")) as writer:
            put(writer, OLD)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_only_one_process_writes(tmp_path):
    with create_index(tmp_path / "i", make_manifest("exact")):
        pass
    first, second = update_index(tmp_path / "i"), update_index(tmp_path / "i")
    with first, raises(FolderError, "another process"), second:
        pass


@pytest.mark.parametrize("store", STORES)
def test_readers_see_one_version_while_another_is_written(tmp_path, store):
    out = tmp_path / "index"
    with create_index(out, make_manifest(store)) as writer:
        put(writer, {n: (None, ["version 0"], {}) for n in "abc"})
    done, seen = threading.Event(), []

    def read():
        index = DocumentIndex(out)
        while not done.is_set() or not seen or seen[-1] != {"version 3"}:
            index.refresh()
            try:
                seen.append({hit.chunk.text for hit in index.search_vectors(make_vector("q"), 9)})
            except FolderError:  # two versions behind: files are gone
                assert index.refresh()
        index.close()

    reader = threading.Thread(target=read)
    reader.start()
    for number in (1, 2, 3):
        with update_index(out) as writer:
            put(writer, {n: (None, [f"version {number}"], {}) for n in "abc"})
    done.set()
    reader.join(60)
    assert not reader.is_alive()
    assert all(len(one) == 1 for one in seen)
    last = DocumentIndex(out)
    expected = {n: (None, ["version 3"], {}) for n in "abc"}
    assert len(last.search_vectors(make_vector("q"), 9)) == len(
        list_best(expected, make_vector("q"), 9)
    )
    last.store.drop()
    last.close()


def test_a_writer_that_dies_after_a_server_has_committed_leaves_the_new_index(tmp_path):
    out = tmp_path / "index"
    with create_index(out, make_manifest("postgresql")) as writer:
        put(writer, OLD)
    manifest = read_manifest(out)
    dying = IndexWriter(manifest.open_store(out), manifest, out)
    put(dying, NEW)
    dying.store.commit()
    dying.store.close()  # index.json is not written
    reader = DocumentIndex(out)
    assert (reader.num_chunks, len(reader.documents)) == (7, 4)
    with update_index(out) as writer:
        put(writer, {"e": OLD["a"]})  # gets a number that no other document has
    reader.refresh()
    assert (reader.num_chunks, reader.manifest.num_documents) == (8, 5)
    reader.store.drop()
    reader.close()


def count_tables():
    with psycopg.connect(start_postgresql()) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename ~ '^cloze_'")
        return found.fetchone()[0]


def run_killed(monkeypatch, method, write):
    """Run `write` in a child that is killed when it calls a method."""
    if not (child := os.fork()):
        monkeypatch.setattr(method, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        try:
            write()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def write_old(out, *, force=False):
    with create_index(out, make_manifest("postgresql"), force=force) as writer:
        put(writer, OLD)


def drop(out):
    reader = DocumentIndex(out)
    reader.store.drop()
    reader.close()


def test_tables_of_a_new_index_that_was_killed_are_dropped(tmp_path, monkeypatch):
    out, before = tmp_path / "index", count_tables()
    # after the server has committed, before the folder appears
    sync = "cloze.checkpoint.atomic.sync_to_disk"
    run_killed(monkeypatch, sync, lambda: write_old(out))
    assert (out.exists(), count_tables()) == (False, before + 4)
    write_old(out)
    assert count_tables() == before + 4
    run_killed(monkeypatch, sync, lambda: write_old(out, force=True))
    assert count_tables() == before + 8
    write_old(out, force=True)
    assert count_tables() == before + 4
    drop(out)


def test_tables_of_a_replaced_index_are_dropped_after_a_kill(tmp_path, monkeypatch):
    out, before = tmp_path / "index", count_tables()
    write_old(out)
    method = "cloze.retrieval.pgvector_store.PgVectorStore.drop"
    run_killed(monkeypatch, method, lambda: write_old(out, force=True))
    assert ((out / REPLACED_FILE).exists(), count_tables()) == (True, before + 8)
    with update_index(out) as writer:
        put(writer, NEW)
    assert ((out / REPLACED_FILE).exists(), count_tables()) == (False, before + 4)
    # a file that names the tables of the index itself does no harm
    (out / REPLACED_FILE).write_bytes((out / "index.json").read_bytes())
    with update_index(out) as writer:
        put(writer, OLD)
    assert count_tables() == before + 4
    drop(out)


def test_kills_while_indexing_leave_the_old_or_the_new_version(tmp_path):
    outcomes = kill_indexing("exact", tmp_path, 2, "change")
    assert {name.partition(": ")[0] for name in outcomes} == {"create", "all"}
    assert sum(outcomes.values()) == 4
