"""What Ray must do, in a process of its own: `python ray_checks.py FOLDER [ROWS]`.

It prints a line per check. With more rows it is the stress test.
"""

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
from pyarrow import parquet

import cloze
import cloze.tasks.index as index_task
from block_jobs import Doubled, Dying, Unloadable
from cloze.data import prepare, ray_workers
from cloze.data.document_chunks import DocumentChunks
from cloze.data.map_blocks import ExecutorOptions, map_blocks
from cloze.data.prepare import prepare_corpus
from cloze.errors import ClozeError, InputError
from cloze.retrieval.folder import DocumentIndex
from helpers import raises, tiny_model, tiny_tokenizer

ONE = ExecutorOptions(engine="ray", workers=1, use_gpu=False)
OPTIONS = ExecutorOptions(engine="ray", workers=2, use_gpu=False)
RAY = {"engine": "ray", "workers": 2, "device": "cpu"}


def check_dead_workers(folder: Path) -> None:
    read = []

    def blocks():
        for number in range(60):
            read.append(number)
            yield [number, number]

    results = map_blocks(Doubled(folder, fatal=(7,)), blocks(), OPTIONS)
    first = next(results)
    assert len(read) < 20, "few blocks are in memory"
    assert [first, *results] == [[2 * n, 2 * n] for n in range(60)]
    assert (folder / "died-7").exists()
    print("dead workers")


def check_errors(folder: Path) -> None:
    with raises(InputError, "block of 3", fix="mend"):
        list(map_blocks(Doubled(folder, broken=(3,)), ([n] for n in range(9)), ONE))
    with raises(InputError, "no model", fix="make one"):
        list(map_blocks(Unloadable(), [[0]], ONE))
    ray_workers.RETRIES = 1  # each is a new process
    with raises(ClozeError, "block 1", "2 times", fix="--workers"):
        list(map_blocks(Dying(folder), [[0]], ONE))
    ray_workers.RETRIES = 3
    print("errors")


def kill_worker(out: Path, after: int, killed: threading.Event) -> None:
    """Kill a worker as soon as `after` parts exist."""
    while len(list(out.glob("part-*.parquet"))) < after:
        time.sleep(0.01)
    for process in Path("/proc").glob("[0-9]*"):
        if (process / "cmdline").read_bytes().startswith(b"ray::BlockWorker"):
            os.kill(int(process.name), signal.SIGKILL)
            killed.set()
            return


def read_parts(path: Path) -> tuple[list[str], np.ndarray]:
    tables = [parquet.read_table(part) for part in sorted(path.glob("part-*.parquet"))]
    vectors = [one["embedding"].combine_chunks().flatten().to_numpy() for one in tables]
    texts = [text for one in tables for text in one["text"].to_pylist()]
    return texts, np.concatenate(vectors).reshape(len(texts), -1)


def check_embed(folder: Path, rows: int, block_rows: int) -> None:
    source, out, model = folder / "t.txt", folder / "there", folder / "model"
    tiny_model().save(model)
    source.write_text("".join(f"the cat {'a b ' * (n % 9)}{n}\n" for n in range(rows)))
    rest = {"block_rows": block_rows, "progress": False}
    here = cloze.process_files("embed", model, source, folder / "here", device="cpu", **rest)
    parts, killed = -(-rows // block_rows), threading.Event()
    thread = threading.Thread(target=kill_worker, args=(out, parts // 8 + 1, killed))
    thread.start()
    there = cloze.process_files("embed", model, source, out, **RAY, **rest)
    thread.join()
    assert killed.is_set()
    assert (there.rows, there.failed, there.parts) == (here.rows, 0, parts)
    texts, vectors = read_parts(folder / "here")
    assert texts == source.read_text().splitlines()
    found, ours = read_parts(out)
    assert found == texts, "every row once, in order"
    np.testing.assert_allclose(ours, vectors, atol=1e-6, rtol=0)
    print("a worker killed while embedding")
    (out / "part-000001.parquet").unlink()
    assert (
        cloze.process_files("embed", model, source, out, device="cpu", **rest).reused == parts - 1
    )
    print("parts of the other engine")
    if rows <= 2000:
        return
    cloze.process_files("embed", model, source, folder / "there.npy", **RAY, **rest)
    np.testing.assert_allclose(np.load(folder / "there.npy"), vectors, atol=1e-6, rtol=0)
    print("one file")


def check_corpus(folder: Path) -> None:
    source = folder / "corpus.jsonl"
    source.write_text("".join(f'"{"the cat sat . " * 40} {n}"\n' for n in range(800)))
    prepare.DocumentChunks = partial(DocumentChunks, min_bytes=1 << 16)  # several shards
    here = prepare_corpus(source, tiny_tokenizer(), folder / "corpus-here", workers=1)
    there = prepare_corpus(
        source, tiny_tokenizer(), folder / "corpus-there", workers=2, engine="ray"
    )
    assert len(list((folder / "corpus-there").rglob("*.safetensors"))) > 3
    assert (there.digest, there.summary) == (here.digest, here.summary)
    print("corpus")


def check_index(folder: Path) -> None:
    rows = [{"id": n, "title": "a cat", "text": "The dog ran far. " * (n % 5)} for n in range(300)]
    index_task._BLOCK_ROWS = 20
    stores = {}
    for name, options in {"local": {}, "ray": RAY}.items():
        made = cloze.index(
            folder / "model", rows, folder / f"index-{name}", store="exact", **options
        )
        assert (made.added, made.num_documents) == (300, 300)
        stores[name] = DocumentIndex(folder / f"index-{name}")
    assert stores["ray"].documents == stores["local"].documents
    here, there = (stores[name].store._segments[0] for name in ("local", "ray"))
    assert there.read_chunks() == here.read_chunks()
    np.testing.assert_allclose(there.vectors, here.vectors, atol=1e-6, rtol=0)
    before = (folder / "index-ray" / "index.json").read_bytes()
    changed = [{"id": n, "text": "new"} for n in range(40)]
    again = cloze.index(None, changed, folder / "index-ray", update=True, **RAY)
    assert (again.updated, again.num_documents) == (40, 300)
    assert (folder / "index-ray" / "index.json").read_bytes() != before
    print("index")


def main(folder: Path, rows: int = 2000, block_rows: int = 50) -> None:
    from cloze.data.ray_workers import _connect, _import_ray

    with _connect(_import_ray(OPTIONS), OPTIONS):
        check_dead_workers(folder)
        check_errors(folder)
        check_embed(folder, rows, block_rows)
        check_corpus(folder)
        check_index(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
